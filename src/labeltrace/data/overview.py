"""What is in a dataset, in numbers: counts, classes, sizes, and how many labels are known to be wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from labeltrace.data.dataset import Dataset, Split
from labeltrace.data.decode import image_size
from labeltrace.data.images import ImageFiles, Images

HEADS = 500  # image files of which the size is looked at


@dataclass(frozen=True)
class PartOverview:
    """One part of a dataset.

    Args:
        samples: N.
        counts: samples per class, in the order of the classes.
        inputs: what a sample is, in words.
        looked: image files whose head was read: all, or 500 evenly spread; 0 for other inputs.
        sizes: "width×height" of the smallest, the median and the largest of these; None where there is none.
        unreadable: how many of these have a head that cannot be read; a file may be broken further on.
        known: samples whose true label is known; None where no truth is there.
        wrong: of these, how many carry another label.
    """

    samples: int
    counts: tuple[int, ...]
    inputs: str
    looked: int
    sizes: tuple[str, str, str] | None
    unreadable: int
    known: int | None
    wrong: int | None


@dataclass(frozen=True)
class Overview:
    """A dataset in numbers.

    >>> from labeltrace.data import load_dataset
    >>> found = overview(load_dataset("digits"))
    >>> found.train.samples, found.train.counts[:3], found.train.inputs
    (1347, (133, 136, 133), 'images 8×8, grey')
    """

    name: str
    classes: tuple[str, ...]
    train: PartOverview
    test: PartOverview | None
    network_sees: tuple[int, ...]


def overview(dataset: Dataset) -> Overview:
    """Return the numbers of a dataset; of image files only heads are read."""
    return Overview(
        dataset.name,
        dataset.classes,
        _part(dataset.train, dataset.num_classes),
        None if dataset.test is None else _part(dataset.test, dataset.num_classes),
        dataset.input_shape,
    )


def _part(split: Split, classes: int) -> PartOverview:
    looked, sizes, unreadable = _sizes(split)
    known = wrong = None
    if split.truth is not None:
        known = int((split.truth >= 0).sum())
        wrong = int(((split.truth >= 0) & (split.truth != split.labels)).sum())
    counts = tuple(torch.bincount(split.labels, minlength=classes).tolist())
    return PartOverview(len(split), counts, _inputs(split), looked, sizes, unreadable, known, wrong)


def _inputs(split: Split) -> str:
    shape = split.inputs.shape[1:]
    if isinstance(split.inputs, Images):
        return f"images, read as {shape[2]}×{shape[1]}"
    if len(shape) == 1:
        return f"features [{shape[0]}]"
    return f"images {shape[2]}×{shape[1]}, {'grey' if shape[0] == 1 else 'colour'}"


def _sizes(split: Split) -> tuple[int, tuple[str, str, str] | None, int]:
    files = split.inputs
    if not isinstance(files, ImageFiles):
        return 0, None, 0
    spread = np.linspace(0, len(files) - 1, min(HEADS, len(files))).round().astype(int)
    heads = [image_size(files.path(int(i))) for i in spread]
    found = sorted((size for size in heads if size is not None), key=lambda size: (min(size), max(size)))
    if not found:
        return len(heads), None, len(heads)
    low, middle, high = (f"{width}×{height}" for width, height in (found[0], found[len(found) // 2], found[-1]))
    return len(heads), (low, middle, high), len(heads) - len(found)
