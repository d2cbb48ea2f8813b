from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data import noises
from labeltrace.data.arrays import from_arrays
from labeltrace.data.dataset import Dataset
from labeltrace.data.noise.kinds import add_noise, flip_count, pair
from labeltrace.data.noise.maps import (
    BLOCK_OF_5,
    SUPERCLASS_NEXT,
    asymmetric,
    asymmetric_global,
    checked_matrix,
    draw_rows,
    transition,
)
from labeltrace.data.noise.record import label_hash
from labeltrace.data.sets.cifar import cifar100_coarse
from labeltrace.errors import InputError

CIFAR10_MAP = (0, 1, 0, 5, 7, 3, 6, 7, 8, 1)
PAIRFLIP = tuple((fine + 1) % 100 for fine in range(100))
SEEDS = (0, 42, 1027)  # TRACE's
Kind = Callable[..., np.ndarray]
BOTH = pytest.mark.parametrize("kind", [asymmetric, asymmetric_global], ids=["iid", "global"])


def dataset(labels: np.ndarray, classes: int) -> Dataset:
    return from_arrays(np.zeros((len(labels), 1), np.float32), labels, classes=range(classes), name="toy")


def sigmas(share: float, expected: float, count: int) -> float:
    return abs(share - expected) / math.sqrt(expected * (1 - expected) / count)


# The maps


@pytest.mark.parametrize(
    ("target", "order"), [(PAIRFLIP, 100), (SUPERCLASS_NEXT, 5), (BLOCK_OF_5, 5)], ids=["pairflip", "super", "block"]
)
def test_maps_are_permutations_without_fixed_points(target: tuple[int, ...], order: int) -> None:
    moved = np.arange(100)
    assert sorted(target) == list(range(100))
    for step in range(1, order + 1):
        moved = np.array(target)[moved]
        assert ((moved == np.arange(100)) == (step == order)).all()


def test_superclass_next_stays_inside_and_ascends() -> None:
    assert (SUPERCLASS_NEXT[95], SUPERCLASS_NEXT[4], SUPERCLASS_NEXT[98]) == (4, 30, 2)
    coarse = cifar100_coarse(torch.arange(100)).tolist()
    for fine, target in enumerate(SUPERCLASS_NEXT):
        members = [other for other in range(100) if coarse[other] == coarse[fine]]
        assert target == min((m for m in members if m > fine), default=min(members))


def test_only_6_arrows_of_the_other_maps_stay_inside_a_superclass() -> None:
    coarse = cifar100_coarse(torch.arange(100))
    for target in (BLOCK_OF_5, PAIRFLIP):
        assert (coarse[list(target)] == coarse).sum() == 6
    assert BLOCK_OF_5[:10] == (1, 2, 3, 4, 0, 6, 7, 8, 9, 5) and BLOCK_OF_5[99] == 95


# Asymmetric noise: what is chosen


def test_asymmetric_against_a_slow_loop() -> None:
    clean = np.arange(400) * 3 % 10
    coins = np.random.default_rng(5).random(400)
    slow = [CIFAR10_MAP[y] if u < 0.3 else y for y, u in zip(clean, coins, strict=True)]
    assert asymmetric(clean, 10, 0.3, 5, CIFAR10_MAP).tolist() == slow


def test_global_against_a_slow_loop() -> None:
    clean = np.arange(400) * 3 % 10
    slow = clean.tolist()
    for position in np.random.default_rng(5).permutation(400)[:120]:
        slow[position] = CIFAR10_MAP[slow[position]]
    assert asymmetric_global(clean, 10, 0.3, 5, CIFAR10_MAP).tolist() == slow


def test_pairflip_is_the_asymmetric_noise_of_its_map() -> None:
    clean = np.arange(1000) % 100
    assert (asymmetric(clean, 100, 0.4, 9, PAIRFLIP) == pair(clean, 100, 0.4, 9)).all()


def test_the_three_selections_on_the_real_cifar10_labels(cifar10_labels: np.ndarray) -> None:
    moving = np.isin(cifar10_labels, [2, 3, 4, 5, 9])
    assert moving.sum() == 25_000
    for seed in SEEDS:
        for rate in (0.2, 0.4):
            exact = pair(cifar10_labels, 10, rate, seed, CIFAR10_MAP)
            iid = asymmetric(cifar10_labels, 10, rate, seed, CIFAR10_MAP)
            everywhere = asymmetric_global(cifar10_labels, 10, rate, seed, CIFAR10_MAP)
            assert (exact != cifar10_labels).mean() == rate / 2
            assert sigmas((iid != cifar10_labels)[moving].mean(), rate, 25_000) < 4.5
            # of the rate · N that are chosen, half belong to a class that moves: hypergeometric
            spread = math.sqrt(50_000 * rate * (1 - rate) / 4)
            assert abs((everywhere != cifar10_labels).sum() - 25_000 * rate) < 4.5 * spread
            for noisy in (exact, iid, everywhere):
                changed = noisy != cifar10_labels
                assert not changed[~moving].any()
                assert (noisy[changed] == np.array(CIFAR10_MAP)[cifar10_labels[changed]]).all()


