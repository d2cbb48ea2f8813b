from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.arrays import from_arrays
from labeltrace.data.dataset import Dataset
from labeltrace.data.noise import make as noise_make  # noqa: F401  (registers the kinds that need inputs)
from labeltrace.data.noise.kinds import (
    add_noise,
    flip_count,
    noises,
    pair,
    symmetric,
    symmetric_exact,
    symmetric_inclusive,
)
from labeltrace.data.noise.record import NoiseRecord, label_hash
from labeltrace.errors import InputError

CIFAR10_MAP = (0, 1, 0, 5, 7, 3, 6, 7, 8, 1)
KINDS: dict[str, Callable[..., np.ndarray]] = {
    "symmetric": symmetric,
    "symmetric_exact": symmetric_exact,
    "symmetric_inclusive": symmetric_inclusive,
    "pair": pair,
    "mapped pair": lambda y, c, r, s: pair(y, c, r, s, [(k + 1) % c if k % 2 else k for k in range(c)]),
}
ALL = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
ALMOST_ONE = math.nextafter(1, 0)


def dataset(labels: np.ndarray, pair_map: tuple[int, ...] | None = None, classes: int = 10) -> Dataset:
    data = from_arrays(np.zeros((len(labels), 1), np.float32), labels, classes=range(classes))
    return Dataset("toy", data.train, None, data.classes, data.views, pair_map)


# The facts of the literature's conventions


def test_exclusive_iid_worked_numbers() -> None:
    noisy = symmetric(np.arange(20) % 10, 10, 0.5, seed=0)
    assert noisy.tolist() == [0, 2, 3, 5, 4, 5, 6, 7, 8, 9, 0, 5, 2, 2, 4, 4, 6, 7, 7, 5]
    assert (noisy != np.arange(20) % 10).sum() == 8


def test_exclusive_exact_worked_numbers() -> None:
    noisy = symmetric_exact(np.arange(20) % 10, 10, 0.5, seed=0)
    assert noisy.tolist() == [0, 1, 7, 4, 9, 5, 9, 7, 9, 9, 2, 2, 2, 7, 4, 5, 0, 7, 8, 0]
    assert (noisy != np.arange(20) % 10).sum() == 10


def test_symmetric_against_a_slow_loop() -> None:
    clean, classes, rate = np.arange(300) * 7 % 5, 5, 0.3
    rng = np.random.default_rng(3)
    coins, steps = rng.random(300), rng.integers(1, classes, 300)
    slow = [(y + k) % classes if u < rate else y for y, u, k in zip(clean, coins, steps, strict=True)]
    assert symmetric(clean, classes, rate, seed=3).tolist() == slow


def test_inclusive_against_a_slow_loop() -> None:
    clean = np.arange(300) % 5
    rng = np.random.default_rng(3)
    slow = clean.tolist()
    order = rng.permutation(300)
    for position, label in zip(order[:90], rng.integers(0, 5, 90), strict=True):
        slow[position] = int(label)
    assert symmetric_inclusive(clean, 5, 0.3, seed=3).tolist() == slow


def test_inclusive_returns_the_true_class_on_about_one_in_c() -> None:
    clean = np.arange(50_000) % 10
    changed = (symmetric_inclusive(clean, 10, 0.5, seed=1) != clean).sum()
    drawn = 25_000
    assert abs((drawn - changed) / drawn - 0.1) < 5 * math.sqrt(0.1 * 0.9 / drawn)


def test_cifar10_pair_class_counts() -> None:
    clean = np.arange(50_000) % 10
    noisy = pair(clean, 10, 0.4, seed=0, pair_map=CIFAR10_MAP)
    assert np.bincount(noisy).tolist() == [7000, 7000, 3000, 5000, 3000, 5000, 5000, 7000, 5000, 3000]
    assert (noisy != clean).mean() == 0.2
    for source, target in enumerate(CIFAR10_MAP):
        seen = np.bincount(noisy[clean == source], minlength=10)
        assert seen[source] == (5000 if source == target else 3000)
        assert seen.sum() - seen[source] == (0 if source == target else seen[target])


