"""What holds for every published dataset, by the layouts in small; and what a check finds."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labeltrace.data import DatasetError, ReadOptions, datasets, prepare
from labeltrace.data.dataset import Dataset, Split
from labeltrace.data.images import ImageFiles
from labeltrace.data.sets import clothing1m
from labeltrace.data.sets.check import check_dataset, check_images
from labeltrace.data.sets.cifar import _CIFAR10, check_cifar
from labeltrace.data.sets.cifar_n import check_cifar_n, load_cifar10n
from labeltrace.data.sets.layout import checks
from labeltrace.data.views import ImageViews
from labeltrace.engine import RunConfig
from labeltrace.runs import run
from layouts import LAYOUTS, arrange, picture, text

SMALL = ReadOptions(workers=0, cache_gb=0, image_size=16)
UNLISTED = {"animal10n": (), "tiny-imagenet": ("test",), "webvision-mini-ilsvrc12": ("train",)}
"""Which parts have lists of their files, where not both have."""
EVERY = pytest.mark.parametrize("name", list(LAYOUTS))


@pytest.fixture
def arranged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    return lambda name: arrange(name, tmp_path / "root", monkeypatch)


def files_of(split: Split | None) -> list[Path]:
    assert split is not None and isinstance(split.inputs, ImageFiles)
    return [split.inputs.path(i) for i in range(len(split))]


def load(name: str, root: Path, read: ReadOptions = SMALL) -> Dataset:
    return datasets[name](root, 0, read)


# What holds for all


@EVERY
def test_a_whole_folder_has_no_findings_and_is_read(name: str, arranged: Callable[[str], Path]) -> None:
    root = arranged(name)
    assert check_dataset(name, root) == []
    data = load(name, root)
    assert data.name == name and data.test is not None and not isinstance(data.train.inputs, torch.Tensor)
    assert check_images(data, SMALL) == []
    ready, skipped = prepare(data, SMALL)
    assert not skipped and isinstance(ready.train.inputs, torch.Tensor)
    seen = ready.views.plain(ready.train.read([0]))
    assert tuple(seen.shape[1:]) == ready.input_shape == (3, 16, 16)


@EVERY
def test_the_order_on_disk_does_not_matter(
    name: str, arranged: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = arranged(name)
    before, listing = load(name, root), Path.iterdir
    for seed in range(2):
        shuffle = random.Random(seed)
        monkeypatch.setattr(
            Path, "iterdir", lambda path, r=shuffle: iter(sorted(listing(path), key=lambda _: r.random()))
        )
        after = load(name, root)
        for one, two in ((before.train, after.train), (before.test, after.test)):
            assert one is not None and two is not None and list(one.ids or ()) == list(two.ids or ())
            assert one.labels.equal(two.labels) and before.classes == after.classes


@EVERY
def test_the_loader_raises_what_the_check_lists_first(name: str, arranged: Callable[[str], Path]) -> None:
    root = arranged(name)
    gone = sorted(path for path in root.rglob("*") if path.suffix in (".txt", ".tsv") or path.parent.name == "split")
    if name == "animal10n":
        gone = [root / "training", root / "testing"]
    for path in gone:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        findings = check_dataset(name, root)
        if findings:
            with pytest.raises(DatasetError) as caught:
                load(name, root)
            assert str(caught.value) == str(findings[0])
            assert all(finding.remedy and finding.path.is_absolute() for finding in findings)
    assert check_dataset(name, root)


@EVERY
def test_every_missing_image_is_found_and_broken_ones_at_three_places(
    name: str, arranged: Callable[[str], Path]
) -> None:
    root = arranged(name)
    data = load(name, root)
    train = files_of(data.train)
    broken = [train[0], train[len(train) // 2], train[-1]]
    for path in broken:
        path.write_bytes(b"no image")
    findings = check_dataset(name, root)
    assert [finding.path for finding in findings] == broken
    assert {finding.problem for finding in findings} == {"not an image (JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM)"}
    assert [finding.path for finding in check_images(data, SMALL)] == broken
    with pytest.raises(DatasetError, match="not an image"):
        load(name, root)
    parts = UNLISTED.get(name, ("train", "test"))
    missing = [path for part in parts for path in files_of(getattr(data, part))[1:3]]
    for path in missing:
        path.unlink()
    assert set(missing) <= {finding.path for finding in check_dataset(name, root)}


@EVERY
def test_no_folder(name: str, tmp_path: Path) -> None:
    for root, problem in ((None, "found no root"), (tmp_path / "absent", "no such folder")):
        (finding,) = check_dataset(name, root)
        assert problem in finding.problem and finding.remedy
        with pytest.raises(DatasetError, match=problem):
            datasets[name](root, 0, SMALL)
    (tmp_path / "file").touch()
    (finding,) = check_dataset(name, tmp_path / "file")
    assert finding.problem == "a file, not a folder"
    (tmp_path / "empty").mkdir()
    assert check_dataset(name, tmp_path / "empty")


def test_a_class_without_images(arranged: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = arranged("clothing1m")
    keys = (root / "noisy_train_key_list.txt").read_text().splitlines()
    text(root / "noisy_train_key_list.txt", [key for i, key in enumerate(keys) if i % 14 not in (0, 13)])
    monkeypatch.setitem(clothing1m.COUNTS, "noisy_train", 24)
    (finding,) = check_dataset("clothing1m", root)
    assert finding.problem == "2 classes have no image, 'T-Shirt', 'Underwear'"


def test_one_of_them_is_trained_on(arranged: Callable[[str], Path], tmp_path: Path) -> None:
    root = arranged("clothing1m")
    config = RunConfig.model_validate(
        {
            "data": "clothing1m",
            "root": root,
            "learner": "cross_entropy",
            "model": "small_cnn",
            "epochs": 1,
            "epoch_samples": 14,
            "device": "cpu",
            "read": {"image_size": 16, "workers": 0, "cache_gb": 0},
            "settings": {"batch_size": 7},
        }
    )
    _, table = run(config, tmp_path / "out")
    assert table.num_rows == 28 and table["id"].to_pylist()[3] == "images/3/03/3,1003.jpg"


# What is found where


def test_findings_of_two_archives(arranged: Callable[[str], Path]) -> None:
    root = arranged("food101n")
    shutil.rmtree(root / "food-101")
    (finding,) = check_dataset("food101n", root)
    assert finding.where == "Food-101N test" and finding.path == root / "food-101"
    assert "found Food-101N_release in" in finding.problem and finding.remedy.startswith("Get food-101.tar.gz")
    shutil.rmtree(root / "Food-101N_release")
    assert [finding.where for finding in check_dataset("food101n", root)] == ["Food-101N train", "Food-101N test"]


def test_findings_of_ilsvrc12(arranged: Callable[[str], Path]) -> None:
    root = arranged("webvision-mini-ilsvrc12")
    val = root / "imagenet/val"
    shutil.rmtree(val / "7")
    picture(val / "9/another.JPEG")
    (val / "9/.hidden.JPEG").touch()
    folder, count = check_dataset("webvision-mini-ilsvrc12", root)[:2]
    assert folder.path == val / "7" and folder.problem.startswith("no such folder; found 0, 1, 10")
    assert count.problem == "1 images of each class expected, 2 differ, 'animal 7 0', 'animal 9 2'"
    assert check_dataset("webvision-mini", root) == []


def test_all_of_a_small_copy_is_reported_against_the_official_counts(tmp_path: Path) -> None:
    LAYOUTS["clothing1m"].build(tmp_path)
    (tmp_path / "clean_val_key_list.txt").unlink()
    problems = [finding.problem for finding in check_dataset("clothing1m", tmp_path)]
    assert problems[0].startswith("no such file there, in annotations/ or in label/; found clean_label_kv.txt")
    assert problems[1:] == ["1,000,000 keys expected, 28 found", "10,526 keys expected, 14 found"]


def test_findings_of_cifar(fake_cifar: Callable[..., Any]) -> None:
    fake = fake_cifar()
    assert check_cifar(_CIFAR10, fake.root, strict=False) == []
    assert len(check_dataset("cifar10", fake.root)) == 6  # each file has too few images
    (fake.folder / "data_batch_3").unlink()
    fake.change("data_batch_4", labels=[99] * 6)
    (fake.folder / "batches.meta").write_bytes(b"x")
    findings = check_cifar(_CIFAR10, fake.root, strict=False)
    assert [finding.path.name for finding in findings] == ["data_batch_3", "data_batch_4", "batches.meta"]
    assert findings[1].where == "CIFAR-10 train" and findings[1].problem.startswith("labels 0..9 expected, 99 found")
    with pytest.raises(DatasetError) as caught:
        datasets["cifar10"](fake.root, 0, SMALL)
    assert str(caught.value) == str(check_dataset("cifar10", fake.root)[2])  # a missing file comes before the counts


def test_findings_of_cifar_n(fake_cifar: Callable[..., Any]) -> None:
    fake = fake_cifar()
    (finding,) = check_cifar_n(load_cifar10n, "worst", fake.root, strict=False)
    assert finding.path.name == "CIFAR-10_human.pt" and "found no such file" in str(finding)
    clean = np.array([y for file in fake.train_files for y in fake.content[file]["labels"]])
    torch.save({"clean_label": clean, "worse_label": clean}, fake.root / "CIFAR-10_human.pt")
    assert check_cifar_n(load_cifar10n, "worst", fake.root, strict=False) == []
    torch.save({"clean_label": clean}, fake.root / "CIFAR-10_human.pt")
    (finding,) = check_cifar_n(load_cifar10n, "worst", fake.root, strict=False)
    assert finding.problem.startswith("key 'worse_label' expected")
    (fake.folder / "test_batch").unlink()
    (fake.root / "CIFAR-10_human.pt").write_bytes(b"x")
    findings = check_cifar_n(load_cifar10n, "worst", fake.root, strict=False)
    assert [finding.path.name for finding in findings] == ["test_batch", "CIFAR-10_human.pt"]
    assert len(check_dataset("cifar10n-worst", None)) == 2


def test_every_dataset_can_be_checked(tmp_path: Path) -> None:
    assert set(checks) <= set(datasets)
    assert check_dataset("digits", None) == []
    for name in datasets:
        if name != "digits":
            assert check_dataset(name, tmp_path), name


def test_a_dataset_without_a_check_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(checks, "cifar10")
    (finding,) = check_dataset("cifar10", tmp_path)
    assert str(finding).startswith("CIFAR-10 train and test: expected")


# All images of any dataset


def test_all_images_are_opened(tmp_path: Path) -> None:
    for i in range(20):
        picture(tmp_path / f"{i}.jpg", i)
    (tmp_path / "4.jpg").write_bytes(b"")
    (tmp_path / "17.jpg").unlink()
    labels = torch.arange(10) % 2
    splits = [
        Split(ImageFiles([f"{i}.jpg" for i in range(start, start + 10)], 8, tmp_path), labels) for start in (0, 10)
    ]
    data = Dataset("mine", splits[0], splits[1], ("a", "b"), ImageViews((0.0,) * 3, (1.0,) * 3))
    told: list[tuple[int, int]] = []
    findings = check_images(data, SMALL, lambda done, total: told.append((done, total)))
    assert [(f.where, f.path.name, f.problem) for f in findings] == [
        ("mine train", "4.jpg", "empty file"),
        ("mine test", "17.jpg", "no such file"),
    ]
    assert told[-1] == (20, 20)
    for i in range(10):
        (tmp_path / f"{i}.jpg").write_bytes(b"")
    assert len(check_images(data, SMALL)) == 11  # a split of which nothing is left is told in full
