"""mini-WebVision (Li et al. 2017; Jiang et al. 2018): the 50 first classes of WebVision 1.0, images found by Google.

Tested on WebVision's own validation images or on those of ILSVRC12, 50 of each class. Which labels are wrong is not
known.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from labeltrace.data.sets.layout import Folder, found_in
from labeltrace.data.sets.published import IMAGENET, Contents, Listed, Published
from labeltrace.data.views import ImageViews

CLASSES = 50
ALL_CLASSES = 1_000  # of WebVision 1.0
TRAIN = 65_944
PER_CLASS = 50  # validation images of each class, in both test sets
TRAIN_LIST, TEST_LIST = "info/train_filelist_google.txt", "info/val_filelist.txt"
TEST_IMAGES = "val_images_256"
IMAGENET_LIST, IMAGENET_IMAGES = "imagenet_val.txt", "imagenet/val"

_REMEDY = (
    "Get WebVision 1.0 (images of 256 pixels) from https://data.vision.ee.ethz.ch/cvl/webvision/ and unpack it so that "
    "the root holds info/, google/ and val_images_256/."
)
_LIST_REMEDY = f"mini-WebVision needs {TRAIN_LIST} of WebVision 1.0."
_IMAGENET_REMEDY = (
    f"Put the ILSVRC12 validation images of the {CLASSES} classes under imagenet/val/ in the root (a link will do), in "
    f"folders named 0 to {CLASSES - 1} or by wnid, or give their labels in imagenet_val.txt."
)


def _contents(folder: Folder, ilsvrc12: bool) -> Contents:
    wnids, classes = _classes(folder)
    train = _list(folder, "train", TRAIN_LIST, "")
    what = f"lines with label < {CLASSES}"
    if (folder.root / TRAIN_LIST).is_file():
        folder.count(
            "train", folder.root / TRAIN_LIST, what, len(train.labels), TRAIN, f"{_LIST_REMEDY} {folder.remedy}"
        )
    if ilsvrc12:
        return Contents(classes, train, _ilsvrc12(folder, wnids, classes))
    test = _list(folder, "test", TEST_LIST, f"{TEST_IMAGES}/")
    if (folder.root / TEST_LIST).is_file():
        folder.count("test", folder.root / TEST_LIST, what, len(test.labels), CLASSES * PER_CLASS)
        folder.each_class("test", folder.root / TEST_LIST, test.labels, classes, PER_CLASS)
    return Contents(classes, train, test)


def _list(folder: Folder, part: str, name: str, prefix: str) -> Listed:
    pairs = folder.labelled(part, folder.file(part, name), ALL_CLASSES)
    return _first_classes(part, [(prefix + path, label) for path, label in pairs])


def _first_classes(part: str, pairs: list[tuple[str, int]]) -> Listed:
    kept = [(path, label) for path, label in pairs if label < CLASSES]
    return Listed(part, [path for path, _ in kept], [label for _, label in kept])


def _classes(folder: Folder) -> tuple[list[str], tuple[str, ...]]:
    """Return the wnids and the names of the classes out of info/synsets.txt; without it none, and their numbers."""
    path = folder.root / "info/synsets.txt"
    numbers = tuple(map(str, range(CLASSES)))
    if not path.is_file():
        return [], numbers
    lines = folder.lines("class names", path)[:CLASSES]
    wnids = [line.split()[0] for line in lines]
    folder.count("class names", path, "classes or more", len(wnids), CLASSES)
    bad = [wnid for wnid in wnids if not _is_wnid(wnid)]
    folder.unknown("class names", path, "lines do not start with a wnid", bad)
    if len(set(wnids)) != CLASSES or bad:
        return [], numbers
    names = [line.partition(" ")[2].split(",")[0].strip() for line in lines]
    return wnids, tuple(names if len(set(names)) == CLASSES else wnids)


def _ilsvrc12(folder: Folder, wnids: list[str], classes: tuple[str, ...]) -> Listed:
    """Return the ILSVRC12 images, out of a list or of folders: one per class, named by its number or its wnid."""
    folder = Folder(folder.title, folder.root, _IMAGENET_REMEDY, folder.report, folder.strict)
    images = folder.root / IMAGENET_IMAGES
    for place in ("", "info/", "imagenet/"):
        if (folder.root / place / IMAGENET_LIST).is_file():
            test = _list(folder, "ILSVRC12 test", place + IMAGENET_LIST, f"{IMAGENET_IMAGES}/")
            break
    else:
        test = _folders(folder, images, wnids)
    if images.is_dir():
        folder.each_class("ILSVRC12 test", images, test.labels, classes, PER_CLASS)
    return test


def _folders(folder: Folder, images: Path, wnids: list[str]) -> Listed:
    """Return the images in folders, one per class."""
    if not images.is_dir():
        folder.wrong("ILSVRC12 test", images, f"no such folder; found {found_in(folder.root)}")
        return Listed("ILSVRC12 test", [], [])
    inside = [entry.name for entry in images.iterdir() if entry.is_dir()]
    if not any(map(_is_wnid, inside)):
        names = list(map(str, range(CLASSES)))
    else:  # WebVision's classes are in the order of the wnids
        names = wnids or sorted(filter(_is_wnid, inside))[:CLASSES]
    pairs = [
        (f"{IMAGENET_IMAGES}/{name}/{file}", label)
        for label, name in enumerate(names)
        for file in folder.images("ILSVRC12 test", images / name)
    ]
    return _first_classes("ILSVRC12 test", pairs)


def _is_wnid(name: str) -> bool:
    return re.fullmatch(r"n\d{8}", name) is not None


def _published(name: str, about: str, ilsvrc12: bool) -> Published:
    return Published(
        name,
        about,
        title="mini-WebVision",
        remedy=_REMEDY,
        contents=partial(_contents, ilsvrc12=ilsvrc12),
        side=320,  # DivideMix: Resize(320), RandomResizedCrop(299) with torchvision's scale
        views=ImageViews(*IMAGENET, padding=0, size=299, scale=(0.08, 1.0)),
    ).register()


WEBVISION = _published(
    "webvision-mini", f"mini-WebVision, {TRAIN:,} web images of 50 classes, tested on its own", False
)
WEBVISION_ILSVRC12 = _published("webvision-mini-ilsvrc12", "mini-WebVision, tested on ILSVRC12's 2,500 images", True)
