"""A samples table in a few numbers: how many of each decision, and class by class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from labeltrace.audit.decisions import DECISIONS, KEEP, RELABEL, REVIEW, TRUST_SUGGESTION
from labeltrace.audit.estimate import NoiseEstimate
from labeltrace.audit.samples import class_names, values
from labeltrace.data.noise.transitions import Transitions

FEW_SURE = 0.2  # share of confident suggestions below which decisions are no more than a start


@dataclass(frozen=True)
class ClassSummary:
    """What became of the samples observed as one class.

    Attributes:
        name: of the class.
        samples: that carry it as their label.
        wrong: of them, as many as the estimate of the noise says.
        relabel: of them, to be relabelled.
        review: of them, to be looked at.
        replacement: the class most often suggested for those that are not kept; None where all are.
        replaced: how often it is.
    """

    name: str
    samples: int
    wrong: float
    relabel: int
    review: int
    replacement: str | None
    replaced: int


def decision_counts(table: pa.Table) -> dict[str, int]:
    """Return how many samples got each decision."""
    found = {entry["values"]: entry["counts"] for entry in table["decision"].value_counts().to_pylist()}
    return {decision: found.get(decision, 0) for decision in DECISIONS}


def disagreement(table: pa.Table) -> float:
    """Return the share of labels that are not what the model suggests.

    It counts every mistake of the model as a wrong label, as the estimate of the noise counts none that the networks
    are unsure of: the one errs high, the other low.
    """
    return float((values(table, "observed") != values(table, "suggested")).mean())


def confident(table: pa.Table) -> float:
    """Return the share of samples whose suggestion is trusted; where it is small the networks know little."""
    return float((values(table, "confidence") >= TRUST_SUGGESTION).mean())


def advice(confident: float) -> str | None:
    """Return what to tell a person whose networks are sure of few suggestions; None where they are of enough.

    >>> advice(0.5), advice(0.088)[:40]
    (None, 'Only 8.8 % of the suggestions are sure: ')
    """
    if confident >= FEW_SURE:
        return None
    return (
        f"Only {100 * confident:.1f} % of the suggestions are sure: the networks know too little of this set to decide "
        "for you. Read the queue from its top; a longer run, weights of a pre-trained network (train --weights), or "
        "embeddings of one (audit --features) find more."
    )


def class_summaries(table: pa.Table, estimate: NoiseEstimate) -> list[ClassSummary]:
    """Return a row per class, in their order."""
    names = class_names(table)
    observed, suggested, decision = (values(table, name) for name in ("observed", "suggested", "decision"))
    samples, relabel, review = (
        np.bincount(observed[mask], minlength=len(names))
        for mask in (slice(None), decision == RELABEL, decision == REVIEW)
    )
    lost = decision != KEEP
    usual = Transitions.between(observed[lost], suggested[lost], len(names)).usual_mistake()
    replaced = np.bincount(observed[lost & (suggested == usual[observed])], minlength=len(names))
    return [
        ClassSummary(
            name,
            int(samples[c]),
            float(estimate.wrong[c]),
            int(relabel[c]),
            int(review[c]),
            None if usual[c] < 0 else names[usual[c]],
            int(replaced[c]),
        )
        for c, name in enumerate(names)
    ]
