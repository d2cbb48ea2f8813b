"""Figure 3: right labels among samples of low and high relation drift, at equal loss posterior."""

from __future__ import annotations

from collections.abc import Sequence

from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.style import BLUE, ORANGE, bars, fitting, new_figure, percent_axis
from labeltrace.diagnostics.reliability import Row
from labeltrace.diagnostics.runs import strata_figures
from labeltrace.diagnostics.values import shown


def draw_strata(request: Request) -> Drawn:
    """Draw the drift strata of runs, each from its samples table or from a pass of its own."""
    request.at_most(4, "drift-strata")
    return strata_panels(
        request.names(), [strata_figures(run, request.pooling) for run in request.runs], request.pooling
    )


def strata_panels(names: Sequence[str], found: Sequence[list[Row]], pooling: str | None) -> Drawn:
    """Draw a panel per run: two bars for each stratum of the loss posterior, the AUROC of drift below."""
    figure = new_figure(5.6, 0.3 + 3.2 * len(found))
    rows: list[Row] = []
    axes = figure.subplots(len(found), 1, squeeze=False)[:, 0]
    for axis, name, word, strata in zip(axes, names, fitting(names, 44), found, strict=True):
        heights = {f"{kind} drift": [float(row[kind]) for row in strata] for kind in ("low", "high")}
        groups = [f"{row['stratum']}\nn = {row['n']:,}\n{shown(float(row['auroc']))}" for row in strata]
        bars(axis, groups, heights, (BLUE, ORANGE))
        percent_axis(axis, "observed label is right")
        axis.set(xlabel="stratum of the loss posterior; n; AUROC of low drift for a right label")
        how = f", {pooling} features" if pooling else ""
        axis.set_title(f"{word}{how}: n = {sum(int(row['n']) for row in strata):,}")
        rows += [{"run": name, "pooling": pooling or "table", **row} for row in strata]
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return Drawn(figure, rows)
