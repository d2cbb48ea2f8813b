"""Published datasets in small: the exact layout of each, with a few tiny images, and counts to match."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from labeltrace.data.sets import animal10n, clothing1m, food101n, red_mini_imagenet, tiny_imagenet, webvision


def picture(path: Path, number: int = 0, size: tuple[int, int] = (12, 10)) -> None:
    """Write an image whose colour tells its number; every seventh is grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode, colour = ("L", number % 256) if number % 7 == 3 else ("RGB", (number % 256, 90, 200))
    Image.new(mode, size, colour).save(path)


def text(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def wnid(i: int) -> str:
    return f"n{1_440_764 + 1_000 * i:08}"


def build_webvision(root: Path) -> None:
    """Write 60 classes of one image each, of which the first 50 count; ILSVRC12 in folders by number."""
    train = [f"google/q{i:04}/a b{i}.jpg" if i == 5 else f"google/q{i:04}/img{i}.jpg" for i in range(60)]
    text(root / "info/train_filelist_google.txt", [f"{path} {i}" for i, path in enumerate(train)])
    text(root / "info/val_filelist.txt", [f"val{i:06}.jpg {59 - i}" for i in range(60)])
    text(root / "info/synsets.txt", [f"{wnid(i)} animal {i}, other name" for i in range(60)])
    for i in range(50):
        picture(root / train[i], i)
        picture(root / f"val_images_256/val{59 - i:06}.jpg", i)
        picture(root / f"imagenet/val/{i}/ILSVRC2012_val_{i:08}.JPEG", 100 + i)


FOODS = [f"dish_{i:03}" for i in range(99)] + ["cheesecake", "cheese_plate"]


def build_food101n(root: Path) -> None:
    """Write 101 classes: two training images of each, one test image."""
    release, other = root / "Food-101N_release", root / "food-101"
    keys = [f"{name}/{number:032x}.jpg" for name in sorted(FOODS) for number in (11, 10)]
    text(release / "meta/classes.txt", ["class_name", *FOODS])
    text(release / "meta/imagelist.tsv", ["class_name/key", *keys])
    header = "class_name/key\tverification_label"
    text(release / "meta/verified_train.tsv", [header, f"{keys[5]}\t0", f"{keys[2]}\t1"])
    text(release / "meta/verified_val.tsv", [header, f"{keys[7]}\t1"])
    text(other / "meta/classes.txt", sorted(FOODS))
    text(other / "meta/test.txt", [f"{name}/{i}" for i, name in enumerate(reversed(FOODS))])
    for i, key in enumerate(keys):
        picture(release / "images" / key, i)
    for i, name in enumerate(reversed(FOODS)):
        picture(other / f"images/{name}/{i}.jpg", i)


def clothing_key(i: int) -> str:
    return f"images/{i % 10}/{i % 100:02}/{i},{1000 + i}.jpg"


def build_clothing1m(root: Path) -> None:
    """Write 28 noisy images, 14 in each clean list; six of the clean ones have a noisy label as well."""
    noisy, clean = [clothing_key(i) for i in range(28)], [clothing_key(i) for i in range(100, 142)]
    lists = {"noisy_train": noisy, "clean_train": clean[:14], "clean_val": clean[14:28], "clean_test": clean[28:]}
    for name, keys in lists.items():
        text(root / f"{name}_key_list.txt", keys)
    both = [f"{key} {(i + 1) % 14 if i % 2 else i % 14}" for i, key in enumerate(clean[:6])]
    text(root / "noisy_label_kv.txt", both + [f"{key} {i % 14}" for i, key in reversed([*enumerate(noisy)])])
    text(root / "clean_label_kv.txt", [f"{key} {i % 14}" for i, key in enumerate(clean)])
    for i, key in enumerate(noisy + clean):
        picture(root / key, i)


def build_animal10n(root: Path) -> None:
    """Write three training images and one test image of each class, as files."""
    for i in range(30):
        picture(root / f"training/{i % 10}_{i:05}.jpg", i, (64, 64))
    for i in range(10):
        picture(root / f"testing/{i}_{i:05}.jpg", i, (64, 64))


def animal_pixels(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 3, 64, 64), dtype=np.uint8)


