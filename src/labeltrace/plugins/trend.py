"""The Mann–Kendall test for a rising series, one observation at a time (Mann 1945, Kendall 1975).

S counts the pairs of observations that rise, less those that fall. Without a trend it has mean 0 and the variance
n(n−1)(2n+5)/18; ties add nothing, and the variance is not corrected for them.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor


def gaps(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return p_label − p_c of each row [B, C], 0 at the label itself.

    >>> gaps(torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([0]))
    tensor([[0.0000, 0.2000, 0.3000]])
    """
    return probabilities.gather(1, labels[:, None]) - probabilities


def change_of_s(now: Tensor, past: Tensor, counts: Tensor) -> Tensor:
    """Return what one more observation adds to S [B, …]: earlier ones below it, less those above it.

    Args:
        now: [B, …] the new observation.
        past: [B, E, …] the series so far, in its first `counts` places.
        counts: [B] observations of each series.

    >>> change_of_s(torch.tensor([0.3]), torch.tensor([[0.1, 0.2, 0.3, 0.9]]), torch.tensor([3]))
    tensor([2], dtype=torch.int32)
    """
    slots = torch.arange(past.shape[1], device=past.device)
    there = (slots < counts[:, None]).reshape(*past.shape[:2], *(1,) * (past.ndim - 2))
    new = now[:, None]
    return (((new > past).int() - (new < past).int()) * there).sum(1, dtype=torch.int32)


def z_score(s: Tensor, counts: Tensor) -> Tensor:
    """Return z [B] of statistics S [B] over `counts` [B] observations; 0 for fewer than two.

    >>> z_score(torch.tensor([13, 0, 1]), torch.tensor([6, 6, 1]))
    tensor([2.2544, 0.0000, 0.0000])
    """
    n = counts.float()
    variance = n * (n - 1) * (2 * n + 5) / 18
    moved = s.float() - s.sign()
    return torch.where((counts >= 2) & (s != 0), moved / variance.clamp_min(1e-12).sqrt(), 0.0)


def least(alpha: float) -> float:
    """Return the z above which a rising trend is significant at level α, one-sided.

    >>> [round(least(alpha), 4) for alpha in (0.01, 0.10, 0.50)]
    [2.3263, 1.2816, 0.0]
    """
    return NormalDist().inv_cdf(1 - alpha)
