from __future__ import annotations

from pathlib import Path

import pytest

from labeltrace.data import ReadOptions, datasets, prepare
from labeltrace.data.dataset import DatasetError
from labeltrace.data.sets.check import check_dataset
from labeltrace.data.sets.published import UNSCALED
from labeltrace.data.sets.red_mini_imagenet import RED_MINI_IMAGENET, TRAIN
from labeltrace.data.views import ImageViews
from layouts import arrange, build_red_mini_imagenet, text

SKIP = ReadOptions(workers=0, cache_gb=0, bad_images="skip")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return arrange("red-mini-imagenet-0.2", tmp_path, monkeypatch)


def test_order_and_labels(root: Path) -> None:
    data = RED_MINI_IMAGENET["0.2"].load(root)
    assert data.test is not None and (len(data.train), len(data.test)) == (200, 100)
    assert data.train.labels.tolist() == [i % 100 for i in range(200)] and data.test.labels.tolist() == list(range(100))
    assert data.train.id_of(0) == "all_images/0000000000000000.jpg" and data.train.id_of(1).startswith("all_images/n")
    assert data.views == ImageViews(*UNSCALED, padding=4) and data.input_shape == (3, 32, 32)
    ready, _ = prepare(data, SKIP)
    assert ready.train.inputs.shape == (200, 3, 32, 32)
    larger = RED_MINI_IMAGENET["0.8"].load(root / "mini-imagenet", ReadOptions(image_size=64))
    assert larger.name == "red-mini-imagenet-0.8" and larger.views == ImageViews(*UNSCALED, padding=8)


def test_names_and_rates(root: Path) -> None:
    assert {f"red-mini-imagenet-{rate}" for rate in TRAIN} <= set(datasets) and len(TRAIN) == 10
    assert RED_MINI_IMAGENET["0.2"].load(root).classes[7] == "7"
    text(root / "mini-imagenet/class_name.txt", [f"thing {i}" for i in range(100)])
    assert RED_MINI_IMAGENET["0.2"].load(root).classes[7] == "thing 7"
    with pytest.raises(
        DatasetError, match=r"train: .*red_noise_nl_0.4: no such file; found clean_validation, red_noise"
    ):
        RED_MINI_IMAGENET["0.4"].load(root)


def test_one_in_a_hundred_may_be_missing(root: Path) -> None:
    images = sorted((root / "mini-imagenet/all_images").iterdir())
    for image in images[:2]:
        image.unlink()
    with pytest.raises(DatasetError, match="no such image; 2 of 200 looked for are missing"):
        RED_MINI_IMAGENET["0.2"].load(root)
    data, skipped = prepare(RED_MINI_IMAGENET["0.2"].load(root, SKIP), SKIP)
    assert len(data.train) == 198 and {image.reason for image in skipped} == {"no such file"}
    images[2].unlink()
    with pytest.raises(DatasetError, match=r"all_images: 3 of 200 listed images are missing, more than 1 %"):
        RED_MINI_IMAGENET["0.2"].load(root, SKIP)
    findings = check_dataset("red-mini-imagenet-0.2", root)
    assert [finding.path for finding in findings] == [root / "mini-imagenet/all_images", *images[:3]]


def test_official_counts(tmp_path: Path) -> None:
    build_red_mini_imagenet(tmp_path)
    with pytest.raises(DatasetError, match=r"red_noise_nl_0.8: 50,008 lines expected, 200 found"):
        RED_MINI_IMAGENET["0.8"].load(tmp_path)
    assert sum(TRAIN.values()) == 499_965
