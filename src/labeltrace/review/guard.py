"""Who may talk to the server: the browser that was given the address with the token, and nobody else.

- The Host header names the loopback address itself: a name that a stranger lets point here (DNS rebinding) is refused.
- A request that changes something comes from this page: its Origin header says so.
- Every request brings the token: once in the address, then in a cookie that no script reads and no other site sends.
- Answers may not be framed, sniffed or read by other sites, and load nothing from anywhere else. There is no CORS.
"""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
READS = ("GET", "HEAD")


class Guard:
    """Lets a request through to `app`, or answers 403.

    Args:
        app: behind the guard.
        hosts: values that the Host header may have.
        token: that every request must bring.
        cookie: name of the cookie that holds it; browsers share cookies between ports, so it names the port.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], token: str, cookie: str) -> None:
        self.app, self.hosts, self.token, self.cookie = app, hosts, token, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # there are no web sockets here
            return
        headers = Headers(scope=scope)
        brings = self._is_token(parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0])
        refusal = self._refusal(scope["method"], headers, brings)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.update(HEADERS)
                answer.setdefault("Cache-Control", "no-store")
                if brings and refusal is None:
                    value = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                    answer.append("Set-Cookie", value)
            await send(message)

        answer = self.app if refusal is None else PlainTextResponse(f"{refusal}\n", 403)
        await answer(scope, receive, guarded)

    def _refusal(self, method: str, headers: Headers, brings: bool) -> str | None:
        if headers.getlist("host") not in [[host] for host in self.hosts]:
            return "this page answers to the loopback address only"
        if method not in READS and headers.get("origin") != f"http://{headers['host']}":
            return "only the review page itself may change something"
        if not (brings or self._is_token(self._cookie(headers))):
            return "open the address that labeltrace review has printed; it holds a token"
        return None

    def _cookie(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "surrogateescape"), self.token.encode())
