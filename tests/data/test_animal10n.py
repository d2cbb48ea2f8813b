from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labeltrace.data import ReadOptions, prepare
from labeltrace.data.dataset import DatasetError
from labeltrace.data.sets import animal10n as module
from labeltrace.data.sets.animal10n import ANIMAL10N, CLASSES
from labeltrace.data.sets.check import check_dataset
from labeltrace.data.sets.published import UNSCALED
from labeltrace.data.views import ImageViews
from layouts import animal_pixels, arrange, build_animal10n_binary, picture

HERE = ReadOptions(workers=0, cache_gb=0)


def test_image_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ANIMAL10N.load(arrange("animal10n", tmp_path, monkeypatch))
    assert data.test is not None and data.classes == CLASSES
    assert data.train.labels.tolist() == [i for i in range(10) for _ in range(3)]  # sorted names
    assert data.train.id_of(1) == "training/0_00010.jpg" and data.test.labels.tolist() == list(range(10))
    assert data.views == ImageViews(*UNSCALED, padding=8) and data.input_shape == (3, 64, 64)
    picture(tmp_path / "training/x.jpg")
    with pytest.raises(DatasetError, match=r"training: 1 names do not start with a label 0..9, 'x.jpg'"):
        ANIMAL10N.load(tmp_path)


@pytest.mark.parametrize("order", [">", "<"])
def test_binary_release(order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRAIN", 12)
    monkeypatch.setattr(module, "TEST", 10)
    build_animal10n_binary(tmp_path, order)
    assert check_dataset("animal10n", tmp_path) == []
    data, skipped = prepare(ANIMAL10N.load(tmp_path), HERE)
    assert data.test is not None and not skipped
    assert data.train.labels.tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 0]  # batch 2 comes before batch 10
    expected = np.concatenate([animal_pixels(10), animal_pixels(2)])
    assert (data.train.read(range(12)).numpy() == expected).all()
    assert data.train.id_of(11) == "data_batch_10.bin#1"
    small, _ = prepare(ANIMAL10N.load(tmp_path, ReadOptions(image_size=32)), HERE)
    assert small.train.inputs.shape == (12, 3, 32, 32)


def test_records_in_the_cache_and_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELTRACE_CACHE", str(tmp_path / "cache"))
    build_animal10n_binary(tmp_path)
    data = ANIMAL10N.load(tmp_path, strict=False)
    for _ in range(2):
        found, _ = prepare(data, ReadOptions(workers=0, cache_gb=1))
        assert (found.train.read([0])[0].numpy() == animal_pixels(10)[0]).all()
    (tmp_path / "data_batch_2.bin").write_bytes(b"")
    _, skipped = prepare(data, ReadOptions(workers=0, cache_gb=1, bad_images="skip"))
    assert len(skipped) == 10 and "no such record" in skipped[0].reason


def test_binary_files_that_are_none(tmp_path: Path) -> None:
    build_animal10n_binary(tmp_path)
    with pytest.raises(DatasetError, match=r"50,000 train records in .bin files expected, 12 found"):
        ANIMAL10N.load(tmp_path)
    (tmp_path / "data_batch_2.bin").write_bytes(b"hello")
    with pytest.raises(
        DatasetError, match=r"train: .*data_batch_2.bin: records of 12,296 bytes expected, 5 bytes found"
    ):
        ANIMAL10N.load(tmp_path)
    (tmp_path / "data_batch_2.bin").write_bytes(bytes([200]) * 12_296)
    with pytest.raises(DatasetError, match=r"1 records have a label outside 0..9, 'record 0'"):
        ANIMAL10N.load(tmp_path)
    (tmp_path / "test_batch.bin").unlink()
    problems = [finding.problem for finding in check_dataset("animal10n", tmp_path)]
    assert any(problem.startswith("no such file; found data_batch_10.bin, data_batch_2.bin") for problem in problems)
    with pytest.raises(DatasetError, match=r"train: .*training: no such folder; found nothing in"):
        (tmp_path / "empty").mkdir()
        ANIMAL10N.load(tmp_path / "empty")
