"""Tiny-ImageNet: 200 classes of ImageNet at 64×64. Its labels are clean; wrong ones are made.

Its validation images are the test set, the unlabelled ones are not used.
"""

from __future__ import annotations

from labeltrace.data.sets.layout import Folder
from labeltrace.data.sets.published import IMAGENET, Contents, Listed, Published
from labeltrace.data.views import ImageViews

CLASSES = 200
PER_CLASS = 500  # training images of each class
TEST = 10_000
ANNOTATIONS = "val/val_annotations.txt"

_REMEDY = (
    "Get tiny-imagenet-200.zip from http://cs231n.stanford.edu/tiny-imagenet-200.zip, unpack it, leave val/ as it is, "
    "and pass as root the folder that holds tiny-imagenet-200/."
)


def _contents(folder: Folder) -> Contents:
    path = folder.file("class names", "wnids.txt")
    wnids = sorted(set(folder.lines("class names", path)))
    folder.count("class names", path, "classes", len(wnids), CLASSES)
    return Contents(_names(folder, wnids), _train(folder, wnids), _test(folder, wnids))


def _names(folder: Folder, wnids: list[str]) -> tuple[str, ...]:
    """Return the first word for each class, or its wnid where there is none or another class has the same."""
    path = folder.root / "words.txt"
    words = dict(line.partition("\t")[::2] for line in folder.lines("class names", path)) if path.is_file() else {}
    names = [words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids]
    return tuple(name if names.count(name) == 1 else wnid for name, wnid in zip(names, wnids, strict=True))


def _train(folder: Folder, wnids: list[str]) -> Listed:
    paths: list[str] = []
    labels: list[int] = []
    for label, wnid in enumerate(wnids):
        images = f"train/{wnid}/images"
        files = folder.images("train", folder.root / images)
        if (folder.root / images).is_dir():
            folder.count("train", folder.root / images, "images", len(files), PER_CLASS)
        paths += [f"{images}/{file}" for file in files]
        labels += [label] * len(files)
    return Listed("train", paths, labels)


def _test(folder: Folder, wnids: list[str]) -> Listed:
    path = folder.file("test", ANNOTATIONS)
    label = {wnid: i for i, wnid in enumerate(wnids)}
    rows = [[*line.split("\t"), ""][:2] for line in folder.lines("test", path)]
    if wnids:
        others = [f"{file} {wnid}".strip() for file, wnid in rows if wnid not in label]
        folder.unknown("test", path, "lines name no class of wnids.txt", others)
    known = [(file, label[wnid]) for file, wnid in rows if wnid in label]
    folder.count("test", path, "lines", len(rows), TEST)
    return Listed("test", [f"val/images/{file}" for file, _ in known], [label for _, label in known])


TINY_IMAGENET = Published(
    "tiny-imagenet",
    "Tiny-ImageNet, 100,000 images of 200 classes, 64×64, clean labels",
    title="Tiny-ImageNet",
    remedy=_REMEDY,
    contents=_contents,
    side=64,
    # UNICON and DISC crop 64 pixels out of 64 without padding: nothing moves.
    views=ImageViews(*IMAGENET, padding=0),
    inner="tiny-imagenet-200",
).register()
