"""Numpy's files, read without running anything in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labeltrace.data.dataset import DatasetError


def load_npy(path: Path) -> NDArray[Any]:
    """Return the array in an .npy file, left on disk until it is copied.

    Raises:
        DatasetError: no array, or one of Python objects, which would run code when it is loaded.
    """
    array = _load(path, "r")
    if not isinstance(array, np.ndarray):
        raise DatasetError(f"{path}: a .npz archive under the name of an .npy file; rename it")
    return array


def load_npz(path: Path, wanted: Collection[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays in an .npz file by their names; those that are not wanted (in any case) are left empty.

    Raises:
        DatasetError: as `load_npy`.
    """
    file = _load(path, None)
    if isinstance(file, np.ndarray):
        raise DatasetError(f"{path}: an .npy array under the name of an .npz file; rename it")
    with file, _told(path):
        found = {name: file[name] if name.casefold() in wanted else np.empty(0) for name in file.files}
    for name, array in found.items():
        if not isinstance(array, np.ndarray):  # numpy hands over the bytes of any other file in the archive
            raise DatasetError(f"{path}: {name!r} in it is no array")
    return found


def _load(path: Path, mapped: Literal["r"] | None) -> Any:
    with _told(path):
        return np.load(path, mmap_mode=mapped, allow_pickle=False)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what can be wrong with a file into one sentence."""
    try:
        yield
    except Exception as error:  # damaged bytes can raise nearly anything
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise DatasetError(
                f"{path}: holds Python objects; save plain arrays, e.g. np.array(labels, dtype=str)"
            ) from None
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DatasetError(f"{path}: not a file of numpy arrays, or damaged ({reason})") from None
