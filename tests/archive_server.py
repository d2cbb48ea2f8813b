"""A small archive, and a server on this machine that hands it out well or badly, as each test asks."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import socket
import struct
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from labeltrace.data.sets.download import ARCHIVES, Archive

NAME = "cifar10"
FOLDER = "cifar-10-batches-py"


def member(name: str, content: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    """One file for `packed`."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info, content


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """The bytes of a .tar.gz, the same at any time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def files(size: int = 20_000) -> dict[str, bytes]:
    """What the folder of a small dataset holds; bytes that do not get smaller when they are packed."""
    draw = random.Random(0)
    return {file: draw.randbytes(size) for file in (*ARCHIVES[NAME].files, "batches.meta")}


def official() -> bytes:
    """A good archive of `files()`."""
    folder = tarfile.TarInfo(FOLDER)
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    return packed((folder, b""), *(member(f"{FOLDER}/{file}", content) for file, content in files().items()))


def entry(content: bytes) -> Archive:
    """The table's entry for which `content` is the official archive."""
    return replace(ARCHIVES[NAME], md5=hashlib.md5(content).hexdigest(), size=len(content))


class Server(ThreadingHTTPServer):
    """Serves `content`; the n-th request goes wrong as the n-th entry of `faults` says, later ones go right."""

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = content
        self.faults: list[str] = []
        self.asked: list[str | None] = []  # the Range header of each request
        self.sent: list[int] = []  # the bytes of the archive in each answer
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{ARCHIVES[NAME].file}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, content = self.server, self.server.content
        fault, _, number = (server.faults.pop(0) if server.faults else "").partition(" ")
        asked = self.headers["Range"]
        server.asked.append(asked)
        place = len(server.sent)
        server.sent.append(0)
        if fault == "status":
            self.send_error(int(number))
            return
        if fault == "redirect":
            self.send_response(302)
            self.send_header("Location", server.url)
            self.end_headers()
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and fault != "ignore-range" else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        body = content[start:]
        self.send_response(206 if start else 200)
        if fault != "no-length":
            self.send_header("Content-Length", str(len(body)))
        if start:
            said = start + 1 if fault == "other-range" else start
            self.send_header("Content-Range", f"bytes {said}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        body = body[: int(number)] if number else body
        server.sent[place] = len(body)  # first: who has read all of it may look here at once
        self.wfile.write(body)
        if fault == "stall":
            server.over.wait(5)
        if fault == "reset":  # close() then sends RST instead of FIN
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(content: bytes) -> Iterator[Server]:
    """A server that runs meanwhile."""
    with Server(content) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
