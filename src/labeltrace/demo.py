"""The demo: a noisy-label problem solved four ways on a laptop, with scikit-learn's digits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from rich import box
from rich.table import Table

from labeltrace.audit import read_samples
from labeltrace.diagnostics.runs import Run
from labeltrace.engine import RunConfig, RunFolder, load_config, plan
from labeltrace.report import draw_gallery, write_report
from labeltrace.runs import figures
from labeltrace.validation import build

#: name of the run → what it changes; everything else, noise and seed included, is the same
RUNS: Mapping[str, Mapping[str, object]] = {
    "cross-entropy": {"learner": "cross_entropy"},
    "rolr": {"learner": "rolr", "controller": "coupled"},
    "rolr+trace": {"learner": "rolr", "controller": "trace", "trace": {"structure": True}},
    "rolr+trace-no-structure": {"learner": "rolr", "controller": "trace", "trace": {"structure": False}},
}
SHOWN = "rolr+trace"


def demo_configs(rate: float, seed: int, epochs: int | None) -> dict[str, RunConfig]:
    """Return the four runs; they start with the slowest, so that two cores finish together."""
    shared = {"data": "digits", "noise": "symmetric", "rate": rate, "seed": seed, "epochs": epochs, "device": "cpu"}
    configs = {name: build(RunConfig, {**shared, **change}, "demo") for name, change in RUNS.items()}
    for config in configs.values():
        plan(config)  # a mistake shows now, before an earlier demo is replaced
    return dict(reversed(configs.items()))


def draw_demo(out: Path) -> Path:
    """Draw a dozen samples of the run that is shown; return the picture's path."""
    folder = out / SHOWN
    split = plan(load_config(RunFolder.open(folder).config, {})).dataset.train
    picture = out / "samples.png"
    draw_gallery(read_samples(folder), split, picture, f"digits with wrong labels, as {SHOWN} sees them")
    return picture


def report_demo(out: Path) -> Path:
    """Write the report of the four runs side by side; return its path."""
    file = out / "report.html"
    write_report([Run(out / name) for name in RUNS], file)
    return file


def demo_figures(out: Path) -> dict[str, dict[str, float]]:
    """Return the figures of the four runs, in the order of the table."""
    return {name: figures(out / name) for name in RUNS}


def demo_table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the table the demo ends with, in per cent."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column("\nper cent", no_wrap=True)
    columns = {
        "best": "test\nbest",
        "last": "test\nlast",
        "mean_last_10": "test\nlast 10",
        "precision": "found\nprecision",
        "recall": "found\nrecall",
        "suggestion_accuracy": "suggested\nright",
    }
    for heading in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in found.items():
        table.add_row(name, *("–" if math.isnan(row[key]) else f"{100 * row[key]:.1f}" for key in columns))
    return table
