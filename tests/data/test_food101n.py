from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import torch

from labeltrace.data.dataset import DatasetError
from labeltrace.data.sets.food101n import FOOD101N, food101n_verified
from labeltrace.data.sets.published import CLOTHING
from labeltrace.data.views import ImageViews
from layouts import FOODS, arrange, build_food101n, text


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return arrange("food101n", tmp_path / "food", monkeypatch)


def test_order_and_labels(root: Path) -> None:
    data = FOOD101N.load(root)
    assert data.test is not None and (len(data.train), len(data.test)) == (202, 101)
    assert data.classes == tuple(FOODS)  # the order of classes.txt, without its header
    for split in (data.train, data.test):
        folders = [split.id_of(i).split("/")[2] for i in range(len(split))]
        assert [data.classes[label] for label in split.labels.tolist()] == folders
    listed = (root / "Food-101N_release/meta/imagelist.tsv").read_text().splitlines()[1:]
    assert [data.train.id_of(i).partition("images/")[2] for i in range(202)] == listed
    assert data.views == ImageViews(*CLOTHING, padding=0, size=224) and data.input_shape == (3, 224, 224)
    assert data.train.inputs.shape == (202, 3, 256, 256)


def test_classes_are_mapped_by_name(root: Path) -> None:
    before = FOOD101N.load(root).test
    names = FOODS.copy()
    random.Random(0).shuffle(names)
    text(root / "food-101/meta/classes.txt", names)
    after = FOOD101N.load(root).test
    assert before is not None and after is not None and after.labels.equal(before.labels)
    text(root / "Food-101N_release/meta/classes.txt", FOODS)  # a copy without the header line
    assert FOOD101N.load(root).classes == tuple(FOODS)


def test_verified_labels(root: Path) -> None:
    index, verified = food101n_verified(root, "train")
    assert index.tolist() == [5, 2] and verified.tolist() == [False, True] and verified.dtype == torch.bool
    index, verified = food101n_verified(root)
    assert index.tolist() == [7] and verified.tolist() == [True]
    meta = root / "Food-101N_release/meta"
    text(meta / "verified_val.tsv", ["class_name/key\tverification_label", "soup/1.jpg\t1"])
    with pytest.raises(DatasetError, match=r"verified val: .*1 keys are not in imagelist.tsv, 'soup/1.jpg'"):
        food101n_verified(root)
    text(meta / "verified_val.tsv", ["dish_000/1.jpg"])
    with pytest.raises(DatasetError, match=r"1 lines have no answer 0 or 1, 'dish_000/1.jpg'"):
        food101n_verified(root)
    text(meta / "verified_val.tsv", [])
    with pytest.raises(DatasetError, match=r"verified_val.tsv: 1 keys expected, 0 found"):
        food101n_verified(root)


@pytest.mark.parametrize(("gone", "part"), [("Food-101N_release", "train"), ("food-101", "test")])
def test_one_of_two_archives(gone: str, part: str, root: Path) -> None:
    shutil.rmtree(root / gone)
    archive = "Food-101N_release.zip" if part == "train" else "food-101.tar.gz"
    with pytest.raises(DatasetError, match=rf"Food-101N {part}: .*{gone}: no such folder; found .* Get {archive}"):
        FOOD101N.load(root)


def test_names_that_only_one_archive_has(root: Path) -> None:
    text(root / "food-101/meta/classes.txt", [*FOODS[:-1], "soup"])
    with pytest.raises(DatasetError, match=r"2 names are in the classes.txt of only one .* 'cheese_plate', 'soup'"):
        FOOD101N.load(root)
    with (root / "Food-101N_release/meta/imagelist.tsv").open("a") as file:
        file.write("soup/1.jpg\n")
    with pytest.raises(DatasetError, match=r"train: .*1 classes are not in .*classes.txt, 'soup'"):
        FOOD101N.load(root)


def test_counts(tmp_path: Path) -> None:
    build_food101n(tmp_path)
    with pytest.raises(DatasetError, match=r"imagelist.tsv: 310,000 images or more expected, 202 found"):
        FOOD101N.load(tmp_path)
    assert len(FOOD101N.load(tmp_path, strict=False).train) == 202
