"""Who is told how a run goes. The library prints nothing: the command passes a reporter that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Reporter:
    """Hears of a run's progress; this one says nothing."""

    def reading(self, done: int, total: int) -> None:
        """Before a run begins: `done` of `total` image files have been read."""

    def start(self, name: str, epochs: int, done: int) -> None:
        """A run begins at epoch `done` of `epochs`."""

    def step(self, label: str, fraction: float, loss: Callable[[], float]) -> None:
        """A step is over: `fraction` of the phase `label` is done; `loss` reads the loss (a synchronisation)."""

    def epoch(self, record: Mapping[str, Any]) -> None:
        """An epoch is over; `record` is its line of metrics.jsonl."""

    def note(self, message: str) -> None:
        """Something a person should know."""

    def end(self) -> None:
        """The run is over, however it ended."""
