"""The reliability landscape: accuracy of pseudo targets over both reliabilities, runs side by side."""

from __future__ import annotations

import math
from typing import Any

from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.style import fitting, new_figure
from labeltrace.diagnostics.landscape import BINS, Landscape, landscape, low_observed_high_pseudo
from labeltrace.diagnostics.reliability import Row
from labeltrace.diagnostics.runs import Run
from labeltrace.diagnostics.values import PERCENT, shown


def draw_landscape(request: Request) -> Drawn:
    """Draw a grid per run; cells show accuracy in per cent and n, cells of few samples are blank."""
    request.at_most(3, "landscape")
    figure = new_figure(0.7 + 3.5 * len(request.runs), 3.9)
    grids = figure.subplots(1, len(request.runs), squeeze=False)[0]
    rows: list[Row] = []
    image = None
    names = request.names()
    for axis, name, word, run in zip(grids, names, fitting(names, 32), request.runs, strict=True):
        v = run.verdicts(request.score)
        label, pseudo = _pseudo(run)
        pseudo = pseudo[run.truth >= 0]
        found = landscape(v.score, pseudo, v.ok)
        corner = low_observed_high_pseudo(v, pseudo, tau=request.tau)
        image = _grid(axis, found)
        words = [shown(float(corner[column]), 1, PERCENT) for column in ("pseudo_accuracy", "hc_error")]
        axis.set_title(
            f"{word}\nn = {len(v):,}; low / high corner: n = {corner['n']:,},\n"
            f"{words[0]} % right, {words[1]} % of confident ones wrong"
        )
        axis.set(xlabel=request.score_label, ylabel=label)
        for y in range(BINS):
            for x in range(BINS):
                cell: Row = {"run": name, "observed_from": x / BINS, "pseudo_from": y / BINS}
                cell |= {"n": int(found.counts[y, x]), "pseudo_accuracy": float(found.accuracy[y, x])}
                rows.append(cell)
    figure.colorbar(image, ax=list(grids), label="pseudo target is right (%)", shrink=0.85)
    return Drawn(figure, rows)


def _pseudo(run: Run) -> tuple[str, Any]:
    """The pseudo reliability of TRACE; of a base method, which has none, the bare confidence."""
    if run.config.controller == "trace":
        return "pseudo-target reliability", run.column("pseudo_reliability")
    return "confidence of the pseudo target", run.column("confidence")


def _grid(axis: Any, found: Landscape) -> Any:
    values = PERCENT * found.accuracy.numpy()
    image = axis.imshow(values, origin="lower", cmap="cividis", vmin=0, vmax=PERCENT, extent=(0, 1, 0, 1))
    axis.grid(visible=False)
    axis.set(xticks=[n / BINS for n in range(BINS + 1)], yticks=[n / BINS for n in range(BINS + 1)])
    for y in range(BINS):
        for x in range(BINS):
            value, n = float(values[y, x]), int(found.counts[y, x])
            if math.isnan(value):
                continue
            colour = "white" if value < 55 else "black"
            at = ((x + 0.5) / BINS, (y + 0.5) / BINS)
            axis.text(*at, f"{value:.1f}\n{n:,}", ha="center", va="center", fontsize=6.5, color=colour)
    return image
