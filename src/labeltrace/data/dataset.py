"""Samples, their labels and what is known of the truth: the first box of the picture.

Inputs are uint8 images [N, C, H, W] or float32 features [N, D] in memory, or images that are read when they are needed;
nothing here depends on which benchmark they come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labeltrace.data.images import Images
from labeltrace.data.options import ReadOptions
from labeltrace.data.views import Views
from labeltrace.errors import InputError
from labeltrace.registry import Registry

UNKNOWN = -1  # in `Split.truth`: the true class of this sample is not known (or is none of the classes)


class DatasetError(InputError):
    """A dataset that cannot be used: the message names it, what was expected, what was found and what to do."""


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Samples with their observed labels, and their true labels and names where these are known.

    Args:
        inputs: uint8 images [N, C, H, W], grey (C = 1) or colour (C = 3), float32 features [N, D], or `Images` to read.
        labels: int64 [N], the observed labels, possibly wrong.
        truth: int64 [N], -1 where unknown; None when no true label is known.
        ids: one distinct name per sample; None means that its index is its name.

    Raises:
        DatasetError: for another type or shape, lengths that differ, features that are not finite, names that repeat.

    >>> split = Split(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1, 0]))
    >>> split, len(split), split.id_of(2)
    (Split(4 samples, uint8 [3, 8, 8]), 4, '2')
    >>> split.take(torch.tensor([3, 1])).ids
    ('3', '1')
    """

    inputs: Tensor | Images
    labels: Tensor
    truth: Tensor | None = None
    ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.inputs, Tensor):
            _check_inputs(self.inputs)
        elif not len(self):
            raise DatasetError("there are no images")
        for what, values in (("labels", self.labels), ("truth", self.truth)):
            if values is None:
                continue
            if values.dtype != torch.int64 or values.ndim != 1:
                raise DatasetError(f"{what}: expected int64 [N], got {_name(values)} {list(values.shape)}")
            if len(values) != len(self):
                raise DatasetError(f"{len(self)} inputs but {len(values)} {what}")
        if self.ids is not None:
            if len(self.ids) != len(self):
                raise DatasetError(f"{len(self)} inputs but {len(self.ids)} ids")
            if len(set(self.ids)) != len(self):
                twice = Counter(self.ids).most_common(1)[0][0]
                raise DatasetError(f"id {twice!r} names more than one sample; ids must be distinct")

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        kind = _name(self.inputs) if isinstance(self.inputs, Tensor) else "files"
        return f"Split({len(self)} samples, {kind} {list(self.inputs.shape[1:])})"

    def id_of(self, index: int) -> str:
        """Return the name of the sample at `index`."""
        return str(index) if self.ids is None else self.ids[index]

    def take(self, index: Tensor) -> Split:
        """Return the samples `index` [n] under the names they have here."""
        inputs = self.inputs[index] if isinstance(self.inputs, Tensor) else self.inputs.take(index)
        truth = None if self.truth is None else self.truth[index]
        return Split(inputs, self.labels[index], truth, tuple(self.id_of(i) for i in index.tolist()))

    def read(self, index: Sequence[int]) -> Tensor:
        """Return the inputs of the samples `index` [n], read now where they are files.

        >>> Split(torch.zeros(4, 5), torch.zeros(4, dtype=torch.int64)).read([3, 0]).shape
        torch.Size([2, 5])
        """
        return self.inputs[list(index)] if isinstance(self.inputs, Tensor) else self.inputs.read_all(index)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training split, perhaps a test split, the names of the classes, and the views to train on.

    Args:
        pair_map: class → the class that "pair" noise turns it into; None means label + 1 (mod C).

    Raises:
        DatasetError: for a label outside 0..C-1, class names that repeat, splits of different shapes.

    >>> from labeltrace.data import from_arrays
    >>> data = from_arrays(np.zeros((6, 8, 8), np.uint8), ["cat", "dog"] * 3, name="pets")
    >>> data.classes, data.num_classes, data.input_shape, data.train.labels.tolist()
    (('cat', 'dog'), 2, (1, 8, 8), [0, 1, 0, 1, 0, 1])
    """

    name: str
    train: Split
    test: Split | None
    classes: tuple[str, ...]
    views: Views
    pair_map: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.num_classes < 2:
            raise DatasetError(f"{self.name}: classification needs two classes or more, found {list(self.classes)}")
        if len(set(self.classes)) != self.num_classes:
            raise DatasetError(f"{self.name}: class names repeat: {list(self.classes)}")
        if self.test is not None and tuple(self.test.inputs.shape[1:]) != tuple(self.train.inputs.shape[1:]):
            raise DatasetError(f"{self.name}: train is {self.train} but test is {self.test}; shapes must agree")
        for part, split in (("train", self.train), ("test", self.test)):
            if split is not None:
                self._check_range(f"{part} label", split.labels, 0)
                if split.truth is not None:
                    self._check_range(f"{part} truth", split.truth, UNKNOWN)
        if self.pair_map is not None:
            if len(self.pair_map) != self.num_classes:
                found = f"{len(self.pair_map)} entries for {self.num_classes} classes"
                raise DatasetError(f"{self.name}: pair_map has {found}")
            self._check_range("pair_map entry", torch.tensor(self.pair_map), 0)

    def _check_range(self, what: str, values: Tensor, low: int) -> None:
        wrong = ((values < low) | (values >= self.num_classes)).nonzero()
        if len(wrong):
            index = int(wrong[0])
            raise DatasetError(
                f"{self.name}: {what} {int(values[index])} at index {index} is outside {low}..{self.num_classes - 1}"
            )

    @property
    def num_classes(self) -> int:
        """C, the number of classes."""
        return len(self.classes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of what a network sees of one sample: (C, H, W) or (D,)."""
        like = self.train.inputs
        dtype = like.dtype if isinstance(like, Tensor) else torch.uint8
        return tuple(self.views.plain(torch.zeros((1, *like.shape[1:]), dtype=dtype)).shape[1:])

    def with_labels(self, labels: ArrayLike | Tensor, truth: ArrayLike | Tensor | None) -> Dataset:
        """Return this dataset with other observed training labels [N], and what is then known of the truth.

        >>> from labeltrace.data import from_arrays
        >>> data = from_arrays(np.zeros((4, 8, 8), np.uint8), [0, 1, 0, 1])
        >>> data.with_labels([1, 1, 0, 1], truth=data.train.labels).train.labels.tolist()
        [1, 1, 0, 1]
        """
        known = None if truth is None else _copied(truth)
        return replace(self, train=replace(self.train, labels=_copied(labels), truth=known))

    def subset(self, n: int, seed: int) -> Dataset:
        """Return this dataset with `n` random training samples; classes keep their shares, ids name the originals.

        >>> from labeltrace.data import from_arrays
        >>> data = from_arrays(np.zeros((6, 8, 8), np.uint8), [0, 0, 0, 0, 1, 1])
        >>> data.subset(3, seed=0).train.labels.tolist()
        [0, 0, 1]
        """
        return replace(self, train=self.train.take(stratified(self.train.labels, n, seed)))


