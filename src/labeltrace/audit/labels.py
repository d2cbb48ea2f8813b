"""The labels of a user's own files, read to be changed: the same file again, with other labels and all else as it was.

| data | what is written |
|---|---|
| manifest .csv, .tsv | the file; rows that do not change keep their bytes |
| manifest .parquet | the file; the label column keeps its type |
| .npz | the archive; only the array of labels is another |
| arrays with --labels | the file of labels (.npy, .txt, .csv, .tsv, .parquet) |
| class folders | a manifest .csv (id, path, label); no image is moved |
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labeltrace.data.dataset import UNKNOWN
from labeltrace.data.options import ReadOptions
from labeltrace.data.own import arrays
from labeltrace.data.own.folder import read_folder
from labeltrace.data.own.huggingface import is_huggingface
from labeltrace.data.own.load import KINDS, told
from labeltrace.data.own.numpy_files import load_npy, load_npz
from labeltrace.data.own.part import strings, words
from labeltrace.data.own.table import LABELS, PATHS, SUFFIXES, Table, TextTable, find_column, open_table, text_lines
from labeltrace.errors import InputError
from labeltrace.files import expanded, is_file, write_atomically

BOM = b"\xef\xbb\xbf"


class LabelFile(ABC):
    """Labels in a file.

    Attributes:
        path: of the file.
        suffix: that the name of a new one must have.
        labels: [N] words, a pyarrow array of strings.
        ids: [N] names of the samples; without any, their numbers.
        known: classes of the set.
    """

    def __init__(self, path: Path, labels: Any, ids: Any = None, truth: Any = None) -> None:
        self.path, self.suffix, self.labels = path, path.suffix.lower(), labels
        self.ids = pa.array(np.arange(len(labels))).cast(pa.string()) if ids is None else ids
        columns = [labels] if truth is None else [labels, truth]
        self.known = sorted({word for column in columns for word in pc.unique(column).to_pylist() if word is not None})
        if len(self.ids) != len(labels):
            raise InputError(f"{path}: {len(labels)} labels for {len(self.ids)} samples")
        if self.ids.null_count:
            raise InputError(f"{path}: {self.ids.null_count} samples without an id; give every one its own")
        if pc.count_distinct(self.ids).as_py() != len(self.ids):
            counts = pc.value_counts(self.ids)
            twice = counts.field(0)[int(pc.index(pc.greater(counts.field(1), 1), True).as_py())].as_py()
            raise InputError(f"{path}: id {twice!r} names more than one sample; make them distinct")

    def check_out(self, out: Path) -> None:
        """Refuse a name or place that the new file cannot have."""
        if out.suffix.lower() != self.suffix:
            raise InputError(f"--out {out}: expected a name that ends in {self.suffix}")

    def write(self, out: Path, changes: Mapping[int, str]) -> None:
        """Write the file with other labels in some rows, whole or not at all.

        Args:
            out: where to.
            changes: row → its new label.

        Raises:
            InputError: a label that the type of the file's labels cannot hold, or a place that cannot be written.
        """
        self.check_out(out)
        try:
            write_atomically(out, lambda temporary: self._write(temporary, out, changes))
        except OSError as error:
            raise InputError(f"--out {out}: {error.strerror or error}") from None

    def emptied(self, changes: Mapping[int, str]) -> list[str]:
        """Return the classes that some changes leave without a sample."""
        counts = Counter({entry["values"]: entry["counts"] for entry in self.labels.value_counts().to_pylist()})
        counts.subtract(self.labels.take(pa.array(list(changes), pa.int64())).to_pylist())
        counts.update(changes.values())
        return sorted(word for word, count in counts.items() if not count)

    @abstractmethod
    def _write(self, temporary: Path, out: Path, changes: Mapping[int, str]) -> None: ...


def open_labels(data: Path, read: ReadOptions) -> LabelFile:
    """Return the labels of the data at a path, or of the file `read.labels` beside it.

    Raises:
        InputError: nothing there, or nothing whose labels can be changed.
    """
    with told(data):
        return _open(data, read) if read.labels is None else _beside(data, expanded(read.labels), read)


def _open(data: Path, read: ReadOptions) -> LabelFile:
    if data.is_dir():
        if is_huggingface(data):
            raise InputError(f"{data}: labels of a saved Hugging Face dataset are not changed here; use its own map()")
        return FolderLabels(data)
    if not is_file(data):
        raise InputError(f"{data}: no such file or folder; expected {KINDS}")
    suffix = data.suffix.lower()
    if suffix == ".npz":
        return NpzLabels(data)
    if suffix in SUFFIXES:
        table = open_table(data)
        return (TextLabels if isinstance(table, TextTable) else ParquetLabels)(table, read)
    if suffix == ".npy":
        raise InputError(f"{data}: an .npy file carries no labels; name their file with --labels")
    raise InputError(f"{data}: files of this kind are not read; expected {KINDS}")


def _beside(data: Path, labels: Path, read: ReadOptions) -> LabelFile:
    if not is_file(data):
        raise InputError(f"{data}: no such file; --labels goes with arrays and features")
    ids, suffix = None, data.suffix.lower()
    if suffix == ".npz":
        ids = _npz_ids(load_npz(data, set(arrays.IDS)), data)
    elif suffix in SUFFIXES:
        table = open_table(data)
        name = find_column(table.names, read.id_column, ("id",), "id", data)
        ids = None if name is None else words(table.read([name])[0][name], f"{data}: ids")
    if not is_file(labels):
        raise InputError(f"{labels}: no such file (--labels)")
    suffix = labels.suffix.lower()
    if suffix == ".npy":
        return NpyLabels(labels, ids)
    if suffix == ".txt":
        return LineLabels(labels, ids)
    if suffix in SUFFIXES:
        table = open_table(labels)
        return (TextLabels if isinstance(table, TextTable) else ParquetLabels)(table, read, ids, beside=True)
    raise InputError(f"{labels}: labels are read from .npy, .txt, .csv, .tsv and .parquet files")


class TableLabels(LabelFile):
    """Labels in a column of a manifest, or of a file of labels beside the data."""

    def __init__(self, table: Table, read: ReadOptions, ids: Any = None, *, beside: bool = False) -> None:
        path = table.path
        label = find_column(table.names, read.label_column, LABELS, "label", path)
        if label is None:
            raise InputError(f"{path}: no column of labels ({', '.join(LABELS)}); name it with --label-column")
        self.table, self.column = table, label
        roles = {"label": label}
        wanted: list[tuple[str, str | None, tuple[str, ...]]] = []
        if ids is None:
            wanted += [("id", read.id_column, ("id",))]
        if not beside:
            wanted += [("path", read.path_column, PATHS), ("truth", read.truth_column, ("truth",))]
        for role, given, usual in wanted:
            found = find_column(table.names, given, usual, role, path)
            if found is not None:
                roles[role] = found
        columns, _ = table.read(list(dict.fromkeys(roles.values())))
        named = {role: words(columns[name], f"{path}: column {name!r}") for role, name in roles.items()}
        self.paths = named.get("path")
        super().__init__(path, named["label"], named.get("id", self.paths) if ids is None else ids, named.get("truth"))

    def check_out(self, out: Path) -> None:
        """Also refuse another folder where the paths in the file would lead nowhere."""
        super().check_out(out)
        moved = out.absolute().parent.resolve() != self.path.absolute().parent.resolve()
        if moved and self.paths is not None and any(not Path(path or "").is_absolute() for path in strings(self.paths)):
            raise InputError(
                f"--out {out}: the paths in {self.path} start from its folder; put the new file into that folder too"
            )


class TextLabels(TableLabels):
    """A column of a CSV or TSV file."""

    table: TextTable

    def _write(self, temporary: Path, out: Path, changes: Mapping[int, str]) -> None:
        place = self.table.names.index(self.column)
        with self.path.open("rb") as file:
            bom = file.read(len(BOM)) == BOM
        with temporary.open("wb") as file:
            file.write(BOM if bom else b"")
            row = -2
            for raw, fields in self._records():
                row += any(fields)  # blank lines are no rows, the header is row -1
                if any(fields) and row in changes:
                    fields[place] = changes[row]
                    raw = self._line(fields) + raw[len(raw.rstrip("\r\n")) :]
                file.write(raw.encode("utf-8"))

    def _records(self) -> Iterable[tuple[str, list[str]]]:
        """Yield every row as it stands in the file, and its fields."""
        taken: list[str] = []

        def lines() -> Iterable[str]:
            for line in text_lines(self.path):
                taken.append(line)
                yield line

        for fields in csv.reader(lines(), delimiter=self.table.separator, skipinitialspace=True, strict=True):
            yield "".join(taken), fields
            taken.clear()

    def _line(self, fields: list[str]) -> str:
        line = io.StringIO()
        csv.writer(line, delimiter=self.table.separator, lineterminator="\r\n").writerow(fields)  # so both are quoted
        return line.getvalue().removesuffix("\r\n")


class ParquetLabels(TableLabels):
    """A column of a Parquet file."""

    def _write(self, temporary: Path, out: Path, changes: Mapping[int, str]) -> None:
        table = pq.ParquetFile(self.path).read()
        place = table.column_names.index(self.column)
        field = table.schema.field(place)
        column = table[self.column].combine_chunks()
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        rows = sorted(changes)
        mask = np.zeros(len(column), bool)
        mask[rows] = True
        try:
            new = pa.array([changes[row] for row in rows], pa.string())
            new = (new.cast(pa.int64()) if pa.types.is_floating(plain) else new).cast(plain)
            changed = pc.replace_with_mask(column.cast(plain), pa.array(mask), new)
        except pa.ArrowInvalid as error:
            raise InputError(f"{self.path}: labels are {plain}; {str(error).splitlines()[0]}") from None
        if plain != field.type:
            changed = changed.dictionary_encode().cast(field.type)
        pq.write_table(table.set_column(place, field, changed), temporary)


class LineLabels(LabelFile):
    """One label per line of a text file."""

    def __init__(self, path: Path, ids: Any = None) -> None:
        self.lines = list(text_lines(path))
        labels = [line.strip() for line in self.lines]
        while labels and not labels[-1]:
            labels.pop()
        super().__init__(path, words(pa.array(labels, pa.string()), f"{path}: labels"), ids)

    def _write(self, temporary: Path, out: Path, changes: Mapping[int, str]) -> None:
        lines = list(self.lines)
        for row, word in changes.items():
            lines[row] = word + lines[row][len(lines[row].rstrip("\r\n")) :]
        temporary.write_bytes("".join(lines).encode("utf-8"))


class NpyLabels(LabelFile):
    """An array of labels in an .npy file."""

    def __init__(self, path: Path, ids: Any = None) -> None:
        self.array = np.array(load_npy(path))
        super().__init__(path, words(self.array, f"{path}: labels"), ids)

    def _write(self, temporary: Path, out: Path, changes: Mapping[int, str]) -> None:
        with temporary.open("wb") as file:
            np.lib.format.write_array(file, retyped(self.array, changes, self.path), allow_pickle=False)


class NpzLabels(LabelFile):
    """The array of labels in an .npz archive; all others are copied byte for byte."""

    def __init__(self, path: Path) -> None:
        found = load_npz(path, {*arrays.LABELS, *arrays.IDS, *arrays.TRUTH})
        folded = {name.casefold(): name for name in found}
        name = next((folded[usual] for usual in arrays.LABELS if usual in folded), None)
        if name is None:
            raise InputError(f"{path}: no labels ({', '.join(arrays.LABELS)}); name their file with --labels")
        self.name, self.array = name, found[name]
        truth = arrays.find_array(found, arrays.TRUTH)
        known = None if truth is None else words(truth, f"{path}: true labels")
        known = None if known is None else pc.if_else(pc.equal(known, str(UNKNOWN)), None, known)
        super().__init__(path, words(self.array, f"{path}: labels"), _npz_ids(found, path), known)

    def _write(self, temporary: Path, out: Path, changes: Mapping[int, str]) -> None:
        new = retyped(self.array, changes, self.path)
        with zipfile.ZipFile(self.path) as source, zipfile.ZipFile(temporary, "w") as target:
            for entry in source.infolist():
                copy = zipfile.ZipInfo(entry.filename, entry.date_time)
                copy.compress_type, copy.external_attr = entry.compress_type, entry.external_attr
                with source.open(entry) as old, target.open(copy, "w", force_zip64=True) as file:
                    if entry.filename == f"{self.name}.npy":
                        np.lib.format.write_array(file, new, allow_pickle=False)
                    else:
                        while block := old.read(1 << 20):
                            file.write(block)


class FolderLabels(LabelFile):
    """A folder with one folder of images per class; the new labels are a manifest that leaves the images in place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        train, test = read_folder(root)
        self.parts = {"train": train} if test is None else {"train": train, "test": test}
        for part in self.parts.values():
            if part.inputs.names is not part.ids:  # type: ignore[union-attr]
                raise InputError(
                    f"{root}: some names of files are not UTF-8, which a manifest cannot hold; rename them"
                )
        super().__init__(root, train.labels, pa.array(iter(train.ids or ()), pa.string(), size=len(train.labels)))
        self.suffix = ".csv"

    def _write(self, temporary: Path, out: Path, changes: Mapping[int, str]) -> None:
        start = os.path.relpath(self.root.resolve(), out.absolute().parent.resolve())
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            split = len(self.parts) > 1
            writer.writerow(["id", "path", "label", *(["split"] if split else [])])
            for name, part in self.parts.items():
                changed = changes if name == "train" else {}
                for row, (sample, label) in enumerate(zip(part.ids or (), strings(part.labels), strict=True)):
                    path = sample if start == "." else f"{start}/{sample}"
                    writer.writerow([sample, path, changed.get(row, label), *([name] if split else [])])


