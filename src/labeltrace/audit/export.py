"""The samples table as a file that other programs read: names beside numbers, CSV, Parquet or JSON lines."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labeltrace.audit.samples import class_names
from labeltrace.engine.folder import finite
from labeltrace.errors import InputError
from labeltrace.files import write_atomically

SUFFIXES = (".csv", ".parquet", ".jsonl")
CHUNK = 1 << 16  # rows that are Python objects at a time


def queue(table: pa.Table, score: NDArray[np.float64]) -> pa.Table:
    """Return the table with its ranking score [N], and the name of each class beside its number."""
    names = pa.array(class_names(table), pa.string())
    columns = {"index": table["index"], "id": table["id"], "score": pa.array(score, pa.float64())}
    for column in table.column_names:
        columns.setdefault(column, table[column])
        if column in ("observed", "suggested", "truth"):
            codes = pc.if_else(pc.less(table[column], 0), None, table[column])
            columns[f"{column}_class"] = names.take(codes.combine_chunks())
    return pa.table(columns).replace_schema_metadata(table.schema.metadata)


def check_file(path: Path, flag: str, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Refuse a name that no table can be written to, before anything is computed."""
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{flag} {path}: expected a name that ends in {', '.join(suffixes)}")
    try:
        folder = path.is_dir()
    except OSError as error:
        raise InputError(f"{flag} {path}: {error.strerror}") from None
    if folder:
        raise InputError(f"{flag} {path} is a folder")


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table by the ending of the file's name, whole or not at all.

    Raises:
        InputError: another ending, or a place where nothing can be written.
    """
    check_file(path, "file")
    write = {".csv": _csv, ".parquet": pq.write_table, ".jsonl": _jsonl}[path.suffix.lower()]
    try:
        write_atomically(path, lambda temporary: write(table, temporary))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _csv(table: pa.Table, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(table.column_names)
    with path.open("ab") as file:
        pacsv.write_csv(table, file, pacsv.WriteOptions(include_header=False))


def _jsonl(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in table.to_batches(CHUNK):
            file.writelines(f"{json.dumps(finite(row), ensure_ascii=False)}\n" for row in batch.to_pylist())
