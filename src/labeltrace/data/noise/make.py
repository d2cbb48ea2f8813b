"""Noise of every kind, through one door: those with a name alone, and those that need something to go by.

| kind | needs | rate |
|---|---|---|
| `transition` | `matrix` | none: the matrix says it |
| `instance-idn` | `scores` | yes |
| `open-set` | `foreign`, `open_share` | yes |
| the others | nothing | yes |
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
from numpy.typing import ArrayLike

from labeltrace.data.dataset import Dataset
from labeltrace.data.noise.foreign import ForeignImages, foreign_images, image_hash, replace_images, resident_images
from labeltrace.data.noise.instance import idn
from labeltrace.data.noise.kinds import Labels, add_noise, clean_labels, noises
from labeltrace.data.noise.maps import checked_matrix, transition
from labeltrace.data.noise.open_set import open_set
from labeltrace.data.noise.record import NoiseRecord
from labeltrace.errors import InputError

NEEDS = {"transition": ("matrix",), "instance-idn": ("scores",), "open-set": ("foreign", "open_share")}
"""What kinds of noise need besides a rate and a seed, by the names of `make_noise`'s arguments."""


def make_noise(
    dataset: Dataset,
    kind: str,
    rate: float | None,
    seed: int,
    *,
    matrix: ArrayLike | None = None,
    scores: ArrayLike | None = None,
    foreign: Dataset | None = None,
    open_share: float | None = None,
) -> tuple[Dataset, NoiseRecord]:
    """Return the dataset with noisy training labels, its clean ones kept as truth, and the record of what was done.

    Args:
        dataset: with clean training labels.
        kind: a name in `noises`.
        rate: in [0, 1); None for `transition`.
        seed: of everything drawn.
        matrix: [C, C], for `transition`: row i holds the probabilities of the labels given to class i.
        scores: [N, C], for `instance-idn`: how much each sample looks like each class.
        foreign: for `open-set`: a dataset whose training images have the same shape and none of the classes.
        open_share: in [0, 1], for `open-set`: the share of the corrupted samples that get a foreign image.

    Raises:
        InputError: for an unknown kind, one without what it needs or with what it does not take, and for what the kind
            itself refuses.

    >>> from labeltrace.data import from_arrays
    >>> clean = from_arrays(np.zeros((8, 8, 8), np.uint8), [0, 1] * 4)
    >>> make_noise(clean, "transition", None, 0, matrix=[[1, 0], [0.5, 0.5]])[1].describe()
    'transition noise (matrix ...), seed 0: nominal rate 0.25, actual 0.2500 (2 of 8 labels), sha256 ...'
    >>> make_noise(clean, "transition", 0.2, 0)
    Traceback (most recent call last):
    labeltrace.errors.InputError: transition noise needs a matrix (matrix=, or --matrix of `labeltrace noise`)
    """
    given = {"rate": rate, "matrix": matrix, "scores": scores, "foreign": foreign, "open_share": open_share}
    check_inputs(kind, [name for name, value in given.items() if value is not None])
    if matrix is not None:
        return _transition(dataset, matrix, seed)
    assert rate is not None  # checked above
    if scores is not None:
        return _idn(dataset, rate, scores)
    if foreign is not None and open_share is not None:
        return _open_set(dataset, rate, seed, foreign, open_share)
    return add_noise(dataset, kind, rate, seed)


def check_inputs(kind: str, given: Collection[str]) -> None:
    """Refuse an unknown kind, one without what it needs, and inputs that it does not take.

    Args:
        kind: the name asked for.
        given: which of rate, matrix, scores, foreign and open_share there are.

    >>> check_inputs("symmetric", ["rate", "matrix"])
    Traceback (most recent call last):
    labeltrace.errors.InputError: symmetric noise takes no matrix; leave it out, or make 'transition' noise
    """
    noises[kind]
    needs = NEEDS.get(kind, ())
    for name in (*needs, *(() if kind == "transition" else ("rate",))):
        if name not in given:
            flag = "--" + name.replace("_", "-")
            raise InputError(f"{kind} noise needs {_WORDS[name]} ({name}=, or {flag} of `labeltrace noise`)")
    for name in given:
        if name not in needs and (name != "rate" or kind == "transition"):
            other = next((f", or make {other!r} noise" for other, its in NEEDS.items() if name in its), "")
            raise InputError(f"{kind} noise takes no {_WORDS[name].split(maxsplit=1)[1]}; leave it out{other}")


