"""Progress: the time that is left, and what is said where the output is no terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from labeltrace import progress
from labeltrace.progress import Bars, Pace


class Clock:
    """A clock that goes when it is told to."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock))
    return clock


def test_the_mean_pace_counts_down_between_two_epochs(clock):
    pace = Pace(10, 4)
    assert pace.left() is None
    clock.now += 60
    pace.move(5)
    assert pace.left() == "0:05:00"  # five epochs of a minute
    clock.now += 20
    assert pace.left() == "0:04:40"
    clock.now += 60
    pace.move(6)
    assert pace.left() == "0:04:40"  # 140 s for two epochs, four to go
    clock.now += 3600
    assert pace.left() == "0:00:00"


def test_the_first_epoch_is_judged_by_its_steps(clock):
    """Ten steps of 3 s in each of two phases; the first step also waits 30 s for what is done once."""
    pace = Pace(2, 0)
    clock.now += 33
    pace.step("A", 0.1)
    assert pace.left() is None
    clock.now += 3
    pace.step("A", 0.2)
    assert pace.left() == "≥ 0:00:57"  # two epochs of 30 s, of which 3 s are over
    clock.now += 24
    pace.step("A", 1.0)
    clock.now += 3
    pace.step("B", 0.1)
    clock.now += 3
    pace.step("B", 0.2)
    assert pace.left() == "≥ 0:01:27"  # two epochs of 30 s since the first step and 30 s for B, less 33 s
    pace.move(1)
    pace.step("A", 0.1)
    assert pace.left() == "0:01:06"  # the whole epoch took 66 s


def test_another_round_under_the_same_name_starts_the_clock_again(clock):
    pace = Pace(10, 0)
    clock.now += 10
    pace.move(10)
    pace.move(2)
    clock.now += 10
    pace.move(4)
    assert pace.left() == "0:00:30"


def lines(clock, steps, seconds):
    """What a run of 40 epochs says in its first, into a file."""
    said = io.StringIO()
    with Bars(Console(file=said, width=40)) as bars:
        bars.start("photos", 40, 0)
        for step in range(1, steps + 1):
            clock.now += seconds
            bars.step("warm-up A", step / steps, lambda: 2.5)
        bars.epoch({"epoch": 0, "loss": 2.0})
        bars.end()
    return said.getvalue().splitlines()


def test_a_slow_first_epoch_is_told_in_one_line(clock):
    first, second = lines(clock, steps=100, seconds=4)
    assert first == "photos: in epoch 1 of 40, warm-up A 3%  loss 2.500  ≥ 4:26:32 left"  # 40 × 400 s - 8 s
    assert second.startswith("photos: epoch 1/40  loss 2.000") and second.endswith("4:20:00 left")  # 39 × 400 s


def test_a_quick_first_epoch_says_nothing(clock):
    assert lines(clock, steps=100, seconds=0.01) == []


def test_a_terminal_shows_the_time_left_during_the_first_epoch(clock):
    drawn = io.StringIO()
    with Bars(Console(file=drawn, force_terminal=True, width=160)) as bars:
        bars.start("photos", 40, 0)
        for step in (1, 2):
            clock.now += 60
            bars.step("train", step / 10, lambda: 2.5)
        bars.progress.refresh()
    assert "≥ 6:39:00" in drawn.getvalue()  # 40 × 10 min, less the minute since the first step
