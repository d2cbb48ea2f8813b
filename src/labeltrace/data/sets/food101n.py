"""Food-101N (Lee et al. 2018) to train on, 310,000 web images, and Food-101 (Bossard et al. 2014) to test on.

The label of a training image is the name of its folder. For some, people have said whether that is right: a test of
finding wrong labels, though without the right class.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from labeltrace.data.sets.layout import Folder, found_in
from labeltrace.data.sets.published import CLOTHING, Contents, Listed, Published
from labeltrace.data.views import ImageViews

CLASSES = 101
LEAST_TRAIN = 310_000  # papers say 310k; copies in circulation have a few more
TEST = 25_250
TEST_PER_CLASS = 250
VERIFIED = {"train": (52_867, 52_868), "val": (4_741,)}  # sources differ by one
TRAIN_FOLDER, TEST_FOLDER = "Food-101N_release", "food-101"

_TRAIN_REMEDY = (
    "Get Food-101N_release.zip from https://kuanghuei.github.io/Food-101N/ and unpack it in the root, beside food-101/."
)
_TEST_REMEDY = (
    "Get food-101.tar.gz from https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/ and unpack it in the root, "
    "beside Food-101N_release/."
)


def food101n_verified(root: str | Path, part: str = "val", strict: bool = True) -> tuple[Tensor, Tensor]:
    """Return for which training images people said whether the label is right, and what they said.

    Args:
        root: the folder that holds Food-101N_release/ and food-101/.
        part: "train" (52,868 images) or "val" (4,741), as the release divides them.
        strict: whether counts must be the official ones.

    Returns:
        index: int64 [n], of the training images.
        verified: bool [n], whether the label is right.
    """
    folder = FOOD101N.folder(root, strict=strict)
    place = {key: i for i, key in enumerate(_keys(folder))}
    where, path = f"verified {part}", folder.file(f"verified {part}", f"{TRAIN_FOLDER}/meta/verified_{part}.tsv")
    rows = [line.rpartition("\t") for line in folder.lines(where, path, header="class_name")]
    unclear = [key or answer for key, _, answer in rows if answer not in ("0", "1")]
    folder.unknown(where, path, "lines have no answer 0 or 1", unclear)
    folder.unknown(where, path, "keys are not in imagelist.tsv", [key for key, _, _ in rows if key not in place])
    if len(rows) not in VERIFIED[part]:
        folder.count(where, path, "keys", len(rows), VERIFIED[part][-1])
    return torch.tensor([place[key] for key, _, _ in rows]), torch.tensor([answer == "1" for _, _, answer in rows])


def _contents(folder: Folder) -> Contents:
    classes: list[str] = []
    train, test = Listed("train", [], []), Listed("test", [], [])
    if _there(folder, "train", TRAIN_FOLDER, _TRAIN_REMEDY):
        path = folder.file("class names", f"{TRAIN_FOLDER}/meta/classes.txt")
        classes = folder.lines("class names", path, header="class_name")
        folder.count("class names", path, "classes", len(set(classes)), CLASSES)
        keys = _keys(folder)
        if classes:
            source = f"{TRAIN_FOLDER}/meta/imagelist.tsv"
            train = _labelled(folder, "train", source, f"{TRAIN_FOLDER}/images", keys, classes)
    if _there(folder, "test", TEST_FOLDER, _TEST_REMEDY):
        path = folder.file("test", f"{TEST_FOLDER}/meta/test.txt")
        keys = [f"{line}.jpg" for line in folder.lines("test", path)]
        if classes:  # mapped by name: the two archives do not agree on the order
            test = _labelled(folder, "test", f"{TEST_FOLDER}/meta/test.txt", f"{TEST_FOLDER}/images", keys, classes)
            _same_names(folder, classes)
            folder.each_class("test", path, test.labels, classes, TEST_PER_CLASS)
        folder.count("test", path, "images", len(keys), TEST)
    return Contents(tuple(classes), train, test)


def _there(folder: Folder, part: str, name: str, remedy: str) -> bool:
    """Whether one of the two archives is there; reported where not, with which."""
    if (folder.root / name).is_dir():
        return True
    folder.wrong(part, folder.root / name, f"no such folder; found {found_in(folder.root)}", remedy)
    return False


def _keys(folder: Folder) -> list[str]:
    """Return the keys `class/file` of the training images in the order of the list."""
    path = folder.file("train", f"{TRAIN_FOLDER}/meta/imagelist.tsv")
    keys = folder.lines("train", path, header="class_name")
    if path is not None and folder.strict and len(keys) < LEAST_TRAIN:
        folder.wrong("train", path, f"{LEAST_TRAIN:,} images or more expected, {len(keys):,} found")
    return keys


def _labelled(folder: Folder, part: str, source: str, images: str, keys: list[str], classes: list[str]) -> Listed:
    """Return the images of keys `class/file`, whose labels are the places of their classes in `classes`."""
    label = {name: i for i, name in enumerate(classes)}
    known = [key for key in keys if key.partition("/")[0] in label]
    others = sorted({key.partition("/")[0] for key in keys} - label.keys())
    folder.unknown(part, folder.root / source, f"classes are not in {TRAIN_FOLDER}/meta/classes.txt", others)
    return Listed(part, [f"{images}/{key}" for key in known], [label[key.partition("/")[0]] for key in known])


def _same_names(folder: Folder, classes: list[str]) -> None:
    """Report class names that Food-101 has and Food-101N has not, or the other way round."""
    path = folder.root / TEST_FOLDER / "meta/classes.txt"
    if path.is_file():
        differ = sorted(set(folder.lines("test", path)) ^ set(classes))
        folder.unknown("test", path, "names are in the classes.txt of only one of the two archives", differ)


FOOD101N = Published(
    "food101n",
    "Food-101N, 310,000 web images of 101 dishes (20 % wrong), tested on Food-101",
    title="Food-101N",
    remedy=f"{_TRAIN_REMEDY} {_TEST_REMEDY}",
    contents=_contents,
    side=256,  # CT: Resize(256), RandomCrop(224)
    views=ImageViews(*CLOTHING, padding=0, size=224),
).register()
