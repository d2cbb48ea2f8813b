"""The case study: wrong labels that were replaced, and wrong labels whose replacement was held back."""

from __future__ import annotations

from typing import Any

import torch

from labeltrace.diagnostics.cases import PER_ROW, select_cases
from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.style import BLUE, VERMILION, new_figure, short
from labeltrace.diagnostics.reliability import Row
from labeltrace.errors import InputError


def draw_cases(request: Request) -> Drawn:
    """Draw two rows of images of one run with their labels and branch weights a and b."""
    request.at_most(1, "cases")
    run = request.runs[0]
    if run.train.inputs.ndim != 4:
        raise InputError(f"figure cases shows images; the inputs of {run.name} are features")
    v = run.verdicts(request.score)
    places = (run.truth >= 0).nonzero()[:, 0]  # of the samples of known truth in the table
    a, b = run.column("a")[places], run.column("b")[places]
    top, bottom = select_cases(v, b)
    if not top and not bottom:
        raise InputError(f"{run.name}: no sample has a wrong label, so there is no case to show")
    figure = new_figure(1.75 * PER_ROW, 5.2)
    axes = figure.subplots(2, PER_ROW, squeeze=False)
    noisy = int(v.noisy.sum())
    figure.suptitle(f"{run.method} on {run.plan.dataset.name}: of n = {noisy:,} wrongly labelled samples", fontsize=10)
    rows: list[Row] = []
    for line, (chosen, words) in enumerate(((top, "replaced: right, largest b"), (bottom, "held back: smallest b"))):
        for axis in axes[line]:
            axis.set(xticks=[], yticks=[])
            axis.grid(visible=False)
            axis.set_frame_on(False)
        axes[line, 0].set_ylabel(words, fontsize=9, color=(BLUE, VERMILION)[line])
        for axis, position in zip(axes[line], chosen, strict=False):
            sample = int(places[position])
            row: Row = {
                "row": ("replaced", "held back")[line],
                "index": sample,
                "id": run.samples["id"][sample].as_py(),
                "observed": run.classes[int(v.observed[position])],
                "pseudo": run.classes[int(v.suggested[position])],
                "truth": run.classes[int(v.truth[position])],
                "confidence": float(v.confidence[position]),
                "a": float(a[position]),
                "b": float(b[position]),
            }
            _case(axis, run.train.read([sample])[0], row)
            rows.append(row)
    return Drawn(figure, rows)


def _case(axis: Any, image: torch.Tensor, row: Row) -> None:
    pixels = image.permute(1, 2, 0).numpy()
    axis.imshow(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels, cmap="gray", vmin=0, vmax=255)
    said = [f"{name} {short(str(row[column]))}" for name, column in (("label", "observed"), ("pseudo", "pseudo"))]
    lines = [*said, f"true {short(str(row['truth']))}", f"a {row['a']:.2f}   b {row['b']:.2f}"]
    axis.set_title("\n".join(lines), fontsize=8, loc="left")
