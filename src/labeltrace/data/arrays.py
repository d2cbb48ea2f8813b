"""Arrays in memory → a dataset: images in any channel order, features, labels of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from labeltrace.data.dataset import UNKNOWN, Dataset, DatasetError, Split
from labeltrace.data.views import FeatureViews, ImageViews, Views
from labeltrace.errors import nearest


def from_arrays(
    inputs: ArrayLike | Tensor,
    labels: ArrayLike | Tensor,
    *,
    test: tuple[ArrayLike | Tensor, ArrayLike | Tensor] | None = None,
    truth: ArrayLike | Tensor | None = None,
    ids: Sequence[object] | None = None,
    classes: Sequence[str] | Sequence[int] | None = None,
    layout: str | None = None,
    views: Views | None = None,
    name: str = "arrays",
) -> Dataset:
    """Make a dataset of arrays in memory; everything is copied, nothing given is changed.

    Args:
        inputs: uint8 images [N, H, W, C], [N, C, H, W] or [N, H, W], or float features [N, D].
        labels: [N] strings or integers, mapped to 0..C-1 in sorted order, or in the order of `classes`.
        test: inputs and labels of a test split, in the same form.
        truth: [N] true labels in the same form, where known; the integer -1 means unknown.
        ids: one name per training sample; by default its index.
        classes: all classes in order. Strings with integer labels are the names of the classes 0..C-1.
        layout: "NHWC", "NCHW" or "NHW", where the shape alone does not tell.
        views: how training views are made; by default crops, flips and strong views scaled by the training statistics.

    Raises:
        DatasetError: for anything that cannot be read as above.

    >>> data = from_arrays(np.eye(4), ["b", "a", "b", "a"])
    >>> data.classes, data.train.labels.tolist(), data.train
    (('a', 'b'), [1, 0, 1, 0], Split(4 samples, float32 [4]))
    """
    columns = {"labels": _column(labels, "labels")}
    if test is not None:
        columns["test labels"] = _column(test[1], "test labels")
    if truth is not None:
        columns["truth"] = _column(truth, "truth")
    codes, names = _encode(columns, classes)
    tensor, layout = _inputs(inputs, layout)
    train = Split(tensor, codes["labels"], codes.get("truth"), None if ids is None else tuple(map(str, ids)))
    # The layout found in the training images holds for the test images, whose own shape may be ambiguous.
    held_out = None if test is None else Split(_inputs(test[0], layout)[0], codes["test labels"])
    if views is None:
        views = ImageViews.from_images(tensor) if tensor.dtype == torch.uint8 else FeatureViews.from_features(tensor)
    return Dataset(name, train, held_out, names, views)


def as_inputs(inputs: ArrayLike | Tensor) -> Tensor:
    """Return a copy of images as uint8 [N, C, H, W], or of features as float32 [N, D].

    Args:
        inputs: as `from_arrays` takes them.

    Raises:
        DatasetError: for another type or shape.

    >>> as_inputs(np.zeros((2, 8, 8, 3), np.uint8)).shape
    torch.Size([2, 3, 8, 8])
    """
    return _inputs(inputs, None)[0]


def _array(values: ArrayLike | Tensor) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # numpy has no bfloat16
    return np.asarray(values)


def _column(values: ArrayLike | Tensor, what: str) -> NDArray[Any]:
    """Return labels as int64 [N] or strings [N]."""
    array = _array(values)
    if array.ndim != 1:
        raise DatasetError(f"{what} have shape {list(array.shape)}; expected [N] (of one-hot rows, their argmax)")
    if array.dtype.kind == "O":  # pandas keeps strings as objects; anything mixed, such as a missing value, is refused
        odd = next((i for i, value in enumerate(array) if type(value) is not type(array[0])), None)
        if odd is not None:
            raise DatasetError(f"{what} mix types: {array[0]!r} at index 0, {array[odd]!r} at index {odd}")
        array = np.array(array.tolist())
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    if array.dtype.kind != "U":
        raise DatasetError(f"{what} are {array.dtype}; pass integers or strings")
    return array


def _encode(
    columns: dict[str, NDArray[Any]], classes: Sequence[str] | Sequence[int] | None
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return each column as int64 [N] in 0..C-1 (in "truth" also -1, unknown) and the names of the classes."""
    text = columns["labels"].dtype.kind == "U"
    for what, column in columns.items():
        if (column.dtype.kind == "U") != text:
            raise DatasetError(f"labels are {'strings' if text else 'integers'} but {what} are not; use one form")
    known = {what: np.ones(len(column), bool) for what, column in columns.items()}
    if "truth" in columns and not text:
        known["truth"] = columns["truth"] != UNKNOWN
    if classes is None:
        values = np.unique(np.concatenate([column[known[what]] for what, column in columns.items()]))
        names = tuple(str(value) for value in values)
    else:
        names = tuple(str(value) for value in classes)
        numbers = all(isinstance(value, int | np.integer) for value in classes)
        values = np.array(names) if text else np.array(classes) if numbers else np.arange(len(names))
    if not len(values):
        raise DatasetError("no classes: there are no labels, or `classes` is empty")
    order = np.argsort(values)
    codes = {}
    for what, column in columns.items():
        code = order[np.searchsorted(values, column, sorter=order).clip(max=len(values) - 1)]
        missing = values[code] != column
        wrong = np.flatnonzero(missing & known[what])
        if len(wrong):
            value = column[wrong[0]].item()
            hint = nearest(value, names) if text else f"they lie in {values.min()}..{values.max()}"
            raise DatasetError(f"{what}: {value!r} at index {wrong[0]} is not one of the {len(names)} classes; {hint}")
        codes[what] = torch.from_numpy(np.where(missing, UNKNOWN, code).astype(np.int64))
    return codes, names


