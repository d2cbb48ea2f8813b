"""Appendix B: a noisy network beside a clean one: CKA, class separation, P9 and checkpoint surgery."""

from __future__ import annotations

from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.style import COLOURS, HATCHES, MARKERS, fitting, new_figure, span
from labeltrace.diagnostics.reliability import Row
from labeltrace.diagnostics.runs import clean_figures, depth_figures, layer_mean
from labeltrace.diagnostics.surgery import VARIANTS
from labeltrace.diagnostics.values import shown
from labeltrace.errors import InputError


def draw_representation(request: Request) -> Drawn:
    """Draw four panels: CKA with the clean network, Fisher ratio and P9 by stage, and what surgery recovers."""
    request.at_most(5, "representation")
    if request.clean is None:
        raise InputError("figure representation needs --clean RUN, a run of the same network on clean labels")
    names = request.names()
    words = fitting(names, 36)
    figure = new_figure(9.4, 6.0 + 0.3 * len(names))
    ((alike, apart), (turned, repaired)) = figure.subplots(2, 2)
    rows: list[Row] = []
    width, samples, batches = 0.8 / len(names), 0, []
    upright = {"rotation": 90} if len(names) > 2 else {}  # numbers that have no room beside each other
    for number, (name, word, run) in enumerate(zip(names, words, request.runs, strict=True)):
        similar, operated = clean_figures(run, request.clean, request.progress)
        deep = depth_figures(run, batches=request.batches, progress=request.progress)
        samples = int(deep[0]["n_test"])
        batches.append(int(deep[0]["n_batches"]))
        stages = [str(row["stage"]) for row in deep]
        panels = ((alike, similar, "cka"), (apart, deep, "fisher_ratio"), (turned, deep, "gradient_projection"))
        for axis, table, column in panels:
            label = f"{word}, mean {shown(layer_mean(table, column), 3)}"
            values = [float(row[column]) for row in table]
            axis.plot(stages, values, color=COLOURS[number], marker=MARKERS[number], label=label)
        for place, value in enumerate(operated.recover.values()):
            at = place + (number - (len(names) - 1) / 2) * width
            repaired.bar(
                at, value, width * 0.94, color=COLOURS[number], hatch=HATCHES[number], edgecolor="white", linewidth=0.6,
                label=f"{word}, Δ repair {operated.repair:+.1f}" if place == 0 else None,
            )  # fmt: skip
            repaired.annotate(
                f"{value:+.1f}", (at, value), (0, 2 if value >= 0 else -2), textcoords="offset points", ha="center",
                va="bottom" if value >= 0 else "top", fontsize=7, **upright,
            )  # fmt: skip
        rows += [{"run": name, **one, **two} for one, two in zip(deep, similar, strict=True)]
        accuracies: Row = {"run": name, "noisy_accuracy": operated.noisy, "clean_accuracy": operated.clean}
        rows.append({**accuracies, **{f"recover_{name}": value for name, value in operated.recover.items()}})
    alike.set(title=f"(a) likeness to the clean network, n = {samples:,} test samples", ylabel="linear CKA (0 to 1)")
    alike.set_ylim(0, 1.05)
    apart.set(title=f"(b) class separation, n = {samples:,} test samples", ylabel="Fisher ratio tr S_b / tr S_w")
    apart.set_ylim(0, None)
    turned.set(title=f"(c) noisy gradients, n = {span(batches)} batches", ylabel="projection ratio P9 (cosine)")
    repaired.set(title=f"(d) surgery, n = {samples:,} test samples", ylabel="accuracy gained (points)")
    repaired.axhline(0, color="black", linewidth=0.8)
    repaired.set_xticks(range(len(VARIANTS)), list(VARIANTS))
    repaired.margins(y=0.2)
    for axis in (alike, apart, turned):
        axis.set_xlabel("stage")
    for axis in (alike, apart, turned, repaired):
        axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return Drawn(figure, rows)
