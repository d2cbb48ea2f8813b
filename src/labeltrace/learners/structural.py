"""Structural similarity of Co-learning: samples that lie close as projections shall lie close as logits.

The projections are learnt without labels, so what they say of two samples is free of label noise. They are the given
side: no gradient goes to them. Two definitions, that of the released code and that of the paper, whose values differ by
orders of magnitude. Equal logits are the minimum of the first, so neither makes a classifier alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labeltrace.scoring.checks import work

KERNELS, PAIRS = ("normal", "student"), ("sum", "mean")
FLOOR = 1e-12  # of a squared distance, and inside the logarithm (released code)


def structural_cross_entropy(
    projections: Tensor, logits: Tensor, kernel: str = "normal", freedom: float = 1.0
) -> Tensor:
    """Return −mean_ij Q(v)_ij·log(Q(o)_ij + 1e-12) over all pairs, a sample with itself among them: the released code.

    With the squared distance D², Q = exp(−D²), or Student's (1 + D⁴/ν)^(−(ν+1)/2). The logarithm is flat from D² ≈ 27.6
    on: logits that far apart are left alone.

    Args:
        projections: v, [B, D].
        logits: o, [B, C].
        kernel: "normal" or "student".
        freedom: ν of the latter.

    >>> v = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> o = torch.tensor([[0.0, 0.0], [0.5, 0.0], [1.0, 1.0]])
    >>> round(float(structural_cross_entropy(v, o)), 5)
    0.03045
    """

    def likeness(rows: Tensor) -> Tensor:
        distance = squared_distances(rows)
        if kernel == "normal":
            return torch.exp(-distance)
        if kernel == "student":  # a squared distance, squared again
            return (1 + distance.square() / freedom) ** (-(freedom + 1) / 2)
        raise ValueError(f"unknown kernel {kernel!r}: known are {', '.join(KERNELS)}")

    return -(likeness(projections.detach()) * (likeness(logits) + FLOOR).log()).mean()


def structural_divergence(projections: Tensor, logits: Tensor, sigma: float = 0.5, pairs: str = "sum") -> Tensor:
    """Return Σ_i≠j p(v)_ij·log(p(v)_ij / p(o)_ij) with p = exp(−D² / 2σ²): the paper.

    The kernels are not normalised, so the sum may be negative, and it grows with the square of the batch.

    Args:
        projections: v, [B, D].
        logits: o, [B, C].
        sigma: σ > 0.
        pairs: "sum", or "mean" over the B(B − 1) ordered pairs.

    >>> v = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> o = torch.tensor([[0.0, 0.0], [0.5, 0.0], [1.0, 1.0]])
    >>> round(float(structural_divergence(v, o)), 5)
    -0.40937
    """
    given, asked = (squared_distances(rows) / (2 * sigma**2) for rows in (projections.detach(), logits))
    # The logarithm of a kernel is known without taking it; a sample with itself adds 0.
    total = (torch.exp(-given) * (asked - given)).sum()
    if pairs == "sum":
        return total
    if pairs == "mean":
        return total / max(len(given) * (len(given) - 1), 1)
    raise ValueError(f"unknown pairs {pairs!r}: known are {', '.join(PAIRS)}")


def squared_distances(rows: Tensor) -> Tensor:
    """Return ‖a_i − a_j‖² of rows [B, D], at least 1e-12, as [B, B].

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))[0]
    tensor([1.0000e-12, 2.5000e+01])
    """
    rows = work(rows)
    # Of differences, not of products: close rows of a large norm would lose their distance to rounding.
    distance = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square().clamp_min(FLOOR)
