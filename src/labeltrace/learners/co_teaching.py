"""Co-teaching (Han, Yao, Yu, Niu, Xu, Hu, Tsang, Sugiyama, NeurIPS 2018; arXiv 1804.06872).

Two networks see the same batch. Each picks the samples that it finds easiest, and the other one learns from them: an
error of selection does not come back at once to the network that made it. What is kept, and when, is in
`labeltrace.learners.small_loss`, with what official code and paper say about it and where τ comes from.

What the official code (bhanML/Co-teaching) does that a reader of the paper would not guess: it takes the mean loss over
the samples kept and divides it by their number once more. Adam, whose steps do not depend on the scale of a loss, does
not notice; here it is the plain mean. Its channel dropout never acted in the PyTorch of its time; the run's model has
none.
What we chose: both losses are summed and descended in one step. Which samples are kept carries no gradient, so each
network's gradient is that of its own loss alone, and the code's two steps one after the other come to the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F

from labeltrace.learners.base import Batch, Outcome, learners
from labeltrace.learners.dropping import smallest
from labeltrace.learners.settings import Preset
from labeltrace.learners.small_loss import CIFAR_N, SmallLoss, SmallLossSettings, kept_count, kept_mean, recipes

CODE = "official code (bhanML/Co-teaching)"


@dataclass(frozen=True)
class CoTeachingSettings(SmallLossSettings):
    """Settings of Co-teaching."""


@learners.register("co_teaching", "two networks, each of which learns from the samples that the other finds easy")
class CoTeaching(SmallLoss):
    """Two networks exchange their small-loss samples; the others of a batch are left out."""

    name = "co_teaching"
    when = (
        "as the simplest method that leaves wrong labels out, and the baseline that papers compare with. Nothing is "
        "relabelled; published with the noise rate given, without it the rate is estimated."
    )
    settings_type = CoTeachingSettings
    presets: ClassVar[Mapping[str, Preset]] = recipes(
        {"lr_fall": (100, CODE + ": CIFAR-100")}, special={"cifar100n": {"lr_fall": (80, CIFAR_N)}}
    )
    settings: CoTeachingSettings

    def step(self, forget: float, batch: Batch) -> Outcome:
        """L = mean CE of A over the small losses of B, plus mean CE of B over the small losses of A."""
        weak = self.views.weak(batch.inputs, batch.draws)
        one, two = (
            F.cross_entropy(network(weak).logits.float(), batch.observed, reduction="none") for network in self.networks
        )
        count = kept_count(forget, len(batch.observed))
        of_one, of_two = smallest(one.detach(), count), smallest(two.detach(), count)
        first, second = kept_mean(one, of_two), kept_mean(two, of_one)
        shared = (of_one & of_two).sum() / count
        kept = of_one.float().mean()
        return Outcome(
            first + second, {"fit A": first.detach(), "fit B": second.detach(), "kept": kept, "shared": shared}
        )
