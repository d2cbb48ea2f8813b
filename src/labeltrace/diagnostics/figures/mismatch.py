"""Figure 1: pseudo targets in bins of the cleanliness score; and the same with reference labels from a file."""

from __future__ import annotations

import math
from typing import Any

from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.style import (
    BLUE,
    ORANGE,
    VERMILION,
    bars,
    count,
    fitting,
    new_figure,
    per_cent,
    percent_axis,
)
from labeltrace.diagnostics.reliability import CUTS, Row, Verdicts, mismatch_curve, mismatch_regimes
from labeltrace.diagnostics.surrogate import surrogate_truth
from labeltrace.diagnostics.values import PERCENT
from labeltrace.errors import InputError


def draw_mismatch(request: Request) -> Drawn:
    """Draw, a row of two panels per run, how right pseudo targets are and how often they repeat a wrong label."""
    request.at_most(4, "mismatch")
    found = [(name, run.verdicts(request.score)) for name, run in zip(request.names(), request.runs, strict=True)]
    return _draw(found, request, "true")


def draw_surrogate(request: Request) -> Drawn:
    """Draw the same for runs whose truth is not known, with reference labels of some samples from a file."""
    request.at_most(4, "surrogate")
    if request.labels is None:
        raise InputError("figure surrogate needs --labels FILE, a table with the columns id and label")
    found = [
        (name, run.verdicts(request.score, surrogate_truth(run, request.labels)))
        for name, run in zip(request.names(), request.runs, strict=True)
    ]
    return _draw(found, request, "reference")


def _draw(found: list[tuple[str, Verdicts]], request: Request, reference: str) -> Drawn:
    figure = new_figure(8.6, 3.5 * len(found))
    rows: list[Row] = []
    words = fitting([name for name, _ in found], 34)
    for axes, (name, v), word in zip(figure.subplots(len(found), 2, squeeze=False), found, words, strict=True):
        curve, regimes = mismatch_curve(v), mismatch_regimes(v, request.regime, request.tau)
        _curve(axes[0], curve, request, reference)
        axes[0].set_title(f"(a) {word}\n{count(len(v))}, {int(v.noisy.sum()):,} of them with wrong labels")
        _regimes(axes[1], regimes, request.tau)
        axes[1].set_title(f"(b) {word}\nby regime{_gap(regimes)}")
        rows += [{"run": name, "panel": "bins", **row} for row in curve]
        rows += [{"run": name, "panel": "regimes", **row} for row in regimes]
    return Drawn(figure, rows)


def _curve(axis: Any, curve: list[Row], request: Request, reference: str) -> None:
    middle = [float(row["midpoint"]) for row in curve]
    axis.axvspan(CUTS[request.regime][1], 1, color="#EEEEEE", zorder=0)
    correct, follow = (per_cent(row[name] for row in curve) for name in ("pseudo_accuracy", "follow_noisy"))
    axis.plot(middle, correct, "o-", color=BLUE, clip_on=False, label=f"is the {reference} class")
    axis.plot(middle, follow, "s--", color=ORANGE, clip_on=False, label="repeats a wrong label")
    for x, row in zip(middle, curve, strict=True):
        axis.text(x, 106, f"{row['n']:,}", ha="center", va="bottom", fontsize=6, color="#555555")
    percent_axis(axis, "pseudo targets")
    axis.set(xlabel=f"{request.score_label}, midpoint of bin\n(n on top; high-clean in grey)", xlim=(0, 1))
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2, columnspacing=0.9, handlelength=2.2)


def _regimes(axis: Any, regimes: list[Row], tau: float) -> None:
    series = {
        "repeats a wrong label": "follow_noisy",
        "is right": "pseudo_accuracy",
        f"is wrong, confidence ≥ {tau:g}": "hc_wrong_joint",
    }
    heights = {name: [float(row[column]) for row in regimes] for name, column in series.items()}
    groups = [f"{row['regime']}\nn = {row['n']:,}\n({row['n_noisy']:,} wrong)" for row in regimes]
    bars(axis, groups, heights, (ORANGE, BLUE, VERMILION))
    percent_axis(axis, "pseudo targets")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=3, columnspacing=0.9, handlelength=1.4)


def _gap(regimes: list[Row]) -> str:
    """How much oftener a pseudo target repeats a wrong label than it is right, among high-clean samples."""
    gap = float(regimes[-1]["follow_noisy"]) - float(regimes[-1]["pseudo_accuracy"])
    return "" if math.isnan(gap) else f"; gap at high {PERCENT * gap:+.1f} points"
