"""Past predictions as votes: a ring of the last q classes per sample, their shares, how far they agree.

The ring is a field [N, q] of the sample memory that starts at −1; the order of the votes within it means nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def push_votes(history: Tensor, count: Tensor, index: Tensor, votes: Tensor) -> None:
    """Write one vote [B] for the samples `index` [B] in place of their oldest one.

    A sample that stands twice in `index` gets one vote.

    Args:
        history: [N, q] the rings, changed in place.
        count: [N] votes each sample has had, changed in place.
        index: [B] sample numbers.
        votes: [B] classes.

    >>> history, count = torch.full((1, 2), -1), torch.zeros(1, dtype=torch.int64)
    >>> for vote in (5, 6, 7):
    ...     push_votes(history, count, torch.tensor([0]), torch.tensor([vote]))
    >>> history, count
    (tensor([[7, 6]]), tensor([3]))
    """
    had = count[index]
    history[index, (had % history.shape[1]).long()] = votes.to(history.dtype)
    count[index] = had + 1


def vote_shares(history: Tensor, num_classes: int) -> Tensor:
    """Return P [B, C], the share of each class among the q slots of histories [B, q]; −1 counts for none.

    >>> vote_shares(torch.tensor([[2, 0, 2, -1]]), 3)
    tensor([[0.2500, 0.0000, 0.5000]])
    """
    classes = torch.arange(num_classes, device=history.device)
    return (history[:, :, None] == classes).float().mean(1)


def vote_entropy(shares: Tensor) -> Tensor:
    """Return F = −Σ_c P_c ln P_c / ln C of shares [B, C], in [0, 1]: 0 for unanimous votes.

    >>> vote_entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor([0., 1.])
    """
    return (0.0 - torch.xlogy(shares, shares).sum(1)) / math.log(max(shares.shape[1], 2))  # one class: always 0
