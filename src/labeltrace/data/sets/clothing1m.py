"""Clothing1M (Xiao et al. 2015): a million shop images whose labels come from the words around them, 14 classes.

Tested on images that people have labelled. 37,497 images carry both labels; on them the noise can be measured.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from labeltrace.data.sets.layout import Folder
from labeltrace.data.sets.published import CLOTHING, Contents, Listed, Published
from labeltrace.data.views import ImageViews

CLASSES = (
    "T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker", "Jacket", "Downcoat", "Suit",
    "Shawl", "Dress", "Vest", "Underwear",
)  # fmt: skip
COUNTS = {"noisy_train": 1_000_000, "clean_train": 47_570, "clean_val": 14_313, "clean_test": 10_526}
BOTH = 37_497  # images with a noisy and a clean label
PLACES = ("", "annotations", "label")  # where installations keep the text files

_REMEDY = (
    "Ask the authors for Clothing1M (https://github.com/Cysu/noisy_label) and unpack it so that the root holds images/ "
    "and the key lists (or has them in annotations/ or label/)."
)


def clothing1m_pairs(root: str | Path, strict: bool = True) -> tuple[Tensor, Tensor]:
    """Return the noisy and the clean labels, both int64 [n], of the images that carry both, sorted by their keys.

    None of them is trained on. Where the two differ the noisy label is wrong: about 38.5 % of them.
    """
    folder = CLOTHING1M.folder(root, strict=strict)
    noisy, clean = _labels(folder, "noisy_train"), _labels(folder, "clean_test")
    keys = sorted(noisy.keys() & clean.keys())
    folder.count("pairs", folder.root, "images with both labels", len(keys), BOTH)
    return torch.tensor([noisy[key] for key in keys]), torch.tensor([clean[key] for key in keys])


def _contents(folder: Folder, test: str) -> Contents:
    for name in COUNTS:
        if name not in ("noisy_train", test):  # a release without them is not whole, though they are not used
            folder.file(name, f"{name}_key_list.txt", PLACES)
    return Contents(CLASSES, _split(folder, "noisy_train"), _split(folder, test))


def _split(folder: Folder, part: str) -> Listed:
    """Return the images of a key list, with the labels that another file has for them."""
    path = folder.file(part, f"{part}_key_list.txt", PLACES)
    keys = folder.lines(part, path)
    folder.count(part, path, "keys", len(keys), COUNTS[part])
    labels = _labels(folder, part)
    if labels:
        folder.unknown(part, path, f"keys have no label in {_label_file(part)}", [k for k in keys if k not in labels])
    known = [key for key in keys if key in labels]
    return Listed(part, known, [labels[key] for key in known])


def _labels(folder: Folder, part: str) -> dict[str, int]:
    """Return the label of each key, for a noisy or a clean part."""
    return dict(folder.labelled(part, folder.file(part, _label_file(part), PLACES), len(CLASSES)))


def _label_file(part: str) -> str:
    return f"{part.partition('_')[0]}_label_kv.txt"


def _published(name: str, about: str, test: str) -> Published:
    return Published(
        name,
        about,
        title="Clothing1M",
        remedy=_REMEDY,
        contents=partial(_contents, test=test),
        side=256,  # DivideMix: Resize(256), RandomCrop(224)
        views=ImageViews(*CLOTHING, padding=0, size=224),
    ).register()


CLOTHING1M = _published("clothing1m", "Clothing1M, a million shop images of 14 classes (38 % wrong)", "clean_test")
CLOTHING1M_VAL = _published("clothing1m-val", "Clothing1M, tested on its clean validation images", "clean_val")
