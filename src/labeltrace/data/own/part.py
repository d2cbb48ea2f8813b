"""What every reader of a user's files hands over, and how a dataset is made of it.

A reader knows files; labels are still words here. Which words are the classes, in which order, and which label is none
of them is decided in one place for all kinds of files.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeltrace.data.dataset import UNKNOWN, Dataset, DatasetError, Split
from labeltrace.data.images import Images
from labeltrace.data.names import Names
from labeltrace.data.options import ReadOptions
from labeltrace.data.sizing import fitted
from labeltrace.data.views import FeatureViews, ImageViews, Views
from labeltrace.errors import nearest


@dataclass(frozen=True, eq=False)
class Part:
    """Samples with labels in words: a training set or a test set before its classes are numbered.

    Attributes:
        file: where it comes from, for messages.
        inputs: images or features [N, …], or images to read, whose side is chosen later.
        labels: [N] words, a pyarrow array of strings; null where there is none.
        truth: likewise, null where unknown; None when no true label is known.
        ids: one name per sample; None means its index.
        classes: all classes in their order, where the files say so.
        unit: what a sample is in `file`: "row", "line".
        lines: [N] the numbers of the samples in that unit; None means the index.
    """

    file: str
    inputs: Tensor | Images
    labels: Any
    truth: Any = None
    ids: Names | None = None
    classes: tuple[str, ...] | None = None
    unit: str = "row"
    lines: NDArray[np.int64] | None = None

    def place(self, i: int) -> str:
        """Return where sample `i` is, for a message."""
        return f"{self.file}, {self.unit} {i if self.lines is None else self.lines[i]}"

    def take(self, index: NDArray[np.int64]) -> Part:
        """Return the samples at `index` [n] under the names they have here."""
        rows = torch.from_numpy(index)
        ids = self.ids.take(index) if self.ids is not None else Names(map(str, index.tolist()))
        return replace(
            self,
            inputs=self.inputs.take(rows) if isinstance(self.inputs, Images) else self.inputs[rows],
            labels=self.labels.take(pa.array(index)),
            truth=None if self.truth is None else self.truth.take(pa.array(index)),
            ids=ids,
            lines=index if self.lines is None else self.lines[index],
        )


def words(values: Any, what: str) -> Any:
    """Return labels of any kind as a pyarrow array of strings [N], null where one is missing.

    Whole numbers lose their point (a table with gaps turns 3 into 3.0), and blanks around a word are dropped.

    Args:
        values: a numpy or pyarrow array of strings, integers, truth values or whole numbers.
        what: they are, for messages.

    Raises:
        DatasetError: for anything else.

    >>> words(np.array([3.0, np.nan]), "labels").to_pylist(), words(np.array([" cat", ""]), "labels").to_pylist()
    (['3', None], ['cat', None])
    """
    if isinstance(values, np.ndarray):
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise DatasetError(f"{what} have shape {list(values.shape)}; expected [N] (of one-hot rows, their argmax)")
        if values.dtype.kind == "S":
            try:
                values = np.char.decode(values, "utf-8")
            except UnicodeDecodeError as error:
                raise DatasetError(f"{what} are not UTF-8: {error.object!r}") from None
        if values.dtype.kind not in "biufU":
            raise DatasetError(f"{what} are {values.dtype}; expected integers or strings")
        if values.dtype.kind == "f" and values.dtype.itemsize > 8:
            values = values.astype(np.float64)
        try:
            values = pa.array(values.astype(values.dtype.newbyteorder("=")))
        except UnicodeDecodeError as error:
            raise DatasetError(f"{what} are no text: {error.reason}") from None
    column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_floating(kind):
        column = _whole(column.cast(pa.float64()), what)
    elif not (kind in (pa.string(), pa.large_string(), pa.bool_(), pa.null()) or pa.types.is_integer(kind)):
        raise DatasetError(f"{what} are {kind}; expected integers or strings")
    try:
        column = pc.utf8_trim_whitespace(column.cast(pa.string()))
    except pa.ArrowInvalid:
        raise DatasetError(f"{what} are not UTF-8; write them as UTF-8") from None
    return pc.if_else(pc.equal(column, ""), None, column)


def strings(column: Any) -> Iterator[Any]:
    """Yield the words of such an array, chunk by chunk."""
    return (value for chunk in column.chunks for value in chunk.to_pylist())


def _whole(column: Any, what: str) -> Any:
    """Return floats as integers, NaN as null."""
    column = pc.if_else(pc.is_nan(column), None, column)
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        odd = next(v for v in column.to_pylist() if v is not None and (v % 1 != 0 or abs(v) > 2**53))
        kind = "too large to be whole" if odd % 1 == 0 else "with a fraction"
        raise DatasetError(f"{what} are numbers {kind}, such as {odd}; expected classes") from None


def class_order(names: Collection[str]) -> list[str]:
    """Return class names in order: by value where all are plain integers, else by letters.

    "01" is no plain integer: it and "1" are two names.

    >>> class_order(["10", "9", "-1"]), class_order(["10", "9", "b"]), class_order(["1", "01"])
    (['-1', '9', '10'], ['10', '9', 'b'], ['01', '1'])
    """
    if all(_is_integer(name) for name in names):
        return sorted(names, key=int)
    return sorted(names)


def _is_integer(name: str) -> bool:
    try:
        return str(int(name)) == name
    except ValueError:
        return False


def assemble(name: str, train: Part, test: Part | None, read: ReadOptions) -> Dataset:
    """Return the dataset of a training part and perhaps a test part.

    The classes are those of the files, or the labels and true labels of the training part in order.

    Raises:
        DatasetError: a sample without a label, a test label that no training sample has, parts of different shapes.
    """
    classes = train.classes
    if classes is None:
        found = {word for column in (train.labels, train.truth) if column is not None for word in _distinct(column)}
        classes = tuple(class_order(found))
    alike = _alike(classes)
    if alike:
        warnings.warn(f"{train.file}: classes {alike} differ by case or blanks alone; are they one?", stacklevel=2)
    views: Views | None = None
    inputs = train.inputs
    held_out = None if test is None else test.inputs
    if isinstance(inputs, Images):
        inputs, views = fitted(inputs, read.image_size, read.flip)
        if isinstance(held_out, Images):
            held_out = held_out.at_side(inputs.side)
    elif read.image_size is not None:
        raise DatasetError(f"{train.file}: an image size goes with image files; these are arrays {list(inputs.shape)}")
    if test is not None and isinstance(inputs, Images) != isinstance(held_out, Images):
        raise DatasetError(f"{train.file} and {test.file}: one holds image files and one holds arrays; use one kind")
    split = Split(inputs, _codes(train, classes), _codes(train, classes, truth=True), train.ids)
    test_split = None
    if test is not None:
        assert held_out is not None
        test_split = Split(held_out, _codes(test, classes), _codes(test, classes, truth=True), test.ids)
    if views is None:
        assert isinstance(inputs, Tensor)
        views = _array_views(inputs, read.flip)  # after `Split` has refused what has no mean
    return Dataset(name, split, test_split, classes, views)


def _alike(classes: tuple[str, ...]) -> str:
    """Return names that differ by case or blanks alone, in words; nothing where there are none.

    >>> _alike(("Cat", "dog", "cat ", "cow"))
    "'Cat' and 'cat '"
    """
    same: dict[str, list[str]] = {}
    for name in classes:
        same.setdefault(" ".join(name.split()).casefold(), []).append(name)
    groups = [" and ".join(map(repr, names)) for names in same.values() if len(names) > 1]
    return "; ".join(groups[:5]) + ("; …" if len(groups) > 5 else "")


def _array_views(inputs: Tensor, flip: bool) -> Views:
    if inputs.dtype != torch.uint8:
        return FeatureViews.from_features(inputs)
    return replace(ImageViews.from_images(inputs), padding=max(1, min(inputs.shape[-2:]) // 8), flip=flip)


def _distinct(column: Any) -> list[str]:
    return [word for word in pc.unique(column).to_pylist() if word is not None]


def _codes(part: Part, classes: tuple[str, ...], truth: bool = False) -> Any:
    """Return labels (or true labels, -1 where unknown, or None) as int64 [N] in 0..C-1."""
    column = part.truth if truth else part.labels
    if column is None:
        return None
    codes = pc.index_in(column, value_set=pa.array(classes, pa.string()))
    missing = np.asarray(pc.is_null(codes))
    unlabelled = np.asarray(pc.is_null(column))
    wrong = np.flatnonzero(missing & ~unlabelled if truth else missing)
    if len(wrong):
        i = int(wrong[0])
        if unlabelled[i]:
            raise DatasetError(f"{part.place(i)}: no label ({len(wrong)} such in all); fill it in or remove it")
        word = column[i].as_py()
        hint = nearest(word, classes) if len(classes) <= 20 else nearest(word, classes).partition("known")[0]
        raise DatasetError(f"{part.place(i)}: {word!r} is the label of no training sample{'; ' + hint if hint else ''}")
    return torch.from_numpy(np.asarray(pc.fill_null(codes, UNKNOWN)).astype(np.int64))
