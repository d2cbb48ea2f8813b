from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from labeltrace.data import ReadOptions, add_noise, prepare
from labeltrace.data.dataset import DatasetError
from labeltrace.data.sets.published import IMAGENET
from labeltrace.data.sets.tiny_imagenet import TINY_IMAGENET
from labeltrace.data.views import ImageViews
from layouts import arrange, build_tiny_imagenet, text, wnid


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return arrange("tiny-imagenet", tmp_path, monkeypatch)


def test_order_labels_and_names(root: Path) -> None:
    data = TINY_IMAGENET.load(root)
    assert data.test is not None and (len(data.train), len(data.test)) == (12, 6)
    assert data.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4  # classes by sorted wnid
    assert data.train.id_of(4) == f"train/{wnid(1)}/images/{wnid(1)}_0.JPEG"
    assert data.test.labels.tolist() == [2, 0, 1, 2, 0, 1]  # from the annotations
    assert data.classes == (wnid(0), wnid(1), "eft")  # two classes called crane keep their wnids
    assert data.views == ImageViews(*IMAGENET, padding=0) and data.input_shape == (3, 64, 64)
    inner = TINY_IMAGENET.load(root / "tiny-imagenet-200")
    assert list(inner.train.ids or ()) == list(data.train.ids or ())


def test_images_are_read_and_labels_can_be_made_wrong(root: Path) -> None:
    data, skipped = prepare(TINY_IMAGENET.load(root), ReadOptions(workers=0, cache_gb=0))
    assert not skipped and data.train.inputs.shape == (12, 3, 64, 64)
    noisy, _ = add_noise(data, "symmetric-exact", 0.5, 0)
    assert noisy.train.truth is not None and int((noisy.train.labels != noisy.train.truth).sum()) == 6


def test_what_is_wrong_is_named(root: Path) -> None:
    inner = root / "tiny-imagenet-200"
    (inner / "words.txt").unlink()
    assert TINY_IMAGENET.load(root).classes == (wnid(0), wnid(1), wnid(2))
    with (inner / "val/val_annotations.txt").open("a") as file:
        file.write("val_9.JPEG\tn00000000\t0\t0\t1\t1\n")
    with pytest.raises(DatasetError, match=r"1 lines name no class of wnids.txt, 'val_9.JPEG n00000000'"):
        TINY_IMAGENET.load(root)
    (inner / "val/val_annotations.txt").unlink()
    with pytest.raises(DatasetError, match=r"test: .*val_annotations.txt: no such file; .* leave val/ as it is"):
        TINY_IMAGENET.load(root)
    (inner / f"train/{wnid(1)}/images/{wnid(1)}_0.JPEG").unlink()
    with pytest.raises(DatasetError, match=rf"train: .*{wnid(1)}.images: 4 images expected, 3 found"):
        TINY_IMAGENET.load(root)
    shutil.rmtree(inner / f"train/{wnid(1)}/images")
    with pytest.raises(DatasetError, match=rf"train: .*{wnid(1)}.images: no such folder; found {wnid(1)}_boxes.txt in"):
        TINY_IMAGENET.load(root)
    text(inner / "wnids.txt", [])
    with pytest.raises(DatasetError, match=r"wnids.txt: 3 classes expected, 0 found"):
        TINY_IMAGENET.load(root)


def test_official_counts(tmp_path: Path) -> None:
    build_tiny_imagenet(tmp_path)
    with pytest.raises(DatasetError, match=r"wnids.txt: 200 classes expected, 3 found"):
        TINY_IMAGENET.load(tmp_path)
    assert len(TINY_IMAGENET.load(tmp_path, strict=False).train) == 12