def test_cifar10_pair_on_the_real_labels(cifar10_labels: np.ndarray) -> None:
    assert cifar10_labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    noisy = pair(cifar10_labels, 10, 0.4, seed=1027, pair_map=CIFAR10_MAP)
    assert np.bincount(noisy).tolist() == [7000, 7000, 3000, 5000, 3000, 5000, 5000, 7000, 5000, 3000]


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
def test_rates_on_the_real_cifar100_labels(rate: float, cifar100_labels: tuple[np.ndarray, np.ndarray]) -> None:
    fine, _ = cifar100_labels
    sigma = math.sqrt(rate * (1 - rate) / len(fine))
    redraw = math.sqrt(rate * 0.01 * 0.99 / len(fine))  # of the draws, one in a hundred hits the true class
    for seed in (0, 42, 1027):
        assert abs((symmetric(fine, 100, rate, seed) != fine).mean() - rate) < 4.5 * sigma
        assert (symmetric_exact(fine, 100, rate, seed) != fine).mean() == rate
        assert abs((symmetric_inclusive(fine, 100, rate, seed) != fine).mean() - 0.99 * rate) < 4.5 * redraw
        assert abs((pair(fine, 100, rate, seed) != fine).mean() - rate) < 4.5 * sigma


def test_pairflip_is_a_permutation_of_order_c() -> None:
    classes = np.arange(7)
    moved = pair(classes, 7, ALMOST_ONE, seed=0)
    assert moved.tolist() == [1, 2, 3, 4, 5, 6, 0]
    for _ in range(6):
        moved = pair(moved, 7, ALMOST_ONE, seed=0)
    assert (moved == classes).all()


def test_a_map_without_fixed_points_flips_exactly_in_every_class() -> None:
    clean = np.repeat([0, 1, 2], [10, 20, 5])
    noisy = pair(clean, 3, 0.5, seed=0, pair_map=(2, 0, 1))
    assert [(noisy[clean == c] != c).sum() for c in range(3)] == [5, 10, 2]


def test_cat_and_dog_swap_once_not_twice() -> None:
    # A label that has become "dog" is not a dog to draw from: each class loses and gains the same number.
    clean = np.repeat([0, 1], 100)
    noisy = pair(clean, 2, 0.9, seed=0, pair_map=(1, 0))
    assert (noisy[:100] == 1).sum() == (noisy[100:] == 0).sum() == 90


@pytest.mark.parametrize(("rate", "count", "flips"), [(0.29, 100, 29), (0.57, 100, 57), (0.999, 10, 9), (0.0, 5, 0)])
def test_flip_count(rate: float, count: int, flips: int) -> None:
    assert flip_count(rate, count) == flips


# Properties of every kind


def labels_below(classes: int) -> st.SearchStrategy[tuple[int, list[int]]]:
    return st.tuples(st.just(classes), st.lists(st.integers(0, classes - 1), min_size=1, max_size=60))


cases = st.tuples(
    st.integers(2, 12).flatmap(labels_below),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 2**32),
)


@ALL
@settings(deadline=None, max_examples=40)
@given(case=cases)
def test_noise_is_a_pure_function(
    kind: Callable[..., np.ndarray], case: tuple[tuple[int, list[int]], float, int]
) -> None:
    (classes, labels), rate, seed = case
    clean = np.array(labels)
    kept = clean.copy()
    noisy = kind(clean, classes, rate, seed)
    assert noisy.dtype == np.int64 and noisy.shape == clean.shape
    assert ((noisy >= 0) & (noisy < classes)).all()
    assert (clean == kept).all() and not np.shares_memory(clean, noisy)
    assert (kind(clean.astype(np.int32), classes, rate, seed) == noisy).all()
    assert (kind(clean, classes, 0.0, seed) == clean).all()


@settings(deadline=None, max_examples=60)
@given(case=cases)
def test_exclusive_noise_never_returns_the_true_class(case: tuple[tuple[int, list[int]], float, int]) -> None:
    (classes, labels), rate, seed = case
    clean = np.array(labels)
    chosen = np.random.default_rng(seed).random(len(clean)) < rate
    assert ((symmetric(clean, classes, rate, seed) != clean) == chosen).all()
    assert ((pair(clean, classes, rate, seed) != clean) == chosen).all()
    assert (symmetric_exact(clean, classes, rate, seed) != clean).sum() == flip_count(rate, len(clean))


