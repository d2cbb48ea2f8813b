"""Noise that depends on the sample: PDN (Xia et al., NeurIPS 2020) and IDN (Chen et al., AAAI 2021).

TRACE's "Ins" cites Chen et al. but describes a transition vector per sample and a random draw, which is PDN, as run by
ANNE, DISC, CORES and InstanceGM; so `instance` is PDN here. IDN needs the scores of a network trained on clean labels.

What differs from the official code: the generator is numpy's and is passed, W is drawn class by class, and products are
float64, so that the labels do not depend on the order in which a machine sums 3,072 pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from labeltrace.data.dataset import Dataset
from labeltrace.data.noise.kinds import Labels, checked_labels, checked_rate, flip_count, generator, noises
from labeltrace.data.noise.maps import draw_rows
from labeltrace.errors import InputError

Floats = NDArray[np.float64]

SPREAD = 0.1  # of the flip probabilities: official code of PDN, and all that follow it
_BLOCK = 1024  # samples in float64 at a time: 25 MB for CIFAR


def pdn(
    inputs: ArrayLike, labels: ArrayLike, num_classes: int, rate: float, seed: int, standardise: bool = False
) -> Labels:
    """Flip labels with probabilities that depend on the sample, to a class that depends on the sample (PDN).

    Each sample has its own flip probability q, see `flip_probabilities`, and projects its input on a random matrix
    W [D, C] of its class; the softmax over the wrong classes shares out q, see `pdn_rows`. The expected rate is the
    mean of q, which is above small rates: 0.129 for 0.1, 0.2055 for 0.2, 0.3004 for 0.3. Rate 0 means no noise.

    The softmax is nearly one-hot on images. With raw pixels, which are all positive, most samples of a class then go to
    the same wrong class (0.71 of them on CIFAR-10, 0.25 when standardised), so the original is close to pair noise.

    Args:
        inputs: [N, D] features or [N, K, H, W] images, in the scale they have (uint8 pixels stay 0..255).
        labels: [N] clean labels in 0..C-1.
        num_classes: C.
        rate: in [0, 1), the centre of the distribution of q.
        seed: of the one generator of this call; it draws q [N], one uniform number per sample [N], then W by class.
        standardise: whether each channel (each feature) is first brought to mean 0 and standard deviation 1 (DISC).

    Returns:
        int64 [N], a new array.

    Raises:
        InputError: for inputs of another shape or number or not finite, a rate outside [0, 1), a label outside 0..C-1,
            a negative seed.

    >>> pdn([[1.0, 2.0], [2.0, 1.0], [-1.0, 0.0], [0.0, 1.0]], [0, 0, 1, 2], 3, 0.5, seed=0)
    array([2, 2, 1, 2])
    """
    clean = checked_labels(labels, num_classes)
    samples = _checked_inputs(inputs, len(clean))
    rng = generator(seed)
    noisy = clean.copy()
    if checked_rate(rate) == 0 or not len(clean):
        return noisy
    flip = flip_probabilities(rate, len(clean), rng)
    uniform = rng.random(len(clean))
    shift, scale = _statistics(samples) if standardise else (0.0, 1.0)
    for label in range(num_classes):
        weights = rng.standard_normal((samples[0].size, num_classes))  # also for an empty class: each keeps its own W
        for part in _blocks(np.flatnonzero(clean == label)):
            values = (samples[part].astype(np.float64) - shift) / scale
            rows = pdn_rows(values.reshape(len(part), -1) @ weights, clean[part], flip[part])
            noisy[part] = draw_rows(rows, uniform[part])
    return noisy


def flip_probabilities(rate: float, count: int, rng: np.random.Generator) -> Floats:
    """Draw q [count] from the normal distribution around `rate` with standard deviation 0.1, restricted to [0, 1].

    >>> flip_probabilities(0.05, 4, np.random.default_rng(0)).round(3)
    array([0.063, 0.037, 0.114, 0.06 ])
    """
    drawn = rng.normal(rate, SPREAD, count)
    outside = np.flatnonzero((drawn < 0) | (drawn > 1))
    while len(outside):  # at least half of the draws are inside for a rate in [0, 1]
        drawn[outside] = rng.normal(rate, SPREAD, len(outside))
        outside = outside[(drawn[outside] < 0) | (drawn[outside] > 1)]
    return drawn


def pdn_rows(scores: Floats, labels: Labels, flip: Floats) -> Floats:
    """Return the transition row of each sample, T [n, C]: 1 - q for its class, q · softmax of the scores of the others.

    Args:
        scores: [n, C], the inputs times W of their class; the entry of the class itself is not used.
        labels: [n] clean labels.
        flip: q [n] in [0, 1].

    >>> weights = np.array([[0, 1, -1], [0, 0.5, 1]])
    >>> pdn_rows(np.array([[1, 2]]) @ weights, np.array([0]), np.array([0.3])).round(4)
    array([[0.7   , 0.2193, 0.0807]])
    """
    rows, samples = scores.astype(np.float64), np.arange(len(labels))
    rows[samples, labels] = -np.inf
    rows = np.exp(rows - rows.max(axis=1, keepdims=True))  # the largest becomes 1, so that nothing overflows
    rows *= flip[:, None] / rows.sum(axis=1, keepdims=True)
    rows[samples, labels] = 1 - flip
    return rows


def idn(scores: ArrayLike, labels: ArrayLike, rate: float) -> Labels:
    """Flip exactly floor(rate · N) labels, those most easily confused, to the wrong class they look most like (IDN).

    Nothing is drawn, and the labels that flip at one rate flip to the same classes at every higher rate.

    Args:
        scores: S [N, C], how much each sample looks like each class: in the paper the softmax of a network trained on
            clean labels, averaged over its epochs.
        labels: [N] clean labels in 0..C-1.
        rate: in [0, 1).

    Returns:
        int64 [N], a new array. Of samples with equal scores the later ones flip; of classes with equal scores, the
        first is the target.

    Raises:
        InputError: for scores of another shape or not finite, a rate outside [0, 1), a label outside 0..C-1.

    >>> scores = [[0.70, 0.20, 0.10], [0.30, 0.60, 0.10], [0.05, 0.05, 0.90], [0.45, 0.15, 0.40]]
    >>> idn(scores, [0, 1, 2, 0], 0.5)
    array([0, 0, 2, 2])
    """
    given = np.asarray(scores)
    if given.ndim != 2 or given.dtype.kind != "f" or len(given) != np.size(labels):
        found = f"{given.dtype} {list(given.shape)}"
        raise InputError(f"scores are {found}; expected floats [N, C], a row for each of the {np.size(labels)} labels")
    _check_finite(given, "scores")
    noisy = checked_labels(labels, given.shape[1])
    others = given.copy()
    others[np.arange(len(noisy)), noisy] = -np.inf
    candidate = others.argmax(axis=1)
    order = np.argsort(others.max(axis=1), kind="stable")
    chosen = order[len(order) - flip_count(checked_rate(rate), len(order)) :]
    noisy[chosen] = candidate[chosen]
    return noisy


@noises.register("instance", "labels flip by what the sample looks like: PDN (Xia et al. 2020) on the raw inputs")
def _instance(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    return _pdn(dataset, rate, seed, standardise=False), "pdn raw per-class"


@noises.register("instance-standardised", "the same on inputs of mean 0 and deviation 1 in each channel (DISC)")
def _instance_standardised(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
    return _pdn(dataset, rate, seed, standardise=True), "pdn standardised per-class"


def _pdn(dataset: Dataset, rate: float, seed: int, standardise: bool) -> Labels:
    inputs = dataset.train.inputs
    if not isinstance(inputs, Tensor):
        raise InputError(
            f"instance noise reads the inputs, and {dataset.name} is not in memory; raise --memory-gb, or see `prepare`"
        )
    return pdn(inputs, dataset.train.labels, dataset.num_classes, rate, seed, standardise)


def _checked_inputs(inputs: ArrayLike, count: int) -> NDArray[Any]:
    samples = np.asarray(inputs)
    if samples.ndim not in (2, 4) or samples.dtype.kind not in "fiu":
        found = f"{samples.dtype} {list(samples.shape)}"
        raise InputError(f"inputs are {found}; expected features [N, D] or images [N, K, H, W]")
    if len(samples) != count:
        raise InputError(f"{len(samples)} inputs but {count} labels")
    if samples.dtype.kind == "f":
        _check_finite(samples, "inputs")
    return samples


def _check_finite(samples: NDArray[Any], what: str) -> None:
    bad = np.flatnonzero(~np.isfinite(samples).all(axis=tuple(range(1, samples.ndim))))
    if len(bad):
        raise InputError(f"{what} of sample {bad[0]} are NaN or infinite")


def _statistics(samples: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the mean and standard deviation of each channel or feature, in a shape that fits one block of samples."""
    axes = (0, 2, 3) if samples.ndim == 4 else (0,)
    mean = samples.mean(axis=axes, dtype=np.float64, keepdims=True)
    count = samples.size / mean.size
    total = np.zeros_like(mean)
    for part in _blocks(np.arange(len(samples))):  # numpy's own std would hold all samples in float64 at once
        total += ((samples[part] - mean) ** 2).sum(axis=axes, keepdims=True)
    spread = np.sqrt(total / count)
    return mean, np.where(spread > 0, spread, 1)  # a constant channel becomes 0


def _blocks(index: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    for start in range(0, len(index), _BLOCK):
        yield index[start : start + _BLOCK]
