"""Queues of past projections, one for each class: positives and negatives of a supervised contrastive loss.

As MoCo's queue (He et al., CVPR 2020, arXiv 1911.05722), apart for every class. A queue holds the last `slots`
projections that were put into it; before that, random directions.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeltrace.control.evidence import one_hot
from labeltrace.scoring.checks import work


class Queues(nn.Module):
    """The queues of C classes.

    Args:
        classes: C.
        slots: Q, the length of a queue.
        width: D, of a projection.

    >>> queues = Queues(classes=3, slots=2, width=4)
    >>> queues.put(torch.eye(4)[:2], torch.tensor([1, 1]), torch.tensor([True, True]))
    >>> queues.kept[1].tolist(), queues.pointer.tolist()
    ([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]], [0, 0, 0])
    """

    def __init__(self, classes: int, slots: int, width: int) -> None:
        super().__init__()
        self.classes, self.slots = classes, slots
        # One row more than there are slots: what is not accepted is written there, so that a step keeps its shape.
        self.register_buffer("rows", F.normalize(torch.randn(classes * slots + 1, width), dim=1))
        self.register_buffer("pointer", torch.zeros(classes, dtype=torch.int64))

    @property
    def kept(self) -> Tensor:
        """[C, Q, D] the queues, each in the order of its slots."""
        assert isinstance(self.rows, Tensor)
        return self.rows[:-1].unflatten(0, (self.classes, self.slots))

    def loss(self, queries: Tensor, keys: Tensor, labels: Tensor, temperature: float) -> Tensor:
        """Return the mean over anchors of KL(t ‖ softmax(z/τ)), a scalar; gradients go to the queries alone.

        z holds q·k and q·(every slot of every queue), 1 + Q·C in all; t is uniform over q·k and the Q slots of the
        anchor's class, 0 elsewhere.

        Args:
            queries: q, [B, D] of length 1.
            keys: k, [B, D] of length 1.
            labels: [B] classes.
            temperature: τ > 0.
        """
        q, k, kept = work(queries), work(keys.detach()), self.kept.detach().clone()
        own = (q * k).sum(1, keepdim=True) / temperature
        others = torch.einsum("bd,csd->bcs", q, kept) / temperature
        total = torch.cat([own, others.flatten(1)], 1).logsumexp(1)
        alike = others.gather(1, labels[:, None, None].expand(-1, 1, self.slots))[:, 0]
        positive = torch.cat([own, alike], 1).mean(1)
        return (total - positive).mean() - math.log(self.slots + 1)

    @torch.no_grad()
    def put(self, keys: Tensor, labels: Tensor, accepted: Tensor) -> None:
        """Write the accepted ones of keys [B, D] into the queues of their labels [B], in order; the oldest go."""
        member = one_hot(labels, self.classes).long() * accepted[:, None]  # [B, C]
        place = (member.cumsum(0) * member).sum(1) - 1  # among the accepted of its class
        count = member.sum(0)
        stays = accepted & (place >= count[labels] - self.slots)  # of more than fit the last ones
        assert isinstance(self.rows, Tensor) and isinstance(self.pointer, Tensor)
        slot = labels * self.slots + (self.pointer[labels] + place) % self.slots
        self.rows[torch.where(stays, slot, len(self.rows) - 1)] = work(keys)
        self.pointer.copy_((self.pointer + count) % self.slots)
