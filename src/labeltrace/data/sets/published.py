"""A published image set by its description: the one reading of its folder that both loading and checking use."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from labeltrace.data.dataset import Dataset, Split, datasets
from labeltrace.data.decode import BadImage
from labeltrace.data.images import ImageFiles, Images
from labeltrace.data.options import ReadOptions
from labeltrace.data.sets.layout import Finding, Folder, Report, checks, refuse
from labeltrace.data.sizing import MEAN, STD
from labeltrace.data.views import ImageViews

SAMPLE = 1_000  # images per split that a loader looks for; a check looks for all

IMAGENET = (MEAN, STD)
"""Mean and deviation of ImageNet, which every code for it uses."""
CLOTHING = ((0.6959, 0.6537, 0.6371), (0.3113, 0.3192, 0.3214))
"""Those of DivideMix's Clothing1M, which others took over for Food-101N."""
UNSCALED = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
"""Levels in [0, 1] as they are."""


@dataclass(frozen=True)
class Listed:
    """The images of one split in their official order: paths below the root, and labels."""

    part: str
    paths: Sequence[str]
    labels: Sequence[int]

    def images(self, root: Path, side: int) -> Images:
        """Return the images, to be read later."""
        return ImageFiles(self.paths, side, root)


@dataclass(frozen=True)
class Contents:
    """What the lists of a dataset say."""

    classes: tuple[str, ...]
    train: Listed
    test: Listed


@dataclass(frozen=True)
class Published:
    """A published image set: its names, how its folder is read, and the views of its official code.

    Attributes:
        name: in the registry.
        about: one line for people.
        title: in messages.
        remedy: what to obtain and where to put it.
        contents: reads the lists in the folder.
        side: of the square that an image is kept as; the views cut their window out of it.
        views: of the official code.
        inner: folder that the archive unpacks to; the root may be this or the one that holds it.
    """

    name: str
    about: str
    title: str
    remedy: str
    contents: Callable[[Folder], Contents]
    side: int
    views: ImageViews
    inner: str = ""

    def register(self) -> Published:
        """Make the dataset known by its name, to be loaded and to be checked."""
        datasets.add(self.name, lambda root, seed, read: self.load(root, read), self.about)
        checks[self.name] = self.check
        return self

    def load(self, root: str | Path | None, read: ReadOptions | None = None, strict: bool = True) -> Dataset:
        """Return the dataset; its images are files that are read later.

        Args:
            root: the folder.
            read: how images are read.
            strict: whether counts must be the official ones.

        Raises:
            DatasetError: the first of what `check` would list. Of the images, `SAMPLE` of each split are looked for
                and three are opened, unless bad images are skipped: then each is dealt with when it is read.
        """
        read = read or ReadOptions()
        folder = self.folder(root, strict=strict)
        contents = self.contents(folder)
        side, views = self._sizes(read)
        splits = []
        for listed in (contents.train, contents.test):
            images = _found(folder, listed, contents.classes, side)
            if read.bad_images == "stop":
                _look(folder, listed.part, images, range(0, len(images), max(1, len(images) // SAMPLE)))
            # A list that names an image twice leaves the number as the only name.
            ids = images.names if len(set(listed.paths)) == len(images) else None
            splits.append(Split(images, torch.tensor(listed.labels, dtype=torch.int64), ids=ids))
        return Dataset(self.name, splits[0], splits[1], contents.classes, views)

    def check(self, root: Path | None) -> list[Finding]:
        """Return all that is wrong with the dataset under `root`: lists, counts, labels, and every missing image."""
        findings: list[Finding] = []
        folder = self.folder(root, findings.append)
        if not findings:
            contents = self.contents(folder)
            for listed in (contents.train, contents.test):
                images = _found(folder, listed, contents.classes, self.side)
                _look(folder, listed.part, images, range(len(images)))
        return findings

    def folder(self, root: str | Path | None, report: Report = refuse, strict: bool = True) -> Folder:
        """Return the folder to read, the inner one where it is there."""
        base = Path("ROOT" if root is None else root).expanduser()
        folder = Folder(self.title, base, self.remedy, report, strict)
        if root is None:
            folder.wrong("train and test", base, "the folder of the dataset expected, found no root")
        elif not base.is_dir():
            folder.wrong("train and test", base, "a file, not a folder" if base.exists() else "no such folder")
        elif self.inner and (base / self.inner).is_dir():
            folder.root = base / self.inner
        return folder

    def _sizes(self, read: ReadOptions) -> tuple[int, ImageViews]:
        """Return the side of the images and the views, both in proportion to the size that was asked for."""
        views = replace(self.views, flip=self.views.flip and read.flip)
        if read.image_size is None:
            return self.side, views
        seen = self.views.size or self.side
        views = replace(
            views,
            size=None if self.views.size is None else read.image_size,
            padding=round(self.views.padding * read.image_size / seen),
        )
        return math.ceil(self.side * read.image_size / seen), views


def _found(folder: Folder, listed: Listed, classes: Sequence[str], side: int) -> Images:
    """Return the listed images, after reporting that there are none, or none of some class."""
    if folder.strict and listed.labels:  # that there are none at all is a wrong count, which was reported
        present = set(listed.labels)
        empty = [name for i, name in enumerate(classes) if i not in present]
        folder.unknown(listed.part, folder.root, "classes have no image", empty)
    elif not listed.labels and not folder.strict:
        folder.wrong(listed.part, folder.root, "no images are listed")
    return listed.images(folder.root, side)


def _look(folder: Folder, part: str, images: Images, places: range) -> None:
    """Report which of the images at `places` are missing, and which of the first, middle and last cannot be used."""
    missing = absent(images, places)
    for i in missing:
        assert isinstance(images, ImageFiles)
        folder.wrong(part, images.path(i), f"no such image; {len(missing):,} of {len(places):,} looked for are missing")
    if len(images):
        for i in sorted({0, len(images) // 2, len(images) - 1} - set(missing)):
            try:
                images.decode(i)
            except BadImage as error:
                folder.wrong(part, Path(error.name), error.reason)


def absent(images: Images, places: range) -> list[int]:
    """Return which of the images at `places` are files that are not there.

    >>> absent(ImageFiles(["no-such.jpg"], side=8), range(1))
    [0]
    """
    if not isinstance(images, ImageFiles):
        return []
    return [i for i in places if not os.path.exists(os.path.join(images.root, images.names[i]))]  # noqa: PTH110, PTH118
