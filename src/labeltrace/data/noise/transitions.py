"""How often each class got each label: the transition matrix as it was measured, without its zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labeltrace.errors import InputError

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Transitions:
    """Counts of (clean class, label it got), only those that occur, so that 10,000 classes are no burden.

    Args:
        entries: int64 [M, 3], rows (from, to, count) in ascending order.
        num_classes: C.

    >>> seen = Transitions.between([0, 0, 0, 0, 2], [0, 0, 0, 2, 2], num_classes=3)
    >>> seen.entries.tolist()
    [[0, 0, 3], [0, 2, 1], [2, 2, 1]]
    >>> seen.matrix()
    array([[0.75, 0.  , 0.25],
           [0.  , 0.  , 0.  ],
           [0.  , 0.  , 1.  ]])
    """

    entries: Counts
    num_classes: int

    def __post_init__(self) -> None:
        if self.entries.ndim != 2 or self.entries.shape[1] != 3 or (self.entries < 0).any():
            raise InputError(f"transitions: expected rows (from, to, count), got shape {list(self.entries.shape)}")
        if (self.entries[:, :2] >= self.num_classes).any():
            raise InputError(f"transitions: class {self.entries[:, :2].max()} is outside 0..{self.num_classes - 1}")

    @classmethod
    def between(cls, clean: ArrayLike, labels: ArrayLike, num_classes: int) -> Transitions:
        """Count the labels [N] that samples of clean classes [N] got."""
        pairs = np.asarray(clean, np.int64) * num_classes + np.asarray(labels, np.int64)
        found, counts = np.unique(pairs, return_counts=True)
        return cls(np.stack([*np.divmod(found, num_classes), counts], axis=1), num_classes)

    def matrix(self) -> NDArray[np.float64]:
        """Return T [C, C]: entry [i, j] is the share of class i that is labelled j; zeros for a class not seen."""
        source, target, count = self.entries.T
        dense = np.zeros((self.num_classes, self.num_classes))
        dense[source, target] = count / self.class_counts()[source]
        return dense

    def class_counts(self) -> Counts:
        """Return how many samples each clean class has, int64 [C]."""
        return _sums(self.entries[:, 0], self.entries[:, 2], self.num_classes)

    def label_counts(self) -> Counts:
        """Return how many samples got each label, int64 [C]."""
        return _sums(self.entries[:, 1], self.entries[:, 2], self.num_classes)

    def wrong_counts(self) -> Counts:
        """Return how many labels of each clean class are wrong, int64 [C]."""
        wrong = self._wrong()
        return _sums(wrong[:, 0], wrong[:, 2], self.num_classes)

    def usual_mistake(self) -> Counts:
        """Return the most frequent wrong label of each clean class, int64 [C]; -1 for a class without a wrong label.

        >>> Transitions.between([0, 0, 0, 1], [2, 1, 2, 1], num_classes=3).usual_mistake()
        array([ 2, -1, -1])
        """
        usual = np.full(self.num_classes, -1)
        wrong = self._wrong()
        ascending = wrong[np.argsort(wrong[:, 2], kind="stable")]
        usual[ascending[:, 0]] = ascending[:, 1]  # of several values for one class the last one stays
        return usual

    def _wrong(self) -> Counts:
        return self.entries[self.entries[:, 0] != self.entries[:, 1]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transitions):
            return NotImplemented
        return self.num_classes == other.num_classes and np.array_equal(self.entries, other.entries)

    __hash__ = None  # type: ignore[assignment]  # holds an array


def _sums(index: Counts, counts: Counts, size: int) -> Counts:
    sums = np.zeros(size, np.int64)
    np.add.at(sums, index, counts)
    return sums
