"""Noise that depends on the class alone: maps from class to class, and transition matrices.

"Asymmetric 40 %" names one map of CIFAR-10 (`pair_map` of the dataset) but three ways to choose what flips:

- `per-class exact`: `labeltrace.data.noise.kinds.pair` with a map (CT);
- `transition matrix`: `asymmetric`, each label of a class that moves flips with the rate (Patrini-style code, DISC);
- `global exact`: `asymmetric_global`, a share of all labels is chosen, and those whose class stays are chosen in vain
  (DivideMix, RoLR, ANNE, CrossSplit).

With CIFAR-10's map, in which five of ten classes move, all three leave about rate / 2 of the labels wrong. CIFAR-100
has two maps besides label + 1: `SUPERCLASS_NEXT`, which most papers describe, and `BLOCK_OF_5`, which some of them run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from labeltrace.data.dataset import Dataset
from labeltrace.data.noise.kinds import (
    Labels,
    checked_labels,
    checked_map,
    checked_rate,
    flip_count,
    generator,
    noises,
)
from labeltrace.data.sets.cifar import cifar100_coarse
from labeltrace.errors import InputError

Floats = NDArray[np.float64]

ROW_SUM_TOLERANCE = 1e-6  # ours: forgives a matrix kept in float32 or printed with seven digits, not one with a mistake


def asymmetric(labels: ArrayLike, num_classes: int, rate: float, seed: int, pair_map: Sequence[int]) -> Labels:
    """Flip each label of a class that the map moves with probability `rate` to the target (`transition matrix`).

    Args:
        labels: [N] clean labels in 0..C-1.
        num_classes: C.
        rate: in [0, 1), the share of wrong labels within each class that moves.
        seed: of the one generator of this call.
        pair_map: the target class of each class, C entries; a class that maps to itself stays clean.

    Returns:
        int64 [N], a new array.

    Raises:
        InputError: for a rate outside [0, 1), a label outside 0..C-1, a map of other classes, a negative seed.

    >>> asymmetric([0, 0, 0, 0, 1, 1, 2, 2], 3, 0.5, seed=0, pair_map=(1, 1, 0))
    array([0, 1, 1, 1, 1, 1, 2, 2])
    """
    target = np.array(checked_map(pair_map, num_classes))
    clean = checked_labels(labels, num_classes)
    flip = generator(seed).random(len(clean)) < checked_rate(rate)
    return np.where(flip, target[clean], clean)


def asymmetric_global(labels: ArrayLike, num_classes: int, rate: float, seed: int, pair_map: Sequence[int]) -> Labels:
    """Choose exactly floor(rate · N) labels among all classes and send them through the map (`global exact`).

    Labels of classes that map to themselves are chosen like the others and stay clean, so with CIFAR-10's map the
    number of wrong labels varies around rate · N / 2. Arguments, result and errors as for `asymmetric`.

    >>> asymmetric_global([0, 0, 0, 0, 1, 1, 2, 2], 3, 0.5, seed=0, pair_map=(1, 1, 0))
    array([0, 0, 1, 1, 1, 1, 0, 2])
    """
    target = np.array(checked_map(pair_map, num_classes))
    noisy = checked_labels(labels, num_classes)
    chosen = generator(seed).permutation(len(noisy))[: flip_count(checked_rate(rate), len(noisy))]
    noisy[chosen] = target[noisy[chosen]]
    return noisy


def transition(labels: ArrayLike, matrix: ArrayLike, seed: int) -> Labels:
    """Draw each label anew from the row of its class in a transition matrix, one uniform number per sample.

    Args:
        labels: [N] clean labels in 0..C-1.
        matrix: [C, C], entry [i, j] the probability that class i is labelled j; rows sum to 1 within 1e-6.
        seed: of the one generator of this call.

    Returns:
        int64 [N], a new array.

    Raises:
        InputError: for a matrix of another shape, with a negative entry or a row that does not sum to 1 (the message
            names the first such row), a label outside 0..C-1, a negative seed.

    >>> transition([0, 0, 0, 0, 1, 1, 1, 1], [[0.5, 0.5], [0, 1]], seed=0)
    array([1, 0, 0, 0, 1, 1, 1, 1])
    >>> transition([0, 1], [[0.9, 0.1], [0.2, 0.7]], seed=0)
    Traceback (most recent call last):
    labeltrace.errors.InputError: row 1 of the transition matrix sums to 0.9; expected 1, each row the probabilities ...
    """
    rows = checked_matrix(matrix)
    noisy = checked_labels(labels, len(rows))
    uniform = generator(seed).random(len(noisy))
    clean = noisy.copy()
    for source, row in enumerate(rows):  # class by class, so that no [N, C] table of floats is made
        members = np.flatnonzero(clean == source)
        noisy[members] = draw_rows(row[None], uniform[members])
    return noisy


def checked_matrix(matrix: ArrayLike) -> Floats:
    """Return a transition matrix as float64 [C, C], or name its first row that is not a row of probabilities.

    >>> checked_matrix([[1, 0], [1.5, -0.5]])
    Traceback (most recent call last):
    labeltrace.errors.InputError: row 1 of the transition matrix has -0.5 in column 1; expected probabilities
    """
    given = np.asarray(matrix)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or len(given) < 2 or given.dtype.kind not in "fiu":
        raise InputError(
            f"transition matrix is {given.dtype} {list(given.shape)}; expected numbers [C, C], C two or more"
        )
    rows = given.astype(np.float64)
    sums = rows.sum(axis=1)
    bad_entry = ~(rows >= 0)  # a NaN is not ≥ 0
    bad_sum = ~(np.abs(sums - 1) <= ROW_SUM_TOLERANCE)
    wrong = np.flatnonzero(bad_entry.any(axis=1) | bad_sum)
    if len(wrong):
        row = int(wrong[0])
        where = f"row {row} of the transition matrix"
        if bad_entry[row].any():
            column = int(bad_entry[row].argmax())
            raise InputError(f"{where} has {rows[row, column]:.9g} in column {column}; expected probabilities")
        raise InputError(
            f"{where} sums to {sums[row]:.9g}; expected 1, each row the probabilities of the labels given to one class"
        )
    return rows


def draw_rows(rows: Floats, uniform: Floats) -> Labels:
    """Draw one class per row of probabilities: the first whose cumulative sum is above the uniform number.

    Args:
        rows: [n, C], not negative, or [1, C] where all n share one row. The cumulative row is divided by its last
            entry, so that a sum off by rounding never leaves a number without a class.
        uniform: [n] in [0, 1).

    Returns:
        int64 [n]; a class of probability 0 is never drawn.

    >>> draw_rows(np.array([[0.25, 0, 0.75]]), np.array([0, 0.2, 0.25, 0.999]))
    array([0, 0, 2, 2])
    """
    cumulative = np.cumsum(rows, axis=1)
    cumulative /= cumulative[:, -1:]
    return (cumulative <= uniform[:, None]).sum(axis=1, dtype=np.int64)


def _next_in_superclass() -> tuple[int, ...]:
    coarse = cifar100_coarse(torch.arange(100))
    target = torch.empty(100, dtype=torch.int64)
    for group in range(20):
        members = (coarse == group).nonzero()[:, 0]  # ascending
        target[members] = members.roll(-1)
    return tuple(target.tolist())


SUPERCLASS_NEXT = _next_in_superclass()
"""CIFAR-100: the next class of the same superclass, in ascending order and round to the first (`superclass-next`)."""

BLOCK_OF_5 = tuple(5 * (fine // 5) + (fine % 5 + 1) % 5 for fine in range(100))
"""CIFAR-100: the next class of the same block of five labels, round to the first (`block-of-5`).

