"""Arrays in files: .npz with inputs and labels, .npy with inputs and the labels beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labeltrace.data.arrays import as_inputs
from labeltrace.data.dataset import UNKNOWN, DatasetError
from labeltrace.data.names import Names
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.labels import with_labels
from labeltrace.data.own.numpy_files import load_npy, load_npz
from labeltrace.data.own.part import Part, words

INPUTS = ("x", "images", "inputs", "features", "embeddings", "x_train", "train_images")
LABELS = ("y", "labels", "label", "y_train", "train_labels")
TEST_INPUTS, TEST_LABELS = ("x_test", "test_images"), ("y_test", "test_labels")
TRUTH, IDS = ("truth",), ("ids", "id")


def read_arrays(path: Path, read: ReadOptions) -> tuple[Part, Part | None]:
    """Return the training part and, where there is one, the test part of a .npz or .npy file.

    Raises:
        DatasetError: arrays that are missing, of a shape or type that cannot be read, or of different lengths.
    """
    if path.suffix.lower() == ".npy":
        if read.labels is None:
            raise DatasetError(
                f"{path}: an .npy file carries no labels; pass --labels FILE (.npy, .txt, .csv, .parquet)"
            )
        part = Part(str(path), as_tensor(load_npy(path), str(path)), None)
        return with_labels(part, read), None
    arrays = load_npz(path, {*INPUTS, *LABELS, *TEST_INPUTS, *TEST_LABELS, *TRUTH, *IDS})
    inputs = _required(arrays, INPUTS, "inputs", path)
    labels = find_array(arrays, LABELS)
    truth, ids = find_array(arrays, TRUTH), find_array(arrays, IDS)
    if labels is None and read.labels is None:
        _required(arrays, LABELS, "labels", path)
    train = Part(
        str(path),
        as_tensor(inputs, str(path)),
        None if labels is None else words(labels, f"{path}: labels"),
        None if truth is None else words(_unknown(truth, labels), f"{path}: true labels"),
        None if ids is None else Names(words(ids, f"{path}: ids").to_pylist()),
    )
    if labels is None:
        train = with_labels(train, read)
    _check_length(train, path)
    test_inputs, test_labels = find_array(arrays, TEST_INPUTS), find_array(arrays, TEST_LABELS)
    if test_inputs is None and test_labels is None:
        return train, None
    if test_inputs is None or test_labels is None:
        missing = "labels" if test_labels is None else "inputs"
        raise DatasetError(f"{path}: a test set without its {missing} ({', '.join(_names(missing))})")
    test = Part(str(path), as_tensor(test_inputs, str(path)), words(test_labels, f"{path}: test labels"))
    _check_length(test, path)
    return train, test


def as_tensor(array: NDArray[Any], where: str) -> torch.Tensor:
    """Return images as uint8 [N, C, H, W] or features as float32 [N, D], in memory."""
    try:
        return as_inputs(array)
    except DatasetError as error:
        raise DatasetError(f"{where}: {error}") from None


def find_array(arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> NDArray[Any] | None:
    """Return the array that has the first of `names`, in any case; None where none has."""
    folded = {name.casefold(): array for name, array in arrays.items()}
    return next((folded[name] for name in names if name in folded), None)


def _required(arrays: Mapping[str, NDArray[Any]], names: Sequence[str], what: str, path: Path) -> NDArray[Any]:
    found = find_array(arrays, names)
    if found is None:
        raise DatasetError(f"{path}: no {what} ({', '.join(names)}); it holds {', '.join(arrays) or 'nothing'}")
    return found


def _names(what: str) -> tuple[str, ...]:
    return TEST_LABELS if what == "labels" else TEST_INPUTS


def _unknown(truth: NDArray[Any], labels: NDArray[Any] | None) -> NDArray[Any]:
    """Return true labels with -1 as missing, which it means unless it is a class."""
    if truth.dtype.kind != "i" or (labels is not None and labels.dtype.kind == "i" and (labels == UNKNOWN).any()):
        return truth
    return np.where(truth == UNKNOWN, np.nan, truth)


def _check_length(part: Part, path: Path) -> None:
    for what, values in (("labels", part.labels), ("true labels", part.truth), ("ids", part.ids)):
        if values is not None and len(values) != len(part.inputs):
            raise DatasetError(f"{path}: {len(part.inputs)} inputs but {len(values)} {what}")
