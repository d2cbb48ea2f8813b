"""Progress on the terminal: one bar per run with epoch, loss, accuracy and time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from labeltrace.engine import Reporter

LOSS_EVERY = 0.5  # seconds; reading the loss stops the host until the device is done
LINE_EVERY = 10.0  # seconds between two lines of a run where the output is no terminal


class Bars(Reporter):
    """Draws a bar per run; where the output is no terminal, prints a line now and then instead.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.completed}/{task.total} {task.fields[unit]}"),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}
        self._read = 0.0
        self._accuracy = ""

    def __enter__(self) -> Bars:
        self.progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.__exit__(kind, error, trace)

    def reading(self, done: int, total: int) -> None:
        """Show how far the reading of image files is."""
        self.show("reading", total, done, "each image is decoded once" if done < total else "done", unit="images")

    def start(self, name: str, epochs: int, done: int) -> None:
        """Add the run's bar."""
        self._name, self._epochs, self._accuracy = name, epochs, ""
        self.show(name, epochs, done, "")

    def step(self, label: str, fraction: float, loss: Callable[[], float]) -> None:
        """Show the phase and, twice a second, its loss."""
        now = time.monotonic()
        if self.console.is_terminal and now - self._read >= LOSS_EVERY:
            self._read = now
            state = f"{label} {fraction:.0%}  loss {loss():.3f}  {self._accuracy}"
            self.progress.update(self._tasks[self._name], state=state)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Move the bar on."""
        self._accuracy = accuracy_of(record)
        self.show(self._name, self._epochs, record["epoch"] + 1, state_of(record))

    def note(self, message: str) -> None:
        """Print above the bars."""
        self.console.print(message, soft_wrap=True, markup=False, highlight=False)

    def show(self, name: str, total: int, done: int, state: str, unit: str = "epochs") -> None:
        """Set the bar of a run, which is added when it is new."""
        if name not in self._tasks:
            self._tasks[name] = self.progress.add_task(name, total=total, completed=done, state=state, unit=unit)
            self._said[name] = time.monotonic()
        self.progress.update(self._tasks[name], completed=done, state=state)
        due = time.monotonic() - self._said[name] > LINE_EVERY
        if not self.console.is_terminal and state and (due or (done == total and unit == "epochs")):
            self._said[name] = time.monotonic()
            self.console.print(f"{name}: {unit.removesuffix('s')} {done}/{total}  {state}")


def state_of(record: Mapping[str, Any]) -> str:
    """Return loss and accuracy of a metrics record, for a bar."""
    loss = "" if record.get("loss") is None else f"loss {record['loss']:.3f}"
    return f"{loss}  {accuracy_of(record)}".strip()


def accuracy_of(record: Mapping[str, Any]) -> str:
    """Return the test accuracy of a metrics record, for a bar; nothing where there is no test set."""
    return "" if record.get("test_accuracy") is None else f"test {record['test_accuracy']:.2%}"