def build_animal10n_binary(root: Path, order: str = ">") -> None:
    """Write twelve records in two training files, ten in a test file."""
    root.mkdir(parents=True, exist_ok=True)
    record = np.dtype([("id", ">u4"), ("label", f"{order}u4"), ("pixels", "u1", (3, 64, 64))])
    for name, start, count in (("data_batch_10", 10, 2), ("data_batch_2", 0, 10), ("test_batch", 0, 10)):
        records = np.zeros(count, record)
        records["id"], records["pixels"] = np.arange(count), animal_pixels(count)
        records["label"] = np.arange(start, start + count)[::-1] % 10
        records.tofile(root / f"{name}.bin")


def build_tiny_imagenet(root: Path) -> None:
    """Write three classes of four training images and two test images; val/ as the archive has it."""
    root = root / "tiny-imagenet-200"
    wnids = [wnid(2), wnid(0), wnid(1)]
    text(root / "wnids.txt", wnids)
    text(
        root / "words.txt", [f"{wnid(0)}\tcrane, bird", f"{wnid(1)}\tcrane, machine", f"{wnid(2)}\teft, newt", "n0\tx"]
    )
    for name in wnids:
        for i in range(4):
            picture(root / f"train/{name}/images/{name}_{i}.JPEG", i, (64, 64))
        text(root / f"train/{name}/{name}_boxes.txt", [f"{name}_{i}.JPEG\t0\t0\t9\t9" for i in range(4)])
    rows = [(f"val_{i}.JPEG", wnids[i % 3]) for i in range(6)]
    text(root / "val/val_annotations.txt", [f"{file}\t{name}\t0\t0\t62\t62" for file, name in rows])
    for i, (file, _) in enumerate(rows):
        picture(root / "val/images" / file, i, (64, 64))


def build_red_mini_imagenet(root: Path) -> None:
    """Write 200 training images, every other one from the web, and 100 test images."""
    root = root / "mini-imagenet"
    train = [f"{wnid(i)}{i:08}.jpg" if i % 2 else f"{i:016x}.jpg" for i in range(200)]
    for rate in ("0.2", "0.8"):
        text(root / f"split/red_noise_nl_{rate}", [f"{name} {i % 100}" for i, name in enumerate(train)])
    text(root / "split/clean_validation", [f"{wnid(i)}.jpg {i}" for i in range(100)])
    for i, name in enumerate(train):
        picture(root / "all_images" / name, i)
    for i in range(100):
        picture(root / f"validation/{i}/{wnid(i)}.jpg", i)


@dataclass(frozen=True)
class Layout:
    """How a dataset is written in small, and which official counts become which."""

    build: Callable[[Path], None]
    module: Any
    counts: dict[str, Any]


_WEBVISION = Layout(build_webvision, webvision, {"TRAIN": 50, "PER_CLASS": 1})
_CLOTHING = Layout(
    build_clothing1m,
    clothing1m,
    {"COUNTS": {"noisy_train": 28, "clean_train": 14, "clean_val": 14, "clean_test": 14}, "BOTH": 6},
)
LAYOUTS = {
    "webvision-mini": _WEBVISION,
    "webvision-mini-ilsvrc12": _WEBVISION,
    "food101n": Layout(
        build_food101n,
        food101n,
        {"LEAST_TRAIN": 202, "TEST": 101, "TEST_PER_CLASS": 1, "VERIFIED": {"train": (1, 2), "val": (1,)}},
    ),
    "clothing1m": _CLOTHING,
    "clothing1m-val": _CLOTHING,
    "animal10n": Layout(build_animal10n, animal10n, {"TRAIN": 30, "TEST": 10}),
    "tiny-imagenet": Layout(build_tiny_imagenet, tiny_imagenet, {"CLASSES": 3, "PER_CLASS": 4, "TEST": 6}),
    "red-mini-imagenet-0.2": Layout(
        build_red_mini_imagenet, red_mini_imagenet, {"TRAIN": dict.fromkeys(red_mini_imagenet.TRAIN, 200), "TEST": 100}
    ),
}


def arrange(name: str, root: Path, patch: Any) -> Path:
    """Write the dataset `name` in small under `root`, and let its small counts be the official ones."""
    layout = LAYOUTS[name]
    layout.build(root)
    for constant, value in layout.counts.items():
        patch.setattr(layout.module, constant, value)
    return root