The map in the code of CT, UNICON and CrossSplit. It was written for labels sorted by superclass. Those of CIFAR-100 are
alphabetical, so only 6 of its 100 arrows stay inside a superclass.
"""


@noises.register("asymmetric", "each label of a class with a similar one flips to it with the given probability (DISC)")
def _asymmetric(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    pair_map = _similar(dataset, "asymmetric")
    return asymmetric(dataset.train.labels, dataset.num_classes, rate, seed, pair_map), "transition matrix"


@noises.register(
    "asymmetric-global", "a share of all labels is chosen, those with a similar class flip to it (DivideMix, RoLR)"
)
def _asymmetric_global(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    pair_map = _similar(dataset, "asymmetric-global")
    return asymmetric_global(dataset.train.labels, dataset.num_classes, rate, seed, pair_map), "global exact"


def _similar(dataset: Dataset, kind: str) -> Sequence[int]:
    if dataset.pair_map is None:
        raise InputError(
            f"{kind} noise needs to know which classes are similar (pair_map), and {dataset.name} does not say; "
            "use 'pair', which turns each label into label + 1"
        )
    return dataset.pair_map


@noises.register("superclass", "CIFAR-100: labels flip to the next class of the same superclass")
def _superclass(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    return _cifar100(dataset, "superclass", rate, seed, SUPERCLASS_NEXT), "superclass-next"


@noises.register("block5", "CIFAR-100: labels flip to the next of five neighbouring labels (CT, UNICON, CrossSplit)")
def _block5(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    return _cifar100(dataset, "block5", rate, seed, BLOCK_OF_5), "block-of-5"


def _cifar100(dataset: Dataset, kind: str, rate: float, seed: int, pair_map: Sequence[int]) -> Labels:
    if dataset.num_classes != len(pair_map):
        raise InputError(
            f"{kind} noise is made for the {len(pair_map)} classes of CIFAR-100, but {dataset.name} has "
            f"{dataset.num_classes}; use 'pair'"
        )
    return asymmetric(dataset.train.labels, dataset.num_classes, rate, seed, pair_map)
