"""Open-set samples: images of another dataset that stand in the place of a dataset's own, under its labels.

The true class of such a sample is none of the classes, so its truth is unknown (-1) and no diagnostic counts it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeltrace.data.dataset import UNKNOWN, Dataset
from labeltrace.data.load import load_dataset
from labeltrace.data.options import ReadOptions
from labeltrace.data.prepare import prepare
from labeltrace.errors import InputError


@dataclass(frozen=True, eq=False)
class ForeignImages:
    """Which samples were replaced, and by which images of which dataset.

    Args:
        dataset: the name of the foreign dataset; the images are those of its training split.
        positions: int64 [n], the samples replaced, ascending.
        indices: int64 [n], the foreign image that each of them got.
        sha256: of the foreign images [n, C, H, W] themselves, so that another version or order is noticed.

    >>> images = torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    >>> ForeignImages("digits", np.array([4, 7]), np.array([0, 2]), image_hash(images[[0, 2]])).sha256[:12]
    'af5570f5a181'
    """

    dataset: str
    positions: NDArray[np.int64]
    indices: NDArray[np.int64]
    sha256: str

    def __len__(self) -> int:
        return len(self.positions)

    def fits(self, count: int) -> bool:
        """Whether the positions are distinct samples of a set of `count`, with one image for each."""
        inside = (self.positions >= 0) & (self.positions < count)
        distinct = len(np.unique(self.positions)) == len(self.positions)
        return bool(inside.all()) and distinct and self.indices.shape == self.positions.shape

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ForeignImages):
            return NotImplemented
        same = np.array_equal(self.positions, other.positions) and np.array_equal(self.indices, other.indices)
        return same and (self.dataset, self.sha256) == (other.dataset, other.sha256)

    __hash__ = None  # type: ignore[assignment]  # holds arrays


def load_foreign(
    name: str | Path, root: str | Path | None, seed: int, like: Dataset, read: ReadOptions | None = None
) -> Dataset:
    """Return the dataset `name`, see `load_dataset`, in memory; images that are files get the size of those of `like`.

    Args:
        name: a registered name or a path.
        root: the folder that holds the dataset of that name.
        seed: of the split, where none is official.
        like: the dataset in which the images will stand.
        read: what may be kept in memory and on disk, and how many processes read; columns and sizes are not used.

    >>> from labeltrace.data import load_dataset
    >>> load_foreign("digits", None, 0, like=load_dataset("digits")).train
    Split(1347 samples, uint8 [1, 8, 8])
    """
    given, side = read or ReadOptions(), resident_images(like).shape[-1]
    options = ReadOptions(
        image_size=max(side, 8),  # the least that is read; smaller ones are refused later, with both shapes
        bad_images=given.bad_images,
        cache_gb=given.cache_gb,
        memory_gb=given.memory_gb,
        workers=given.workers,
    )
    return prepare(load_dataset(name, root, seed, options), options)[0]


def image_hash(images: Tensor) -> str:
    """Return the SHA-256 of the bytes of uint8 images, in hexadecimal."""
    return hashlib.sha256(images.numpy().tobytes()).hexdigest()


def resident_images(dataset: Dataset) -> Tensor:
    """Return the training images uint8 [N, C, H, W] of a dataset, or refuse features and data that is not in memory.

    >>> from labeltrace.data import from_arrays
    >>> resident_images(from_arrays(np.zeros((2, 4), np.float32), [0, 1], name="table"))
    Traceback (most recent call last):
    labeltrace.errors.InputError: open-set noise needs uint8 images in memory; table is Split(2 samples, float32 [4])
    """
    inputs = dataset.train.inputs
    if not isinstance(inputs, Tensor) or inputs.dtype != torch.uint8:
        raise InputError(f"open-set noise needs uint8 images in memory; {dataset.name} is {dataset.train!r}")
    return inputs


def foreign_images(dataset: Dataset, foreign: Dataset, indices: NDArray[np.int64]) -> Tensor:
    """Return the images `indices` [n] of `foreign` for use in `dataset`, uint8 [n, C, H, W].

    Raises:
        InputError: when one of the two does not hold images in memory, their shapes differ, or an index is too large.
    """
    own, other = resident_images(dataset), resident_images(foreign)
    if own.shape[1:] != other.shape[1:]:
        raise InputError(
            f"images of {foreign.name} are {list(other.shape[1:])} but those of {dataset.name} "
            f"{list(own.shape[1:])}; open-set noise needs one shape"
        )
    if len(indices) and indices.max() >= len(other):
        raise InputError(f"{foreign.name} has {len(other):,} images, none of index {indices.max()}")
    return other[torch.from_numpy(indices)]


def replace_images(dataset: Dataset, foreign: Dataset, which: ForeignImages) -> Dataset:
    """Return the dataset with foreign images in place of some of its own, the truth of which becomes unknown.

    Raises:
        InputError: as for `foreign_images`, and when the images are not those of the record.
    """
    images = foreign_images(dataset, foreign, which.indices)
    found = image_hash(images)
    if found != which.sha256:
        raise InputError(
            f"images of {foreign.name}: sha256 {which.sha256[:12]} in the record, {found[:12]} found; "
            f"expected those of {which.dataset!r} in the order they had when the noise was made"
        )
    positions = torch.from_numpy(which.positions)
    inputs = resident_images(dataset).clone()
    inputs[positions] = images
    truth = (dataset.train.labels if dataset.train.truth is None else dataset.train.truth).clone()
    truth[positions] = UNKNOWN
    return replace(dataset, train=replace(dataset.train, inputs=inputs, truth=truth))
