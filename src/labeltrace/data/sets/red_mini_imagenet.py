"""Red Mini-ImageNet (Jiang et al. 2020): a known share of ImageNet's images replaced by wrong ones from the web.

One list per rate. Images whose names start with n are ImageNet's and have the right label, so the id of a sample tells
where it came from; of which class a web image is, if of any, the lists do not say.
"""

from __future__ import annotations

from functools import partial

from labeltrace.data.sets.layout import Folder
from labeltrace.data.sets.published import UNSCALED, Contents, Listed, Published, absent
from labeltrace.data.views import ImageViews

CLASSES = 100
SIDE = 32
TRAIN = {
    "0.0": 50_000, "0.05": 50_000, "0.1": 50_000, "0.15": 50_000, "0.2": 50_000, "0.3": 49_985, "0.4": 50_010,
    "0.5": 49_962, "0.6": 50_000, "0.8": 50_008,
}  # fmt: skip
"""Published rate → images in its list."""
TEST = 5_000
MOST_MISSING = 0.01  # share of the listed images; web addresses rot

_REMEDY = (
    "Get the lists of dataset_no_images.zip and the images from https://google.github.io/controlled-noisy-web-labels/ "
    "and pass as root the folder that holds mini-imagenet/ with split/, all_images/ and validation/."
)


def _contents(folder: Folder, rate: str) -> Contents:
    path = folder.file("train", f"split/red_noise_nl_{rate}")
    pairs = folder.labelled("train", path, CLASSES)
    folder.count("train", path, "lines", len(pairs), TRAIN[rate])
    train = Listed("train", [f"all_images/{name}" for name, _ in pairs], [label for _, label in pairs])
    path = folder.file("test", "split/clean_validation")
    pairs = folder.labelled("test", path, CLASSES)
    folder.count("test", path, "lines", len(pairs), TEST)
    test = Listed("test", [f"validation/{label}/{name}" for name, label in pairs], [label for _, label in pairs])
    for listed in (train, test):
        _few_missing(folder, listed)
    return Contents(_classes(folder), train, test)


def _few_missing(folder: Folder, listed: Listed) -> None:
    missing = len(absent(listed.images(folder.root, SIDE), range(len(listed.paths))))
    if missing > MOST_MISSING * len(listed.paths):
        images = folder.root / listed.paths[0].partition("/")[0]
        what = f"{missing:,} of {len(listed.paths):,} listed images are missing, more than 1 %"
        folder.wrong(listed.part, images, what)


def _classes(folder: Folder) -> tuple[str, ...]:
    """Return the names in class_name.txt where it has one for each class, their numbers where not."""
    path = folder.root / "class_name.txt"
    names = folder.lines("class names", path) if path.is_file() else []
    return tuple(names) if len(set(names)) == len(names) == CLASSES else tuple(map(str, range(CLASSES)))


RED_MINI_IMAGENET = {
    rate: Published(
        f"red-mini-imagenet-{rate}",
        f"Red Mini-ImageNet, {count:,} images of 100 classes, {float(rate):.0%} of them wrong ones from the web, 32×32",
        title=f"Red Mini-ImageNet {rate}",
        remedy=_REMEDY,
        contents=partial(_contents, rate=rate),
        side=SIDE,
        views=ImageViews(*UNSCALED, padding=4),  # InstanceGM: crop with padding 4, no normalisation
        inner="mini-imagenet",
    ).register()
    for rate, count in TRAIN.items()
}
