"""A dataset by its name, or by the path of a user's own files."""

from __future__ import annotations

from pathlib import Path

from labeltrace.data.dataset import Dataset, DatasetError, datasets
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.load import is_path, load_own
from labeltrace.files import expanded


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
    labeltrace.errors.InputError: unknown dataset 'digit': did you mean 'digits'?
    """
    read = read or ReadOptions()
    if not str(data):
        raise DatasetError("data: empty; give a dataset by name, or the path of own files")
    if isinstance(data, Path) or (data not in datasets and is_path(data)):
        return load_own(expanded(Path(data)), read)
    return datasets[data](None if root is None else expanded(Path(root)), seed, read)