def stratified(labels: Tensor, n: int, seed: int) -> Tensor:
    """Return the ascending indices [n] of a random sample in which each class keeps its share to within one.

    Places left over after rounding down go to the classes with the largest remainders.

    Raises:
        DatasetError: when `n` is not in 1..N.

    >>> stratified(torch.tensor([0, 0, 1, 1]), 2, seed=0).tolist()
    [0, 2]
    """
    total = len(labels)
    if not 1 <= n <= total:
        raise DatasetError(f"cannot draw {n} samples from {total}; ask for 1 to {total}")
    counts = torch.bincount(labels).numpy()
    places, left = np.divmod(counts * n, total)
    places[np.argsort(-left, kind="stable")[: n - places.sum()]] += 1
    # One shuffle, then a sort by class that keeps its order: the first places of each class are a uniform draw from it.
    shuffled = np.random.default_rng(seed).permutation(total)
    by_class = shuffled[np.argsort(labels.numpy()[shuffled], kind="stable")]
    starts = np.cumsum(counts) - counts
    return torch.from_numpy(np.sort(np.concatenate([by_class[s : s + k] for s, k in zip(starts, places, strict=True)])))


class Loader(Protocol):
    """What the name of a dataset stands for."""

    def __call__(self, root: Path | None, seed: int, read: ReadOptions) -> Dataset:
        """Read the dataset under `root`, or say what is missing there; `seed` draws the split if none is official."""


datasets: Registry[Loader] = Registry("dataset")


def _check_inputs(inputs: Tensor) -> None:
    images = inputs.dtype == torch.uint8 and inputs.ndim == 4 and inputs.shape[1] in (1, 3)
    if not images and (inputs.dtype != torch.float32 or inputs.ndim != 2):
        raise DatasetError(
            f"inputs are {_name(inputs)} {list(inputs.shape)}; "
            "expected uint8 images [N, C, H, W] with C = 1 or 3, or float32 features [N, D]"
        )
    if not inputs.numel():
        raise DatasetError(f"inputs are empty: shape {list(inputs.shape)}")
    if inputs.is_floating_point():
        bad = ~torch.isfinite(inputs).all(dim=1)
        if bad.any():
            raise DatasetError(
                f"features of {int(bad.sum())} of {len(inputs)} samples are NaN or infinite, the first at index "
                f"{int(bad.nonzero()[0])}; fill or drop them first"
            )


def _copied(values: ArrayLike | Tensor) -> Tensor:
    """Return a copy as a tensor, integers as int64; anything else is left for `Split` to refuse."""
    tensor = torch.as_tensor(values)
    return tensor.clone() if tensor.is_floating_point() else tensor.to(torch.int64, copy=True)


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
