"""Mixup for learners: a Beta weight, a partner for every row, convex mixtures, and their cross-entropy.

From Zhang et al., "mixup: Beyond Empirical Risk Minimization" (ICLR 2018, arXiv 1710.09412), as MixMatch and DivideMix
use it. All random numbers come from `Draws`: a mixture belongs to (seed, epoch, step), and a captured step draws anew.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from labeltrace.data.draws import Draws
from labeltrace.learners.dropping import repeated
from labeltrace.scoring.checks import work

CELLS = 2**14  # of the quantile table, 64 KiB: a weight is off by 2e-6 on average, by 2e-3 in the outermost cells


@lru_cache(maxsize=8)
def _quantiles(alpha: float) -> np.ndarray:
    """Quantiles of Beta(α, α) at 0, 1/CELLS, …, 1."""
    from scipy.stats import beta

    return np.asarray(beta.ppf(np.linspace(0, 1, CELLS + 1), alpha, alpha), dtype=np.float32)


class BetaWeight:
    """Draws mixing weights l ~ Beta(α, α): a uniform number, put through a table of quantiles.

    Args:
        alpha: α > 0; 0 means no mixing, l = 1.
        larger_half: take max(l, 1 − l), so that a row stays closer to itself than to its partner (MixMatch).

    >>> weight = BetaWeight(4.0)
    >>> drawn = weight(Draws.at(torch.arange(1000), 0))
    >>> drawn.shape, bool((drawn >= 0.5).all()), round(float(drawn.mean()), 1)
    (torch.Size([1000]), True, 0.6)
    """

    def __init__(self, alpha: float, larger_half: bool = True) -> None:
        if alpha < 0:
            raise ValueError(f"alpha: {alpha!r}, expected ≥ 0 (0: no mixing)")
        self.alpha, self.larger_half = alpha, larger_half
        self._table = torch.from_numpy(_quantiles(float(alpha)).copy()) if alpha else None

    def __call__(self, draws: Draws) -> Tensor:
        """Return one weight per stream: [1] for the draws of a step, [B] for those of its samples."""
        place = draws.uniform(1)[:, 0] * CELLS
        if self._table is None:
            return torch.ones_like(place)
        if self._table.device != place.device:  # once: a captured step finds it there
            self._table = self._table.to(place.device)
        cell = place.long()
        weight = torch.lerp(self._table[cell], self._table[cell + 1], place - cell)
        return torch.maximum(weight, 1 - weight) if self.larger_half else weight


def permutation(draws: Draws, rows: int | None = None) -> Tensor:
    """Return a random order of `rows` rows [rows], by default as many as there are streams.

    >>> permutation(Draws.at(torch.zeros(1, dtype=torch.int64), 3), rows=5).sort().values
    tensor([0, 1, 2, 3, 4])
    """
    streams = len(draws.keys)
    rows = streams if rows is None else rows
    # stable: equal numbers, which samples that fill a batch up have, fall alike on every device
    return draws.uniform(-(-rows // streams)).flatten()[:rows].argsort(stable=True)


def mix(a: Tensor, permutation: Tensor, weight: Tensor) -> Tensor:
    """Return l·a_i + (1 − l)·a_π(i): rows [B, …] (inputs, targets or weights) with their partners' rows.

    Args:
        a: [B, …] floating point.
        permutation: [R] the partner of each of the first R ≤ B rows.
        weight: l, [] or [1] for all rows, or [R].

    >>> mix(torch.tensor([1.0, 3.0]), torch.tensor([1, 0]), torch.tensor([0.75]))
    tensor([1.5000, 2.5000])
    """
    own = weight.reshape(-1, *(1,) * (a.ndim - 1))
    return own * a[: len(permutation)] + (1 - own) * a[permutation]


def mixed_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor, permutation: Tensor, share: Tensor) -> Tensor:
    """Return mean_i −Σ_c (l·w_i·t_i + (1 − l)·w_π(i)·t_π(i))_c log p_ic, a scalar: each target keeps its own weight.

    Args:
        logits: [R, C] of the mixed rows.
        target: [B, C] before mixing, B ≥ R.
        weight: [B] of each target.
        permutation: [R] the partner of each row.
        share: mixing weight l, [] or [1] for all rows, or [R].

    >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> target, weight = torch.eye(3)[:2], torch.tensor([1.2, 0.8])
    >>> round(float(mixed_cross_entropy(logits, target, weight, torch.tensor([1]), torch.tensor(0.7))), 6)
    0.871197
    """
    mixed = mix(weight[:, None] * target, permutation, share)
    return -(mixed * F.log_softmax(work(logits), dim=1)).sum(1).mean()


def mix_among(members: Tensor, draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """Return who is mixed with whom when only some rows of a batch are, without changing its size.

    The n members come first, each with a partner out of a random order of the members; the other rows repeat them in
    turn. Without a member the whole batch is mixed and no row counts.

    >>> rows, partners, counted = mix_among(torch.tensor([False, True, False, True]), Draws.at(torch.arange(4), 0))
    >>> rows, counted
    (tensor([1, 3, 1, 3]), tensor([ True,  True, False, False]))

    Args:
        members: [B] bool.
        draws: the streams of the B samples.

    Returns:
        rows: [B] the row of the batch that stands at each place.
        partners: [B] the place, below n, of its partner.
        counted: [B] whether the place counts: the first n.
    """
    rows, turn, counted = repeated(members)
    first = turn == torch.arange(len(turn), device=turn.device)
    order = torch.where(first, draws.uniform(1)[:, 0], 2.0).argsort(stable=True)
    return rows, order[turn], counted
