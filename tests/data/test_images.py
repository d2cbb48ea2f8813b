from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labeltrace.data.cache import DiskCache
from labeltrace.data.decode import BadImage
from labeltrace.data.images import ImageFiles
from labeltrace.data.sizing import file_views, fitted, network_side, stored_side


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    for i in range(4):
        level = np.full((8, 8, 3), 10 * i, np.uint8)
        Image.fromarray(level).save(tmp_path / f"{i}.png")
    return ImageFiles([f"{i}.png" for i in range(4)], side=8, root=tmp_path)


def levels(images: torch.Tensor) -> list[int]:
    return images[:, 0, 0, 0].tolist()


def test_files_are_read_by_number(files: ImageFiles) -> None:
    assert files.shape == (4, 3, 8, 8) and len(files) == files.ndim == 4
    assert levels(files.read_all([2, 0])) == [20, 0] and files.size(1) == (8, 8)
    taken = files.take(torch.tensor([3, 1]))
    assert list(taken.names) == ["3.png", "1.png"] and levels(taken.read_all(range(2))) == [30, 10]
    assert levels(pickle.loads(pickle.dumps(taken)).read_all([0])) == [30]


def test_another_side_leaves_the_first_alone(files: ImageFiles) -> None:
    small = files.at_side(4)
    assert small.read(1).shape == (3, 4, 4) and files.read(1).shape == (3, 8, 8)


def test_a_changed_file_has_another_stamp(files: ImageFiles) -> None:
    before = files.stamp(0)
    assert files.stamp(0) == before != files.stamp(1) and len(before) == 16
    assert files.at_side(4).stamp(0) != before
    os.utime(files.path(0), ns=(1, 1))
    assert files.stamp(0) != before


def test_a_missing_file_is_named(files: ImageFiles) -> None:
    files.path(2).unlink()
    for ask in (files.stamp, files.decode):
        with pytest.raises(BadImage, match=r"2\.png: no such file"):
            ask(2)
    odd = ImageFiles(["a\0b.png"], side=8)
    with pytest.raises(BadImage):
        odd.stamp(0)
    assert files.size(2) is None


def test_keys_tell_folders_and_sides_apart(files: ImageFiles, tmp_path: Path) -> None:
    same = ImageFiles(list(files.names), side=8, root=tmp_path)
    assert files.key() == same.key()
    others = [ImageFiles(list(files.names), 8, tmp_path / "x"), files.at_side(4), files.take(torch.tensor([0]))]
    assert len({files.key(), *(other.key() for other in others)}) == 4


def test_taken_images_keep_their_places_in_the_cache(files: ImageFiles, tmp_path: Path) -> None:
    files.use_cache(DiskCache(tmp_path / "cache", "k", count=4, side=8, slots=4))
    files.read_all(range(4))
    taken = files.take(torch.tensor([3, 1])).take(torch.tensor([1]))
    taken.decode = None  # type: ignore[method-assign, assignment]
    assert levels(taken.read_all([0])) == [10]


# Sizes


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([(32, 32)] * 5, 32),
        ([(28, 28)], 28),
        ([(64, 64)] * 2, 64),
        ([(60, 45)] * 3, 45),
        ([(200, 30)] * 3, 30),
        ([(1, 1)], 8),
        ([(65, 65)] * 3, 64),
        ([(32, 32), (33, 32)], 32),
        ([(30, 30), (20, 20), (10, 10)], 32),
        ([(100, 96), (96, 100), (500, 400)], 96),
        ([(127, 127)], 96),
        ([(128, 128)], 224),
        ([(640, 480), (30, 30), (500, 375)], 224),
        ([], 224),
    ],
)
def test_the_side_follows_the_images(sizes: list[tuple[int, int]], side: int) -> None:
    assert network_side(sizes) == side


def test_large_images_are_stored_larger_than_they_are_seen() -> None:
    assert [stored_side(side) for side in (8, 64, 65, 96, 224)] == [8, 64, 74, 110, 256]


@pytest.mark.parametrize(("side", "padding"), [(8, 1), (9, 1), (32, 4), (64, 8)])
def test_small_images_are_seen_whole(side: int, padding: int) -> None:
    views = file_views(side, flip=False)
    assert (views.padding, views.size, views.flip) == (padding, None, False)
    assert views.plain(torch.zeros(1, 3, side, side, dtype=torch.uint8)).shape == (1, 3, side, side)


def test_of_large_images_the_middle_is_seen() -> None:
    views = file_views(96, flip=True)
    images = torch.zeros(1, 3, 110, 110, dtype=torch.uint8)
    images[:, :, 7:103, 7:103] = 255
    seen = views.plain(images)
    assert seen.shape == (1, 3, 96, 96) and len(seen[0, 0].unique()) == 1 and views.flip


def test_a_few_heads_are_looked_at(files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    many = ImageFiles([f"{i}.png" for i in range(10_000)], side=0)
    monkeypatch.setattr(many, "size", lambda i: seen.append(i) or (300, 200))
    images, views = fitted(many, None, True)
    assert images.side == 256 and views.size == 224 and many.side == 0
    assert len(seen) == len(set(seen)) == 256 and seen[0] == 0 and seen[-1] == 9999
    assert fitted(files, None, True)[0].side == 8 and fitted(files, 100, True)[0].side == 114