@pytest.mark.parametrize(("name", "target"), [("superclass", SUPERCLASS_NEXT), ("block5", BLOCK_OF_5)])
def test_rates_on_the_real_cifar100_labels(
    name: str, target: tuple[int, ...], cifar100_labels: tuple[np.ndarray, np.ndarray]
) -> None:
    fine, coarse = cifar100_labels
    for seed in SEEDS:
        for rate in (0.2, 0.4):
            noisy, _ = noises[name](dataset(fine, 100), rate, seed)
            changed = noisy != fine
            assert sigmas(changed.mean(), rate, 50_000) < 4.5
            assert (noisy[changed] == np.array(target)[fine[changed]]).all()
            if name == "superclass":
                assert (cifar100_coarse(torch.from_numpy(noisy)).numpy() == coarse).all()


maps = st.integers(2, 8).flatmap(
    lambda c: st.tuples(
        st.lists(st.integers(0, c - 1), min_size=c, max_size=c).filter(lambda m: m != list(range(len(m)))),
        st.lists(st.integers(0, c - 1), min_size=1, max_size=60),
    )
)


@BOTH
@settings(deadline=None, max_examples=40)
@given(case=maps, rate=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 2**32))
def test_asymmetric_noise_is_a_pure_function(
    kind: Kind, case: tuple[list[int], list[int]], rate: float, seed: int
) -> None:
    target, labels = case
    clean, classes = np.array(labels), len(target)
    kept = clean.copy()
    noisy = kind(clean, classes, rate, seed, target)
    assert noisy.dtype == np.int64 and not np.shares_memory(noisy, clean) and (clean == kept).all()
    changed = noisy != clean
    assert (noisy[changed] == np.array(target)[clean[changed]]).all()
    assert (kind(clean, classes, 0.0, seed, target) == clean).all()
    assert (kind(torch.tensor(labels), classes, rate, seed, target) == noisy).all()
    if kind is asymmetric_global and all(source != end for source, end in enumerate(target)):
        assert changed.sum() == flip_count(rate, len(clean))


