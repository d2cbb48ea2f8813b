"""Two methods over the same seeds and labels: differences, and a paired t test that says nothing below three seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

LEAST = 3  # seeds below which nothing is claimed
LEVEL = 0.05
ROUNDING = 1e-9  # points


@dataclass(frozen=True)
class Comparison:
    """Differences of pairs (first − second), in points.

    Args:
        differences: one for each seed that both have.
        p: two-sided, of a paired t test with n − 1 degrees of freedom; None with fewer than three pairs, and where all
            differ by the same amount, of which the test can say nothing.
    """

    differences: tuple[float, ...]
    p: float | None

    @property
    def mean(self) -> float:
        """The mean difference."""
        return mean(self.differences)

    @property
    def claim(self) -> str:
        """What may be said of it."""
        if self.p is None:
            return f"none: n < {LEAST}" if len(self.differences) < LEAST else "none: no spread"
        if self.p >= LEVEL:
            return "no difference shown"
        return "higher" if self.mean > 0 else "lower"


def paired_t(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Compare values of the same seeds in the same order.

    >>> found = paired_t([75.0, 76.0, 77.0], [74.0, 74.0, 76.0])
    >>> found.differences, round(found.p, 4), found.claim
    ((1.0, 2.0, 1.0), 0.0572, 'no difference shown')
    >>> paired_t([75.0, 76.0], [74.0, 74.0]).claim
    'none: n < 3'
    """
    differences = tuple(one - two for one, two in zip(first, second, strict=True))
    n = len(differences)
    if n < LEAST:
        return Comparison(differences, None)
    spread = stdev(differences)
    if spread < ROUNDING:
        return Comparison(differences, 1.0 if abs(mean(differences)) < ROUNDING else None)
    from scipy.stats import t

    return Comparison(differences, float(2 * t.sf(abs(mean(differences)) / (spread / math.sqrt(n)), n - 1)))
