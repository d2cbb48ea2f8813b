"""GCE, generalised cross-entropy (Zhang and Sabuncu, NeurIPS 2018; arXiv 1805.07836).

L_q = (1 − p_y^q)/q lies between cross-entropy (q → 0) and 1 − p_y (q = 1). Its gradient is that of cross-entropy times
p_y^q, so labels that the network does not believe pull less. That is also why it starts slowly where classes are many.

There is no official code. What the re-implementations do that a reader of the paper would not guess:
  - p_y is clamped to 1e-7 before the power (Active-Passive Losses); without it a large rate gives NaN;
  - AlanChou/Truncated-Loss, whose README says that its recipe is the paper's, averages the loss where the paper sums;
  - the truncated loss prunes with the checkpoint that is best on the test set, and then trains a copy that the
    optimizer does not own, so that its pruning epochs teach nothing.
What we chose: the loss without truncation, which most papers mean by GCE, is the default. `truncation` > 0 is the
truncated one: from `prune_start` on, every `prune_every` epochs, a scoring pass (plain view, eval mode) marks samples
with p_y ≤ k; they cost the constant L_q(k), and so teach nothing, until a later pass finds them above it. The pass
looks at the present network, because a run has no clean samples to choose a checkpoint by. One epoch earlier than here
(39, counted from 0) the re-implementation prunes first. Backbone and augmentation are the run's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from labeltrace.learners.base import Batch, Loop, Outcome, learners
from labeltrace.learners.plain import LARGE, OURS, SMALL, Plain, TwoDropSettings, one_drop
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.learners.terms import generalised_cross_entropy
from labeltrace.scoring import Field

PAPER = "GCE paper"
CODE = "re-implementation AlanChou/Truncated-Loss, which takes the paper's"
CIFAR_100 = "re-implementation AlanChou/Truncated-Loss, README on CIFAR-100"
OURS_LARGE = "ours, unmeasured: as cross-entropy's recipe for photographs"


@dataclass(frozen=True)
class GCESettings(TwoDropSettings):
    """Settings of generalised cross-entropy."""

    epochs: int = setting(120, CODE)
    batch_size: int = setting(128, CODE)
    passes: int = setting(1, CODE + ": an epoch is one pass over the data")
    lr: float = setting(0.01, CODE)
    lr_drop: int = setting(40, CODE + " (given on the command line)", epochs=True)
    lr_drop_again: int = setting(80, CODE + " (given on the command line)", epochs=True)
    lr_factor: float = setting(0.1, CODE)
    momentum: float = setting(0.9, CODE)
    weight_decay: float = setting(1e-4, CODE)
    q: float = setting(0.7, PAPER + "; 0 would be cross-entropy, 1 is 1 − p_y")
    truncation: float = setting(0.0, "what most papers call GCE; k = 0.5 is the paper's truncated loss")
    prune_start: int = setting(40, CODE + ": first epoch that prunes, where there is truncation", epochs=True)
    prune_every: int = setting(10, CODE + ": epochs between two prunings", epochs=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, holds, expected in (
            ("q", 0 < self.q <= 1, "0 < q ≤ 1 (for cross-entropy: --learner cross_entropy)"),
            ("truncation", 0 <= self.truncation < 1, "0 (off) or a probability below 1"),
            ("prune_start", self.prune_start >= 0, "≥ 0"),
            ("prune_every", self.prune_every >= 1, "≥ 1"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")


@learners.register("gce", "generalised cross-entropy: labels that the network does not believe pull less")
class GCE(Plain):
    """One network, weak view, a loss between cross-entropy and the mean absolute error."""

    name = "gce"
    when = (
        "as a baseline for the price of plain training that bounds what one wrong label can do. With about a "
        "hundred classes it starts slowly."
    )
    settings_type = GCESettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images (published recipe)"),
        "cifar100": Preset(
            "32-pixel images, about a hundred classes",
            {
                "epochs": (150, CIFAR_100),
                "lr_drop": (80, CIFAR_100),
                "lr_drop_again": (120, CIFAR_100),
                "prune_start": (80, CIFAR_100),
            },
        ),
        "truncated": Preset("32-pixel images, the truncated loss", {"truncation": (0.5, PAPER + ": k = 0.5")}),
        "large": Preset(
            "images over 64 pixels",
            one_drop(LARGE, OURS_LARGE) | {"prune_start": (40, OURS_LARGE + "; when the rate drops")},
        ),
        "small": Preset(
            "images up to 28 pixels, features",
            one_drop(SMALL, OURS) | {"prune_start": (13, "ours: a third of the run, as published")},
        ),
    }
    settings: GCESettings

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """Whether a sample is kept (1) or pruned (0), where there is truncation."""
        assert isinstance(settings, GCESettings)
        return {"kept": Field(fill=1.0)} if settings.truncation else {}

    def epoch(self, loop: Loop, epoch: int) -> None:
        """As many passes over the data as asked for; with truncation, prune before where it is due."""
        s = self.settings
        if s.truncation and epoch >= s.prune_start and (epoch - s.prune_start) % s.prune_every == 0:
            self.prune(loop)
        super().epoch(loop, epoch)

    def prune(self, loop: Loop) -> None:
        """Keep the samples whose label has more than the probability k; p_y > k is ℓ < −log k."""
        chosen = loop.chosen()
        kept = loop.score(self.score_view).loss[0, chosen] < -math.log(self.settings.truncation)
        self.memory["kept"][chosen] = kept.float()
        if not bool(kept.any()):
            loop.note(f"no label has a probability over {self.settings.truncation:g}: this epoch trains nothing")

    def step(self, batch: Batch) -> Outcome:
        """L = mean (1 − p_y^q)/q; with truncation, a pruned sample counts as the constant (1 − k^q)/q."""
        s = self.settings
        loss = generalised_cross_entropy(self.logits(batch), batch.observed, s.q)
        if not s.truncation:
            return Outcome(loss.mean())
        kept = self.memory["kept"][batch.index]
        pruned = (1 - s.truncation**s.q) / s.q
        return Outcome((kept * loss + (1 - kept) * pruned).mean(), {"kept": kept.mean()})
