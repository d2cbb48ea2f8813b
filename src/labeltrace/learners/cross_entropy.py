"""Cross-entropy on the observed labels: the baseline that fits the noise.

Source: the training script released with CIFAR-N (UCSC-REAL/cifar-10-100n): 100 epochs, SGD 0.1, 0.01 from epoch 60,
batch 128, weight decay 5e-4, crop and flip. What differs: the backbone is the run's, not always ResNet-34.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F

from labeltrace.learners.base import Batch, Outcome, learners
from labeltrace.learners.plain import LARGE, SMALL, Plain, PlainSettings
from labeltrace.learners.settings import Preset, setting

CIFAR_N = "training script of CIFAR-10N/100N"


@dataclass(frozen=True)
class CrossEntropySettings(PlainSettings):
    """Settings of plain cross-entropy."""

    epochs: int = setting(100, CIFAR_N)
    batch_size: int = setting(128, CIFAR_N)
    passes: int = setting(1, CIFAR_N + ": an epoch is one pass over the data")
    lr: float = setting(0.1, CIFAR_N)
    lr_drop: int = setting(60, CIFAR_N + ": 0.1 for 60 epochs, then a tenth", epochs=True)
    lr_factor: float = setting(0.1, CIFAR_N)
    momentum: float = setting(0.9, CIFAR_N)
    weight_decay: float = setting(5e-4, CIFAR_N)


@learners.register("cross_entropy", "plain training on the labels as they are (baseline)")
class CrossEntropy(Plain):
    """Plain cross-entropy, one network, weak view, every label believed."""

    name = "cross_entropy"
    when = "as the baseline of every comparison, or when the labels are known to be right."
    settings_type = CrossEntropySettings
    presets: ClassVar = {
        "cifar": Preset("32-pixel images (published recipe)"),
        "large": Preset("images over 64 pixels", LARGE),
        "small": Preset("images up to 28 pixels, features", SMALL),
    }
    settings: CrossEntropySettings

    def step(self, batch: Batch) -> Outcome:
        """L = mean CE(network(x_weak), y)."""
        return Outcome(F.cross_entropy(self.logits(batch), batch.observed))
