"""A picture of samples: what the label says, what the model suggests, and how far either is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltrace.audit import class_names
from labeltrace.audit.decisions import KEEP, RELABEL, REVIEW
from labeltrace.data import Split
from labeltrace.errors import InputError
from labeltrace.files import write_atomically

#: what a gallery shows, from the top, and in which colours (Okabe and Ito's, safe for colour-blind readers)
COLOURS = {RELABEL: "#D55E00", REVIEW: "#0072B2", KEEP: "#009E73"}
OF_EACH = 4
WEIGHTS = "a: weight of the label, b: weight of the suggestion, in the training target"


def pick(table: pa.Table, seed: int = 0, count: int = OF_EACH) -> list[int]:
    """Return rows of a samples table: `count` of each decision, or as many as there are, drawn by seed."""
    decisions = table["decision"].to_numpy()
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    for decision in COLOURS:
        rows = np.flatnonzero(decisions == decision)
        chosen += sorted(rng.permutation(rows)[:count].tolist())
    return chosen


def draw_gallery(table: pa.Table, split: Split, path: Path, title: str) -> None:
    """Draw a dozen samples of an image set to a PNG file.

    Args:
        table: samples table of the run.
        split: the training images in the order of the table.
        path: where the picture goes.
        title: over it.

    Raises:
        InputError: the inputs are no images, or matplotlib is not installed.
    """
    if split.inputs.ndim != 4:
        raise InputError("a gallery shows images; these inputs are features")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("matplotlib is not installed: pip install 'labeltrace[plots]'") from None
    names, rows = class_names(table), pick(table)
    figure = Figure(figsize=(9.6, 8.4), layout="constrained")
    figure.suptitle(f"{title}\n{WEIGHTS}", fontsize=12, parse_math=False)
    axes = figure.subplots(3, 4, squeeze=False).ravel()
    for axis in axes:
        axis.axis("off")
    for axis, row in zip(axes, rows, strict=False):
        _draw(axis, {name: table[name][row].as_py() for name in table.column_names}, split, row, names)
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=130))


def _draw(axis: Any, sample: dict[str, Any], split: Split, row: int, names: list[str]) -> None:
    image = split.read([row])[0].permute(1, 2, 0).numpy()
    axis.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=255)
    lines = [
        f"{sample['decision'].upper()}   #{sample['id']}",
        f"label {names[sample['observed']]}   suggested {names[sample['suggested']]}",
        f"a = {sample['a']:.2f}   b = {sample['b']:.2f}",
    ]
    if sample.get("truth") is not None and sample["truth"] >= 0:
        lines[1] += f"   true {names[sample['truth']]}"
    axis.set_title("\n".join(lines), fontsize=9, color=COLOURS[sample["decision"]], parse_math=False)
