"""Both thresholds of the decision, chosen so that relabels reach a wanted precision on samples a person has checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labeltrace.audit.decisions import TRUST_LABEL, TRUST_SUGGESTION
from labeltrace.errors import InputError

LEAST = 10  # checked relabels below which a precision says nothing
CANDIDATES = 500  # values tried for each threshold; of more distinct ones their quantiles
NEVER = 2.0  # a threshold that no reliability reaches
Z = 1.959964  # two-sided 95 %


@dataclass(frozen=True)
class Share:
    """So many right of so many."""

    right: int
    count: int

    @property
    def precision(self) -> float:
        """Their quotient; NaN of none."""
        return self.right / self.count if self.count else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the precision; (0, 1) of none.

        >>> tuple(round(end, 4) for end in Share(9, 10).interval)
        (0.5958, 0.9821)
        """
        low, high = wilson(self.right, self.count)
        return float(low), float(high)


@dataclass(frozen=True)
class Chosen:
    """Thresholds, and what they come to on the checked samples.

    Attributes:
        trust_label: from where a label counts as trusted.
        trust_suggestion: from where a suggestion counts as trusted.
        wanted: the precision that was asked for.
        relabel: relabelled samples whose suggestion is right.
        keep: kept samples whose label is right; no threshold changes them.
        review: number of samples left to a person.
    """

    trust_label: float
    trust_suggestion: float
    wanted: float
    relabel: Share
    keep: Share
    review: int

    @property
    def is_sure(self) -> bool:
        """Whether the whole interval of the relabels lies above the wanted precision."""
        return self.relabel.interval[0] >= self.wanted


def choose_thresholds(
    observed: ArrayLike,
    suggested: ArrayLike,
    label_trust: ArrayLike,
    suggestion_trust: ArrayLike,
    truth: ArrayLike,
    precision: float,
) -> Chosen:
    """Return the thresholds that leave the fewest checked samples to review with relabels as precise as wanted.

    The whole interval of the relabels lies above the precision where any pair of thresholds gets it there, because the
    best of many pairs looks better than it is. Where none does, the checked set is too small to be sure, and the
    precision itself must do. Of pairs that are alike the one that asks most of a suggestion is taken.

    Args:
        observed: [K] observed classes of the checked samples.
        suggested: [K] classes the model proposes.
        label_trust: [K] observed-label reliability.
        suggestion_trust: [K] confidence of the suggestion.
        truth: [K] classes that the check found.
        precision: wanted share of right relabels, in (0, 1].

    Raises:
        InputError: too few checked samples to say anything, or a precision that no thresholds reach.
    """
    if not 0 < precision <= 1:
        raise InputError(f"precision {precision:g}: expected more than 0 and at most 1, e.g. 0.95")
    observed, suggested, truth = (np.asarray(column) for column in (observed, suggested, truth))
    differs = observed != suggested
    if differs.sum() < LEAST:
        raise InputError(
            f"{len(truth)} checked samples, {differs.sum()} of them with a suggestion that is not the label; "
            f"at least {LEAST} such are needed, and about {needed(precision)} to be sure of {100 * precision:g} %"
        )
    grid = _Grid(np.asarray(label_trust)[differs], np.asarray(suggestion_trust)[differs])
    relabels, right = grid.relabelled(None), grid.relabelled((suggested == truth)[differs])
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(relabels >= LEAST, right / relabels, -1.0)
    reaches = found >= precision
    if not reaches.any():
        raise InputError(_unreachable(precision, relabels, right, found))
    sure = reaches & (wilson(right, relabels)[0] >= precision)
    allowed = sure if sure.any() else reaches
    places = np.argwhere(allowed & (relabels == relabels[allowed].max()))
    a, b = places[np.lexsort((places[:, 0], -places[:, 1]))[0]]
    return Chosen(
        float(grid.label[a]),
        float(grid.suggestion[b]),
        precision,
        Share(int(right[a, b]), int(relabels[a, b])),
        Share(int((observed == truth)[~differs].sum()), int((~differs).sum())),
        int(differs.sum() - relabels[a, b]),
    )


def wilson(right: ArrayLike, count: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the 95 % interval of right / count, any shape; 0 and 1 where the count is 0."""
    some = np.maximum(count, 1)
    p = np.asarray(right) / some
    middle, half = p + Z**2 / (2 * some), Z * np.sqrt(p * (1 - p) / some + Z**2 / (4 * some**2))
    ends = (np.clip((middle + side * half) / (1 + Z**2 / some), 0, 1) for side in (-1, 1))
    low, high = (np.where(np.asarray(count) > 0, end, none) for end, none in zip(ends, (0.0, 1.0), strict=True))
    return low, high


def needed(precision: float) -> int:
    """Return how many relabels must be checked, and all be right, for the interval to begin at the precision.

    >>> needed(0.95), Share(73, 73).interval[0] >= 0.95 > Share(72, 72).interval[0]
    (73, True)
    """
    return math.ceil(Z**2 * precision / (1 - precision)) if precision < 1 else 0


class _Grid:
    """Counts of samples [U, V] for every pair of thresholds, by sums over a histogram."""

    def __init__(self, label: NDArray[np.floating], suggestion: NDArray[np.floating]) -> None:
        self.label, self.suggestion = _candidates(label, TRUST_LABEL), _candidates(suggestion, TRUST_SUGGESTION)
        self.row = np.searchsorted(self.label, label, side="right")  # thresholds that the label reaches
        self.column = np.searchsorted(self.suggestion, suggestion, side="right")

    def _histogram(self, mask: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        height, width = len(self.label) + 1, len(self.suggestion) + 1
        place = self.row * width + self.column
        chosen = place if mask is None else place[mask]
        return np.bincount(chosen, minlength=height * width).reshape(height, width)

    def relabelled(self, mask: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Suggestion trusted, label not."""
        above = self._histogram(mask)[:, ::-1].cumsum(1)[:, ::-1]
        return above.cumsum(0)[:-1, 1:]


def _candidates(trust: NDArray[np.floating], usual: float) -> NDArray[np.floating]:
    found = np.unique(trust)
    if len(found) > CANDIDATES:
        found = np.unique(np.quantile(found, np.linspace(0, 1, CANDIDATES), method="nearest"))
    return np.unique(np.append(found, np.asarray([usual, NEVER], found.dtype)))


def _unreachable(
    precision: float, relabels: NDArray[np.int64], right: NDArray[np.int64], found: NDArray[np.float64]
) -> str:
    best = np.unravel_index(found.argmax(), found.shape)
    share = Share(int(right[best]), int(relabels[best]))
    return (
        f"no thresholds reach a precision of {100 * precision:g} % with {LEAST} or more checked relabels; the best "
        f"is {share.right} right of {share.count} ({100 * share.precision:.1f} %): ask for less, or check more samples"
    )
