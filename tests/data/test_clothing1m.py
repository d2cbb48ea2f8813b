from __future__ import annotations

import random
from pathlib import Path

import pytest

from labeltrace.data.dataset import DatasetError
from labeltrace.data.sets.clothing1m import CLASSES, CLOTHING1M, CLOTHING1M_VAL, COUNTS, clothing1m_pairs
from labeltrace.data.sets.published import CLOTHING
from labeltrace.data.views import ImageViews
from layouts import arrange, build_clothing1m, clothing_key, text


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return arrange("clothing1m", tmp_path / "clothing", monkeypatch)


def test_order_and_labels(root: Path) -> None:
    data, on_val = CLOTHING1M.load(root), CLOTHING1M_VAL.load(root)
    assert data.test is not None and on_val.test is not None and data.classes == CLASSES
    assert data.train.labels.tolist() == [i % 14 for i in range(28)] and data.train.id_of(3) == clothing_key(3)
    assert data.train.id_of(3) == "images/3/03/3,1003.jpg"
    assert data.test.id_of(0) == clothing_key(128) and on_val.test.id_of(0) == clothing_key(114)
    assert data.test.labels.tolist() == on_val.test.labels.tolist() == list(range(14))
    assert data.views == ImageViews(*CLOTHING, padding=0, size=224) and data.train.inputs.shape == (28, 3, 256, 256)


def test_the_order_of_the_label_files_does_not_matter(root: Path) -> None:
    before, pairs = CLOTHING1M.load(root), clothing1m_pairs(root)
    for name in ("noisy_label_kv.txt", "clean_label_kv.txt"):
        lines = (root / name).read_text().splitlines()
        random.Random(0).shuffle(lines)
        text(root / name, lines)
    after = CLOTHING1M.load(root)
    assert after.train.labels.equal(before.train.labels) and list(after.train.ids or ()) == list(before.train.ids or ())
    assert all(one.equal(two) for one, two in zip(pairs, clothing1m_pairs(root), strict=True))


@pytest.mark.parametrize("place", ["annotations", "label"])
def test_where_the_text_files_are(place: str, root: Path) -> None:
    before = CLOTHING1M.load(root)
    (root / place).mkdir()
    for file in root.glob("*.txt"):
        file.rename(root / place / file.name)
    assert CLOTHING1M.load(root).train.labels.equal(before.train.labels)
    assert clothing1m_pairs(root)[0].shape == (6,)


def test_the_noise_can_be_measured(root: Path) -> None:
    noisy, clean = clothing1m_pairs(root)
    assert clean.tolist() == list(range(6)) and noisy.tolist() == [0, 2, 2, 4, 4, 6]
    assert (noisy != clean).float().mean().item() == 0.5


def test_a_key_without_a_label_is_named(root: Path) -> None:
    with (root / "noisy_train_key_list.txt").open("a") as file:
        file.write("images/0/00/7,7.jpg\n")
    with pytest.raises(DatasetError) as caught:
        CLOTHING1M.load(root, strict=False)
    assert "1 keys have no label in noisy_label_kv.txt, 'images/0/00/7,7.jpg'" in str(caught.value)
    text(root / "noisy_label_kv.txt", ["images/9/99/9,9.jpg 0"])
    with pytest.raises(DatasetError, match=r"29 keys have no label .*, the first: 'images/0/00/0,1000.jpg', 'imag"):
        CLOTHING1M.load(root, strict=False)


def test_counts_and_labels(tmp_path: Path, root: Path) -> None:
    assert sum(COUNTS[f"clean_{part}"] for part in ("train", "val", "test")) == 72_409
    build_clothing1m(tmp_path / "other")
    with (root / "clean_label_kv.txt").open("a") as file:
        file.write("images/9/99/9,9.jpg 14\n")
    with pytest.raises(
        DatasetError, match=r"clean_label_kv.txt: .* 0..13 expected, 1 others found, 'images/9/99/9,9.jp"
    ):
        CLOTHING1M.load(root)
    (root / "clean_train_key_list.txt").unlink()
    with pytest.raises(
        DatasetError, match=r"clean_train: .*key_list.txt: no such file there, in annotations/ or in lab"
    ):
        CLOTHING1M.load(root)


def test_official_counts(tmp_path: Path) -> None:
    build_clothing1m(tmp_path)
    with pytest.raises(
        DatasetError, match=r"noisy_train_key_list.txt: 1,000,000 keys expected, 28 found. Ask the auth"
    ):
        CLOTHING1M.load(tmp_path)
    with pytest.raises(DatasetError, match="37,497 images with both labels expected, 6 found"):
        clothing1m_pairs(tmp_path)