def _inputs(inputs: ArrayLike | Tensor, layout: str | None) -> tuple[Tensor, str | None]:
    """Return a copy of the inputs as uint8 [N, C, H, W] or float32 [N, D], and the layout of images."""
    array = _array(inputs)
    given = f"inputs are {array.dtype} {list(array.shape)}"
    if array.dtype == np.uint8:
        layout = layout or _layout(array.shape, given)
        if layout not in ("NHWC", "NCHW", "NHW"):
            raise DatasetError(f"layout {layout!r} is unknown; pass 'NHWC', 'NCHW' or 'NHW'")
        if array.ndim != len(layout):
            raise DatasetError(f"{given}; layout {layout!r} needs {len(layout)} dimensions")
        if layout == "NHW":
            array = array[:, None]
        elif layout == "NHWC":
            array = array.transpose(0, 3, 1, 2)
        return torch.from_numpy(np.array(array, order="C")), layout
    if array.ndim in (3, 4):
        raise DatasetError(f"{given}; pass images as uint8 0..255: (255 * x).round().astype('uint8') if x is in 0..1")
    if array.ndim != 2 or array.dtype.kind != "f":
        raise DatasetError(f"{given}; pass images as uint8 [N, H, W, C] or features as float32 [N, D]")
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and refused as that
        return torch.from_numpy(array.astype(np.float32)), None


def _layout(shape: tuple[int, ...], given: str) -> str:
    """Return where the channels are: the axis of length 1 or 3."""
    if len(shape) == 3:
        return "NHW"
    if len(shape) != 4:
        raise DatasetError(f"{given}; pass images as [N, H, W, C], or features as float32 [N, D]")
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    if first and last:
        raise DatasetError(f'{given}: channels may be second or last; pass layout="NCHW" or layout="NHWC"')
    if not first and not last:
        raise DatasetError(
            f"{given}: neither the second nor the last axis is 1 or 3 channels; pass grey or colour images"
        )
    return "NCHW" if first else "NHWC"
