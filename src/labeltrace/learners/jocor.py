"""JoCoR, joint training with co-regularisation (Wei, Feng, Chen, An, CVPR 2020; arXiv 2003.02752).

Two networks have one loss, ℓ = (1 − λ)(CE_A + CE_B) + λ(KL(p_A‖p_B) + KL(p_B‖p_A)), and train on the samples of a batch
where it is smallest: a label that both find easy, and on which they agree. What is kept, and when, is in
`labeltrace.learners.small_loss`, with what official code and paper say about it and where τ comes from.

What the official code (hongxin001/JoCoR) does that a reader of the paper would not guess, kept here:
  - samples are ranked by the whole loss, so λ also says which of them are kept;
  - the cross-entropies are summed, not averaged, and so are the two divergences: it is not Jensen and Shannon's, which
    the paper speaks of;
  - both networks get the gradient of both divergences;
  - λ is 0.1 by the code's default, which no published run has; the readme has 0.9 and 0.85, and 0.65 with 80 % noise.
    It says that the best λ depends on the network and on normalisation, which here are others: worth a try of yours.
What we chose:
  - both divergences are made of log-probabilities. The code takes the logarithm of a probability that may be 0, and
    then has no gradient: a public log of it ends in NaN. The value is the same;
  - one step descends the loss with an Adam for each network. The code has one for both, which is the same: Adam treats
    each parameter for itself, and the counts of steps do not differ;
  - `oracle_*_asymmetric_40` gives τ as the code does, half the rate: right on CIFAR-10, where half of the classes
    turn, and too little on CIFAR-100, where all do. `oracle_*_pair_40` is the share of wrong labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from labeltrace.learners.base import Batch, Outcome, learners
from labeltrace.learners.dropping import smallest
from labeltrace.learners.settings import Preset, setting
from labeltrace.learners.small_loss import SmallLoss, SmallLossSettings, Values, kept_count, kept_mean, recipes

CODE = "official code (hongxin001/JoCoR)"
README = "readme of the official code (hongxin001/JoCoR)"
OURS = "ours: on digits without noise, see docs/decisions.md"
HALVED = CODE + ": half the rate of asymmetric noise"


@dataclass(frozen=True)
class JoCoRSettings(SmallLossSettings):
    """Settings of JoCoR."""

    co_lambda: float = setting(0.9, README + ": CIFAR-10 (0.85 on CIFAR-100)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.co_lambda <= 1:
            raise ValueError(f"co_lambda: {self.co_lambda!r}, expected 0 ≤ co_lambda ≤ 1")


_HUNDRED: Values = {"lr_fall": (100, CODE + ": CIFAR-100"), "co_lambda": (0.85, README + ": CIFAR-100")}


@learners.register("jocor", "two networks with one loss, pulled together where both find a label easy")
class JoCoR(SmallLoss):
    """Two networks, one loss with their disagreement in it; the samples where it is large are left out."""

    name = "jocor"
    when = (
        "as Co-teaching, where two networks that agree are wanted rather than two that correct each other. λ matters, "
        "and depends on the network."
    )
    settings_type = JoCoRSettings
    presets: ClassVar[Mapping[str, Preset]] = recipes(
        _HUNDRED,
        special={
            "oracle_cifar10_80": {"co_lambda": (0.65, README + ": 80 % noise")},
            "small": {"co_lambda": (0.65, OURS)},
        },
    ) | {
        "oracle_cifar10_asymmetric_40": Preset(
            "CIFAR-10 when the noise is known: asymmetric 40 %, as published", {"tau": (0.2, HALVED)}
        ),
        "oracle_cifar100_asymmetric_40": Preset(
            "CIFAR-100 when the noise is known: asymmetric 40 %, as published", _HUNDRED | {"tau": (0.2, HALVED)}
        ),
    }
    settings: JoCoRSettings

    def step(self, forget: float, batch: Batch) -> Outcome:
        """L = mean over the small ℓ of ℓ = (1 − λ)(CE_A + CE_B) + λ(KL(p_A‖p_B) + KL(p_B‖p_A))."""
        weak, share = self.views.weak(batch.inputs, batch.draws), self.settings.co_lambda
        one, two = (network(weak).logits.float().log_softmax(1) for network in self.networks)
        fit = F.nll_loss(one, batch.observed, reduction="none") + F.nll_loss(two, batch.observed, reduction="none")
        apart = divergence(one, two) + divergence(two, one)
        loss = (1 - share) * fit + share * apart
        kept = smallest(loss.detach(), kept_count(forget, len(batch.observed)))
        logs = {"fit": kept_mean(fit, kept), "apart": kept_mean(apart, kept), "kept": kept.float().mean()}
        return Outcome(kept_mean(loss, kept), {name: value.detach() for name, value in logs.items()})


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p‖q) of each row of log-probabilities [B, C]: finite, with its gradient, where a probability is 0.

    >>> import torch
    >>> log_p, log_q = torch.tensor([[200.0, 0.0], [0.0, 1.0]]).log_softmax(1)[:, None]
    >>> divergence(log_p, log_q)
    tensor([1.3133])
    """
    return (log_p.exp() * (log_p - log_q)).sum(1)
