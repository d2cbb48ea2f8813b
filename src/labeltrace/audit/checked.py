"""Samples that a person has checked: a table of ids and correct classes, matched with the samples table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labeltrace.audit.samples import class_names, values
from labeltrace.audit.thresholds import Chosen, choose_thresholds
from labeltrace.data.own.load import told
from labeltrace.data.own.part import words
from labeltrace.data.own.table import LABELS, SUFFIXES, find_column, open_table
from labeltrace.errors import InputError, nearest
from labeltrace.files import is_file

CLASSES = ("correct", "truth", *LABELS)
ANSWERS = {"0", "1", "yes", "no", "y", "n", "true", "false", "t", "f", "right", "wrong"}  # to "is the label right?"


def read_checked(path: Path, table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows [K] of the samples table that a file speaks of, and the correct class [K] of each.

    The file has a column `id` and one of right classes (`correct`, `truth`, `label`, `class`, …), by name or by number.

    Raises:
        InputError: no such file or column, an id that the run does not have or that comes twice, an unknown class, a
            column that says whether labels are right instead of which class is.
    """
    if path.suffix.lower() not in SUFFIXES or not is_file(path):
        raise InputError(
            f"--checked {path}: expected a .csv, .tsv or .parquet file with columns id and correct (the right class)"
        )
    with told(path):
        file = open_table(path)
        name = find_column(file.names, None, ("id",), "id", path)
        correct = find_column(file.names, None, CLASSES, "label", path)
        if name is None or correct is None:
            expected = f"id and correct, the right class (or {', '.join(CLASSES[1:])})"
            raise InputError(f"{path}: expected columns {expected}; found {', '.join(map(repr, file.names))}")
        columns, lines = file.read([name, correct])
    numbers = np.arange(len(columns)) if lines is None else lines

    def place(i: int) -> str:
        return f"{path}, {file.unit} {numbers[i]}"

    ids, classes = words(columns[name], f"{path}: ids"), words(columns[correct], f"{path}: classes")
    rows = find_ids(ids, table["id"], place, "the run")
    known = class_names(table)
    _check_classes(classes, known, f"{path}, column {correct!r}")
    return rows, np.array([class_number(word, known, place(i)) for i, word in enumerate(classes.to_pylist())])


def _check_classes(classes: Any, known: list[str], where: str) -> None:
    """Refuse a column of yes and no, in whatever words, unless a class is called so."""
    found = {word.casefold(): word for word in pc.unique(classes).to_pylist() if word is not None}
    if found and found.keys() <= ANSWERS and found.keys().isdisjoint(name.casefold() for name in known):
        held = " and ".join(repr(found[word]) for word in sorted(found))
        raise InputError(
            f"{where}: holds nothing but {held}, as if to say whether the label is right; "
            f"expected the right class of each sample by its name, such as {known[0]!r}"
        )


def find_ids(ids: Any, known: Any, place: Any, where: str) -> NDArray[np.int64]:
    """Return where each of `ids` [K] stands among `known` [N].

    Args:
        ids: a pyarrow array of strings.
        known: likewise, of distinct ones.
        place: number of an id → where it is written, for messages.
        where: the known ones are, for messages.

    Raises:
        InputError: one that is missing, unknown or given twice.
    """
    found = pc.index_in(ids, value_set=known)
    if found.null_count:
        i = int(pc.index(pc.is_null(found), True).as_py())
        word = ids[i].as_py()
        raise InputError(f"{place(i)}: " + ("no id" if word is None else f"{where} has no sample {word!r}"))
    rows = np.asarray(found).astype(np.int64)
    _, first, counts = np.unique(rows, return_index=True, return_counts=True)
    if (counts > 1).any():
        i = int(first[counts > 1].min())
        raise InputError(f"{place(i)}: id {ids[i].as_py()!r} comes {counts[first == i][0]} times; keep one")
    return rows


def class_number(word: str | None, names: list[str], where: str) -> int:
    """Return the number of a class given by its name, or by its number where no name is one.

    >>> class_number("dog", ["cat", "dog"], "--class"), class_number("1", ["cat", "dog"], "--class")
    (1, 1)
    >>> class_number("1", ["3", "7"], "--class")
    Traceback (most recent call last):
    labeltrace.errors.InputError: --class: no class '1': known: 3, 7
    """
    if word is None:
        raise InputError(f"{where}: no class")
    if word in names:
        return names.index(word)
    if word.isdecimal() and int(word) < len(names) and not any(name.isdecimal() for name in names):
        return int(word)
    raise InputError(f"{where}: no class {word!r}: {nearest(word, names[:1000])}")


def thresholds_from(path: Path, table: pa.Table, precision: float) -> Chosen:
    """Return the thresholds that reach a precision on the samples that a file has checked."""
    rows, truth = read_checked(path, table)
    columns = ("observed", "suggested", "observed_reliability", "confidence")
    observed, suggested, label, suggestion = (values(table, name)[rows] for name in columns)
    return choose_thresholds(observed, suggested, label, suggestion, truth, precision)
