"""Figure 2: gradients, prototypes and probes by depth, for several backbones and noise rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.style import (
    COLOURS,
    LINES,
    MARKERS,
    fitting,
    new_figure,
    per_cent,
    percent_axis,
    span,
)
from labeltrace.diagnostics.reliability import Row
from labeltrace.diagnostics.runs import depth_figures, layer_mean
from labeltrace.diagnostics.values import DASH, PERCENT


def draw_depth(request: Request) -> Drawn:
    """Measure every stage of runs and draw it."""
    return depth_panels(
        [
            {"run": name, **row}
            for name, run in zip(request.folders(), request.runs, strict=True)
            for row in depth_figures(
                run, batches=request.batches, probe_labels=request.probe_labels, progress=request.progress
            )
        ]
    )


def depth_panels(rows: Sequence[Row]) -> Drawn:
    """Draw gradient sensitivity and flip rate by stage, and mean probe accuracy by noise rate.

    Args:
        rows: of `depth_figures`, of several runs; "run" tells them apart.
    """
    runs = [[row for row in rows if row["run"] == name] for name in dict.fromkeys(row["run"] for row in rows)]
    series, rates = _series(runs), sorted({_rate(run) for run in runs})
    kinds = list(dict.fromkeys(series))
    words = dict(zip(kinds, fitting(kinds, 30), strict=True))
    figure = new_figure(10.2, 3.4)
    gradients, flips, probes = figure.subplots(1, 3)
    for kind, run in zip(series, runs, strict=True):
        colour, sign = kinds.index(kind), rates.index(_rate(run))
        look = {
            "color": COLOURS[colour % len(COLOURS)],
            "marker": MARKERS[sign % len(MARKERS)],
            "linestyle": LINES[sign % len(LINES)],
            "label": f"{words[kind]}, {_rate(run)} % wrong",
        }
        gradients.plot([float(row["gradient_sensitivity"]) for row in run], **look)
        flips.plot(per_cent(row["flip_rate"] for row in run), **look)
    for number, kind in enumerate(kinds):
        chosen = [run for run, its in zip(runs, series, strict=True) if its == kind]
        _probe(probes, chosen, words[kind], number)
    gradients.set(title=f"(i) gradient sensitivity\n{_counts(runs, 'n_batches', 'batches')}", xlabel="stage")
    gradients.set(ylabel="‖g noisy − g clean‖ / ‖g clean‖ (ratio)", ylim=(0, 1.06 * gradients.get_ylim()[1]))
    flips.set(title=f"(ii) prototype flipping\n{_counts(runs, 'n_mislabelled', 'wrong labels')}", xlabel="stage")
    percent_axis(flips, "nearer to the wrong prototype")
    probes.set(title=f"(iii) linear probe\n{_counts(runs, 'n_test', 'test samples')}")
    probes.set(xlabel="wrong labels (%)", ylabel="mean accuracy over stages (%)")
    probes.set(xticks=rates, ylim=(None, min(101, probes.get_ylim()[1])))
    stages = [str(row["stage"]) for row in max(runs, key=len)]
    for axis in (gradients, flips):
        axis.set_xticks(range(len(stages)), stages)
    if not any(int(run[0]["n_mislabelled"]) for run in runs):
        flips.text(0.5, 0.5, DASH, transform=flips.transAxes, ha="center", fontsize=16)
    handles, labels = gradients.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 3))
    return Drawn(figure, list(rows))


def _series(runs: list[list[Row]]) -> list[str]:
    """What a run's colour says: the first of model, method, both and name that tells runs of one rate apart."""
    found = [""]
    for columns in (["model"], ["method"], ["model", "method"], ["run"]):
        found = [", ".join(str(run[0][column]) for column in columns) for run in runs]
        if len({(kind, _rate(run)) for kind, run in zip(found, runs, strict=True)}) == len(runs):
            break
    return found


def _probe(axis: Any, runs: list[list[Row]], kind: str, number: int) -> None:
    points = sorted((_rate(rows), PERCENT * layer_mean(rows, "probe_accuracy")) for rows in runs)
    rates, values = zip(*points, strict=True)
    axis.plot(rates, values, color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)], label=kind)
    for rate, value in points:
        if not math.isnan(value):
            axis.annotate(
                f"{value:.1f}", (rate, value), (0, 6), textcoords="offset points", ha="center", fontsize=7,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.75},
            )  # fmt: skip
    axis.margins(x=0.15, y=0.2)


def _rate(rows: list[Row]) -> int:
    return round(PERCENT * float(rows[0]["wrong_labels"]))


def _counts(runs: list[list[Row]], column: str, what: str) -> str:
    """Say n of a panel: one number, or from the smallest to the largest of its curves."""
    return f"n = {span(int(rows[0][column]) for rows in runs)} {what}"
