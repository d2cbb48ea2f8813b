"""A subset in which every class has the same share: how Clothing1M, with its unequal classes, is walked by epochs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from labeltrace.data.dataset import DatasetError


def balanced_subset(labels: Tensor, n: int, seed: int) -> Tensor:
    """Return the ascending numbers of at most `n` random samples, at most ceil(n / C) of each of the C classes present.

    A class with fewer samples gives all it has. DivideMix draws 32,000 of Clothing1M's million anew for each epoch.

    >>> labels = torch.tensor([0] * 90 + [1] * 8 + [2] * 2)
    >>> torch.bincount(labels[balanced_subset(labels, 12, seed=0)]).tolist()
    [4, 4, 2]

    Args:
        labels: int64 [N].
        n: the most samples to take.
        seed: of the draw.

    Raises:
        DatasetError: when `n` is less than 1.
    """
    if n < 1:
        raise DatasetError(f"cannot draw {n} samples; ask for 1 or more")
    values = labels.numpy()
    shuffled = np.random.default_rng(seed).permutation(len(values))
    by_class = shuffled[np.argsort(values[shuffled], kind="stable")]
    counts = np.bincount(values)
    rank = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)  # within its class, in random order
    most = -(-n // int((counts > 0).sum()))
    chosen = by_class[rank < most]
    # Rounding up may give up to C − 1 too many: the last of their classes go.
    kept = chosen[np.argsort(rank[rank < most], kind="stable")[:n]]
    return torch.from_numpy(np.sort(kept))
