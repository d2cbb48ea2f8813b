"""Open-set noise: what is chosen, what becomes of the images, and the way through a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.arrays import from_arrays
from labeltrace.data.dataset import UNKNOWN, Dataset
from labeltrace.data.noise.apply import apply_noise_file
from labeltrace.data.noise.kinds import flip_count, symmetric_exact
from labeltrace.data.noise.make import make_noise
from labeltrace.data.noise.open_set import open_set
from labeltrace.data.noise.record import NoiseRecord, save_noise
from labeltrace.errors import InputError


def images(count: int, labels: np.ndarray, name: str, dark: bool) -> Dataset:
    """Images that tell where they are from: 0..99 the one, 100..199 the other."""
    pixels = np.random.default_rng(len(name)).integers(0, 100, (count, 3, 4, 4), dtype=np.uint8)
    return from_arrays(pixels + (0 if dark else 100), labels, layout="NCHW", classes=range(10), name=name)


@pytest.fixture
def own() -> Dataset:
    return images(1000, np.arange(1000) % 10, "own", dark=True)


@pytest.fixture
def other() -> Dataset:
    return images(600, np.arange(600) % 10, "other", dark=False)


# What is chosen


@settings(deadline=None, max_examples=80)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    rate=st.floats(0, 1, exclude_max=True),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_counts_are_exact_and_open_samples_keep_their_label(
    labels: list[int], rate: float, share: float, seed: int
) -> None:
    clean = np.array(labels)
    kept = clean.copy()
    noisy, positions, indices = open_set(clean, 5, rate, share, 100, seed)
    chosen = flip_count(rate, len(clean))
    assert len(positions) == len(indices) == flip_count(share, chosen)
    assert (noisy != clean).sum() == chosen - len(positions) and (clean == kept).all()
    assert (noisy[positions] == clean[positions]).all()
    assert (np.diff(positions) > 0).all() and len(set(indices)) == len(indices)
    assert ((indices >= 0) & (indices < 100)).all() and noisy.dtype == np.int64


def test_without_an_open_share_it_is_exact_symmetric_noise() -> None:
    clean = np.arange(200) % 10
    noisy, positions, indices = open_set(clean, 10, 0.5, 0.0, 7, seed=3)
    assert (noisy == symmetric_exact(clean, 10, 0.5, seed=3)).all() and len(positions) == len(indices) == 0


def test_shares_on_the_real_labels(cifar10_labels: np.ndarray) -> None:
    noisy, positions, indices = open_set(cifar10_labels, 10, 0.6, 0.5, 50_000, seed=42)
    assert (noisy != cifar10_labels).sum() == 15_000 and len(positions) == 15_000
    share = np.bincount(cifar10_labels[positions], minlength=10) / 15_000
    assert (np.abs(share - 0.1) < 4.5 * np.sqrt(0.09 / 15_000)).all()  # replaced whatever the class
    assert abs(indices.mean() - 24_999.5) < 4.5 * 50_000 / np.sqrt(12 * 15_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 0.5, 10), r"noise rate 1.0 is outside \[0, 1\)"),
        ((0.5, 1.1, 10), r"open share 1.1 is outside \[0, 1\]"),
        ((0.5, float("nan"), 10), r"open share nan is outside"),
        ((0.5, 1.0, 4), "5 samples are to be replaced but there are only 4 foreign images; lower the rate"),
    ],
)
def test_what_is_refused(arguments: tuple[float, float, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_set([0, 1] * 5, 2, *arguments, seed=0)


# On a dataset


def test_images_labels_and_truth(own: Dataset, other: Dataset) -> None:
    before = own.train.inputs.clone()
    noisy, record = make_noise(own, "open-set", 0.4, 7, foreign=other, open_share=0.25)
    train, which = noisy.train, record.foreign
    assert which is not None and (len(which), which.dataset) == (100, "other")
    assert isinstance(train.inputs, torch.Tensor) and isinstance(other.train.inputs, torch.Tensor)
    assert train.truth is not None and own.train.inputs.equal(before)
    foreign = train.inputs.amin(dim=(1, 2, 3)) >= 100
    assert foreign.nonzero()[:, 0].tolist() == which.positions.tolist()
    assert train.inputs[foreign].equal(other.train.inputs[torch.from_numpy(which.indices)])
    assert train.inputs[~foreign].equal(before[~foreign])
    assert (train.truth[foreign] == UNKNOWN).all() and train.truth[~foreign].equal(own.train.labels[~foreign])
    assert train.labels[foreign].equal(own.train.labels[foreign])
    assert int((train.labels != own.train.labels).sum()) == 300
    assert (record.kind, record.nominal, record.actual, record.flipped) == ("open-set", 0.4, 0.4, 400)
    assert record.convention == "open share 0.25, closed exclusive-exact"
    assert record.transitions.class_counts().sum() == 900 and record.transitions.wrong_counts().sum() == 300
    again, again_record = make_noise(own, "open-set", 0.4, 7, foreign=other, open_share=0.25)
    assert again_record == record and again.train.inputs.equal(train.inputs)  # type: ignore[arg-type]


def test_datasets_that_do_not_fit(own: Dataset, other: Dataset) -> None:
    features = from_arrays(np.zeros((8, 4), np.float32), [0, 1] * 4, name="table")
    small = from_arrays(np.zeros((900, 2, 2), np.uint8), [0, 1] * 450, name="small")
    for pair in ((own, features), (features, other)):
        with pytest.raises(InputError, match="open-set noise needs uint8 images in memory; table is"):
            make_noise(pair[0], "open-set", 0.4, 0, foreign=pair[1], open_share=0.5)
    with pytest.raises(InputError, match=r"images of small are \[1, 2, 2\] but those of own \[3, 4, 4\]"):
        make_noise(own, "open-set", 0.4, 0, foreign=small, open_share=0.5)
    with pytest.raises(InputError, match="700 samples are to be replaced but there are only 600 foreign images"):
        make_noise(own, "open-set", 0.7, 0, foreign=other, open_share=1.0)


# Through a file


@pytest.fixture
def saved(own: Dataset, other: Dataset, tmp_path: Path) -> tuple[Path, Dataset, NoiseRecord]:
    noisy, record = make_noise(own, "open-set", 0.4, 7, foreign=other, open_share=0.25)
    save_noise(tmp_path / "open.npz", noisy.train.labels, record)
    return tmp_path / "open.npz", noisy, record


def test_a_file_gives_the_same_dataset(own: Dataset, other: Dataset, saved: tuple[Path, Dataset, NoiseRecord]) -> None:
    path, noisy, record = saved
    asked: list[str] = []

    def load(name: str) -> Dataset:
        asked.append(name)
        return other

    applied, applied_record = apply_noise_file(own, path, load)
    assert asked == ["other"] and applied_record == record
    for one, two in ((applied.train, noisy.train),):
        assert one.inputs.equal(two.inputs) and one.labels.equal(two.labels)  # type: ignore[union-attr, arg-type]
        assert one.truth is not None and two.truth is not None and one.truth.equal(two.truth)


def test_other_images_are_noticed(own: Dataset, other: Dataset, saved: tuple[Path, Dataset, NoiseRecord]) -> None:
    path = saved[0]
    with pytest.raises(InputError, match=r"open.npz: 100 samples are images of 'other'; say how to load it"):
        apply_noise_file(own, path)
    shuffled = replace(other, train=other.train.take(torch.arange(600).flip(0)))
    with pytest.raises(InputError, match=r"images of other: sha256 \w+ in the record, \w+ found; expected those of"):
        apply_noise_file(own, path, lambda _: shuffled)
    few = replace(other, train=other.train.take(torch.arange(50)))
    with pytest.raises(InputError, match="other has 50 images, none of index"):
        apply_noise_file(own, path, lambda _: few)
