"""Labels in a file of their own, beside inputs that carry none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltrace.data.dataset import DatasetError
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.numpy_files import load_npy
from labeltrace.data.own.part import Part, words
from labeltrace.data.own.table import LABELS, SUFFIXES, find_column, open_table, text_lines
from labeltrace.files import expanded, is_file


def with_labels(part: Part, read: ReadOptions) -> Part:
    """Return `part` with the labels in the file `read.labels`, one for each of its rows in their order.

    Raises:
        DatasetError: no such file, no labels in it, or another number of them.
    """
    assert read.labels is not None
    path = expanded(read.labels)
    labels, lines, unit = _read(path, read)
    if len(labels) != len(part.inputs):
        raise DatasetError(f"{part.file} has {len(part.inputs)} rows, but {path} has {len(labels)} labels")
    return replace(part, labels=labels, file=str(path), lines=lines, unit=unit)


def _read(path: Path, read: ReadOptions) -> tuple[Any, Any, str]:
    """Return the labels, and the number of each in the file (None: its index), and what that counts."""
    suffix = path.suffix.lower()
    if not is_file(path):
        raise DatasetError(f"{path}: no such file (--labels)")
    if suffix == ".npy":
        return words(load_npy(path), f"{path}: labels"), None, "row"
    if suffix == ".txt":
        lines = [line.strip() for line in text_lines(path)]
        while lines and not lines[-1]:
            lines.pop()
        return words(pa.array(lines, pa.string()), f"{path}: labels"), np.arange(1, len(lines) + 1), "line"
    if suffix in SUFFIXES:
        table = open_table(path)
        column = find_column(table.names, read.label_column, LABELS, "label", path)
        if column is None:
            raise DatasetError(
                f"{path}: no column of labels ({', '.join(LABELS)}); name it with --label-column, "
                "or, for one label per line without a header, call the file .txt"
            )
        columns, numbers = table.read([column])
        return words(columns[column], f"{path}: labels"), numbers, table.unit
    raise DatasetError(f"{path}: labels are read from .npy, .txt, .csv, .tsv and .parquet files")
