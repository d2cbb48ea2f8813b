"""How many labels are wrong, and which class is taken for which, estimated without any true label.

The networks say p(true class | x); what they were shown is the true class sent through T [C, C], T[i, j] the share of
class i that is labelled j. The likelihood of the labels, Σ_n log Σ_i p_i(x_n) T[i, label_n], is concave in T, so EM
finds its one maximum wherever it starts. The expected counts of (true, observed) that belong to it sum to the class
counts for each observed class; from them come the noise rate and the number of wrong labels of each class.

Counting disagreements would call every ambiguous sample a wrong label, adding up 1 − reliability would count whatever a
reliability lacks in calibration; here a sample of p = 0.6 is evidence of a wrong label only where its class has others
that are. What remains an assumption is that p is calibrated: networks that have learnt wrong labels by heart hide them,
and the estimate is then too low.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labeltrace.audit.samples import class_names, values

MOST_ROWS = 1_000_000  # that the matrix is fitted on; of a larger table every k-th
STEPS, CLOSE = 200, 1e-6  # EM ends when no expected count moves by more than this share of all samples

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """Expected counts [C, C] of (true class, observed class); columns sum to the observed class counts."""

    joint: Floats

    @property
    def rate(self) -> float:
        """Share of all labels that are wrong."""
        return float(1 - np.trace(self.joint) / self.joint.sum())

    @property
    def wrong(self) -> Floats:
        """[C] number of wrong labels among those observed as each class."""
        return np.asarray(self.joint.sum(0) - np.diag(self.joint))

    @property
    def transition(self) -> Floats:
        """T [C, C]: share of true class i that is labelled j; a class that nothing belongs to keeps its own label."""
        return _rows(self.joint)


def estimate_noise(table: pa.Table) -> NoiseEstimate:
    """Estimate the noise of a samples table from what the networks give the observed and the suggested class.

    Only these two probabilities are in the table; what is left of 1 is spread evenly over the other classes.
    """
    classes = len(class_names(table))
    views = _Views.of(table, classes)
    fitted = views.every(-(-len(views.observed) // MOST_ROWS))
    transition = np.full((classes, classes), 0.5 / max(classes - 1, 1))
    np.fill_diagonal(transition, 0.5)
    counts = np.zeros_like(transition)
    for _ in range(STEPS):
        before, counts = counts, fitted.expected(transition)
        transition = _rows(counts)
        if np.abs(counts - before).max() <= CLOSE * len(fitted.observed):
            break
    return NoiseEstimate(views.expected(transition))


def wrong_probability(table: pa.Table, estimate: NoiseEstimate) -> Floats:
    """Return [N] the probability that a label is wrong, given the networks and the estimated noise."""
    views, transition = _Views.of(table, len(estimate.joint)), estimate.transition
    own, _, _, total = views.likelihood(transition)
    return 1 - own / total


def replacement_probability(table: pa.Table, estimate: NoiseEstimate) -> Floats:
    """Return [N] the probability that the suggestion is right, given the networks, the label and the estimated noise.

    A confidence knows nothing of the label. Here it counts how seldom the suggested class is taken for the observed
    one: where few labels are wrong, it takes more to believe that this one is.
    """
    views, transition = _Views.of(table, len(estimate.joint)), estimate.transition
    own, other, _, total = views.likelihood(transition)
    return np.where(views.observed == views.suggested, own, other) / total


@dataclass(frozen=True, eq=False)
class _Views:
    """What the networks say of N labels: [N] probabilities of the observed, the suggested and each other class."""

    observed: NDArray[np.int64]
    suggested: NDArray[np.int64]
    own: Floats
    other: Floats
    rest: Floats

    @classmethod
    def of(cls, table: pa.Table, classes: int) -> _Views:
        observed, suggested = (values(table, name).astype(np.int64) for name in ("observed", "suggested"))
        own = np.clip(values(table, "observed_probability").astype(np.float64), 1e-12, 1)
        differs = observed != suggested
        other = np.where(differs, values(table, "confidence"), 0.0)
        left = np.maximum(1 - own - other, 0)
        return cls(observed, suggested, own, other, left / np.maximum(classes - 1 - differs, 1))

    def every(self, step: int) -> _Views:
        return _Views(*(column[::step] for column in vars(self).values()))

    def likelihood(self, transition: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return [N] the shares of the observed, the suggested and the other classes in p(label | x), and their sum."""
        kept, sent = np.diag(transition)[self.observed], transition[self.suggested, self.observed]
        sent = np.where(self.observed == self.suggested, 0, sent)
        own, other = self.own * kept, self.other * sent
        rest = self.rest * np.maximum(transition.sum(0)[self.observed] - kept - sent, 0)
        return own, other, rest, np.maximum(own + other + rest, 1e-300)

    def expected(self, transition: Floats) -> Floats:
        """Return the expected counts [C, C] of (true, observed) under a transition matrix."""
        classes = len(transition)
        own, other, _, total = self.likelihood(transition)
        sent = np.where(self.observed == self.suggested, 0, transition[self.suggested, self.observed])
        spread = self.rest / total  # to every class, less what the two named ones would get of it
        counts = transition * np.bincount(self.observed, spread, classes)
        pair = self.suggested * classes + self.observed
        counts += np.bincount(pair, other / total - spread * sent, classes**2).reshape(classes, classes)
        kept = own / total - spread * np.diag(transition)[self.observed]
        counts[np.diag_indices(classes)] += np.bincount(self.observed, kept, classes)
        return np.maximum(counts, 0)


def _rows(counts: Floats) -> Floats:
    """Return each row as shares; a row of nothing is that of the identity."""
    sums = counts.sum(1, keepdims=True)
    return np.where(sums > 0, counts / np.where(sums > 0, sums, 1), np.eye(len(counts)))
