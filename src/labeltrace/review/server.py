"""The review page and what it asks for, served on the loopback address of this machine."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from labeltrace.audit import class_names
from labeltrace.audit.decisions import KEEP, RELABEL, TRUST_LABEL, TRUST_SUGGESTION
from labeltrace.audit.samples import decided_by
from labeltrace.diagnostics.runs import Run
from labeltrace.errors import InputError
from labeltrace.review.merge import reviewed_diff
from labeltrace.review.pictures import Pictures
from labeltrace.review.queue import DECISIONS, DOUBTED, Queue, Selection
from labeltrace.review.similar import Similar
from labeltrace.review.store import SKIP, Event, Store

HOST = "127.0.0.1"
CLOSING = 2  # seconds that open connections get when the server ends


class ReviewServer:
    """The review page of a run; `serve` answers until it is stopped.

    Args:
        run: finished, with its data where they were.
        host: loopback address to listen at.
        port: to listen at; 0 takes a free one.
        trust: decide the samples anew by these thresholds for label and suggestion; None leaves what the run says.

    Raises:
        InputError: no samples table, no data, another host than this machine, a port that is taken.
    """

    def __init__(
        self,
        run: Run,
        *,
        host: str = HOST,
        port: int = 0,
        trust: tuple[float, float] | None = None,
    ) -> None:
        try:
            import fastapi  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as error:
            raise InputError(f"{error.name} is not installed: pip install 'labeltrace[review]'") from None
        self.host = loopback(host)
        self.run, self.table = run, decided_by(run.samples, trust)
        self.trust = trust or (TRUST_LABEL, TRUST_SUGGESTION)
        split = run.train
        if not torch.equal(run.column("observed").long(), split.labels):
            raise InputError(f"{run.folder.samples}: not the samples of this run's data; train the run again")
        self.classes, self.queue = class_names(self.table), Queue(self.table)
        self.pictures = Pictures(split)
        self.similar = Similar(run, self.pictures)
        self.token, self.version = secrets.token_urlsafe(32), secrets.token_hex(4)
        self._socket = _listen(self.host, port)
        self.port: int = self._socket.getsockname()[1]
        try:
            self.store = Store(run.folder.review, self.table)
        except InputError:
            self._socket.close()
            raise

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{_bracketed(self.host)}:{self.port}/?token={self.token}"

    def app(self) -> Any:
        """Return the ASGI application, guarded."""
        from labeltrace.review.guard import Guard
        from labeltrace.review.routes import routes

        names = {"127.0.0.1", "localhost", _bracketed(self.host)}
        hosts = {f"{name}:{self.port}" for name in names} | (names if self.port == 80 else set())
        return Guard(routes(self), frozenset(hosts), self.token, f"labeltrace-review-{self.port}")

    def serve(self, ready: Callable[[], object] = lambda: None) -> None:
        """Answer requests until Ctrl-C; `ready` is called when a browser may come."""
        import uvicorn

        config = uvicorn.Config(
            self.app(), lifespan="off", log_level="warning", access_log=False, server_header=False,
            timeout_graceful_shutdown=CLOSING,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        ready()  # the socket is listening: a browser that is quicker than the server waits
        try:
            with contextlib.suppress(KeyboardInterrupt):
                self._server.run(sockets=[self._socket])
        finally:
            self.close()

    def stop(self) -> None:
        """End `serve`, from another thread."""
        self._server.should_exit = True

    def close(self) -> None:
        """Let go of the port and of the file of decisions."""
        self._socket.close()
        self.store.close()

    # What the page shows

    def about(self) -> dict[str, Any]:
        """Return what is the same for all samples: names, classes, how many samples of each decision."""
        counts = Counter(self.queue.decision.tolist())
        counts[DOUBTED], counts["all"] = len(self.queue) - counts[KEEP], len(self.queue)
        return {
            "run": self.run.name,
            "classes": self.classes,
            "decisions": {name: counts[name] for name in DECISIONS},
            "images": self.pictures.are_images,
            "enough": dict(zip(("label", "suggestion"), self.trust, strict=True)),
        }

    def look(self, selection: Selection, row: int | None, move: str) -> dict[str, Any]:
        """Return the sample that a move leads to, and how far the review is."""
        decisions = self.store.decisions()
        place = self.queue.find(selection, decisions, row, move)
        held = {event.row: event for event in decisions}
        made = Counter(self._made(event) for event in decisions)
        return {
            **asdict(place),
            "ahead": [self.picture(other) for other in place.ahead] if self.pictures.are_images else [],
            "made": {name: made[name] for name in ("keep", "suggestion", "other", "skip")},
            "sample": None if place.row is None else self.sample(place.row, held.get(place.row)),
        }

    def sample(self, row: int, held: Event | None) -> dict[str, Any]:
        """Return what there is to say of one sample."""
        found = {name: self.table[name][row].as_py() for name in self.table.column_names if name != "truth"}
        return {
            "row": row,
            "id": found["id"],
            "observed": found["observed"],
            "suggested": found["suggested"],
            "decision": found["decision"],
            "why": why(found, self.trust[0]),
            "label_reliability": found["observed_reliability"],
            "suggestion_reliability": found["confidence"],
            "in_training": found["pseudo_reliability"],
            "held": None if held is None else {"action": held.action, "label": held.label, "time": held.time},
            "picture": self.picture(row) if self.pictures.are_images else None,
            "features": None if self.pictures.are_images else self.pictures.features(row),
        }

    def neighbours(self, row: int) -> dict[str, Any]:
        """Return the samples like one with their labels, or how far the features are."""
        found = self.similar.nearest(self.queue.check(row))
        names = ("observed", "suggested", "decision", "id")
        held = {event.row: event for event in self.store.decisions() if event.action != SKIP}
        rows = [
            {
                "row": other,
                **{name: self.table[name][other].as_py() for name in names},
                "held": self._label(held[other]) if other in held else None,
                "cosine": cosine,
                "picture": self.picture(other) if self.pictures.are_images else None,
            }
            for other, cosine in zip(found.rows or (), found.cosine or (), strict=True)
        ]
        return {**asdict(found), "rows": None if found.rows is None else rows, "samples": len(self.queue)}

    def picture(self, row: int) -> str:
        """Return where a picture is; the version keeps a browser from showing that of another run."""
        return f"pictures/{row}?v={self.version}"

    def decide(self, row: int, action: str, label: int | None, tab: str) -> dict[str, Any]:
        """Write down a decision and return its event; the label that is there already is a keep.

        Raises:
            InputError: no such sample, class or action.
        """
        self.queue.check(row)
        if (label is not None) != (action == RELABEL) or action not in (KEEP, RELABEL, SKIP):
            raise InputError(f"decision {action!r} with class {label}: expected keep, skip, or relabel with a class")
        name = None if label is None else self.queue.check_class(label)
        if label == self.table["observed"][row].as_py():
            action, name = KEEP, None
        return asdict(self.store.record(row, action, name, tab))

    def undo(self, tab: str) -> dict[str, Any] | None:
        """Take back the newest decision of a tab and return the event; None where there is none."""
        event = self.store.undo(tab)
        return None if event is None else asdict(event)

    def _label(self, event: Event) -> str:
        """The name of the class that a sample has after a decision."""
        return event.label or self.classes[self.table["observed"][event.row].as_py()]

    def _made(self, event: Event) -> str:
        if event.action != RELABEL:
            return event.action
        return "suggestion" if event.label == self.classes[self.table["suggested"][event.row].as_py()] else "other"

    def diff(self, only_reviewed: bool) -> bytes:
        """Return the label diff as a file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "labels.diff.csv"
            reviewed_diff(self.table, self.store.decisions(), only_reviewed=only_reviewed).write(path)
            return path.read_bytes()


