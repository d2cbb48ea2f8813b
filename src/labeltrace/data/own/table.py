"""Tables: CSV, TSV and Parquet files as named columns. A mistake in one is told with its line."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labeltrace.data.dataset import DatasetError
from labeltrace.errors import nearest

PATHS = ("path", "file", "filename", "file_name", "image", "image_path")
LABELS = ("label", "class", "target", "category", "y")
SUFFIXES = (".csv", ".tsv", ".parquet")
CHUNK = 1 << 15  # rows of a CSV file that are Python objects at a time


class Table(ABC):
    """A file with named columns.

    Attributes:
        path: of the file.
        names: of its columns.
        unit: what a row is called in messages.
    """

    unit = "row"

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, list(names)
        for name in self.names:
            if self.names.count(name) > 1:
                raise DatasetError(f"{path}: column {name!r} appears {self.names.count(name)} times; rename one")

    @abstractmethod
    def read(self, names: Sequence[str]) -> tuple[Any, NDArray[np.int64] | None]:
        """Return columns as a pyarrow table, and the number of each row in the file (None: its index)."""

    @abstractmethod
    def is_number(self, name: str) -> bool:
        """Whether a column may hold numbers; in CSV that shows when it is read."""

    def list_columns(self) -> list[str]:
        """Return the columns that hold a list of numbers in each row."""
        return []


def open_table(path: Path) -> Table:
    """Return the table in a .csv, .tsv or .parquet file.

    Raises:
        DatasetError: the file is none, or has no header or rows that cannot be read.
    """
    return ParquetTable(path) if path.suffix.lower() == ".parquet" else TextTable(path)


class TextTable(Table):
    """A CSV or TSV file in UTF-8 with a header; blanks after a separator do not count."""

    unit = "line"

    def __init__(self, path: Path) -> None:
        first = next(text_lines(path), "")
        self.separator = "\t" if path.suffix.lower() == ".tsv" else ","
        if self.separator not in first:  # spreadsheets of half of the world write semicolons
            self.separator = next((other for other in ";\t" if other in first), self.separator)
        header = next(self._rows(path), None)
        if header is None:
            raise DatasetError(f"{path}: the file is empty; expected a header such as path,label")
        super().__init__(path, [name.strip() for name in header[1]])

    def _rows(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the last line of each row, and its fields."""
        reader = csv.reader(text_lines(path), delimiter=self.separator, skipinitialspace=True, strict=True)
        try:
            for row in reader:
                if any(row):
                    yield reader.line_num, row
        except csv.Error as error:
            raise DatasetError(f"{path}, line {reader.line_num}: {error}; is a quote left open?") from None

    def read(self, names: Sequence[str]) -> tuple[Any, NDArray[np.int64] | None]:
        """Return columns of strings; an empty field is null."""
        places = [self.names.index(name) for name in names]
        parts: list[list[Any]] = [[] for _ in names]
        lines = array("q")
        waiting: list[list[str]] = []

        def keep() -> None:
            for part, column in zip(parts, zip(*waiting, strict=True), strict=False):
                part.append(pa.array([value or None for value in column], pa.string()))
            waiting.clear()

        rows = self._rows(self.path)
        next(rows)
        for line, row in rows:
            if len(row) != len(self.names):
                raise DatasetError(
                    f"{self.path}, line {line}: {len(row)} fields for {len(self.names)} columns; "
                    f"put quotes around a value that holds {self.separator!r}"
                )
            waiting.append([row[place] for place in places])
            lines.append(line)
            if len(waiting) == CHUNK:
                keep()
        keep()
        if not lines:
            raise DatasetError(f"{self.path}: a header and nothing below it")
        return pa.table([pa.chunked_array(p, pa.string()) for p in parts], names=list(names)), np.array(lines, np.int64)

    def is_number(self, name: str) -> bool:
        """Whether a column may hold numbers: all but the nameless one in which pandas writes its index."""
        return name not in ("", "Unnamed: 0")