@settings(deadline=None, max_examples=25)
@given(rate=st.floats(0.01, 0.99), seed=st.integers(0, 2**32))
def test_rates_are_within_sampling_error(rate: float, seed: int) -> None:
    clean = np.arange(20_000) % 10
    sigma = math.sqrt(rate * (1 - rate) / len(clean))
    assert abs((symmetric(clean, 10, rate, seed) != clean).mean() - rate) < 6 * sigma
    assert abs((pair(clean, 10, rate, seed) != clean).mean() - rate) < 6 * sigma
    # one draw of the inclusive kind changes with probability 0.9, for exactly rate · N draws
    drawn = flip_count(rate, len(clean))
    changed = (symmetric_inclusive(clean, 10, rate, seed) != clean).sum()
    assert abs(changed - 0.9 * drawn) <= 6 * math.sqrt(drawn * 0.9 * 0.1)


@pytest.mark.parametrize("kind", [symmetric, symmetric_exact], ids=["iid", "exact"])
def test_the_other_classes_are_equally_likely(kind: Callable[..., np.ndarray]) -> None:
    clean = np.full(90_000, 3)
    counts = np.bincount(kind(clean, 10, 0.5, 5), minlength=10)
    others = np.delete(counts, 3)
    assert abs(others - 5000).max() < 5 * math.sqrt(5000)


@ALL
def test_seeds_differ(kind: Callable[..., np.ndarray]) -> None:
    clean = np.arange(1000) % 10
    assert (kind(clean, 10, 0.5, 0) != kind(clean, 10, 0.5, 1)).any()


# What is refused


@ALL
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, math.nan])
def test_a_rate_outside_is_named(kind: Callable[..., np.ndarray], rate: float) -> None:
    with pytest.raises(InputError, match=rf"noise rate {rate} is outside \[0, 1\)"):
        kind([0, 1], 2, rate, 0)


