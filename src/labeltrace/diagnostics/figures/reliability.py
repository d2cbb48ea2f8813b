"""Figure 4: reliability of pseudo targets, runs side by side."""

from __future__ import annotations

from typing import Any

from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.style import (
    COLOURS,
    HATCHES,
    MARKERS,
    bars,
    fitting,
    new_figure,
    per_cent,
    percent_axis,
    span,
)
from labeltrace.diagnostics.reliability import Row, mismatch_curve, reliability_table
from labeltrace.diagnostics.values import PERCENT, shown

SUBSETS = ("all", "low-clean", "high-confidence", "low-clean+noisy")  # panel (b); the CSV has observed-noisy too


def draw_reliability(request: Request) -> Drawn:
    """Draw four panels: by bin, accuracy of subsets, errors of high confidence, calibration error."""
    request.at_most(5, "reliability")
    names = request.names()
    found = [run.verdicts(request.score) for run in request.runs]
    curves = [mismatch_curve(v) for v in found]
    tables = [reliability_table(v, low=request.low, tau=request.tau) for v in found]
    figure = new_figure(9.4, 6.4)
    ((by_bin, subsets), (errors, calibration)) = figure.subplots(2, 2)
    signs = []  # of each run: its curve
    for number, curve in enumerate(curves):
        look = {"color": COLOURS[number], "marker": MARKERS[number], "clip_on": False}
        middle = [float(row["midpoint"]) for row in curve]
        signs += by_bin.plot(middle, per_cent(r["pseudo_accuracy"] for r in curve), "-", **look)
        by_bin.plot(middle, per_cent(r["observed_correct"] for r in curve), ":", **look, markerfacecolor="white")
    percent_axis(by_bin, "right")
    by_bin.set(xlabel=f"{request.score_label}, midpoint of bin", xlim=(0, 1))
    by_bin.set_title(
        f"(a) by bin, n = {_together([len(v) for v in found])}\nfull line: pseudo target, dotted: observed label"
    )
    index = {row["subset"]: number for number, row in enumerate(tables[0])}
    groups = [f"{subset}\nn = {_together([int(t[index[subset]]['n']) for t in tables])}" for subset in SUBSETS]
    accuracy = {
        name: [float(table[index[subset]]["pseudo_accuracy"]) for subset in SUBSETS]
        for name, table in zip(names, tables, strict=True)
    }
    bars(subsets, groups, accuracy, COLOURS)
    subsets.tick_params(axis="x", labelsize=7)
    percent_axis(subsets, "pseudo target is right")
    subsets.set_title("(b) accuracy of pseudo targets")
    confident = [int(table[index["high-confidence"]]["n"]) for table in tables]
    _single(errors, names, [float(table[0]["hc_error"]) for table in tables], confident)
    errors.set(ylabel="wrong among confident ones (%)", title=f"(c) errors at confidence ≥ {request.tau:g}")
    _single(calibration, names, [float(table[0]["ece"]) for table in tables], [len(v) for v in found])
    calibration.set(ylabel="expected calibration error (%)", title="(d) calibration error")
    _legend(figure, signs, subsets.containers, names)
    rows: list[Row] = []
    for name, table, curve in zip(names, tables, curves, strict=True):
        rows += [{"run": name, "panel": "subsets", **row} for row in table]
        rows += [{"run": name, "panel": "bins", **row} for row in curve]
    return Drawn(figure, rows)


def _single(axis: Any, names: list[str], values: list[float], counts: list[int]) -> None:
    """One bar per run with its number; lower is better."""
    for number, value in enumerate(values):
        height = 0.0 if value != value else PERCENT * value
        axis.bar(number, height, 0.6, color=COLOURS[number], hatch=HATCHES[number], edgecolor="white", linewidth=0.6)
        axis.annotate(shown(value, 2, PERCENT), (number, height), (0, 2), textcoords="offset points", ha="center")
    most, size = (22, 9) if len(names) < 3 else (12, 7)
    words = [f"{word}\nn = {n:,}" for word, n in zip(fitting(names, most), counts, strict=True)]
    axis.set_xticks(range(len(names)), words, fontsize=size)
    axis.set_xlim(-0.7, len(names) - 0.3)
    axis.set_ylim(0, max(1.0, 1.15 * max(axis.get_ylim())))


def _together(counts: list[int]) -> str:
    """The counts of two runs in their order; of more, from the smallest to the largest."""
    return span(counts) if len(counts) > 2 or len(set(counts)) == 1 else " / ".join(f"{value:,}" for value in counts)


def _legend(figure: Any, lines: list[Any], patches: list[Any], names: list[str]) -> None:
    """One legend for all panels: the line and the bar of each run."""
    from matplotlib.legend_handler import HandlerTuple

    figure.legend(
        [*zip(lines, patches, strict=True)], fitting(names, 40), handler_map={tuple: HandlerTuple(ndivide=None)},
        loc="outside lower center", ncols=min(len(names), 3), handlelength=4,
    )  # fmt: skip
