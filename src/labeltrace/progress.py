"""Progress on the terminal: one bar per run with epoch, loss, accuracy and time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from labeltrace.engine import Reporter

LOSS_EVERY = 0.5  # seconds; reading the loss stops the host until the device is done
LINE_EVERY = 10.0  # seconds between two lines of a run where the output is no terminal


class Pace:
    """How long the rest of something takes, at the mean pace so far.

    Args:
        total: how many epochs (or images) there are.
        done: how many of them before the clock starts.
    """

    def __init__(self, total: int, done: int) -> None:
        self._total = total
        self._begin(done)

    def _begin(self, done: int) -> None:
        self._first = self._done = done
        self._began = self._moved = time.monotonic()
        self._label = ""
        self._stepped = self._phase_began = self._phase_from = 0.0  # the first step; the phase and where it was then
        self._epoch: float | None = None  # seconds of the first epoch, as far as its phases are known

    def move(self, done: int) -> None:
        """So many are done."""
        if done < self._done:  # another round under the same name
            self._begin(done)
        elif done > self._done:
            self._done, self._moved = done, time.monotonic()

    def step(self, label: str, fraction: float) -> None:
        """A step of an epoch is over; counts in the first, whose pace is not known yet."""
        if self._done > self._first:
            return
        now = time.monotonic()
        if label != self._label:
            self._stepped = self._stepped if self._label else now
            self._label, self._phase_began, self._phase_from = label, now, fraction
        elif fraction > self._phase_from:
            phase = (now - self._phase_began) / (fraction - self._phase_from)
            self._epoch = self._phase_began - self._stepped + phase

    def left(self) -> str | None:
        """Return the time left as h:mm:ss, once known; in the first epoch, which may have more phases, the least."""
        ahead, now = self._total - self._done, time.monotonic()
        if self._done > self._first:
            pace = (self._moved - self._began) / (self._done - self._first)
            return _hours(pace * ahead - (now - self._moved))
        if self._epoch is not None:
            return f"≥ {_hours(self._epoch * ahead - (now - self._stepped))}"
        return None


def _hours(seconds: float) -> str:
    return str(timedelta(seconds=max(0, round(seconds))))


class TimeLeft(ProgressColumn):
    """The time left of a bar's `Pace`; rich's own looks back 30 seconds, and an epoch may take an hour."""

    def render(self, task: Task) -> Text:
        """Return it."""
        pace: Pace = task.fields["pace"]
        return Text(pace.left() or "-:--:--", style="progress.remaining")


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
            TimeLeft(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}
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
        self._epoch, self._silent = done + 1, True
        self.show(name, epochs, done, "")

    def step(self, label: str, fraction: float, loss: Callable[[], float]) -> None:
        """Show the phase and, twice a second, its loss; where the output is no terminal, once in a slow first epoch."""
        now, pace = time.monotonic(), self._paces[self._name]
        pace.step(label, fraction)
        if self.console.is_terminal and now - self._read >= LOSS_EVERY:
            self._read = now
            state = f"{label} {fraction:.0%}  loss {loss():.3f}  {self._accuracy}"
            self.progress.update(self._tasks[self._name], state=state)
        elif not self.console.is_terminal and self._silent and now - self._said[self._name] > LINE_EVERY:
            left = pace.left()
            if left is not None:  # two steps of a phase are over
                self._said[self._name], self._silent = now, False
                state = f"{label} {fraction:.0%}  loss {loss():.3f}  {left} left"
                self.console.print(f"{self._name}: in epoch {self._epoch} of {self._epochs}, {state}", soft_wrap=True)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Move the bar on."""
        self._accuracy, self._silent = accuracy_of(record), False
        self.show(self._name, self._epochs, record["epoch"] + 1, state_of(record))

    def note(self, message: str) -> None:
        """Print above the bars."""
        self.console.print(message, soft_wrap=True, markup=False, highlight=False)

    def show(self, name: str, total: int, done: int, state: str, unit: str = "epochs") -> None:
        """Set the bar of a run, which is added when it is new."""
        if name not in self._tasks:
            pace = self._paces[name] = Pace(total, done)
            self._tasks[name] = self.progress.add_task(
                name, total=total, completed=done, state=state, unit=unit, pace=pace
            )
            self._said[name] = time.monotonic()
        self._paces[name].move(done)
        self.progress.update(self._tasks[name], completed=done, state=state)
        due = time.monotonic() - self._said[name] > LINE_EVERY
        if not self.console.is_terminal and state and (due or (done == total and unit == "epochs")):
            self._said[name] = time.monotonic()
            left = self._paces[name].left()
            more = f"  {left} left" if left is not None and done < total else ""
            self.console.print(f"{name}: {unit.removesuffix('s')} {done}/{total}  {state}{more}", soft_wrap=True)


def state_of(record: Mapping[str, Any]) -> str:
    """Return loss and accuracy of a metrics record, for a bar."""
    loss = "" if record.get("loss") is None else f"loss {record['loss']:.3f}"
    return f"{loss}  {accuracy_of(record)}".strip()


def accuracy_of(record: Mapping[str, Any]) -> str:
    """Return the test accuracy of a metrics record, for a bar; nothing where there is no test set."""
    return "" if record.get("test_accuracy") is None else f"test {record['test_accuracy']:.2%}"