class ParquetTable(Table):
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        try:
            self.schema = pq.read_schema(path)
        except pa.ArrowException as error:
            raise DatasetError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from None
        super().__init__(path, self.schema.names)

    def read(self, names: Sequence[str]) -> tuple[Any, NDArray[np.int64] | None]:
        """Return columns of the types that the file has."""
        import pyarrow.parquet as pq

        try:
            table = pq.ParquetFile(self.path).read(columns=list(names))
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"{self.path}: cannot be read ({str(error).splitlines()[0]})") from None
        if not len(table):
            raise DatasetError(f"{self.path}: there are no rows")
        return table, None

    def is_number(self, name: str) -> bool:
        """Whether a column holds numbers; not the one in which pandas keeps its index."""
        kind = self.schema.field(name).type
        return (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not name.startswith("__index_level_")

    def list_columns(self) -> list[str]:
        """Return the columns that hold a list of numbers in each row."""
        return [field.name for field in self.schema if is_vector(field.type)]


def find_column(names: Sequence[str], given: str | None, defaults: Sequence[str], role: str, where: Path) -> str | None:
    """Return the column that was asked for, or the first of the usual names in any case, or None.

    Raises:
        DatasetError: the column that was asked for is not there.

    >>> find_column(["Image_Path", "Label"], None, PATHS, "path", Path("a.csv"))
    'Image_Path'
    """
    if given is not None:
        if given not in names:
            raise DatasetError(f"{where}: no column {given!r} (--{role}-column): {nearest(given, names)}")
        return given
    folded = {name.casefold(): name for name in reversed(names)}
    return next((folded[usual] for usual in defaults if usual in folded), None)


def is_vector(kind: Any) -> bool:
    """Whether a pyarrow type is a list of numbers."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def vectors(column: Any, place: Any) -> NDArray[np.float32]:
    """Return a column of lists as float32 [N, D].

    Args:
        column: a pyarrow array of lists of numbers.
        place: row → where it is, for messages.

    Raises:
        DatasetError: a row without a list, or with one of another length.
    """
    lengths = np.asarray(pc.fill_null(pc.list_value_length(column), -1))
    odd = np.flatnonzero((lengths != lengths[0]) | (lengths < 1))
    if len(odd):
        i = int(odd[0])
        found = "no list of numbers" if lengths[i] < 1 else f"{lengths[i]} numbers where the first row has {lengths[0]}"
        raise DatasetError(f"{place(i)}: {found}")
    flat = pc.list_flatten(column)
    return _float32(flat).reshape(len(column), -1)


def numbers(column: Any, name: str, place: Any) -> NDArray[np.float32]:
    """Return a column of numbers, or of numbers in words, as float32 [N].

    Raises:
        DatasetError: a value that is missing or no number.
    """
    try:
        text = pa.types.is_string(column.type)
        values = (pc.utf8_trim_whitespace(column) if text else column).cast(pa.float64(), safe=False)
        if values.null_count == 0:
            return _float32(values)
    except pa.ArrowInvalid:
        pass
    i, value = next((i, value) for i, value in enumerate(column.to_pylist()) if not _is_number(value))
    found = "no value" if value is None else f"{value!r} is no number"
    raise DatasetError(
        f"{place(i)}, column {name!r}: {found}; without a column of paths every other column is a feature"
    )


def _float32(values: Any) -> NDArray[np.float32]:
    """Return numbers as float32; what is too large for it is infinite, and refused later as that."""
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float32)


def _is_number(value: Any) -> bool:
    try:
        pa.array([str(value).strip()]).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return value is not None


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file in UTF-8; anything else in it is told with its line."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise DatasetError(f"{path}, line {number}: not UTF-8; save the file as UTF-8 (CSV UTF-8)") from None
            if "\0" in line:
                raise DatasetError(f"{path}, line {number}: a NUL byte; this is no text file, or it is damaged")
            yield line
