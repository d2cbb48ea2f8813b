"""A user's own files: which reader takes a path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from labeltrace.data.dataset import Dataset, DatasetError
from labeltrace.data.options import ReadOptions
from labeltrace.files import expanded

if TYPE_CHECKING:
    from labeltrace.data.own.part import Part

KINDS = (
    "a folder with one folder of images per class, a table (.csv, .tsv, .parquet) of paths or features with labels, "
    "arrays (.npz, or .npy with --labels), or a folder saved by Hugging Face's datasets"
)
LONGEST_NAME = 60  # characters; a name of a folder has 255 bytes, and other words come after this one


def is_path(data: str) -> bool:
    """Whether `data` is meant as a path: it exists, or looks like one."""
    try:
        there = Path(data).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long, of an unknown user, with a NUL: no dataset has such a name
        there = True
    return there or "/" in data or "." in data


def load_own(path: Path, read: ReadOptions) -> Dataset:
    """Return the dataset at `path`: an image folder, a manifest, a file of arrays, or a saved Hugging Face dataset.

    Image files are listed, not opened, except for the heads of a few that tell their size.

    Args:
        path: of the folder or file.
        read: columns, sizes, a file of labels, a test set; see `ReadOptions`.

    Raises:
        DatasetError: nothing there, or nothing that can be used; the message says where and what to do.
    """
    from labeltrace.data.own.part import assemble

    train, test = _read(path, read)
    if read.test is not None:
        test = _read_test(expanded(read.test), read)
    return assemble(safe_name(path), train, test, read)


def _read(path: Path, read: ReadOptions) -> tuple[Part, Part | None]:
    from labeltrace.data.own.arrays import read_arrays
    from labeltrace.data.own.folder import read_folder
    from labeltrace.data.own.huggingface import is_huggingface, read_huggingface
    from labeltrace.data.own.manifest import read_manifest

    with told(path):
        if path.is_dir():
            if read.labels is not None:
                raise DatasetError(f"{path}: --labels goes with arrays and features; a folder carries its own labels")
            return read_huggingface(path, read) if is_huggingface(path) else read_folder(path)
        if not path.exists():
            raise DatasetError(f"{path}: no such file or folder; expected {KINDS}")
        suffix = path.suffix.lower()
        if suffix in (".npy", ".npz"):
            return read_arrays(path, read)
        if suffix in (".csv", ".tsv", ".parquet"):
            return read_manifest(path, read)
    raise DatasetError(f"{path}: files of this kind are not read; expected {KINDS}")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what the system says about a file into one sentence."""
    try:
        yield
    except OSError as error:
        raise DatasetError(f"{error.filename or path}: {(error.strerror or str(error)).lower()}") from None


def _read_test(path: Path, read: ReadOptions) -> Part:
    """Return a test set in a folder or file of its own."""
    from dataclasses import replace

    from labeltrace.data.own.folder import read_classes
    from labeltrace.data.own.huggingface import is_huggingface

    if path.suffix.lower() == ".npy":
        raise DatasetError(f"{path}: an .npy file carries no labels; put the test set into an .npz file with x and y")
    with told(path):
        if path.is_dir() and not is_huggingface(path):
            return read_classes(path, test=True)
    return _read(path, replace(read, labels=None))[0]


def safe_name(path: Path) -> str:
    """Return a name for the data at a path that is safe as the name of a folder.

    >>> safe_name(Path("/data/my pets (v2).csv"))
    'my-pets-v2'
    """
    whole = path.absolute()
    try:
        stem = whole.name if whole.is_dir() else whole.stem
    except (OSError, ValueError):  # a path that nothing can have; who reads it will say so
        stem = whole.stem
    return re.sub(r"[^\w.-]+", "-", stem)[:LONGEST_NAME].strip("-.") or "data"
