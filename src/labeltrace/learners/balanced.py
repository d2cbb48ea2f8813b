"""A list of samples in which every class stands equally often."""

from __future__ import annotations

import torch
from torch import Tensor


def balanced_repeats(labels: Tensor, order: Tensor) -> Tensor:
    """Return places into `labels` [n] that hold every class as often as the largest, [(classes present) × largest].

    A class is walked in the order of `order` [n] and repeated as often as needed.

    >>> balanced_repeats(torch.tensor([0, 2, 0, 0]), torch.tensor([0.3, 0.0, 0.1, 0.2])).tolist()
    [2, 3, 0, 1, 1, 1]
    """
    if not len(labels):
        return torch.empty(0, dtype=torch.int64, device=labels.device)
    by_order = order.argsort(stable=True)
    ranked = by_order[labels[by_order].argsort(stable=True)]  # by class, then by order
    sizes = torch.bincount(labels)
    starts = sizes.cumsum(0) - sizes
    sizes, starts = sizes[sizes > 0], starts[sizes > 0]
    turn = torch.arange(int(sizes.max()), device=labels.device) % sizes[:, None]
    return ranked[(starts[:, None] + turn).flatten()]
