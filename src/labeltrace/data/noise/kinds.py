"""Label noise made on purpose: which labels flip, to what, and a record that lets anyone check it.

Each kind is a pure function of (clean labels, classes, rate, seed). One name covers several conventions in the
literature (`symmetric` at 50 % leaves 50 % or 45 % wrong labels in CIFAR-10), so a record names its convention and
reports both the rate asked for (nominal) and the rate of labels that did change (actual).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from labeltrace.data.dataset import Dataset
from labeltrace.data.noise.record import Labels, NoiseRecord
from labeltrace.errors import InputError
from labeltrace.registry import Registry


def symmetric(labels: ArrayLike, num_classes: int, rate: float, seed: int) -> Labels:
    """Flip each label with probability `rate` to one of the other classes, all equally likely (`exclusive-iid`).

    The definition in TRACE's text, and in the code of SELFIE, Co-teaching, JoCoR, CORES and CT.

    Args:
        labels: [N] clean labels in 0..C-1.
        num_classes: C.
        rate: in [0, 1).
        seed: of the one generator of this call.

    Returns:
        int64 [N], a new array.

    Raises:
        InputError: for a rate outside [0, 1), a label outside 0..C-1, fewer than two classes, a negative seed.

    >>> symmetric(np.arange(20) % 10, 10, 0.5, seed=0)
    array([0, 2, 3, 5, 4, 5, 6, 7, 8, 9, 0, 5, 2, 2, 4, 4, 6, 7, 7, 5])
    """
    noisy, rng = _start(labels, num_classes, rate, seed)
    flip = rng.random(len(noisy)) < rate
    step = rng.integers(1, num_classes, len(noisy))
    return np.where(flip, (noisy + step) % num_classes, noisy)


def symmetric_exact(labels: ArrayLike, num_classes: int, rate: float, seed: int) -> Labels:
    """Flip exactly floor(rate · N) labels, each to one of the other classes (`exclusive-exact`); see `symmetric`.

    >>> symmetric_exact(np.arange(20) % 10, 10, 0.5, seed=0)
    array([0, 1, 7, 4, 9, 5, 9, 7, 9, 9, 2, 2, 2, 7, 4, 5, 0, 7, 8, 0])
    """
    noisy, rng = _start(labels, num_classes, rate, seed)
    chosen = rng.permutation(len(noisy))[: flip_count(rate, len(noisy))]
    noisy[chosen] = (noisy[chosen] + rng.integers(1, num_classes, len(chosen))) % num_classes
    return noisy


def symmetric_inclusive(labels: ArrayLike, num_classes: int, rate: float, seed: int) -> Labels:
    """Draw exactly floor(rate · N) labels anew from all classes, the true one included (`inclusive`).

    The convention of the code of DivideMix, RoLR, ANNE, CrossSplit, UNICON and DISC; about rate · (C-1)/C of the labels
    end up wrong. See `symmetric`.

    >>> int((symmetric_inclusive(np.zeros(1000, int), 2, 0.5, seed=0) != 0).sum())
    265
    """
    noisy, rng = _start(labels, num_classes, rate, seed)
    chosen = rng.permutation(len(noisy))[: flip_count(rate, len(noisy))]
    noisy[chosen] = rng.integers(0, num_classes, len(chosen))
    return noisy


def pair(labels: ArrayLike, num_classes: int, rate: float, seed: int, pair_map: Sequence[int] | None = None) -> Labels:
    """Flip labels to the one class their class is confused with.

    Without a map each label turns into label + 1 (mod C) with probability `rate` (`pairflip`: Co-teaching, JoCoR,
    CORES, SELFIE). With a map exactly floor(rate · n) of the n labels of each class that the map moves are flipped
    (`per-class exact`); classes that map to themselves stay clean, so with CIFAR-10's map the overall rate is rate / 2.

    Args:
        pair_map: the target class of each class, C entries. The other arguments, result and errors as for `symmetric`.

    >>> pair([0, 0, 0, 0, 1, 1, 2, 2], 3, 0.5, seed=0, pair_map=(1, 1, 0))
    array([1, 0, 1, 0, 1, 1, 2, 0])
    """
    noisy, rng = _start(labels, num_classes, rate, seed)
    if pair_map is None:
        return np.where(rng.random(len(noisy)) < rate, (noisy + 1) % num_classes, noisy)
    clean = noisy.copy()
    for source, target in enumerate(checked_map(pair_map, num_classes)):
        if target != source:
            members = rng.permutation(np.flatnonzero(clean == source))
            noisy[members[: flip_count(rate, len(members))]] = target
    return noisy


def flip_count(rate: float, count: int) -> int:
    """Return floor(rate · count), safe from binary fractions: int(0.29 * 100) is 28.

    >>> flip_count(0.29, 100)
    29
    """
    return int(np.floor(rate * count + 1e-9))


def checked_labels(labels: ArrayLike, num_classes: int) -> Labels:
    """Return a copy of labels [N] as int64, or say which of them is not a class in 0..C-1.

    >>> checked_labels([0, 3], 2)
    Traceback (most recent call last):
    labeltrace.errors.InputError: label 3 at index 1 is not a class in 0..1
    """
    if num_classes < 2:
        raise InputError(f"noise needs two classes or more, got {num_classes}")
    given = np.asarray(labels)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise InputError(f"labels are {given.dtype} {list(given.shape)}; expected integers [N]")
    wrong = np.flatnonzero((given < 0) | (given >= num_classes))
    if len(wrong):
        raise InputError(f"label {given[wrong[0]]} at index {wrong[0]} is not a class in 0..{num_classes - 1}")
    return given.astype(np.int64)


def checked_rate(rate: float) -> float:
    """Return the rate, or refuse one outside [0, 1), NaN among them.

    >>> checked_rate(1.5)
    Traceback (most recent call last):
    labeltrace.errors.InputError: noise rate 1.5 is outside [0, 1)
    """
    if not 0 <= rate < 1:
        raise InputError(f"noise rate {rate} is outside [0, 1)")
    return rate


def checked_map(pair_map: Sequence[int], num_classes: int) -> Sequence[int]:
    """Return the map class → class, or refuse one of another length, with a target outside 0..C-1, or without a move.

    >>> checked_map((0, 1), 2)
    Traceback (most recent call last):
    labeltrace.errors.InputError: pair_map sends every class to itself, so no label can flip; give at least one pair
    """
    if len(pair_map) != num_classes or not all(0 <= target < num_classes for target in pair_map):
        raise InputError(f"pair_map needs {num_classes} classes in 0..{num_classes - 1}, got {list(pair_map)}")
    if all(source == target for source, target in enumerate(pair_map)):
        raise InputError("pair_map sends every class to itself, so no label can flip; give at least one pair")
    return pair_map


def generator(seed: int) -> np.random.Generator:
    """Return the one generator of a call, or refuse a negative seed.

    >>> generator(-1)
    Traceback (most recent call last):
    labeltrace.errors.InputError: seed -1 is negative
    """
    if seed < 0:
        raise InputError(f"seed {seed} is negative")
    return np.random.default_rng(seed)


def _start(labels: ArrayLike, num_classes: int, rate: float, seed: int) -> tuple[Labels, np.random.Generator]:
    """Check what a kind of noise was given; return a copy of the labels to work on, and the generator of the call."""
    checked_rate(rate)
    return checked_labels(labels, num_classes), generator(seed)


Noise = Callable[[Dataset, float, int], tuple[Labels, str]]
"""A kind of noise by name: (dataset, rate, seed) → the noisy training labels and the name of the convention."""

noises: Registry[Noise] = Registry("noise")


@noises.register("symmetric", "each label flips with the given probability to another class, all alike")
def _symmetric(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    return symmetric(dataset.train.labels, dataset.num_classes, rate, seed), "exclusive-iid"


@noises.register("symmetric-exact", "the same with an exact number of flips")
def _symmetric_exact(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    return symmetric_exact(dataset.train.labels, dataset.num_classes, rate, seed), "exclusive-exact"


@noises.register(
    "symmetric-inclusive",
    "an exact number of labels drawn anew from all classes, the true one included (DivideMix, RoLR)",
)
def _symmetric_inclusive(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    return symmetric_inclusive(dataset.train.labels, dataset.num_classes, rate, seed), "inclusive"


@noises.register("pair", "labels flip to one partner class: CIFAR-10's five similar pairs, else label + 1")
def _pair(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    convention = "pairflip" if dataset.pair_map is None else "per-class exact"
    return pair(dataset.train.labels, dataset.num_classes, rate, seed, dataset.pair_map), convention


def add_noise(dataset: Dataset, kind: str, rate: float, seed: int) -> tuple[Dataset, NoiseRecord]:
    """Return the dataset with noisy training labels, its clean ones kept as truth, and the record of what was done.

    Kinds that need more than a rate, such as a matrix, are made with `make_noise`.

    Raises:
        InputError: for an unknown kind, a bad rate or seed, or a dataset that has wrong labels already.

    >>> from labeltrace.data import from_arrays
    >>> clean = from_arrays(np.zeros((20, 8, 8), np.uint8), np.arange(20) % 10)
    >>> noisy, record = add_noise(clean, "symmetric", 0.5, seed=0)
    >>> record.describe()
    'symmetric noise (exclusive-iid), seed 0: nominal rate 0.5, actual 0.4000 (8 of 20 labels), sha256 7bb2899f4dd3'
    >>> noisy.train.truth.equal(clean.train.labels), noisy.train.labels.tolist()[:4]
    (True, [0, 2, 3, 5])
    """
    clean = clean_labels(dataset)
    labels, convention = noises[kind](dataset, rate, seed)
    record = NoiseRecord.of(kind, convention, rate, seed, clean, labels, dataset.classes)
    return dataset.with_labels(labels, truth=clean), record


def clean_labels(dataset: Dataset) -> Labels:
    """Return the training labels [N] of a dataset, or refuse one whose labels are known to be wrong already."""
    observed, truth = dataset.train.labels, dataset.train.truth
    if truth is not None and not truth.equal(observed):
        raise InputError(
            f"{dataset.name}: {int((truth != observed).sum())} training labels differ from the truth already; noise "
            "starts from clean labels, for instance dataset.with_labels(dataset.train.truth, None)"
        )
    return observed.numpy()
