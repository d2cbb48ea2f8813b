"""NT-Xent, the contrastive loss of SimCLR (Chen et al., ICML 2020, arXiv 2002.05709): two views of an image attract.

Supervised contrastive loss without labels is the same number when its two temperatures are equal.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labeltrace.scoring.checks import work


def nt_xent(one: Tensor, two: Tensor, temperature: float) -> Tensor:
    """Return the mean over 2B rows of −log softmax(cos / τ) at the other view of the same image, a scalar.

    A row is compared with all others but itself; its partner stands in the denominator too.

    Args:
        one, two: [B, D] projections of two views; their lengths play no part.
        temperature: τ > 0.

    >>> round(float(nt_xent(torch.eye(2), torch.eye(2), temperature=0.5)), 6)
    0.239545
    """
    rows = F.normalize(work(torch.cat([one, two])), dim=1)
    count = len(rows)
    itself = torch.eye(count, dtype=torch.bool, device=rows.device)
    logits = (rows @ rows.T / temperature).masked_fill(itself, -torch.inf)
    partner = torch.arange(count, device=rows.device).roll(len(one))
    return F.cross_entropy(logits, partner)
