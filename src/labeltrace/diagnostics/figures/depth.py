"""Figure 2: gradients, prototypes and probes by depth, for several backbones and noise rates."""

from __future__ import annotations

import math
from typing import Any

from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.style import COLOURS, LINES, MARKERS, new_figure, per_cent, percent_axis
from labeltrace.diagnostics.reliability import Row
from labeltrace.diagnostics.runs import depth_figures, layer_mean
from labeltrace.diagnostics.values import DASH, PERCENT


def draw_depth(request: Request) -> Drawn:
    """Draw gradient sensitivity and flip rate by stage, and mean probe accuracy by noise rate."""
    runs = [
        depth_figures(run, batches=request.batches, probe_labels=request.probe_labels, progress=request.progress)
        for run in request.runs
    ]
    figure = new_figure(10.2, 3.4)
    gradients, flips, probes = figure.subplots(1, 3)
    models = list(dict.fromkeys(str(rows[0]["model"]) for rows in runs))
    rates = sorted({_rate(rows) for rows in runs})
    for rows in runs:
        colour, sign = models.index(str(rows[0]["model"])), rates.index(_rate(rows))
        look = {
            "color": COLOURS[colour % len(COLOURS)],
            "marker": MARKERS[sign % len(MARKERS)],
            "linestyle": LINES[sign % len(LINES)],
            "label": f"{rows[0]['model']}, {_rate(rows)} % wrong",
        }
        gradients.plot([float(row["gradient_sensitivity"]) for row in rows], **look)
        flips.plot(per_cent(row["flip_rate"] for row in rows), **look)
    for number, model in enumerate(models):
        _probe(probes, [rows for rows in runs if rows[0]["model"] == model], model, number)
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
    if not any(int(rows[0]["n_mislabelled"]) for rows in runs):
        flips.text(0.5, 0.5, DASH, transform=flips.transAxes, ha="center", fontsize=16)
    probes.legend()
    handles, labels = gradients.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))
    return Drawn(figure, [row for rows in runs for row in rows])


def _probe(axis: Any, runs: list[list[Row]], model: str, number: int) -> None:
    points = sorted((_rate(rows), PERCENT * layer_mean(rows, "probe_accuracy")) for rows in runs)
    rates, values = zip(*points, strict=True)
    axis.plot(rates, values, color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)], label=model)
    for rate, value in points:
        if not math.isnan(value):
            axis.annotate(f"{value:.1f}", (rate, value), (0, 5), textcoords="offset points", ha="center", fontsize=7)
    axis.margins(x=0.15, y=0.2)


def _rate(rows: list[Row]) -> int:
    return round(PERCENT * float(rows[0]["wrong_labels"]))


def _counts(runs: list[list[Row]], column: str, what: str) -> str:
    """Say n of a panel: one number, or from the smallest to the largest of its curves."""
    values = sorted({int(rows[0][column]) for rows in runs})
    return f"n = {'–'.join(f'{value:,}' for value in dict.fromkeys((values[0], values[-1])))} {what}"