@BOTH
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], 2, 1.0, 0, (1, 0)), r"noise rate 1.0 is outside \[0, 1\)"),
        (([0, 2], 2, 0.5, 0, (1, 0)), "label 2 at index 1"),
        (([0, 1], 2, 0.5, -1, (1, 0)), "seed -1 is negative"),
        (([0, 1], 2, 0.5, 0, (1, 2)), r"pair_map needs 2 classes in 0..1, got \[1, 2\]"),
        (([0, 1], 2, 0.5, 0, (0, 1)), "pair_map sends every class to itself"),
    ],
)
def test_what_asymmetric_noise_refuses(kind: Kind, arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind(*arguments)


@pytest.mark.parametrize(("name", "convention"), [("superclass", "superclass-next"), ("block5", "block-of-5")])
def test_maps_by_name(name: str, convention: str) -> None:
    clean = np.arange(1000) % 100
    noisy, record = add_noise(dataset(clean, 100), name, 0.4, seed=3)
    observed = noisy.train.labels.numpy()
    assert (record.kind, record.convention, record.nominal) == (name, convention, 0.4)
    assert record.actual == (observed != clean).mean() and record.sha256 == label_hash(observed)
    with pytest.raises(InputError, match=f"{name} noise is made for the 100 classes of CIFAR-100, but toy has 10; use"):
        add_noise(dataset(np.arange(20) % 10, 10), name, 0.4, seed=3)


# Transition matrices


def slow_draw(row: np.ndarray, u: float) -> int:
    total = 0.0
    for label, probability in enumerate(row):
        total += probability
        if u < total:
            return label
    raise AssertionError


def test_transition_against_a_slow_loop() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.dirichlet(np.ones(5), 5)
    clean = rng.integers(0, 5, 500)
    coins = np.random.default_rng(8).random(500)
    slow = [slow_draw(matrix[y], u) for y, u in zip(clean, coins, strict=True)]
    assert transition(clean, matrix, seed=8).tolist() == slow


def test_limits_of_a_transition_matrix() -> None:
    clean = np.arange(300) % 10
    assert (transition(clean, np.eye(10), seed=0) == clean).all()
    swap = np.eye(10, dtype=int)[list(reversed(range(10)))]
    assert (transition(clean, swap, seed=0) == 9 - clean).all()


def test_shares_of_a_transition_matrix_on_the_real_labels(cifar10_labels: np.ndarray) -> None:
    matrix = np.random.default_rng(2).dirichlet(np.ones(10), 10)
    noisy = transition(cifar10_labels, matrix, seed=42)
    for source in range(10):
        shares = np.bincount(noisy[cifar10_labels == source], minlength=10) / 5000
        assert (np.abs(shares - matrix[source]) <= 5 * np.sqrt(matrix[source] * (1 - matrix[source]) / 5000)).all()


def test_asymmetric_noise_is_that_of_its_matrix(cifar10_labels: np.ndarray) -> None:
    matrix = 0.6 * np.eye(10) + 0.4 * np.eye(10)[list(CIFAR10_MAP)]
    for noisy in (transition(cifar10_labels, matrix, 0), asymmetric(cifar10_labels, 10, 0.4, 0, CIFAR10_MAP)):
        for source, target in enumerate(CIFAR10_MAP):
            seen = np.bincount(noisy[cifar10_labels == source], minlength=10)
            if source == target:
                assert seen[source] == 5000
            else:
                assert seen[source] + seen[target] == 5000 and sigmas(seen[target] / 5000, 0.4, 5000) < 4.5


stochastic = st.integers(2, 6).flatmap(
    lambda c: st.lists(st.lists(st.integers(0, 9), min_size=c, max_size=c).filter(any), min_size=c, max_size=c)
)


@settings(deadline=None, max_examples=60)
@given(weights=stochastic, labels=st.lists(st.integers(0, 1), max_size=40), seed=st.integers(0, 2**32))
def test_transition_draws_only_what_is_possible(weights: list[list[int]], labels: list[int], seed: int) -> None:
    matrix = np.array(weights, float)
    matrix /= matrix.sum(axis=1, keepdims=True)
    clean = np.array(labels, dtype=int)
    kept = clean.copy()
    noisy = transition(clean, matrix, seed)
    assert noisy.dtype == np.int64 and noisy.shape == clean.shape
    assert (matrix[clean, noisy] > 0).all()
    assert (clean == kept).all() and (transition(clean, matrix, seed) == noisy).all()


@settings(deadline=None, max_examples=60)
@given(weights=stochastic, u=st.floats(0, 1, exclude_max=True))
def test_draw_rows_against_a_slow_loop(weights: list[list[int]], u: float) -> None:
    rows = np.array(weights) / 64  # not normalised: the cumulative row is; halves of powers of two add without rounding
    drawn = draw_rows(rows, np.full(len(rows), u))
    for row, label in zip(rows, drawn, strict=True):
        shares = np.cumsum(row) / row.sum()
        assert row[label] > 0 and u < shares[label] and (label == 0 or u >= shares[label - 1])


def test_a_row_that_falls_short_by_rounding_still_gives_a_class() -> None:
    rows = np.array([[0.5, 0.5 - 1e-7, 0.0]])
    assert draw_rows(rows, np.array([math.nextafter(1, 0)])).tolist() == [1]
    assert checked_matrix(np.full((3, 3), 1 / 3, np.float32)).dtype == np.float64


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.5]], r"float64 \[1, 2\]; expected numbers \[C, C\]"),
        ([1.0, 0.0], r"float64 \[2\]"),
        ([[1.0]], r"float64 \[1, 1\]; .* C two or more"),
        ([["a", "b"], ["c", "d"]], r"<U1 \[2, 2\]"),
        ([[1, 0], [0.5, 0.4]], "row 1 of the transition matrix sums to 0.9; expected 1"),
        ([[1, 0], [0.5, 0.5 + 2e-6]], "row 1 of the transition matrix sums to 1.000002"),
        ([[0.5, 0.6], [1.5, -0.5]], "row 0 of the transition matrix sums to 1.1"),
        ([[1.5, -0.5], [0.5, 0.6]], "row 0 of the transition matrix has -0.5 in column 1; expected probabilities"),
        ([[1, 0], [math.nan, 1]], "row 1 of the transition matrix has nan in column 0"),
        ([[1, 0], [math.inf, 1]], "row 1 of the transition matrix sums to inf"),
    ],
)
def test_what_is_no_transition_matrix(matrix: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        transition([0, 1], matrix, seed=0)  # type: ignore[arg-type]


def test_what_else_transition_refuses() -> None:
    with pytest.raises(InputError, match=r"label 2 at index 1 is not a class in 0..1"):
        transition([0, 2], np.eye(2), seed=0)
    with pytest.raises(InputError, match="seed -3 is negative"):
        transition([0, 1], np.eye(2), seed=-3)
    transition([0, 1], [[1, 0], [0.5, 0.5 + 5e-7]], seed=0)
