"""Writing files so that a kill at any moment leaves the old one or the new one, never a half."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from labeltrace.errors import InputError


def expanded(path: Path) -> Path:
    """Return a path with `~` and `~user` in place of the home folders they stand for.

    Raises:
        InputError: there is no such user.

    >>> expanded(Path("~nobody-of-this-name/data"))
    Traceback (most recent call last):
    labeltrace.errors.InputError: ~nobody-of-this-name/data: the home folder of ~nobody-of-this-name is not known
    """
    try:
        return path.expanduser()
    except RuntimeError:
        raise InputError(f"{path}: the home folder of {path.parts[0]} is not known") from None


def is_file(path: Path) -> bool:
    """Whether a path is that of a file; one that no file can have (too long, a NUL in it) is not.

    >>> is_file(Path("x" * 5000))
    False
    """
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def exists(path: Path) -> bool:
    """Whether there is something at a path; at one that nothing can have (too long, a NUL in it) there is not.

    >>> exists(Path("x" * 5000))
    False
    """
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one move."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
