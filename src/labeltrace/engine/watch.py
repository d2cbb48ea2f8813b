"""Who is still there: ranks hold a line to each other, which closes when a process ends, however it ends.

A collective may wait for a dead process for minutes, and its error does not say whose fault it was. A closed line says
both at once: every rank has one to rank 0, and rank 0 passes on what it hears.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

CONNECT = 60.0  # seconds for all ranks to be on the line
GRACE = 15.0  # seconds from a rank's end until `alarm`; torchrun kills the others after 30


class Watch:
    """The lines of one rank.

    Args:
        rank: its number.
        lines: open connections by the rank at the other end.
    """

    def __init__(self, rank: int, lines: Mapping[int, socket.socket]) -> None:
        self.rank, self.lines = rank, dict(lines)
        self.gone: tuple[int, str] | None = None  # the first rank that ended too soon, and its last words
        self.alarm: Callable[[], None] | None = None  # called when this rank does not notice by itself
        self._news = threading.Condition()
        for peer in self.lines:
            threading.Thread(target=self._listen, args=(peer,), daemon=True).start()
        atexit.register(self.tell, None)
        os.register_at_fork(after_in_child=self._close)  # a child that outlives its rank must not hold its lines

    def tell(self, words: str | None) -> None:
        """Say why this rank ends before its time; None: all is well, it has finished."""
        self._say(self.rank, words)

    def wait(self, seconds: float) -> tuple[int, str] | None:
        """Return the first rank that ended too soon, and its last words; None if none did so within the time."""
        with self._news:
            self._news.wait_for(lambda: self.gone is not None, seconds)
        return self.gone

    def _listen(self, peer: int) -> None:
        well = False
        with contextlib.suppress(OSError, ValueError), self.lines[peer].makefile("r", encoding="utf-8") as file:
            for text in file:
                number, words = json.loads(text)
                well = well or words is None
                if words is not None:
                    self._hear(number, words)
        if not well:
            self._hear(peer, "")

    def _hear(self, number: int, words: str) -> None:
        with self._news:
            if self.gone is not None or number == self.rank:
                return
            self.gone = number, words
            self._news.notify_all()
        if self.rank == 0:
            self._say(number, words)
        timer = threading.Timer(GRACE, self._ring)
        timer.daemon = True
        timer.start()

    def _ring(self) -> None:
        if self.alarm is not None:
            self.alarm()

    def _say(self, number: int, words: str | None) -> None:
        data = (json.dumps([number, words]) + "\n").encode()
        for line in self.lines.values():
            with contextlib.suppress(OSError):
                line.sendall(data)

    def _close(self) -> None:
        for line in self.lines.values():
            with contextlib.suppress(OSError):
                os.close(line.detach())


def open_watch(rank: int, size: int, address: str, share: Callable[[Any], Any]) -> Watch | None:
    """Connect this rank; None where no line can be had: the run then goes on without.

    Args:
        rank: its number.
        size: how many ranks there are.
        address: where the others find rank 0.
        share: gives everyone what rank 0 passes to it.
    """
    if rank:
        port, token = share(None)
        try:
            line = socket.create_connection((address, port), CONNECT)
            line.sendall(json.dumps([token, rank]).encode() + b"\n")
            line.settimeout(None)
        except OSError:
            return None
        return Watch(rank, {0: line})
    lines: dict[int, socket.socket] = {}
    token = secrets.token_hex(16)
    with socket.create_server(("127.0.0.1" if address == "127.0.0.1" else "", 0), backlog=size) as server:
        share((server.getsockname()[1], token))
        server.settimeout(CONNECT)
        with contextlib.suppress(OSError):
            while len(lines) < size - 1:
                line = server.accept()[0]
                with contextlib.suppress(OSError, ValueError, TypeError):
                    line.settimeout(CONNECT)
                    said, number = json.loads(_first_line(line))
                    if said == token:
                        line.settimeout(None)
                        lines[number] = line
    return Watch(rank, lines)


def _first_line(line: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < 1000:
        piece = line.recv(1)
        if not piece:
            break
        data += piece
    return data
