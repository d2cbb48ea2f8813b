"""ANIMAL-10N (Song et al. 2019): five pairs of animals that people mistake for one another, about 8 % of labels wrong.

Two releases hold the same: image files whose names start with their label, and binary records.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeltrace.data.decode import BadImage
from labeltrace.data.images import Images
from labeltrace.data.sets.layout import Folder, found_in
from labeltrace.data.sets.published import UNSCALED, Contents, Listed, Published
from labeltrace.data.views import ImageViews

CLASSES = (
    "cat", "lynx", "wolf", "coyote", "cheetah", "jaguar", "chimpanzee", "orangutan", "hamster", "guinea pig",
)  # fmt: skip
TRAIN, TEST = 50_000, 5_000
SIDE = 64
RECORD = np.dtype([("id", ">u4"), ("label", "V4"), ("pixels", "u1", (3, SIDE, SIDE))])

_REMEDY = (
    "Ask for ANIMAL-10N at https://dm.kaist.ac.kr/datasets/animal-10n/ and unpack it so that the root holds training/ "
    "and testing/ (image release) or the .bin files (binary release)."
)


def _contents(folder: Folder) -> Contents:
    binary = sorted(folder.root.glob("*.bin"), key=lambda path: _by_number(path.name))
    if binary and not (folder.root / "training").is_dir():
        tests = [path for path in binary if "test" in path.name.lower()]
        train = _records(folder, "train", [path for path in binary if path not in tests], TRAIN)
        return Contents(CLASSES, train, _records(folder, "test", tests, TEST))
    return Contents(CLASSES, _files(folder, "train", "training", TRAIN), _files(folder, "test", "testing", TEST))


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts batch 2 before batch 10."""
    return [(int(part or 0), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _files(folder: Folder, part: str, name: str, count: int) -> Listed:
    """Return the image files of a folder; the first character of a name is the label."""
    files = folder.images(part, folder.root / name)
    labelled = [file for file in files if file[0] in "0123456789"]
    others = [file for file in files if file[0] not in "0123456789"]
    folder.unknown(part, folder.root / name, "names do not start with a label 0..9", others)
    if (folder.root / name).is_dir():
        folder.count(part, folder.root / name, "images", len(files), count)
    return Listed(part, [f"{name}/{file}" for file in labelled], [int(file[0]) for file in labelled])


def _records(folder: Folder, part: str, files: list[Path], count: int) -> Listed:
    """Return the images of binary files."""
    if not files:
        folder.wrong(part, folder.root / f"*{part}*.bin", f"no such file; found {found_in(folder.root)}")
    paths: list[str] = []
    labels: list[int] = []
    for file in files:
        if file.stat().st_size % RECORD.itemsize:
            found = f"{file.stat().st_size:,} bytes found"
            folder.wrong(part, file, f"records of {RECORD.itemsize:,} bytes expected, {found}")
            continue
        values = _labels(np.memmap(file, RECORD, mode="r")) if file.stat().st_size else np.empty(0, np.int64)
        bad = np.flatnonzero(values >= len(CLASSES))
        folder.unknown(part, file, "records have a label outside 0..9", [f"record {i}" for i in bad])
        good = np.flatnonzero(values < len(CLASSES))
        paths += [f"{file.name}#{i}" for i in good]
        labels += values[good].tolist()
    if files:
        folder.count(part, folder.root, f"{part} records in .bin files", len(labels), count)
    return _Recorded(part, paths, labels)


def _labels(records: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the labels [n]; their byte order is not documented, and only one of the two gives labels below 10."""
    raw = np.ascontiguousarray(records["label"])
    orders = [raw.view(order).astype(np.int64) for order in (">u4", "<u4")]
    return min(orders, key=lambda values: int((values >= len(CLASSES)).sum()))


@dataclass(frozen=True)
class _Recorded(Listed):
    """Images in binary files; a path is the name of the file and the number of the record, as in `batch.bin#3`."""

    def images(self, root: Path, side: int) -> Images:
        return _Records(self.paths, side, root)


class _Records(Images):
    def __init__(self, paths: Iterable[str], side: int, root: Path) -> None:
        super().__init__(paths, side)
        self.root = root

    def decode(self, i: int) -> Tensor:
        file, _, number = self.names[i].rpartition("#")
        try:
            record = np.fromfile(self.root / file, RECORD, count=1, offset=int(number) * RECORD.itemsize)
            pixels = torch.from_numpy(record["pixels"][0].copy())
        except (OSError, IndexError) as error:
            raise BadImage(str(self.root / self.names[i]), f"no such record ({error})") from None
        return pixels if self.side == SIDE else _resized(pixels, self.side)

    def stamp(self, i: int) -> bytes:
        state = (self.root / self.names[i].rpartition("#")[0]).stat()
        text = f"{self.root / self.names[i]}\0{state.st_size}\0{state.st_mtime_ns}\0{self.side}"
        return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def _resized(pixels: Tensor, side: int) -> Tensor:
    from PIL import Image

    image = Image.fromarray(pixels.permute(1, 2, 0).numpy())
    scaled = image.resize((side, side), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(scaled)).permute(2, 0, 1).contiguous()


ANIMAL10N = Published(
    "animal10n",
    "ANIMAL-10N, 50,000 images of animals that people confuse, 10 classes (8 % wrong)",
    title="ANIMAL-10N",
    remedy=_REMEDY,
    contents=_contents,
    side=SIDE,
    views=ImageViews(*UNSCALED, padding=8),  # ANNE: RandomCrop with padding 8, no normalisation
).register()
