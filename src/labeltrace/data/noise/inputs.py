"""Files that noise is made from: transition matrices and scores."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeltrace.errors import InputError, nearest
from labeltrace.files import is_file


def read_matrix(path: str | Path, classes: Sequence[str]) -> NDArray[Any]:
    """Return the matrix [C, C] in a .csv, .npy or .npz file, its rows and columns in the order of `classes`.

    A CSV file may name the classes in its first line, its first column or both, in any order; where only one names
    them, the other has the same order. An .npz file holds the matrix under `matrix`, or nothing else.

    Raises:
        InputError: no such file, not readable, another shape, an entry that is no number, names that are no classes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "confusion.csv")
    ...     _ = path.write_text("true,dog,cat\\ncat,0.1,0.9\\ndog,0.8,0.2\\n")
    ...     read_matrix(path, ["cat", "dog"])
    array([[0.9, 0.1],
           [0.2, 0.8]])
    """
    path = Path(path)
    if path.suffix.lower() == ".csv":
        return _read_csv(path, list(classes))
    return _read_array(path, "matrix", ".csv, .npy or .npz")


def read_scores(path: str | Path) -> NDArray[Any]:
    """Return the scores [N, C] in a .npy file, or in an .npz file under `scores` or alone; shapes are not checked here.

    >>> read_scores("scores.txt")
    Traceback (most recent call last):
    labeltrace.errors.InputError: scores.txt: expected a .npy or .npz file
    """
    return _read_array(Path(path), "scores", ".npy or .npz")


def _read_array(path: Path, key: str, formats: str) -> NDArray[Any]:
    if path.suffix.lower() not in (".npy", ".npz"):
        raise InputError(f"{path}: expected a {formats} file")
    if not is_file(path):
        raise InputError(f"no file {path}")
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return content
        with content:
            names = content.files
            if key in names or len(names) == 1:
                return np.asarray(content[key if key in names else names[0]])
    except Exception as error:  # bytes that are no array can raise nearly anything
        raise InputError(f"{path}: not a readable array ({error})") from error
    raise InputError(f"{path}: expected an array {key!r}, found {', '.join(sorted(names)) or 'none'}")


def _read_csv(path: Path, classes: list[str]) -> NDArray[np.float64]:
    cells = _cells(path)
    count, widths = len(classes), {len(row) for row in cells}
    height, width = len(cells), max(widths, default=0)
    if len(widths) != 1 or height not in (count, count + 1) or width not in (count, count + 1):
        found = f"{height} lines of {' or '.join(map(str, sorted(widths)))} columns"
        raise InputError(f"{path}: expected {count} lines and columns, with or without class names; found {found}")
    header, column = height > count, width > count
    columns = _order(path, cells[0][width - count :], classes) if header else None
    rows = _order(path, [row[0] for row in cells[height - count :]], classes) if column else None
    body = [row[width - count :] for row in cells[height - count :]]
    values = np.array([[_number(path, text) for text in row] for row in body])
    same = range(count)
    return values[np.ix_(rows or columns or same, columns or rows or same)]


def _cells(path: Path) -> list[list[str]]:
    """Return the cells of the lines that hold any."""
    if not is_file(path):
        raise InputError(f"no file {path}")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [[cell.strip() for cell in line] for line in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a readable CSV file ({error})") from error
    return [line for line in lines if any(line)]


def _order(path: Path, names: list[str], classes: list[str]) -> list[int]:
    """Return where each class stands among the names."""
    for name in names:
        if name not in classes:
            raise InputError(f"{path}: no class {name!r}: {nearest(name, classes)}")
    for name in classes:
        if name not in names:
            raise InputError(f"{path}: class {name!r} is missing, another is named twice")
    return [names.index(name) for name in classes]


def _number(path: Path, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{path}: {text!r} is no number") from None
