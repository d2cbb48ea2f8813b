"""Cross-entropy on the observed labels: the baseline that fits the noise.

Source: the training script released with CIFAR-N (UCSC-REAL/cifar-10-100n): 100 epochs, SGD 0.1, 0.01 from epoch 60,
batch 128, weight decay 5e-4, crop and flip. What differs: the backbone is the run's, not always ResNet-34.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F

from labeltrace.learners.base import Batch, Learner, Loop, Outcome, learners
from labeltrace.learners.rates import dropped
from labeltrace.learners.settings import LearnerSettings, Preset, setting

CIFAR_N = "training script of CIFAR-10N/100N"
OURS = "ours: set to the refurbishment learners' small recipe, so that a comparison changes the method only"
LARGE = "warm-up of DivideMix's WebVision recipe (official code), so that a comparison changes the method only"


@dataclass(frozen=True)
class CrossEntropySettings(LearnerSettings):
    """Settings of plain cross-entropy."""

    epochs: int = setting(100, CIFAR_N)
    warmup: int = setting(0, "no warm-up: every epoch is the same")
    batch_size: int = setting(128, CIFAR_N)
    passes: int = setting(1, CIFAR_N + ": an epoch is one pass over the data")
    lr: float = setting(0.1, CIFAR_N)
    lr_drop: int = setting(60, CIFAR_N + ": 0.1 for 60 epochs, then a tenth", epochs=True)
    lr_factor: float = setting(0.1, CIFAR_N)
    momentum: float = setting(0.9, CIFAR_N)
    weight_decay: float = setting(5e-4, CIFAR_N)


@learners.register("cross_entropy", "plain training on the labels as they are (baseline)")
class CrossEntropy(Learner):
    """Plain cross-entropy, one network, weak view, every label believed."""

    name = "cross_entropy"
    when = "as the baseline of every comparison, or when the labels are known to be right."
    networks_needed = 1
    refurbishes = False
    settings_type = CrossEntropySettings
    presets: ClassVar = {
        "cifar": Preset("32-pixel images (published recipe)"),
        "large": Preset(
            "images over 64 pixels",
            {
                "epochs": (80, LARGE),
                "batch_size": (64, LARGE),
                "lr": (0.01, LARGE),
                "lr_drop": (40, LARGE),
            },
        ),
        "small": Preset(
            "images up to 28 pixels, features",
            {
                "epochs": (40, OURS),
                "batch_size": (64, OURS),
                "passes": (2, OURS),
                "lr": (0.02, OURS),
                "lr_drop": (33, OURS),
            },
        ),
    }
    settings: CrossEntropySettings

    def learning_rate(self, epoch: int) -> float:
        """Drop once."""
        s = self.settings
        return dropped(s.lr, s.lr_factor, epoch, s.lr_drop)

    def epoch(self, loop: Loop, epoch: int) -> None:
        """As many passes over the data as asked for."""
        loop.train(
            self.step, members=[0], batch_size=self.settings.batch_size, passes=self.settings.passes, label="train"
        )

    def step(self, batch: Batch) -> Outcome:
        """L = mean CE(network(x_weak), y)."""
        logits = self.networks[0](self.views.weak(batch.inputs, batch.draws)).logits
        return Outcome(F.cross_entropy(logits.float(), batch.observed))
