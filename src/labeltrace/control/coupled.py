"""The coupled mix of the base methods: what the observed label loses, the pseudo target gains."""

from __future__ import annotations

import torch
from torch import Tensor

from labeltrace.control.evidence import Controller, Evidence, Supervision
from labeltrace.scoring.checks import work


class Coupled(Controller):
    """target = clean·observed + (1−clean)·pseudo, every weight 1: the base learner, bit for bit.

    >>> e = Evidence(observed=torch.tensor([2]), pseudo=torch.tensor([[0.55, 0.35, 0.10]]), clean=torch.tensor([0.3]))
    >>> Coupled()(e).target
    tensor([[0.3850, 0.2450, 0.3700]])
    """

    name = "coupled"

    @torch.no_grad()
    def __call__(self, evidence: Evidence) -> Supervision:
        """Mix the two sources with complementary weights."""
        clean = work(evidence.clean).detach()
        keep = clean[:, None]
        target = keep * work(evidence.observed) + (1 - keep) * work(evidence.pseudo)
        one = torch.ones_like(clean)
        return Supervision(target, one, clean, one, clean, 1 - clean)

    def reliabilities(
        self, clean: Tensor, structure: Tensor | None, agree: Tensor | None, confidence: Tensor, epoch: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Trust the label as far as it is clean, and any replacement fully."""
        return work(clean), torch.ones_like(work(clean))
