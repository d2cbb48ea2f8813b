"""A dataset that Hugging Face's `datasets` saved with `save_to_disk`, read from its Arrow files.

A folder holds `dataset_info.json` (the columns), `state.json` (the files) and `data-*.arrow` (streams of record
batches, mapped into memory here, so that a row is read when it is asked for). With several splits each is such a
folder, and `dataset_dict.json` lists them. (Layout as written by datasets 5.2.)
"""

from __future__ import annotations

import hashlib
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from labeltrace.data.dataset import DatasetError
from labeltrace.data.decode import BadImage, decode, image_size
from labeltrace.data.images import Images
from labeltrace.data.names import Names
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.part import Part, words
from labeltrace.data.own.splits import choose_splits
from labeltrace.data.own.table import LABELS, find_column, is_vector, vectors


def is_huggingface(path: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def read_huggingface(path: Path, read: ReadOptions) -> tuple[Part, Part | None]:
    """Return the training part and, where there is one, the test part of a saved dataset.

    Raises:
        DatasetError: no training split, no column of images or labels, or files that cannot be read.
    """
    if not (path / "dataset_dict.json").is_file():
        return _read_split(path, read), None
    names = _json(path / "dataset_dict.json").get("splits", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DatasetError(f"{path / 'dataset_dict.json'}: expected a list of splits, found {names!r}")
    train, test = choose_splits(names)
    if train is None:
        raise DatasetError(f"{path}: no split named train; it holds {', '.join(names) or 'nothing'}")
    return _read_split(path / train, read), None if test is None else _read_split(path / test, read)


class ArrowImages(Images):
    """Images in a column of Arrow files, as bytes or as paths.

    Args:
        folder: of the saved dataset.
        files: its Arrow files in order.
        column: that holds the images.
        count: of rows.
    """

    def __init__(self, folder: Path, files: list[Path], column: str, count: int) -> None:
        super().__init__(Names(f"row {i}" for i in range(count)), side=0)
        self.folder, self.files, self.column = folder, files, column
        self.rows = np.arange(count)
        self._stamp = "\0".join(f"{file}\0{file.stat().st_size}\0{file.stat().st_mtime_ns}" for file in files)
        self._table: Any = None

    def _source(self, i: int) -> Path | BytesIO | None:
        if self._table is None:
            self._table = read_arrow(self.files, [self.column])
        value = self._table[self.column][int(self.rows[i])].as_py()
        content, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
        if content is not None:
            return BytesIO(content)
        return self.folder / path if path else None

    def decode(self, i: int) -> Tensor:
        """Read the image in row `i`."""
        name, source = f"{self.folder}, {self.names[i]}", self._source(i)
        if source is None:
            raise BadImage(name, "no image in this row")
        return decode(source, self.side, f"{name} ({source})" if isinstance(source, Path) else name)

    def size(self, i: int) -> tuple[int, int] | None:
        """Return (width, height) from the head of the image in row `i`."""
        source = self._source(i)
        return None if source is None else image_size(source)

    def stamp(self, i: int) -> bytes:
        """Return a hash of the row and of the names, sizes and times of change of the files."""
        return hashlib.blake2b(f"{self._stamp}\0{self.column}\0{self.rows[i]}".encode(), digest_size=16).digest()

    def key(self) -> str:
        """Return a name for a cache of these rows of these files."""
        return self._key(self._stamp)

    def take(self, index: Tensor) -> Images:
        """Return the images at `index` [n]."""
        taken = super().take(index)
        assert isinstance(taken, ArrowImages)
        taken.rows = self.rows[index.numpy()]
        return taken

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_table": None}  # another process maps the files itself


def read_arrow(files: list[Path], columns: list[str] | None = None) -> Any:
    """Return the rows of Arrow streams as a pyarrow table that stays on disk."""
    parts = []
    for file in files:
        try:
            with pa.memory_map(str(file)) as source:
                part = pa.ipc.open_stream(source).read_all()
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"{file}: not an Arrow file, or damaged ({str(error).splitlines()[0]})") from None
        parts.append(part if columns is None else part.select(columns))
    try:
        table = pa.concat_tables(parts)
        table.validate(full=True)  # damaged offsets would be followed to anywhere in memory
    except pa.ArrowException as error:
        raise DatasetError(f"{files[0].parent}: damaged Arrow files ({str(error).splitlines()[0]})") from None
    return table


def _read_split(folder: Path, read: ReadOptions) -> Part:
    info, state = _json(folder / "dataset_info.json"), _json(folder / "state.json")
    if state.get("_indices_files") or state.get("_indices_data_files"):  # older versions of datasets
        raise DatasetError(
            f"{folder}: rows are kept in another order than they are listed; save it with a newer datasets"
        )
    try:
        files = [folder / entry["filename"] for entry in state.get("_data_files", [])]
    except (TypeError, KeyError):
        raise DatasetError(f"{folder / 'state.json'}: its list of files (_data_files) is damaged") from None
    table = read_arrow(files) if files else None
    if table is None or not len(table):
        raise DatasetError(f"{folder}: there are no rows")
    features = _features(info, folder)
    label = _label_column(table, features, read, folder)
    classes, labels = _labels(table[label], features.get(label, {}).get("names"), folder)
    truth = find_column(table.column_names, read.truth_column, ("truth",), "truth", folder)
    name = find_column(table.column_names, read.id_column, ("id",), "id", folder)
    return Part(
        str(folder),
        _inputs(table, features, files, label, read, folder),
        labels,
        None if truth is None else _labels(table[truth], features.get(truth, {}).get("names"), folder)[1],
        None if name is None else Names(map(str, words(table[name], f"{folder}: ids").to_pylist())),
        classes,
    )


def _inputs(table: Any, features: Any, files: list[Path], label: str, read: ReadOptions, folder: Path) -> Any:
    """Return the column of images, or of vectors where there is none."""
    names = table.column_names
    images = [name for name in names if features.get(name, {}).get("_type") == "Image"]
    column = find_column(names, read.path_column, [images[0].casefold()] if len(images) == 1 else [], "path", folder)
    if column is not None and not is_vector(table[column].type):
        kind = table[column].type
        if not (pa.types.is_struct(kind) or pa.types.is_binary(kind)):
            raise DatasetError(f"{folder}: column {column!r} holds {kind}; expected images (the type Image)")
        return ArrowImages(folder.absolute(), [file.absolute() for file in files], column, len(table))
    lists = [column] if column else [n for n in names if n != label and is_vector(table[n].type)]
    if len(lists) != 1:
        raise DatasetError(
            f"{folder}: {len(images) or 'no'} columns of images and {len(lists) or 'none'} of vectors; "
            f"name the one to train on with --path-column. Columns: {', '.join(map(repr, names))}"
        )
    return torch.from_numpy(vectors(table[lists[0]], lambda i: f"{folder}, row {i}"))


def _label_column(table: Any, features: Any, read: ReadOptions, folder: Path) -> str:
    found = find_column(table.column_names, read.label_column, LABELS, "label", folder)
    if found is None:
        named = [name for name in table.column_names if features.get(name, {}).get("_type") == "ClassLabel"]
        if len(named) != 1:
            listed = ", ".join(map(repr, named or table.column_names))
            raise DatasetError(f"{folder}: which column holds the labels? Name it with --label-column: {listed}")
        found = named[0]
    return found


def _labels(column: Any, names: list[str] | None, folder: Path) -> tuple[tuple[str, ...] | None, Any]:
    """Return the classes, where the dataset names them, and labels as words; -1 is a row without a label."""
    if names is None:
        return None, words(column, f"{folder}: labels")
    if not pa.types.is_integer(column.type):
        raise DatasetError(f"{folder}: labels of named classes are {column.type}; expected integers")
    largest = pc.max(column).as_py()  # looked at before the sign: unsigned ones may be too large for that
    if largest is not None and largest >= len(names):
        raise DatasetError(f"{folder}: label {largest}, but {len(names)} classes are named")
    codes = pc.if_else(pc.less(column, 0), None, column)
    return tuple(names), pa.chunked_array([pa.array(names, pa.string()).take(codes.combine_chunks())])


def _features(info: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Return what dataset_info.json says of each column."""
    features = info.get("features") or {}
    if not isinstance(features, dict):
        raise DatasetError(f"{folder / 'dataset_info.json'}: its list of columns (features) is damaged")
    for column, feature in features.items():  # a list stands for a sequence, in older versions of datasets
        names = feature.get("names") if isinstance(feature, dict) else None
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise DatasetError(f"{folder / 'dataset_info.json'}: the classes of {column!r} are no list of names")
    return {column: feature if isinstance(feature, dict) else {} for column, feature in features.items()}


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise DatasetError(f"{path}: expected an object, got {type(value).__name__}")
    return value
