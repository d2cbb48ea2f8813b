"""The score that sorts the queue: which label to look at first. High is suspicious."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labeltrace.audit.estimate import estimate_noise, wrong_probability
from labeltrace.audit.samples import values
from labeltrace.registry import Registry

Ranking = Callable[[pa.Table], NDArray[np.float64]]

rankings: Registry[Ranking] = Registry("ranking")
DEFAULT = "probability+transition"  # never far behind the best by average precision: docs/decisions.md, 48


@rankings.register("reliability", "1 − observed reliability, as the run's controller has it")
def reliability(table: pa.Table) -> NDArray[np.float64]:
    """1 − observed reliability."""
    return 1 - _column(table, "observed_reliability")


@rankings.register("posterior", "1 − clean posterior of the loss, averaged over the networks")
def posterior(table: pa.Table) -> NDArray[np.float64]:
    """1 − clean."""
    return 1 - _column(table, "clean")


@rankings.register("loss", "cross-entropy with the label, averaged over the networks")
def loss(table: pa.Table) -> NDArray[np.float64]:
    """Mean loss."""
    return _column(table, "loss")


@rankings.register("probability", "1 − probability of the label, averaged over the networks")
def probability(table: pa.Table) -> NDArray[np.float64]:
    """1 − p(observed)."""
    return 1 - _column(table, "observed_probability")


@rankings.register("margin", "probability of the best other class less that of the label")
def margin(table: pa.Table) -> NDArray[np.float64]:
    """max over the other classes − p(observed); where the label is the suggestion, 1 − p stands for the others."""
    own, best = _column(table, "observed_probability"), _column(table, "confidence")
    return np.where(_differs(table), best, 1 - own) - own


@rankings.register("disagreement", "confidence of the suggestion, negative where it is the label")
def disagreement(table: pa.Table) -> NDArray[np.float64]:
    """± confidence."""
    best = _column(table, "confidence")
    return np.where(_differs(table), best, -best)


@rankings.register("transition", "probability of a wrong label, given the estimated transition matrix")
def transition(table: pa.Table) -> NDArray[np.float64]:
    """P(true ≠ observed | networks, T)."""
    return wrong_probability(table, estimate_noise(table))


@rankings.register("probability+transition", "mean of probability and transition")
def probability_and_transition(table: pa.Table) -> NDArray[np.float64]:
    """The matrix knows which classes are taken for each other; where it sees no noise, probabilities order."""
    return (probability(table) + transition(table)) / 2


@rankings.register("posterior+margin", "mean of posterior and margin")
def posterior_and_margin(table: pa.Table) -> NDArray[np.float64]:
    """The loss posterior has steps and no order inside them; the margin orders."""
    return (posterior(table) + margin(table)) / 2


@rankings.register("reliability+margin", "mean of reliability and margin")
def reliability_and_margin(table: pa.Table) -> NDArray[np.float64]:
    """Likewise, with what the controller says."""
    return (reliability(table) + margin(table)) / 2


def worst_first(score: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the order [N] of a queue: high scores first, equal ones in the order of the set; NaN comes last.

    >>> worst_first(np.array([0.2, 0.9, np.nan, 0.9])).tolist()
    [1, 3, 0, 2]
    """
    return np.argsort(-score, kind="stable")


def _column(table: pa.Table, name: str) -> NDArray[np.float64]:
    return np.asarray(values(table, name), np.float64)


def _differs(table: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(values(table, "observed") != values(table, "suggested"))
