from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.arrays import from_arrays
from labeltrace.data.noise import instance as noise_instance
from labeltrace.data.noise.instance import flip_probabilities, idn, pdn, pdn_rows
from labeltrace.data.noise.kinds import add_noise, flip_count
from labeltrace.errors import InputError

SCORES = [[0.70, 0.20, 0.10], [0.30, 0.60, 0.10], [0.05, 0.05, 0.90], [0.45, 0.15, 0.40]]
# The mean of the truncated normal for each rate, as published beside the method; `mean_flip` is the formula.
MEANS = {0.1: 0.12876, 0.2: 0.20552, 0.3: 0.30044, 0.4: 0.40001, 0.5: 0.5, 0.6: 0.59999}


def mean_flip(rate: float, spread: float = 0.1) -> float:
    def density(z: float) -> float:
        return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    low, high = -rate / spread, (1 - rate) / spread
    inside = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    return rate + spread * (density(low) - density(high)) / inside


def bright_images(count: int) -> np.ndarray:
    """Images that differ most in brightness, as photographs do."""
    rng = np.random.default_rng(0)
    brightness = rng.uniform(60, 190, (count, 1, 1, 1))
    return (brightness + rng.normal(0, 25, (count, 3, 8, 8))).clip(0, 255).astype(np.uint8)


# PDN: one row


def test_the_worked_row() -> None:
    weights = np.array([[0, 1, -1], [0, 0.5, 1]])
    scores = np.array([[1, 2]]) @ weights
    assert scores[0, 1:].tolist() == [2, 1]
    row = pdn_rows(scores, np.array([0]), np.array([0.3]))[0]
    share = math.exp(2) / (math.exp(2) + math.exp(1))
    assert row == pytest.approx([0.7, 0.3 * share, 0.3 * (1 - share)], abs=1e-15)
    assert row.round(4).tolist() == [0.7, 0.2193, 0.0807]


