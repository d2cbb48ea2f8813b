"""A run's progress on the terminal: one bar per run with epoch, loss, accuracy and time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from labeltrace.engine import Reporter

LOSS_EVERY = 0.5  # seconds; reading the loss stops the host until the device is done


class _Epochs(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{int(task.completed)}/{int(task.total or 0)} epochs")


class Bars(Reporter):
    """Draws a bar per run; where the output is no terminal, prints a line now and then instead.

    Args:
        console: where to draw.
        every: without a terminal, seconds between two lines.
    """

    def __init__(self, console: Console, every: float = 10.0) -> None:
        self.console, self.every = console, every
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            _Epochs(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._read = self._said = 0.0

    def __enter__(self) -> Bars:
        self.progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.__exit__(kind, error, trace)

    def start(self, name: str, epochs: int, done: int) -> None:
        """Add the run's bar."""
        self._name, self._epochs, self._done = name, epochs, done
        self._loss, self._accuracy = "", ""
        self._task = self.progress.add_task(name, total=epochs, completed=done, state="")

    def step(self, label: str, fraction: float, loss: Callable[[], float]) -> None:
        """Show the phase and, twice a second, its loss."""
        now = time.monotonic()
        if not self.console.is_terminal or now - self._read < LOSS_EVERY:
            return
        self._read, self._loss = now, f"loss {loss():.3f}"
        self.progress.update(self._task, state=f"{label} {fraction:.0%}  {self._loss}  {self._accuracy}")

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Move the bar on."""
        self._done += 1
        self._loss = f"loss {record['loss']:.3f}"
        if record.get("test_accuracy") is not None:
            self._accuracy = f"test {record['test_accuracy']:.2%}"
        self.progress.update(self._task, completed=self._done, state=f"{self._loss}  {self._accuracy}")
        now = time.monotonic()
        if not self.console.is_terminal and (now - self._said > self.every or self._done == self._epochs):
            self._said = now
            self.console.print(f"{self._name}: epoch {self._done}/{self._epochs}  {self._loss}  {self._accuracy}")

    def note(self, message: str) -> None:
        """Print above the bars."""
        self.console.print(message)
