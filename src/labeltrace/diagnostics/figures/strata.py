"""Figure 3: right labels among samples of low and high relation drift, at equal loss posterior."""

from __future__ import annotations

from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.style import BLUE, ORANGE, bars, new_figure, percent_axis
from labeltrace.diagnostics.reliability import Row
from labeltrace.diagnostics.runs import strata_figures
from labeltrace.diagnostics.values import shown


def draw_strata(request: Request) -> Drawn:
    """Draw a panel per run: two bars for each stratum of the loss posterior, the AUROC of drift below."""
    request.at_most(4, "drift-strata")
    found = [strata_figures(run, request.pooling) for run in request.runs]
    figure = new_figure(5.6, 3.2 * len(found))
    rows: list[Row] = []
    names = request.names()
    for axis, name, strata in zip(figure.subplots(len(found), 1, squeeze=False)[:, 0], names, found, strict=True):
        heights = {f"{kind} drift": [float(row[kind]) for row in strata] for kind in ("low", "high")}
        groups = [f"{row['stratum']}\nn = {row['n']:,}\n{shown(float(row['auroc']))}" for row in strata]
        bars(axis, groups, heights, (BLUE, ORANGE))
        percent_axis(axis, "observed label is right")
        axis.set(xlabel="stratum of the loss posterior; n; AUROC of low drift for a right label")
        how = f", {request.pooling} features" if request.pooling else ""
        axis.set_title(f"{name}{how}: n = {sum(int(row['n']) for row in strata):,}")
        axis.legend(loc="upper left")
        rows += [{"run": name, "pooling": request.pooling or "table", **row} for row in strata]
    return Drawn(figure, rows)