@settings(deadline=None, max_examples=60)
@given(classes=st.integers(2, 12), scale=st.floats(0, 1e6), seed=st.integers(0, 2**32))
def test_rows_are_probabilities_that_keep_the_rest_for_the_class(classes: int, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, labels, flip = scale * rng.standard_normal((9, classes)), rng.integers(0, classes, 9), rng.random(9)
    rows = pdn_rows(scores, labels, flip)
    assert np.isfinite(rows).all() and (rows >= 0).all()
    assert rows.sum(axis=1) == pytest.approx(np.ones(9), abs=1e-12)
    assert (rows[np.arange(9), labels] == 1 - flip).all()
    # the score of the class itself, and a constant added to all, change nothing
    other = scores.copy()
    other[np.arange(9), labels] = 1e9
    assert (pdn_rows(other, labels, flip) == rows).all()
    order = rng.permutation(classes)
    moved = pdn_rows(scores[:, order], np.argsort(order)[labels], flip)
    assert moved == pytest.approx(rows[:, order], abs=1e-12)


# PDN: flip probabilities


@pytest.mark.parametrize("rate", MEANS)
def test_the_mean_flip_probability(rate: float) -> None:
    assert mean_flip(rate) == pytest.approx(MEANS[rate], abs=6e-6)
    drawn = flip_probabilities(rate, 50_000, np.random.default_rng(0))
    assert (drawn >= 0).all() and (drawn <= 1).all() and drawn.std() < 0.101
    assert abs(drawn.mean() - MEANS[rate]) < 0.0015


@settings(deadline=None, max_examples=40)
@given(rate=st.floats(0, 1), count=st.integers(0, 300), seed=st.integers(0, 2**32))
def test_flip_probabilities_lie_in_0_1(rate: float, count: int, seed: int) -> None:
    drawn = flip_probabilities(rate, count, np.random.default_rng(seed))
    assert drawn.shape == (count,) and ((drawn >= 0) & (drawn <= 1)).all()
    untouched = np.random.default_rng(seed).normal(rate, 0.1, count)
    inside = (untouched >= 0) & (untouched <= 1)
    assert (drawn[inside] == untouched[inside]).all()


# PDN: labels


@pytest.mark.parametrize("standardise", [False, True], ids=["raw", "standardised"])
def test_pdn_against_a_slow_loop(standardise: bool) -> None:
    images = bright_images(60)[:, :, :2, :2]
    clean = np.arange(60) * 7 % 4
    rng = np.random.default_rng(11)
    flip = rng.normal(0.4, 0.1, 60)
    assert (flip > 0).all() and (flip < 1).all()  # no second draw for this seed
    uniform = rng.random(60)
    weights = [rng.standard_normal((12, 4)) for _ in range(4)]
    slow = []
    for i, label in enumerate(clean):
        values = []
        for channel in range(3):
            plane = images[:, channel].astype(float)
            for pixel in images[i, channel].ravel():
                values.append((float(pixel) - plane.mean()) / plane.std() if standardise else float(pixel))
        scores = [sum(v * weights[label][d, c] for d, v in enumerate(values)) for c in range(4)]
        top = max(s for c, s in enumerate(scores) if c != label)
        powers = [0.0 if c == label else math.exp(s - top) for c, s in enumerate(scores)]
        total = 0.0
        for c in range(4):
            total += 1 - flip[i] if c == label else flip[i] * powers[c] / sum(powers)
            if uniform[i] < total:
                slow.append(c)
                break
    noisy = pdn(images, clean, 4, 0.4, seed=11, standardise=standardise)
    assert noisy.tolist() == slow and 0.2 < (noisy != clean).mean() < 0.6


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images, clean = bright_images(200), np.arange(200) % 3
    for standardise in (False, True):
        monkeypatch.undo()
        whole = pdn(images, clean, 3, 0.4, 0, standardise)
        monkeypatch.setattr(noise_instance, "_BLOCK", 7)
        assert (pdn(images, clean, 3, 0.4, 0, standardise) == whole).all()


def test_a_class_keeps_its_matrix_whatever_the_other_labels_are() -> None:
    features = np.random.default_rng(0).standard_normal((50, 6))
    one, two = np.full(50, 2), np.full(50, 2)
    one[0], two[0] = 0, 1
    assert (pdn(features, one, 3, 0.6, 4)[1:] == pdn(features, two, 3, 0.6, 4)[1:]).all()


def test_one_class_of_w_at_a_time() -> None:
    features, clean = np.ones((100, 2000), np.float32), np.arange(100) % 50
    tracemalloc.start()
    pdn(features, clean, 50, 0.3, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6  # W of all classes would be 40 MB


@pytest.mark.parametrize("standardise", [False, True], ids=["raw", "standardised"])
def test_rates_on_the_real_labels(
    standardise: bool, cifar10_labels: np.ndarray, cifar100_labels: tuple[np.ndarray, np.ndarray]
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (50_000, 3, 2, 2), dtype=np.uint8)
    for clean, classes in ((cifar10_labels, 10), (cifar100_labels[0], 100)):
        for rate in (0.2, 0.4):
            for seed in (0, 42, 1027):
                actual = (pdn(pixels, clean, classes, rate, seed, standardise) != clean).mean()
                expected = mean_flip(rate)
                assert abs(actual - expected) < 4.5 * math.sqrt(expected * (1 - expected) / 50_000)


def test_raw_pixels_are_close_to_pair_noise_and_standardised_ones_are_not() -> None:
    images, clean = bright_images(5000), np.arange(5000) % 10

    def top_share(noisy: np.ndarray) -> float:
        wrong = [noisy[(clean == c) & (noisy != clean)] for c in range(10)]
        return float(np.mean([np.bincount(labels).max() / len(labels) for labels in wrong]))

    raw, standardised = (
        np.mean([top_share(pdn(images, clean, 10, 0.4, seed, scaled)) for seed in range(3)]) for scaled in (False, True)
    )
    assert raw > 0.6 and standardised < raw - 0.15


def test_equal_scores_share_the_flips_equally() -> None:
    clean = np.full(20_000, 1)
    counts = np.bincount(pdn(np.zeros((20_000, 1)), clean, 5, 0.5, 0), minlength=5)
    assert np.abs(np.delete(counts, 1) - 2500).max() < 5 * math.sqrt(2500)


def test_a_constant_channel_is_no_division_by_zero() -> None:
    features = np.column_stack([np.full(30, 7.0), np.arange(30.0)])
    with np.errstate(all="raise", under="ignore"):
        noisy = pdn(features, np.arange(30) % 3, 3, 0.5, 0, standardise=True)
    assert set(noisy) <= {0, 1, 2}


cases = st.integers(2, 8).flatmap(
    lambda c: st.tuples(st.just(c), st.lists(st.integers(0, c - 1), min_size=1, max_size=40))
)


@settings(deadline=None, max_examples=40)
@given(case=cases, rate=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 2**32), standardise=st.booleans())
def test_pdn_is_a_pure_function(case: tuple[int, list[int]], rate: float, seed: int, standardise: bool) -> None:
    classes, labels = case
    clean = np.array(labels)
    images = np.random.default_rng(0).integers(0, 256, (len(clean), 1, 3, 3), dtype=np.uint8)
    kept = clean.copy(), images.copy()
    noisy = pdn(images, clean, classes, rate, seed, standardise)
    assert noisy.dtype == np.int64 and noisy.shape == clean.shape and ((noisy >= 0) & (noisy < classes)).all()
    assert (clean == kept[0]).all() and (images == kept[1]).all() and not np.shares_memory(noisy, clean)
    again = pdn(torch.from_numpy(images), torch.from_numpy(clean), classes, rate, seed, standardise)
    assert (again == noisy).all()
    assert (pdn(images, clean, classes, 0.0, seed, standardise) == clean).all()


def test_pdn_of_nothing() -> None:
    assert pdn(np.zeros((0, 3)), np.zeros(0, int), 2, 0.5, 0, standardise=True).shape == (0,)


@pytest.mark.parametrize(
    ("inputs", "arguments", "message"),
    [
        (np.zeros((2, 3)), ([0, 1], 2, 1.0, 0), r"noise rate 1.0 is outside \[0, 1\)"),
        (np.zeros((2, 3)), ([0, 2], 2, 0.5, 0), "label 2 at index 1"),
        (np.zeros((2, 3)), ([0, 1], 2, 0.5, -1), "seed -1 is negative"),
        (np.zeros((3, 3)), ([0, 1], 2, 0.5, 0), "3 inputs but 2 labels"),
        (np.zeros(2), ([0, 1], 2, 0.5, 0), r"inputs are float64 \[2\]; expected features \[N, D\] or images"),
        (np.zeros((2, 3, 3), np.uint8), ([0, 1], 2, 0.5, 0), r"inputs are uint8 \[2, 3, 3\]"),
        (np.array([[0.0], [math.nan]]), ([0, 1], 2, 0.5, 0), "inputs of sample 1 are NaN or infinite"),
    ],
)
def test_what_pdn_refuses(inputs: np.ndarray, arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pdn(inputs, *arguments)  # type: ignore[arg-type]


def test_instance_noise_by_name() -> None:
    images, clean = bright_images(500), np.arange(500) % 5
    data = from_arrays(images, clean)
    noisy, record = add_noise(data, "instance", 0.4, seed=7)
    assert (record.kind, record.convention, record.nominal) == ("instance", "pdn raw per-class", 0.4)
    assert (noisy.train.labels.numpy() == pdn(images, clean, 5, 0.4, 7)).all()
    assert noisy.train.truth is not None and (noisy.train.truth.numpy() == clean).all()
    assert add_noise(data, "instance", 0.4, seed=7)[1] == record
    features = from_arrays(np.random.default_rng(0).standard_normal((500, 4)), clean)
    assert 0.25 < add_noise(features, "instance", 0.4, seed=7)[1].actual < 0.55


# IDN


def test_the_worked_example() -> None:
    assert idn(SCORES, [0, 1, 2, 0], 0.5).tolist() == [0, 0, 2, 2]
    assert idn(SCORES, [0, 1, 2, 0], 0.25).tolist() == [0, 1, 2, 2]
    assert idn(SCORES, [0, 1, 2, 0], 0.75).tolist() == [1, 0, 2, 2]
    assert idn(SCORES, [0, 1, 2, 0], 0.99).tolist() == [1, 0, 2, 2]
    assert idn(SCORES, [0, 1, 2, 0], 0.0).tolist() == [0, 1, 2, 0]


def test_equal_scores_flip_the_later_samples_to_the_first_class() -> None:
    assert idn(np.full((6, 3), 1 / 3), [0, 1, 2, 0, 1, 2], 0.5).tolist() == [0, 1, 2, 1, 0, 0]


idn_cases = st.integers(2, 6).flatmap(
    lambda c: st.tuples(
        st.lists(
            st.tuples(st.lists(st.integers(0, 8), min_size=c, max_size=c), st.integers(0, c - 1)),
            min_size=1,
            max_size=40,
        ),
        st.floats(0, 1, exclude_max=True),
        st.floats(0, 1, exclude_max=True),
    )
)


@settings(deadline=None, max_examples=80)
@given(case=idn_cases)
def test_idn_is_exact_nested_and_as_a_slow_loop(case: tuple[list[tuple[list[int], int]], float, float]) -> None:
    samples, *rates = case
    scores = np.array([row for row, _ in samples]) / 8  # few values, so that many are equal
    clean = np.array([label for _, label in samples])
    kept = scores.copy()
    low, high = (idn(scores, clean, rate) for rate in sorted(rates))
    assert (low != clean).sum() == flip_count(min(rates), len(clean))
    assert (high != clean).sum() == flip_count(max(rates), len(clean))
    flipped = low != clean
    assert (high[flipped] == low[flipped]).all() and (scores == kept).all() and low.dtype == np.int64
    ranked = []
    for i, (row, label) in enumerate(samples):
        best = max((c for c in range(len(row)) if c != label), key=lambda c: (row[c], -c))
        ranked.append((row[best], i, best))
    slow = clean.copy()
    for _, i, best in sorted(ranked, reverse=True)[: flip_count(max(rates), len(clean))]:
        slow[i] = best
    assert (slow == high).all()


def test_idn_rate_is_exact_on_the_real_labels(cifar10_labels: np.ndarray) -> None:
    scores = np.random.default_rng(0).dirichlet(np.ones(10), 50_000)
    previous = np.zeros(50_000, bool)
    for rate in (0.1, 0.2, 0.3, 0.4):
        changed = idn(scores, cifar10_labels, rate) != cifar10_labels
        assert changed.mean() == rate and changed[previous].all()
        previous = changed


@pytest.mark.parametrize(
    ("scores", "labels", "rate", "message"),
    [
        (SCORES, [0, 1, 2, 0], 1.0, r"noise rate 1.0 is outside \[0, 1\)"),
        (SCORES, [0, 1, 3, 0], 0.5, "label 3 at index 2 is not a class in 0..2"),
        (SCORES, [0, 1], 0.5, r"scores are float64 \[4, 3\]; expected floats \[N, C\], a row for each of the 2 labels"),
        ([0.1, 0.2], [0, 1], 0.5, r"scores are float64 \[2\]"),
        ([[0, 1], [1, 0]], [0, 1], 0.5, r"scores are int64 \[2, 2\]"),
        ([[0.0, 1.0], [math.nan, 0.0]], [0, 1], 0.5, "scores of sample 1 are NaN or infinite"),
        ([[0.5], [0.5]], [0, 0], 0.5, "two classes or more, got 1"),
    ],
)
def test_what_idn_refuses(scores: object, labels: list[int], rate: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        idn(scores, labels, rate)  # type: ignore[arg-type]
