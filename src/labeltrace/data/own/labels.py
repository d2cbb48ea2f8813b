"""Labels in a file of their own, beside inputs that carry none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltrace.data.dataset import DatasetError
from labeltrace.data.names import Names
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.numpy_files import load_npy
from labeltrace.data.own.part import Part, strings, words
from labeltrace.data.own.table import LABELS, SUFFIXES, find_column, open_table, text_lines
from labeltrace.files import expanded, is_file


def with_labels(part: Part, read: ReadOptions) -> Part:
    """Return `part` with the labels in the file `read.labels`, one for each of its rows in their order.

    A part without names takes those in the column `id` of a table of labels, where there is one.

    Raises:
        DatasetError: no such file, no labels in it, another number of them, an id that is missing or comes twice.
    """
    assert read.labels is not None
    path = expanded(read.labels)
    labels, ids, lines, unit = _read(path, read, named=part.ids is not None)
    if len(labels) != len(part.inputs):
        raise DatasetError(f"{part.file} has {len(part.inputs)} rows, but {path} has {len(labels)} labels")
    whole = replace(part, labels=labels, file=str(path), lines=lines, unit=unit)
    return whole if ids is None else replace(whole, ids=_names(ids, whole))


def _read(path: Path, read: ReadOptions, named: bool) -> tuple[Any, Any, Any, str]:
    """Return labels, ids (None: not here), the number of each in the file (None: its index), and what that counts."""
    suffix = path.suffix.lower()
    if not is_file(path):
        raise DatasetError(f"{path}: no such file (--labels)")
    if suffix == ".npy":
        return words(load_npy(path), f"{path}: labels"), None, None, "row"
    if suffix == ".txt":
        lines = [line.strip() for line in text_lines(path)]
        while lines and not lines[-1]:
            lines.pop()
        return words(pa.array(lines, pa.string()), f"{path}: labels"), None, np.arange(1, len(lines) + 1), "line"
    if suffix in SUFFIXES:
        table = open_table(path)
        column = find_column(table.names, read.label_column, LABELS, "label", path)
        if column is None:
            raise DatasetError(
                f"{path}: no column of labels ({', '.join(LABELS)}); name it with --label-column, "
                "or, for one label per line without a header, call the file .txt"
            )
        name = None if named else find_column(table.names, read.id_column, ("id",), "id", path)
        columns, numbers = table.read([column] if name in (None, column) else [column, name])
        ids = None if name is None else words(columns[name], f"{path}: ids")
        return words(columns[column], f"{path}: labels"), ids, numbers, table.unit
    raise DatasetError(f"{path}: labels are read from .npy, .txt, .csv, .tsv and .parquet files")


def _names(ids: Any, part: Part) -> Names:
    """Return the ids of a part as names: all there, no two alike."""
    rows: dict[str, int] = {}
    for i, word in enumerate(strings(ids)):
        if word is None:
            raise DatasetError(f"{part.place(i)}: no id; give every row one, or leave the column out")
        first = rows.setdefault(word, i)
        if first != i:
            raise DatasetError(f"{part.place(first)} and {part.place(i)}: id {word!r} twice; make them distinct")
    return Names(rows)
