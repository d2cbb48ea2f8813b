"""A contact sheet: what the samples of each class look like, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeltrace.data import BadImage, Dataset
from labeltrace.errors import InputError
from labeltrace.files import write_atomically

ROWS, COLUMNS = 12, 8  # classes and samples of each that a sheet has room for
POINTS = 5000  # features that a scatter shows


def draw_contact_sheet(dataset: Dataset, path: Path, seed: int = 0) -> int:
    """Draw random training samples of the largest classes to a PNG; features as a scatter of two components.

    Args:
        dataset: its images may be files, of which only those shown are read.
        path: where the picture goes.
        seed: of the draw of samples.

    Returns:
        How many of the classes are shown.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("matplotlib is not installed: pip install 'labeltrace[plots]'") from None
    counts = torch.bincount(dataset.train.labels, minlength=dataset.num_classes)
    largest = counts.argsort(descending=True, stable=True)[:ROWS].sort().values
    shown = [int(c) for c in largest if counts[c]]
    if dataset.train.inputs.ndim == 4:
        figure = Figure(figsize=(1.2 * COLUMNS + 2.4, 1.3 * len(shown) + 0.7), layout="constrained")
        _images(figure, dataset, shown, counts, seed)
    else:
        figure = Figure(figsize=(9, 6.5), layout="constrained")
        _scatter(figure, dataset, shown, seed)
    more = f", the {len(shown)} largest of {dataset.num_classes} classes" if len(shown) < dataset.num_classes else ""
    figure.suptitle(f"{dataset.name}: {len(dataset.train):,} training samples{more}", fontsize=12, parse_math=False)
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=110))
    return len(shown)


def _images(figure: Any, dataset: Dataset, shown: list[int], counts: Tensor, seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = figure.subplots(len(shown), COLUMNS, squeeze=False)
    for row, label in zip(axes, shown, strict=True):
        members = (dataset.train.labels == label).nonzero()[:, 0].numpy()
        chosen = np.sort(rng.permutation(members)[:COLUMNS])
        for axis in row:
            axis.set(xticks=[], yticks=[], frame_on=False)
        for axis, sample in zip(row, chosen, strict=False):
            try:
                image = dataset.train.read([int(sample)])[0].permute(1, 2, 0).numpy()
            except BadImage:
                axis.text(0.5, 0.5, "cannot\nbe read", ha="center", va="center", transform=axis.transAxes)
                continue
            axis.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=255)
        name = dataset.classes[label]
        name = name if len(name) <= 22 else name[:21] + "…"
        row[0].set_ylabel(
            f"{name}\n{int(counts[label]):,}", rotation=0, ha="right", va="center", fontsize=9, parse_math=False
        )


def _scatter(figure: Any, dataset: Dataset, shown: list[int], seed: int) -> None:
    """The two directions in which the features vary most."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(dataset.train))[:POINTS])
    views, labels = dataset.views, dataset.train.labels[order]
    values = views.plain(dataset.train.read(order.tolist()))
    values = torch.cat([values, values.new_zeros(len(values), max(0, 2 - values.shape[1]))], 1)
    _, _, directions = torch.pca_lowrank(values, q=2, niter=4)
    places = (values - values.mean(0)) @ directions
    axis = figure.subplots()
    for label in shown:
        x, y = places[labels == label].T
        axis.scatter(x, y, s=6, alpha=0.6, label=dataset.classes[label].replace("_", " ").replace("$", "\\$"))
    axis.set(xlabel="first principal component (standardised features)", ylabel="second")
    axis.legend(markerscale=3, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
