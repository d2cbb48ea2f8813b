"""A dataset by its name, or by the path of a user's own files, also of files that have moved."""

from __future__ import annotations

import contextlib
import difflib
from pathlib import Path

from labeltrace.data.dataset import Dataset, DatasetError, datasets
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.load import is_path, load_own
from labeltrace.files import exists, expanded, is_file

FILES = (".csv", ".tsv", ".parquet", ".npy", ".npz")  # endings of own data that is a file, not a folder
SIMILAR = 3  # names that an error offers


def load_dataset(
    data: str | Path, root: str | Path | None = None, seed: int = 0, read: ReadOptions | None = None
) -> Dataset:
    """Return a dataset; images that are files are not read yet, see `labeltrace.data.prepare`.

    Args:
        data: a registered name, or the path of an image folder, a manifest or a file of arrays.
        root: the folder that holds the dataset of that name; not used with a path.
        seed: of the split, where none is official.
        read: how a user's files are read.

    >>> load_dataset("digits")
    Dataset(name='digits', train=Split(1347 samples, uint8 [1, 8, 8]), test=Split(450 samples, uint8 [1, 8, 8]), ...)
    >>> load_dataset("digit")
    Traceback (most recent call last):
    labeltrace.data.dataset.DatasetError: digit: no dataset and no file or folder of this name; did you mean 'digits'?
    """
    read = read or ReadOptions()
    if not str(data):
        raise DatasetError("data: empty; give a dataset by name, or the path of own files")
    if isinstance(data, Path) or (data not in datasets and is_path(data)):
        return load_own(expanded(Path(data)), read)
    if data not in datasets:
        raise DatasetError(f"{data}: no dataset and no file or folder of this name; {_similar(data)}")
    return datasets[data](None if root is None else expanded(Path(root)), seed, read)


def moved(data: Path, root: Path) -> Path:
    """Return where own data is that was at `data`: `root` itself, or what has the old name in it.

    A folder of the old name is taken for the data, not for what holds it; a file is looked for in a folder by its name.
    """
    root = expanded(root).absolute()
    inside = root / data.name
    if root.name == data.name or is_file(root) or not exists(root):
        return root
    return inside if exists(inside) or data.suffix.lower() in FILES else root


def follow(file: Path, old: Path, new: Path) -> Path:
    """Return where a file is that lay in or beside data, which has moved from `old` to `new`.

    It is not searched for where it is still in its place, or not at the new one either.
    """
    for before, after in ((old, new), (old.parent, new.parent)):
        if file.is_relative_to(before) and not exists(file):
            there = after / file.relative_to(before)
            if exists(there):
                return there
    return file


def _similar(name: str) -> str:
    """What was meant by a name that is none: files here and datasets like it, or where all datasets are listed."""
    here: list[str] = []
    with contextlib.suppress(OSError):
        here = sorted(path.name for path in Path().iterdir() if not path.name.startswith("."))
    close = difflib.get_close_matches(name, [*here, *datasets], n=SIMILAR)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else "labeltrace list datasets shows the datasets"