_WORDS = {
    "rate": "a rate",
    "matrix": "a matrix",
    "scores": "a score matrix",
    "foreign": "a foreign dataset",
    "open_share": "an open share",
}


def _transition(dataset: Dataset, matrix: ArrayLike, seed: int) -> tuple[Dataset, NoiseRecord]:
    rows, clean = checked_matrix(matrix), clean_labels(dataset)
    if len(rows) != dataset.num_classes:
        raise InputError(f"the matrix is for {len(rows)} classes but {dataset.name} has {dataset.num_classes}")
    labels = transition(clean, rows, seed)
    expected = float(1 - rows.diagonal()[clean].mean())
    return _relabelled(dataset, "transition", f"matrix {_digest(rows)}", expected, seed, clean, labels)


def _idn(dataset: Dataset, rate: float, scores: ArrayLike) -> tuple[Dataset, NoiseRecord]:
    table, clean = np.asarray(scores), clean_labels(dataset)
    if table.ndim == 2 and table.shape[1] != dataset.num_classes:
        raise InputError(f"scores are for {table.shape[1]} classes but {dataset.name} has {dataset.num_classes}")
    labels = idn(table, clean, rate)
    return _relabelled(dataset, "instance-idn", f"idn, scores {_digest(table)}", rate, None, clean, labels)


def _open_set(
    dataset: Dataset, rate: float, seed: int, foreign: Dataset, open_share: float
) -> tuple[Dataset, NoiseRecord]:
    clean, available = clean_labels(dataset), len(resident_images(foreign))
    labels, positions, indices = open_set(clean, dataset.num_classes, rate, open_share, available, seed)
    images = foreign_images(dataset, foreign, indices)
    which = ForeignImages(foreign.name, positions, indices, image_hash(images))
    convention = f"open share {open_share:g}, closed exclusive-exact"
    record = NoiseRecord.of("open-set", convention, rate, seed, clean, labels, dataset.classes, which)
    return replace_images(dataset.with_labels(labels, truth=clean), foreign, which), record


def _relabelled(
    dataset: Dataset, kind: str, convention: str, nominal: float, seed: int | None, clean: Labels, labels: Labels
) -> tuple[Dataset, NoiseRecord]:
    record = NoiseRecord.of(kind, convention, nominal, seed, clean, labels, dataset.classes)
    return dataset.with_labels(labels, truth=clean), record


def _digest(values: ArrayLike) -> str:
    """Return what tells one array of numbers from another: the first digits of the SHA-256 of its float64 bytes."""
    return hashlib.sha256(np.asarray(values, "<f8").tobytes()).hexdigest()[:12]


def _register(kind: str, about: str) -> None:
    """Put a kind on the list of names, where without its inputs it says what is missing."""
    flags = " ".join(f"--{name.replace('_', '-')} …" for name in NEEDS[kind])

    def refuse(dataset: Dataset, rate: float, seed: int) -> tuple[Labels, str]:
        raise InputError(f"{kind} noise needs more than a rate: make a file with `labeltrace noise {kind} {flags}`")

    noises.add(kind, refuse, f"{about}; a file made by labeltrace noise")


_register("transition", "each label is drawn from the row of its class in a matrix of probabilities")
_register("instance-idn", "the samples most easily confused flip: IDN (Chen et al. 2021) by the scores of a network")
_register("open-set", "some images are replaced by those of another dataset, some labels flip")
