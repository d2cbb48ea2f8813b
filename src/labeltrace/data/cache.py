"""Decoded images on disk, up to a bound: the second epoch reads pixels instead of JPEGs.

A cache is two files: `KEY.pixels` with one slot per image and `KEY.marks` with 16 bytes per image, which say which
image is in the slot. Pixels are written first, so a mark that was written stands for a whole image; an image that
changed has another mark and is decoded again. Images beyond the last slot have a mark alone: it says that the file was
decoded once without complaint.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

MARK = 16  # bytes
GIGABYTE = 10**9


def cache_folder() -> Path:
    """Return where caches are kept: $LABELTRACE_CACHE, or labeltrace/ in the user's cache folder."""
    given = os.environ.get("LABELTRACE_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "labeltrace"


class DiskCache:
    """Slots for images of one size, shared by every process that reads the same list of images.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = DiskCache(Path(folder), "key", count=3, side=2, slots=2)
    ...     image = torch.arange(12, dtype=torch.uint8).view(3, 2, 2)
    ...     cache.put(0, b"0" * 16, image)
    ...     cache.put(2, b"2" * 16, image)
    ...     print(cache.get(0, b"0" * 16).equal(image), cache.get(0, b"1" * 16))
    ...     print(cache.get(2, b"2" * 16), cache.seen(2, b"2" * 16))
    True None
    None True

    Args:
        folder: of the two files, which are made when they are not there.
        key: their name.
        count: number of images.
        side: of an image [3, side, side].
        slots: how many of the first images have room for their pixels.
    """

    def __init__(self, folder: Path, key: str, count: int, side: int, slots: int) -> None:
        self.pixels, self.marks = folder / f"{key}.pixels", folder / f"{key}.marks"
        self.count, self.side, self.slots = count, side, min(slots, count)
        self.bytes = 3 * side * side
        self._open: tuple[int, int, int] | None = None  # process, pixels, marks
        folder.mkdir(parents=True, exist_ok=True)
        self._files()
        os.utime(self.marks)  # used now: the least recently used cache goes first

    def get(self, i: int, mark: bytes) -> Tensor | None:
        """Return the pixels of image `i` if its slot holds the image of this mark."""
        if i >= self.slots or not self.seen(i, mark):
            return None
        pixels, _ = self._files()
        data = bytearray(os.pread(pixels, self.bytes, i * self.bytes))
        if len(data) != self.bytes:
            return None
        return torch.frombuffer(data, dtype=torch.uint8).view(3, self.side, self.side)

    def put(self, i: int, mark: bytes, image: Tensor) -> None:
        """Keep an image; where the disk is full it is not kept, and nothing else happens."""
        pixels, marks = self._files()
        with contextlib.suppress(OSError):
            if i < self.slots:
                os.pwrite(marks, bytes(MARK), i * MARK)
                if os.pwrite(pixels, image.numpy().tobytes(), i * self.bytes) != self.bytes:
                    return
            os.pwrite(marks, mark, i * MARK)

    def seen(self, i: int, mark: bytes) -> bool:
        """Whether image `i` was decoded before and has not changed since."""
        return os.pread(self._files()[1], MARK, i * MARK) == mark

    def _files(self) -> tuple[int, int]:
        """Return the two open files; a forked process opens its own."""
        if self._open is None or self._open[0] != os.getpid():
            flags = os.O_RDWR | os.O_CREAT
            self._open = os.getpid(), os.open(self.pixels, flags, 0o644), os.open(self.marks, flags, 0o644)
        return self._open[1:]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_open": None}

    def __del__(self) -> None:
        if self._open is not None and self._open[0] == os.getpid():
            for file in self._open[1:]:
                with contextlib.suppress(OSError):
                    os.close(file)


def open_cache(key: str, count: int, side: int, limit_gb: float) -> DiskCache | None:
    """Return the cache of a list of images, or None where nothing can be written.

    All caches together keep to `limit_gb`: those used least recently are deleted to make room for this one, and what
    then does not fit has no slot. A limit of 0 means no cache.
    """
    if not limit_gb or not hasattr(os, "pread"):  # Windows has no reading at a place
        return None
    folder = cache_folder()
    limit = int(min(limit_gb, GIGABYTE) * GIGABYTE)  # also where no limit (inf) is asked for
    slots = min(count, limit // (3 * side * side))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        room = limit - slots * 3 * side * side
        for other, size in sorted(_others(folder, key), key=lambda entry: entry[0].stat().st_mtime, reverse=True):
            room -= size
            if room < 0:
                other.with_suffix(".pixels").unlink(missing_ok=True)
                other.unlink(missing_ok=True)
        return DiskCache(folder, key, count, side, slots)
    except OSError:
        return None


def _others(folder: Path, key: str) -> Iterator[tuple[Path, int]]:
    """Yield the marks of the other caches and the bytes that each takes on disk."""
    for marks in folder.glob("*.marks"):
        if marks.stem != key:
            pixels = marks.with_suffix(".pixels")
            yield marks, pixels.stat().st_blocks * 512 if pixels.exists() else 0
