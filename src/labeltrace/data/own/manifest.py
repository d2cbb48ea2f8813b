"""A table of samples: image paths with their labels, or features with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from labeltrace.data.dataset import DatasetError
from labeltrace.data.images import ImageFiles
from labeltrace.data.names import Names
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.labels import with_labels
from labeltrace.data.own.part import Part, strings, words
from labeltrace.data.own.splits import split_of, train_and_test
from labeltrace.data.own.table import LABELS, PATHS, Table, find_column, numbers, open_table, vectors


def read_manifest(path: Path, read: ReadOptions) -> tuple[Part, Part | None]:
    """Return the training part and, where a column tells the split, the test part of a .csv, .tsv or .parquet file.

    With a column of paths (relative to the file's folder) the samples are image files; they are not opened here.
    Without one they are features: one column of lists, or every column of numbers that has no other part to play.

    Raises:
        DatasetError: a column or value that is missing, unknown or given twice.
    """
    table = open_table(path)
    paths = find_column(table.names, read.path_column, PATHS, "path", path)
    label = find_column(table.names, read.label_column, LABELS, "label", path)
    split = find_column(table.names, read.split_column, ("split",), "split", path)
    name = find_column(table.names, read.id_column, ("id",), "id", path)
    truth = find_column(table.names, read.truth_column, ("truth",), "truth", path)
    if label is None and (paths is not None or read.labels is None):
        expected = f"{', '.join(LABELS)}"
        raise DatasetError(
            f"{path}: no column of labels ({expected}); name it with --label-column. "
            f"Columns: {', '.join(map(repr, table.names))}"
        )
    roles = [column for column in (paths, label, split, name, truth) if column is not None]
    features = [] if paths is not None else _features(table, roles)
    columns, lines = table.read(list(dict.fromkeys(roles + features)))
    part = Part(str(path), torch.empty(0), None, unit=table.unit, lines=lines)
    if paths is not None:
        files = _required(columns[paths], paths, part)
        inputs: Any = ImageFiles(strings(files), side=0, root=path.absolute().parent)
    else:
        inputs = torch.from_numpy(_read_features(columns, features, part))
    ids: Names | None = inputs.names if paths is not None else None
    if name is not None:
        ids = Names(strings(_required(columns[name], name, part)))
    part = replace(
        part,
        inputs=inputs,
        labels=None if label is None else words(columns[label], f"{path}: labels"),
        truth=None if truth is None else words(columns[truth], f"{path}: true labels"),
        ids=ids,
    )
    if ids is not None:
        _check_distinct(columns[name or paths], part, "id" if name is not None else "path")
    if label is None:
        part = with_labels(part, read)
    if split is None:
        return part, None
    return train_and_test(part, _splits(columns[split], part))


def _features(table: Table, roles: Sequence[str]) -> list[str]:
    """Return the columns that hold the features."""
    lists = [name for name in table.list_columns() if name not in roles]
    if len(lists) > 1:
        raise DatasetError(f"{table.path}: columns {', '.join(map(repr, lists))} hold lists; keep the one to train on")
    found = lists or [name for name in table.names if name not in roles and table.is_number(name)]
    if not found:
        raise DatasetError(
            f"{table.path}: neither a column of paths ({', '.join(PATHS)}; or --path-column) nor one of features. "
            f"Columns: {', '.join(map(repr, table.names))}"
        )
    return found


def _read_features(columns: Any, names: Sequence[str], part: Part) -> NDArray[np.float32]:
    first = columns[names[0]]
    if len(names) == 1 and hasattr(first.type, "value_type"):
        return vectors(first, part.place)
    found = np.empty((len(columns), len(names)), np.float32)
    for place, name in enumerate(names):
        found[:, place] = numbers(columns[name], name, part.place)
    return found


def _required(column: Any, name: str, part: Part) -> Any:
    """Return a column as strings, none of them missing."""
    column = words(column, f"{part.file}: column {name!r}")
    if column.null_count:
        raise DatasetError(f"{part.place(_first(pc.is_null(column)))}: no value in column {name!r}")
    return column


def _check_distinct(column: Any, part: Part, what: str) -> None:
    column = words(column, part.file)
    if pc.count_distinct(column).as_py() == len(column):
        return
    counts = pc.value_counts(column)
    value = counts.field(0)[_first(pc.greater(counts.field(1), 1))]
    first, second = np.flatnonzero(np.asarray(pc.equal(column, value)))[:2]
    fix = "remove one, or give each row a name of its own in a column id" if what == "path" else "make them distinct"
    number = second if part.lines is None else part.lines[second]
    raise DatasetError(f"{part.place(int(first))} and {part.unit} {number}: {what} {value.as_py()!r} twice; {fix}")


def _splits(column: Any, part: Part) -> NDArray[np.str_]:
    """Return "train", "test" or "validation" for each row."""
    column = words(column, f"{part.file}: splits")
    known = {}
    for value in pc.unique(column).to_pylist():
        known[value] = split_of(value) if value is not None else None
        if known[value] is None:
            i = _first(pc.is_null(column) if value is None else pc.equal(column, value))
            found = "no split" if value is None else f"split {value!r}"
            raise DatasetError(f"{part.place(i)}: {found}; expected train, test or validation")
    encoded = column.combine_chunks().dictionary_encode()
    return np.array([known[value] for value in encoded.dictionary.to_pylist()])[np.asarray(encoded.indices)]


def _first(mask: Any) -> int:
    return int(pc.index(mask, True).as_py())