@ALL
@pytest.mark.parametrize(("labels", "value", "index"), [([0, 1, 2, 0], 2, 2), ([0, 0, -1, 5], -1, 2)])
def test_the_first_label_outside_is_named(
    kind: Callable[..., np.ndarray], labels: list[int], value: int, index: int
) -> None:
    with pytest.raises(ValueError, match=f"label {value} at index {index} is not a class in 0..1"):
        kind(labels, 2, 0.5, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 0], 1, 0.5, 0), "two classes or more, got 1"),
        (([0, 1], 2, 0.5, -1), "seed -1 is negative"),
        (([[0, 1]], 2, 0.5, 0), r"int64 \[1, 2\]; expected integers \[N\]"),
        (([0.5, 1.0], 2, 0.5, 0), "float64"),
    ],
)
def test_bad_arguments(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        symmetric(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pair_map", "message"),
    [((0, 1), "every class to itself"), ((1,), "needs 2 classes"), ((1, 2), "needs 2 classes in 0..1, got")],
)
def test_bad_pair_maps(pair_map: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pair([0, 1], 2, 0.5, 0, pair_map)


# Noise on a dataset, and its record


@pytest.mark.parametrize(
    ("kind", "pair_map", "convention"),
    [
        ("symmetric", None, "exclusive-iid"),
        ("symmetric-exact", None, "exclusive-exact"),
        ("symmetric-inclusive", None, "inclusive"),
        ("pair", None, "pairflip"),
        ("pair", CIFAR10_MAP, "per-class exact"),
        ("asymmetric", CIFAR10_MAP, "transition matrix"),
        ("asymmetric-global", CIFAR10_MAP, "global exact"),
        ("instance", None, "pdn raw per-class"),
        ("instance-standardised", None, "pdn standardised per-class"),
    ],
)
def test_add_noise(kind: str, pair_map: tuple[int, ...] | None, convention: str) -> None:
    clean = np.arange(1000) % 10
    data = dataset(clean, pair_map)
    noisy, record = add_noise(data, kind, 0.4, seed=7)
    observed = noisy.train.labels.numpy()
    assert noisy.train.truth is not None and (noisy.train.truth.numpy() == clean).all()
    assert (data.train.labels.numpy() == clean).all() and data.train.truth is None
    assert noisy.train.inputs is data.train.inputs
    actual = (observed != clean).mean()
    names = tuple(map(str, range(10)))
    assert record == NoiseRecord.of(kind, convention, 0.4, 7, clean, observed, names)
    assert record.to_dict() == {
        "kind": kind, "convention": convention, "nominal": 0.4, "actual": actual, "seed": 7,
        "sha256": label_hash(observed), "count": 1000, "num_classes": 10, "clean_sha256": label_hash(clean),
    }  # fmt: skip
    assert 0.1 < actual < 0.5
    assert add_noise(data, kind, 0.4, seed=7)[1] == record
    assert json.loads(json.dumps(record.to_dict())) == record.to_dict()


def test_the_registry_holds_these_kinds() -> None:
    assert list(noises) == [
        "symmetric",
        "symmetric-exact",
        "symmetric-inclusive",
        "pair",
        "asymmetric",
        "asymmetric-global",
        "superclass",
        "block5",
        "instance",
        "instance-standardised",
        "transition",
        "instance-idn",
        "open-set",
    ]
    with pytest.raises(InputError, match="unknown noise 'symetric': did you mean 'symmetric'"):
        add_noise(dataset(np.arange(10)), "symetric", 0.1, 0)


@pytest.mark.parametrize("kind", ["asymmetric", "asymmetric-global"])
def test_asymmetric_noise_needs_a_map(kind: str) -> None:
    with pytest.raises(InputError, match=rf"{kind} noise needs .* \(pair_map\), and toy does not say; use 'pair'"):
        add_noise(dataset(np.arange(10)), kind, 0.4, 0)


RATES = {  # of wrong labels among the drawn ones, and whether the number drawn is exact
    "symmetric": (1.0, False),
    "symmetric-exact": (1.0, True),
    "symmetric-inclusive": (0.9, True),
    "pair": (0.5, True),
    "asymmetric": (0.5, False),
    "asymmetric-global": (0.5, True),
}


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
def test_rates_by_name_on_the_real_cifar10_labels(kind: str, rate: float, cifar10_labels: np.ndarray) -> None:
    data = dataset(cifar10_labels, CIFAR10_MAP)
    share, exact = RATES[kind]
    # of N independent samples, or of rate · N drawn ones of which a share changes
    spread = math.sqrt(rate * share * (1 - share if exact else 1 - rate * share) / 50_000)
    for seed in (0, 42, 1027):
        record = add_noise(data, kind, rate, seed)[1]
        assert abs(record.actual - rate * share) <= 4.5 * spread
        assert (record.count, record.num_classes, record.nominal) == (50_000, 10, rate)
        assert record.transitions.class_counts().tolist() == [5000] * 10
        assert record.flipped == record.transitions.wrong_counts().sum()
        if kind in ("symmetric-exact", "pair"):
            assert record.actual == rate * share


@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_mean_rate_of_instance_noise_on_the_real_cifar10_labels(rate: float, cifar10_labels: np.ndarray) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (50_000, 2, 2), dtype=np.uint8)
    data = from_arrays(pixels, cifar10_labels)
    expected = {0.2: 0.20552, 0.4: 0.40001}[rate]  # the mean of the truncated normal
    for kind in ("instance", "instance-standardised"):
        actual = add_noise(data, kind, rate, 1027)[1].actual
        assert abs(actual - expected) < 4.5 * math.sqrt(expected * (1 - expected) / 50_000)


def test_describe_reports_both_rates() -> None:
    _, record = add_noise(dataset(np.arange(50_000) % 10, CIFAR10_MAP), "pair", 0.4, 0)
    line = record.describe()
    assert "nominal rate 0.4, actual 0.2000 (10,000 of 50,000 labels)" in line
    assert line.endswith(record.sha256[:12]) and record.sha256[:13] not in line and "\n" not in line


def test_noise_is_not_added_twice() -> None:
    noisy, _ = add_noise(dataset(np.arange(100) % 10), "symmetric-exact", 0.1, 0)
    with pytest.raises(InputError, match="10 training labels differ from the truth already"):
        add_noise(noisy, "symmetric", 0.1, 0)
    assert noisy.train.truth is not None
    add_noise(noisy.with_labels(noisy.train.truth, noisy.train.truth), "symmetric", 0.1, 0)


def test_label_hash_is_that_of_little_endian_int64() -> None:
    labels = [3, 0, 1, 99]
    expected = hashlib.sha256(struct.pack("<4q", *labels)).hexdigest()
    for form in (labels, np.array(labels, np.uint8), np.array(labels, ">i4"), torch.tensor(labels)):
        assert label_hash(form) == expected
