"""When a pseudo target lies: its accuracy where the observed label is trusted or not, and how sure it is when wrong.

TRACE, Experiments and Appendices D and E. The paper is silent on three marks, so they are ours and options: high
confidence is max q ≥ 0.9, low-clean is s < 0.3, the calibration error has 15 bins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from labeltrace.audit import expected_calibration_error
from labeltrace.diagnostics.values import mean, undefined
from labeltrace.errors import InputError, nearest

HIGH_CONFIDENCE = 0.9
LOW_CLEAN = 0.3
ECE_BINS = 15
BINS = 10
#: s from which samples are mid-clean and high-clean
CUTS = {
    "midpoint": (0.3, 0.6),  # the paper's 0.35 and 0.65 are midpoints of ten bins: bins 3 to 5, and from 6 on
    "score": (0.35, 0.65),
}

Row = dict[str, str | int | float]


@dataclass(frozen=True)
class Verdicts:
    """What a run says of samples whose true class is known; all [n].

    Args:
        score: s, how far the observed label is trusted: the clean posterior of a base learner, s^obs of TRACE.
        confidence: max_c of the pseudo target.
        suggested: its class.
        observed: observed class.
        truth: true class; samples of unknown truth (−1) are left out by `verdicts`.

    Raises:
        InputError: a score or a confidence that is not in [0, 1].
    """

    score: Tensor
    confidence: Tensor
    suggested: Tensor
    observed: Tensor
    truth: Tensor

    def __post_init__(self) -> None:
        for name, values in (("score", self.score), ("confidence", self.confidence)):
            if not bool(((values >= 0) & (values <= 1)).all()):
                raise InputError(f"{name}: values outside [0, 1], or none at all for some samples")

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def ok(self) -> Tensor:
        """[n] whether the pseudo target names the true class."""
        return self.suggested == self.truth

    @property
    def noisy(self) -> Tensor:
        """[n] whether the observed label is wrong."""
        return self.observed != self.truth

    @property
    def follows(self) -> Tensor:
        """[n] whether the pseudo target names the observed class."""
        return self.suggested == self.observed

    def at(self, mask: Tensor) -> Verdicts:
        """Return the samples of a mask [n]."""
        return Verdicts(*(values[mask] for values in vars(self).values()))


def verdicts(score: Tensor, confidence: Tensor, suggested: Tensor, observed: Tensor, truth: Tensor) -> Verdicts:
    """Return `Verdicts` of the samples whose truth is known (not −1)."""
    known = truth >= 0
    return Verdicts(score[known], confidence[known], suggested[known], observed[known], truth[known])


def pseudo_accuracy(v: Verdicts) -> float:
    """Return the share of pseudo targets that name the true class; NaN of no samples."""
    return mean(v.ok)


def follow_noisy(v: Verdicts) -> float:
    """Return how often the pseudo target repeats a wrong observed label; NaN where no label is wrong."""
    return mean(v.follows[v.noisy])


def hc_error(v: Verdicts, tau: float = HIGH_CONFIDENCE) -> float:
    """Return the share of wrong ones among pseudo targets of confidence ≥ τ (the paper's tables, Fig. 4c)."""
    return mean(~v.ok[v.confidence >= tau])


def hc_wrong_joint(v: Verdicts, tau: float = HIGH_CONFIDENCE) -> float:
    """Return the share of all samples whose pseudo target is wrong with confidence ≥ τ (Fig. 1, Clothing1M)."""
    return mean(~v.ok & (v.confidence >= tau))


def bin_of(score: Tensor, bins: int = BINS) -> Tensor:
    """Return the equal-width bin of each score, min(⌊bins·s⌋, bins − 1).

    >>> bin_of(torch.tensor([0.0, 0.1, 0.3, 0.99, 1.0])).tolist()
    [0, 1, 3, 9, 9]
    """
    return (score * bins).floor().long().clamp(0, bins - 1)


def regimes(score: Tensor, regime: str = "midpoint") -> dict[str, Tensor]:
    """Return the masks [n] of the low-, mid- and high-clean regimes.

    >>> {name: mask.tolist() for name, mask in regimes(torch.tensor([0.2, 0.32, 0.62])).items()}
    {'low': [True, False, False], 'mid': [False, True, False], 'high': [False, False, True]}
    """
    if regime not in CUTS:
        raise InputError(f"unknown regime {regime!r}: {nearest(regime, CUTS)}")
    mid, high = CUTS[regime]
    return {"low": score < mid, "mid": (score >= mid) & (score < high), "high": score >= high}


def subsets(v: Verdicts, low: float = LOW_CLEAN, tau: float = HIGH_CONFIDENCE) -> dict[str, Tensor]:
    """Return the paper's subsets as masks [n]; each method has its own low-clean samples."""
    unsure = v.score < low
    return {
        "all": torch.ones_like(unsure),
        "low-clean": unsure,
        "observed-noisy": v.noisy,
        "low-clean+noisy": unsure & v.noisy,
        "high-confidence": v.confidence >= tau,
    }


def reliability_table(
    v: Verdicts, *, low: float = LOW_CLEAN, tau: float = HIGH_CONFIDENCE, ece_bins: int = ECE_BINS
) -> list[Row]:
    """Return a row per subset: its size, accuracy, follow-noisy, both errors of high confidence and ECE."""
    measures: dict[str, Callable[[Verdicts], float]] = {
        "pseudo_accuracy": pseudo_accuracy,
        "follow_noisy": follow_noisy,
        "hc_error": lambda part: hc_error(part, tau),
        "hc_wrong_joint": lambda part: hc_wrong_joint(part, tau),
        "ece": lambda part: expected_calibration_error(part.confidence, part.ok, ece_bins),
    }
    rows: list[Row] = []
    for name, mask in subsets(v, low, tau).items():
        rows.append({"subset": name, **_counts(v.at(mask)), **{m: f(v.at(mask)) for m, f in measures.items()}})
    return told(rows, "subset", "reliability")


def mismatch_curve(v: Verdicts) -> list[Row]:
    """Return a row per bin of the score: right labels, right pseudo targets, how often those repeat a wrong label."""
    place, rows = bin_of(v.score), []
    for number in range(BINS):
        part = v.at(place == number)
        row: Row = {"midpoint": round((number + 0.5) / BINS, 6), **_counts(part)}
        row |= {"observed_correct": mean(~part.noisy), "pseudo_accuracy": pseudo_accuracy(part)}
        rows.append({**row, "follow_noisy": follow_noisy(part)})
    return told(rows, "midpoint", "mismatch by bin")


def mismatch_regimes(v: Verdicts, regime: str = "midpoint", tau: float = HIGH_CONFIDENCE) -> list[Row]:
    """Return a row for all samples and for the mid-clean and high-clean regimes: the bars of Fig. 1."""
    masks, rows = regimes(v.score, regime), []
    for name in ("all", "mid", "high"):
        part = v.at(masks[name]) if name in masks else v
        row: Row = {"regime": name, **_counts(part), "follow_noisy": follow_noisy(part)}
        row |= {"pseudo_accuracy": pseudo_accuracy(part), "hc_wrong_joint": hc_wrong_joint(part, tau)}
        rows.append(row)
    return told(rows, "regime", "mismatch by regime")


def told(rows: list[Row], key: str, what: str) -> list[Row]:
    """Return the rows, after one warning where some of their values are over no sample at all."""
    empty = [str(row[key]) for row in rows if any(value != value for value in row.values())]
    if empty:
        undefined(f"{what}: no sample (or one kind only) at {', '.join(empty)}")
    return rows


def _counts(v: Verdicts) -> Row:
    return {"n": len(v), "n_noisy": int(v.noisy.sum())}
