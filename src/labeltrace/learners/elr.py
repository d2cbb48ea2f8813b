"""ELR, early-learning regularisation (Liu et al., NeurIPS 2020; arXiv 2007.00151).

Cross-entropy on the labels as they are, plus λ·log(1 − ⟨T_i, p_i⟩), where T_i is a running mean of the network's own
predictions of sample i. The term pulls each prediction to what the network said of the sample before it began to
memorise, and cancels the gradient of wrong labels.

What the official code (shengliu66/ELR) does that a reader of the paper would not guess, kept here:
  - T begins at zero and is not corrected for it: after n visits its entries sum to 1 − β^n;
  - T takes in the prediction of the very forward it is then compared with, in train mode, before the step;
  - predictions are clamped to [1e-4, 1 − 1e-4], for T (brought back to a sum of 1) and for the term alike, and no
    gradient passes where they are; so the term is finite, and so is the most that it can reward;
  - the loss as a whole can be negative;
  - the drops of the rate are by a hundred; CIFAR-10 with symmetric noise has cosine restarts every ten epochs instead.
What we chose: a sample is visited once in each pass, so one that fills up a last batch does not enter T twice; the code
keeps 5,000 noisy samples for choosing a checkpoint, a run here trains on all. The published CIFAR-10 recipe is
different for asymmetric noise, which a user cannot know: `oracle_asymmetric`. ELR+ (two networks, averaged weights,
mixup) is not part of this file. Backbone and augmentation are the run's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from labeltrace.learners.base import Batch, Outcome, learners
from labeltrace.learners.plain import LARGE, OURS, SMALL, Plain, TwoDropSettings, one_drop
from labeltrace.learners.rates import cosine
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.learners.terms import clamped_softmax, early_learning_penalty, temporal_target
from labeltrace.scoring import Field

CODE = "official code (shengliu66/ELR)"
CIFAR_100 = CODE + ", CIFAR-100"
ASYMMETRIC = CODE + ", CIFAR-10 with asymmetric noise"
OURS_LARGE = "ours, unmeasured: as cross-entropy's recipe for photographs"
SCHEDULES = ("restarts", "steps")


@dataclass(frozen=True)
class ELRSettings(TwoDropSettings):
    """Settings of early-learning regularisation."""

    epochs: int = setting(150, CODE)
    batch_size: int = setting(128, CODE)
    passes: int = setting(1, CODE + ": an epoch is one pass over the data")
    lr: float = setting(0.02, CODE)
    lr_schedule: str = setting("restarts", CODE + ", CIFAR-10: a cosine that starts anew ('steps' on the other sets)")
    lr_period: int = setting(10, CODE + ": epochs from one restart to the next", epochs=True)
    lr_floor: float = setting(0.05, CODE + ": the cosine ends at 0.001, a twentieth")
    lr_drop: int = setting(80, CIFAR_100 + ": the first step down, where there are steps", epochs=True)
    lr_drop_again: int = setting(120, CIFAR_100 + ": the second", epochs=True)
    lr_factor: float = setting(0.01, CIFAR_100)
    momentum: float = setting(0.9, CODE)
    weight_decay: float = setting(1e-3, CODE)
    beta: float = setting(0.7, CODE + ", CIFAR-10: share of T that stays when it takes in a prediction")
    lambda_elr: float = setting(3.0, CODE + ", CIFAR-10: weight of the regulariser")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, holds, expected in (
            ("lr_schedule", self.lr_schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
            ("lr_period", self.lr_period >= 1, "≥ 1"),
            ("lr_floor", 0 <= self.lr_floor <= 1, "0 to 1, a share of lr"),
            ("beta", 0 <= self.beta < 1, "0 ≤ beta < 1"),
            ("lambda_elr", self.lambda_elr >= 0, "≥ 0"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")


def _steps(source: str) -> dict[str, tuple[Any, str]]:
    return {"lr_schedule": ("steps", source)}


@learners.register("elr", "early-learning regularisation: predictions are held to what the network said early on")
class ELR(Plain):
    """One network, weak view, cross-entropy and a pull to the running mean of each sample's predictions."""

    name = "elr"
    when = (
        "for a robust loss that remembers: one network, one view, nothing selected. It keeps a mean prediction of "
        "every sample."
    )
    settings_type = ELRSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images, ten classes (published recipe)"),
        "cifar100": Preset(
            "32-pixel images, about a hundred classes",
            _steps(CIFAR_100) | {"beta": (0.9, CIFAR_100), "lambda_elr": (7.0, CIFAR_100)},
        ),
        "oracle_asymmetric": Preset(
            "32-pixel images, ten classes, when the noise is known to depend on the class",
            _steps(ASYMMETRIC)
            | {
                "epochs": (120, ASYMMETRIC),
                "lr_drop": (40, ASYMMETRIC),
                "lr_drop_again": (80, ASYMMETRIC),
                "beta": (0.9, ASYMMETRIC),
                "lambda_elr": (1.0, ASYMMETRIC),
            },
        ),
        "large": Preset("images over 64 pixels", _steps(OURS_LARGE) | one_drop(LARGE, OURS_LARGE)),
        "small": Preset("images up to 28 pixels, features", _steps(OURS) | one_drop(SMALL, OURS)),
    }
    settings: ELRSettings

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """T, the running mean of each sample's predictions, and the random stream of its last visit."""
        return {"target": Field((num_classes,)), "visit": Field(dtype=torch.int64, fill=-1)}

    def learning_rate(self, epoch: int) -> float:
        """Fall by a cosine again and again, or in steps."""
        s = self.settings
        if s.lr_schedule == "restarts":
            return cosine(s.lr, s.lr * s.lr_floor, epoch % s.lr_period, s.lr_period)
        return super().learning_rate(epoch)

    def step(self, batch: Batch) -> Outcome:
        """L = mean CE(z, y) + λ·mean log(1 − ⟨T_i, p_i⟩), after T has taken in p."""
        logits = self.logits(batch)
        p = clamped_softmax(logits)
        target = self.update(batch, p.detach())
        fit, penalty = F.cross_entropy(logits, batch.observed), early_learning_penalty(target, p)
        logs = {"fit": fit.detach(), "penalty": penalty.detach()}
        return Outcome(fit + self.settings.lambda_elr * penalty, logs)

    @torch.no_grad()
    def update(self, batch: Batch, p: Tensor) -> Tensor:
        """T ← β·T + (1 − β)·p/Σp, once per sample and pass; return T [B, C] of the batch."""
        m, index = self.memory, batch.index
        visit = batch.draws.keys  # a sample draws from one stream in a pass, and from another one in the next
        first, old = m["visit"][index] != visit, m["target"][index]
        m["target"][index] = torch.where(first[:, None], temporal_target(old, p, self.settings.beta), old)
        m["visit"][index] = visit
        return m["target"][index]
