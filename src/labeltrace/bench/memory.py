"""How much memory a piece of work takes, its worker processes included."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from statistics import median

EVERY = 0.05  # seconds between two looks


class PeakMemory:
    """Looks at this process and its children while the block runs: `bytes` is the most they held together, `usual` the
    median of all looks.

    Memory that processes share is counted once (proportional set size). Processes are looked at one after another, so
    while one is born its memory may be counted twice: what only one look saw does not count. Where the system does not
    tell, both are None.

    >>> with PeakMemory() as peak:
    ...     block = bytearray(50_000_000)
    >>> peak.bytes is None or peak.bytes > 50_000_000
    True
    """

    def __enter__(self) -> PeakMemory:
        self.bytes: int | None = None
        self._looks: list[int] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()
        self._look()

    @property
    def usual(self) -> int | None:
        """The median of all looks."""
        return int(median(self._looks)) if self._looks else None

    def _watch(self) -> None:
        while not self._done.wait(EVERY):
            self._look()

    def _look(self) -> None:
        held = [_proportional(pid) for pid in _family(os.getpid())]
        known = [value for value in held if value is not None]
        if known:
            self._looks.append(sum(known))
            self.bytes = max(self.bytes or 0, min(self._looks[-2:]) if len(self._looks) > 1 else 0)


def _family(pid: int) -> list[int]:
    """Return a process and all below it."""
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        found.append(parent)
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                waiting += [int(child) for child in task.read_text().split()]
            except (OSError, ValueError):  # it has just ended
                continue
    return found


def _proportional(pid: int) -> int | None:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None
