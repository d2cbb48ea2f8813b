"""How good an audit is where the truth is known: wrong labels found, suggestions right, reliabilities calibrated."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import ArrayLike

from labeltrace.audit.decisions import KEEP, RELABEL
from labeltrace.audit.ranking import DEFAULT, rankings
from labeltrace.audit.samples import values
from labeltrace.engine.signals import auroc


def detection(table: pa.Table) -> dict[str, float]:
    """Return how well wrong labels were found, for a table with known truth.

    `precision` and `recall` are of the samples not to be kept (relabel and review together); `suggestion_accuracy` is
    how often the suggested class is the true one over all samples, `relabel_accuracy` over those marked relabel.
    `right_after` is the share of right labels once every relabel is taken.
    """
    known = table.filter(pc.greater_equal(table["truth"], 0))
    wrong = pc.not_equal(known["observed"], known["truth"]).to_numpy()
    found = pc.not_equal(known["decision"], KEEP).to_numpy()
    right = pc.equal(known["suggested"], known["truth"]).to_numpy()
    relabel = pc.equal(known["decision"], RELABEL).to_numpy()
    return {
        "precision": _share(wrong[found]),
        "recall": _share(found[wrong]),
        "suggestion_accuracy": _share(right),
        "relabel_accuracy": _share(right[relabel]),
        "right_after": _share(np.where(relabel, right, ~wrong)),
    }


def measure(table: pa.Table, ranking: str = DEFAULT) -> dict[str, float]:
    """Return all that can be said of a table with known truth: `detection`, the ranking, both calibrations.

    `auroc` and `average_precision` are of the ranking score for "the label is wrong"; `ece_label` holds the observed
    reliability against "the label is right", `ece_suggestion` the pseudo reliability against "the suggestion is right".
    """
    score = rankings[ranking](table)
    truth = values(table, "truth")
    known = truth >= 0
    right = (values(table, "observed") == truth)[known]
    suggestion_right = (values(table, "suggested") == truth)[known]
    return {
        **detection(table),
        "auroc": auroc(torch.from_numpy(score[known]), torch.from_numpy(~right)),
        "average_precision": average_precision(score[known], ~right),
        "ece_label": expected_calibration_error(values(table, "observed_reliability")[known], right),
        "ece_suggestion": expected_calibration_error(values(table, "pseudo_reliability")[known], suggestion_right),
    }


def average_precision(score: ArrayLike, positive: ArrayLike) -> float:
    """Return Σ (recall step) · precision over the distinct scores from high to low, as scikit-learn does; NaN for none.

    Samples with equal scores enter together, so their order does not count.

    Args:
        score: [N], high where a positive is expected.
        positive: [N] truth values.

    >>> average_precision([0.9, 0.8, 0.7, 0.6], [True, False, True, False])
    0.8333333333333333
    """
    score, positive = np.asarray(score), np.asarray(positive, bool)
    if not positive.any():
        return math.nan
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(positive[order])
    last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))  # of each group of equal scores
    steps = np.diff(hits[last], prepend=0)
    return float((steps * hits[last] / (last + 1)).sum() / hits[-1])


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> float:
    """Return Σ (share of the bin) · |accuracy − mean confidence| over equal bins (lo, hi] of [0, 1]; NaN for no sample.

    Args:
        confidence: [N] in [0, 1]; 0 counts to the first bin.
        correct: [N] truth values.
        bins: number of bins; empty ones add nothing.

    >>> round(expected_calibration_error([0.95, 0.85, 0.75, 0.65, 0.55], [1, 1, 0, 1, 0], bins=10), 12)
    0.37
    """
    confidence, correct = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
    if not len(confidence):
        return math.nan
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence, side="left")
    gaps = np.bincount(place, correct - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def _share(flags: np.ndarray) -> float:
    return float(flags.mean()) if len(flags) else math.nan
