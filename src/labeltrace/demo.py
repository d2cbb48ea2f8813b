"""The demo: a noisy-label problem solved four ways on a laptop, with scikit-learn's digits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from labeltrace.engine import Reporter, RunConfig
from labeltrace.report import draw_gallery
from labeltrace.runs import Run, run

#: name of the run → what it changes; everything else, noise and seed included, is the same
RUNS: Mapping[str, Mapping[str, object]] = {
    "cross-entropy": {"learner": "cross_entropy"},
    "rolr": {"learner": "rolr", "controller": "coupled"},
    "rolr+trace": {"learner": "rolr", "controller": "trace"},
    "rolr+trace-no-structure": {"learner": "rolr", "controller": "trace", "trace": {"structure": False}},
}


@dataclass(frozen=True)
class Demo:
    """Four finished runs, their picture and the seconds they took."""

    runs: dict[str, Run]
    picture: Path
    seconds: float


def demo(out: Path, *, rate: float, seed: int, epochs: int | None, reporter: Reporter) -> Demo:
    """Train the four runs into `out` (replacing an earlier demo there) and draw the picture."""
    started = time.perf_counter()
    runs: dict[str, Run] = {}
    for name, change in RUNS.items():
        config = RunConfig.model_validate(
            {"data": "digits", "noise": "symmetric", "rate": rate, "seed": seed, "epochs": epochs, **change}
        )
        runs[name] = run(config, out / name, overwrite=True, reporter=reporter)
    shown = runs["rolr+trace"]
    picture = out / "samples.png"
    split = shown.trained.plan.dataset.train
    draw_gallery(shown.samples, split, picture, "digits with wrong labels, as rolr+trace sees them", seed)
    return Demo(runs, picture, time.perf_counter() - started)


def results_table(runs: Mapping[str, Run]) -> Table:
    """Return the table the demo ends with."""
    table = Table(title_justify="left")
    table.add_column("run")
    for heading in (
        "test best",
        "test last",
        "test mean of last 10",
        "wrong labels: precision",
        "recall",
        "suggested: accuracy",
    ):
        table.add_column(heading, justify="right")
    for name, finished in runs.items():
        figures = finished.figures
        keys = ("best", "last", "mean_last_10", "precision", "recall", "suggestion_accuracy")
        table.add_row(name, *(f"{100 * figures[key]:.1f} %" for key in keys))
    return table