def why(sample: dict[str, Any], trust_label: float = TRUST_LABEL) -> str:
    """Return in words why the run decided as it did; `decide` in the audit has the rule.

    >>> why({"decision": "relabel", "observed": 0, "suggested": 1})
    'The label is not reliable, the suggestion is.'
    """
    if sample["observed"] == sample["suggested"]:
        return "The suggestion is the label itself."
    if sample["decision"] == RELABEL:
        return "The label is not reliable, the suggestion is."
    if sample["observed_reliability"] >= trust_label:
        return "The suggestion differs, but the label looks reliable."
    return "The suggestion differs, and is not reliable enough to replace the label."


def loopback(host: str) -> str:
    """Return a host that is this machine itself, by its address; refuse all others.

    >>> loopback("localhost"), loopback("::1")
    ('127.0.0.1', '::1')
    >>> loopback("0.0.0.0")
    Traceback (most recent call last):
    labeltrace.errors.InputError: host 0.0.0.0: the review page is for this machine only; expected 127.0.0.1, ::1 ...
    """
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(HOST if host == "localhost" else host)
        if address.is_loopback:
            return str(address)
    raise InputError(
        f"host {host}: the review page is for this machine only; expected 127.0.0.1, ::1 or localhost "
        "(from elsewhere: ssh -L)"
    )


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise InputError(f"port {port}: expected 1 to 65535, or 0 for a free one")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)  # what Python adds to it says all of it again
        raise InputError(f"port {port} of {host}: {why}; leave --port out to take a free one") from None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
