"""Otsu's method on confidences: a threshold between the unsure and the sure, and the means of both sides.

After Otsu, "A Threshold Selection Method from Gray-Level Histograms" (IEEE Transactions on Systems, Man, and
Cybernetics 9, 1979), in the variant of ANNE's official code (filipe-research/anne): the separation is divided by the
summed deviations, and a bin of the histogram stands for its left edge.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BINS = 1000  # official code


class Otsu(NamedTuple):
    """A split of confidences in two: the threshold and the mean of either side."""

    threshold: Tensor
    low_mean: Tensor
    high_mean: Tensor


def otsu(confidence: Tensor) -> Otsu:
    """Return the cut of confidences [N] in [0, 1] with the largest Q, from a histogram of 1000 bins.

    `Q(s) = [n₁(m₁ − μ)² + n₂(m₂ − μ)²] / (n₁σ₁ + n₂σ₂)` with counts, means and deviations of the bins below s and from
    s on (a bin stands for its left edge, variances are at least 1e-5) and the mean confidence μ; the first maximum of
    the cuts 2 to 997. Where no cut has samples on both sides, threshold and means are 0: all are confident.

    >>> otsu(torch.tensor([0.105, 0.155, 0.905, 0.955])).threshold
    tensor(0.1560, dtype=torch.float64)
    """
    values = confidence.to(torch.float64)
    count = torch.bincount((values * BINS).long().clamp(0, BINS - 1), minlength=BINS)
    edge = torch.arange(BINS, device=values.device)
    # Sums of integers: exact, so equal cuts tie and the first of them is taken, on every device.
    total = torch.stack([count, count * edge, count * edge**2])
    cuts = slice(2, BINS - 2)
    below = (total.cumsum(1) - total)[:, cuts]
    above = total.sum(1, keepdim=True) - below
    possible = (below[0] > 0) & (above[0] > 0)
    pull, spread, means = 0.0, 0.0, []
    for size, first, second in (below.to(torch.float64), above.to(torch.float64)):
        members = size.clamp(min=1)
        mean = first / members / BINS
        deviation = (second / members / BINS**2 - mean**2).clamp(min=1e-5).sqrt()
        pull, spread = pull + size * (mean - values.mean()) ** 2, spread + size * deviation
        means.append(mean)
    best = torch.where(possible, pull / spread, -1e7).argmax(0, keepdim=True)
    low, high, threshold = (x.gather(0, best)[0] for x in (*means, edge[cuts] / BINS))
    divides = possible.any()
    return Otsu(*(torch.where(divides, x, 0.0).to(torch.float64) for x in (threshold, low, high)))


def groups(confidence: Tensor, split: Otsu) -> Tensor:
    """Return the group 0 to 3 of each confidence [N]: G1 ≥ high mean, G2 ≥ threshold, G3 ≥ low mean, G4 below.

    >>> groups(torch.tensor([0.95, 0.4, 0.2, 0.1]), Otsu(*torch.tensor([0.3, 0.15, 0.9])))
    tensor([0, 1, 2, 3])
    """
    edges = (split.high_mean, split.threshold, split.low_mean)
    return torch.stack([confidence < edge for edge in edges]).sum(0)