def retyped(array: NDArray[Any], changes: Mapping[int, str], path: Path) -> NDArray[Any]:
    """Return a copy of an array of labels [N] or [N, 1] with some changed; strings may become wider.

    >>> retyped(np.array(["ox", "cat"]), {0: "mouse"}, Path("y.npy")).tolist()
    ['mouse', 'cat']
    """
    kind, rows, new = array.dtype.kind, list(changes), list(changes.values())
    try:
        if kind == "b":
            given: NDArray[Any] = np.array([{"true": True, "false": False}[word] for word in new])
        elif kind in "iuf":
            given = np.array([int(word) for word in new])
            if kind != "f" and len(given):
                limits = np.iinfo(array.dtype)
                if given.min() < limits.min or given.max() > limits.max:
                    raise ValueError
        else:
            given = np.array([word.encode() for word in new] if kind == "S" else new)
    except (KeyError, ValueError, OverflowError):
        raise InputError(f"{path}: its labels are {array.dtype}, which cannot hold every class of the diff") from None
    wide = array.dtype if kind in "biuf" or not new else np.result_type(array.dtype, given.dtype)
    changed = array.astype(wide, copy=True)
    if new:
        changed.reshape(-1)[rows] = given
    return changed


def _npz_ids(found: Mapping[str, NDArray[Any]], path: Path) -> Any:
    ids = arrays.find_array(found, arrays.IDS)
    return None if ids is None else words(ids, f"{path}: ids")
