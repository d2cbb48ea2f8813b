"""Nearest neighbours in feature space, and what their labels say of a sample's own.

From SSR+ (Feng, Tzimiropoulos, Patras, BMVC 2022: the vote with corrected prior) and ANNE (Cordeiro, Carneiro, Pattern
Recognition 2025: as many neighbours as lie within a radius that grows until there are enough). The official codes walk
over samples in Python; here similarities come in chunks, only the nearest are kept, and the radius has a closed form.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labeltrace.scoring.checks import check_finite, check_rows, work

_CHUNK = 2**26  # similarities that are held at a time: 256 MiB in float32
RADII = range(99, -102, -1)  # hundredths: 0.99, 0.98, … −1.01, below every cosine
_TIE = 1e-6  # relative: votes that differ by less are equal but for rounding


def nearest(embedding: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return each sample's most similar samples, itself included.

    Args:
        embedding: [N, D] features of any length; the similarity is the cosine (0 with a feature of length 0).
        count: how many; at most N are returned.

    Returns:
        (similarity [N, k], index [N, k]), most similar first, k = min(count, N). Float64 features give float64
        similarities, others float32.

    >>> similarity, index = nearest(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]), 2)
    >>> index.tolist(), similarity[1]
    ([[0, 2], [1, 2], [2, 0]], tensor([1.0000, 0.7071]))
    """
    if embedding.ndim != 2 or embedding.numel() == 0:
        raise ValueError(f"embedding: shape {tuple(embedding.shape)}, expected [N, D] with N, D > 0")
    if count < 1:
        raise ValueError(f"count: {count}, expected ≥ 1")
    check_finite("embedding", embedding)
    unit = F.normalize(work(embedding.detach()), dim=1)
    rows, count = len(unit), min(count, len(unit))
    found = [(part @ unit.T).topk(count, dim=1) for part in unit.split(max(1, _CHUNK // rows))]
    return torch.cat([f.values for f in found]), torch.cat([f.indices for f in found])


def radius_count(similarity: Tensor, enough: Tensor, *, fewest: int = 5) -> Tensor:
    """Return how many neighbours each sample has within the first radius that holds enough of them.

    The radius r starts at 0.99 and falls by 0.01 until at least `enough_i` similarities exceed it; that is the largest
    step below the `enough_i`-th similarity, so no search is needed. The answer is `#{s_ij > r}`, at least `fewest`.

    Args:
        similarity: [N, k], descending; k is the ceiling of the answer.
        enough: [N] integers ≥ 1; more than k counts as k.
        fewest: lower limit of the answer, itself limited to k (default: ANNE).

    Returns:
        [N] int64 in [min(fewest, k), k].

    >>> s = torch.tensor([[1, 0.985, 0.975, 0.965, 0.955, 0.945, 0.935, 0.905]])
    >>> radius_count(s, torch.tensor([5])), radius_count(s, torch.tensor([7]))  # r = 0.95, r = 0.93
    (tensor([5]), tensor([7]))
    """
    check_rows("enough", enough, len(similarity), "similarity")
    most = similarity.shape[1]
    last = similarity.gather(1, enough.clamp(1, most)[:, None] - 1)
    radii = torch.tensor([r / 100 for r in reversed(RADII)], dtype=similarity.dtype, device=similarity.device)
    # the number of radii below `last` is ≥ 1; a rounded cosine never lies below −1.01
    radius = radii[torch.searchsorted(radii, last) - 1]
    return (similarity > radius).sum(1).clamp(min(fewest, most), most)


def neighbour_vote(
    neighbour_labels: Tensor,
    num_classes: int,
    *,
    counts: Tensor | None = None,
    weights: Tensor | None = None,
    prior: Tensor | None = None,
) -> Tensor:
    """Return the share of each class among the neighbours of each sample, [N, C] float64, rows sum to 1.

    Args:
        neighbour_labels: [N, k] classes, nearest first.
        num_classes: C.
        counts: [N] how many of the nearest vote; None for all k.
        weights: [N, k] ≥ 0, how much each vote counts; None for one each.
        prior: [C] share of each class in the whole set; a vote counts 1/prior (SSR), so that a frequent class has no
            advantage. None leaves the shares as they are.

    >>> votes = neighbour_vote(torch.tensor([[0, 0, 1, 1, 1]]), 2, prior=torch.tensor([0.8, 0.2]))
    >>> votes.round(decimals=6)
    tensor([[0.1429, 0.8571]], dtype=torch.float64)
    """
    rows, most = neighbour_labels.shape
    ballot = torch.ones(rows, most, dtype=torch.float64, device=neighbour_labels.device)
    if weights is not None:
        ballot = weights.to(torch.float64)
    if counts is not None:
        check_rows("counts", counts, rows, "neighbour_labels")
        ballot = ballot * (torch.arange(most, device=ballot.device) < counts[:, None])
    votes = ballot.new_zeros(rows, num_classes).scatter_add(1, neighbour_labels, ballot)
    votes = votes / votes.sum(1, keepdim=True)
    if prior is not None:
        votes = votes / (prior.to(torch.float64) + 1e-10)
        votes = votes / votes.sum(1, keepdim=True)
    return votes


def class_shares(labels: Tensor, num_classes: int) -> Tensor:
    """Return the share of each class among `labels` [N], [C] float64.

    >>> class_shares(torch.tensor([0, 0, 2, 0]), 3)
    tensor([0.7500, 0.0000, 0.2500], dtype=torch.float64)
    """
    return torch.bincount(labels, minlength=num_classes).to(torch.float64) / len(labels)


def vote_score(votes: Tensor, labels: Tensor) -> Tensor:
    """Return v_{i,y_i} / max_c v_ic, [N] in [0, 1]: 1 where the label wins the vote or ties, rounding aside.

    >>> vote_score(torch.tensor([[0.2, 0.6, 0.2], [0.5, 0.5, 0.0]]), torch.tensor([0, 1]))
    tensor([0.3333, 1.0000])
    """
    score = votes.gather(1, labels[:, None])[:, 0] / votes.amax(1)
    return torch.where(score >= 1 - _TIE, 1.0, score)
