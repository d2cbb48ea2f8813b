"""A folder of images, one folder per class below it."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from labeltrace.data.dataset import DatasetError
from labeltrace.data.images import ImageFiles
from labeltrace.data.names import Names, printable
from labeltrace.data.own.part import Part, class_order
from labeltrace.data.own.splits import choose_splits, split_of

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
UNREAD = (".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".psd", ".dng", ".cr2", ".nef", ".arw")  # pictures too
LAYOUT = "expected one folder per class with its images; or pass a table of paths and labels (.csv, .tsv, .parquet)"


def read_folder(root: Path) -> tuple[Part, Part | None]:
    """Return the training part and, where there is one, the test part of an image folder.

    Folders `train` and `test` (or `val`) in it are taken as the splits; `train` alone beside folders of other names is
    a class. Samples are in the order of their names, whatever the file system's.

    Raises:
        DatasetError: no class folders, a class without images, a test class without training images.
    """
    train, test = _splits(root)
    if train is None:
        return read_classes(root, ""), None
    return read_classes(root, train), None if test is None else read_classes(root, test, test=True)


def read_classes(root: Path, below: str = "", test: bool = False) -> Part:
    """Return the images in the class folders of `root/below`, under their paths from `root`.

    Args:
        root: folder that the names of the samples start from.
        below: folder in it that holds the class folders.
        test: whether a class may have no images.
    """
    folder = root / below
    classes = class_order(_folders(folder))
    if not classes:
        loose = sum(1 for name in _entries(folder) if name.lower().endswith(SUFFIXES))
        found = f"{loose} images directly in it" if loose else "no folders in it"
        raise DatasetError(f"{folder}: {found}; {LAYOUT}")
    files: list[str] = []
    counts: list[int] = []
    unread: Counter[str] = Counter()
    for name in classes:
        found_files = sorted(_images(folder, name, unread))
        files += (f"{below}/{file}" if below else file for file in found_files)
        counts.append(len(found_files))
    if unread:
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in unread.most_common())
        warnings.warn(f"{folder}: left out, as they are not read: {kinds}; convert them to .jpg", stacklevel=2)
    _check(folder, classes, counts, test)
    ids = Names(files)
    labels = pa.chunked_array([np.repeat(np.array([printable(name) for name in classes], object), counts)], pa.string())
    printed = Names(map(printable, files))
    images = ImageFiles(ids, side=0, root=root.absolute())
    return Part(str(folder), images, labels, ids=ids if printed.nbytes == ids.nbytes else printed, unit="image")


def _check(folder: Path, classes: Sequence[str], counts: Sequence[int], test: bool) -> None:
    empty = [printable(name) for name, count in zip(classes, counts, strict=True) if not count]
    if not sum(counts):
        raise DatasetError(f"{folder}: no images ({' '.join(SUFFIXES)}) in its {len(classes)} folders; {LAYOUT}")
    if empty and not test:
        shown = ", ".join(map(repr, empty[:5])) + (", …" if len(empty) > 5 else "")
        raise DatasetError(
            f"{folder}: {len(empty)} of {len(classes)} class folders hold no images: {shown}; remove them"
        )
    if len(classes) == 1 and not test:
        only = printable(classes[0])
        inner = len(_folders(folder / classes[0]))
        hint = f"; if its {inner} folders are the classes, pass {folder / only}" if inner > 1 else ""
        raise DatasetError(f"{folder}: one class only, {only!r}; classification needs two or more{hint}")


def _splits(root: Path) -> tuple[str | None, str | None]:
    """Return the folders that hold the training part and the test part, or None where `root` holds classes."""
    folders = _folders(root)
    train, test = choose_splits(folders)
    if train is None or not _folders(root / train):  # class folders in it, or it is a class itself
        return None, None
    if test is None and any(split_of(name) is None for name in folders):
        return None, None
    return train, test


def _entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not _is_hidden(entry.name))


def _folders(folder: Path) -> list[str]:
    return [name for name in _entries(folder) if (folder / name).is_dir()]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db")


def _images(
    root: Path, below: str, unread: Counter[str], parents: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[str]:
    """Yield the images in a folder and the folders below it, by their paths from `root`; count those of `UNREAD`."""
    folder = root / below
    state = folder.stat()
    this = (state.st_dev, state.st_ino)
    if this in parents:  # a link back to a folder that this one is in
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _images(root, f"{below}/{entry.name}", unread, parents | {this})
            elif entry.name.lower().endswith(SUFFIXES) and (entry.is_file() or entry.is_symlink()):
                yield f"{below}/{entry.name}"  # also a link to nothing: that it is broken is told when it is read
            elif entry.name.lower().endswith(UNREAD):
                unread[Path(entry.name).suffix.lower()] += 1
