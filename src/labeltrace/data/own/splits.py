"""Which part of a dataset is trained on and which tests: one rule for folders, tables and saved datasets.

A part for validation is the test set where there is no other. Beside a test set it is left out: it was held back for
choices that this program does not make, and training on it would not be what its owner meant.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from labeltrace.data.dataset import DatasetError
from labeltrace.data.own.part import Part

_MEANING = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "validation": ("val", "valid", "validation", "dev"),
}


def split_of(word: str) -> str | None:
    """Return "train", "test" or "validation" for one of their usual names, or None.

    >>> split_of("Train"), split_of("val"), split_of("cat")
    ('train', 'validation', None)
    """
    return next((split for split, names in _MEANING.items() if word.casefold() in names), None)


def choose_splits(names: Collection[str]) -> tuple[str | None, str | None]:
    """Return which of `names` is the training part and which tests, None for none.

    >>> choose_splits(["val", "train"]), choose_splits(["train", "validation", "test"])
    (('train', 'val'), ('train', 'test'))
    """
    first: dict[str | None, str] = {}
    for name in sorted(names):
        first.setdefault(split_of(name), name)
    return first.get("train"), first.get("test", first.get("validation"))


def train_and_test(part: Part, splits: NDArray[np.str_]) -> tuple[Part, Part | None]:
    """Return the rows of the training part and those that test.

    Args:
        part: all rows.
        splits: [N] "train", "test" or "validation".
    """
    train, test = choose_splits(set(splits.tolist()))
    if train is None:
        raise DatasetError(f"{part.file}: no row is marked train")
    return (
        part.take(np.flatnonzero(splits == train)),
        None if test is None else part.take(np.flatnonzero(splits == test)),
    )
