"""SCE, symmetric cross-entropy (Wang et al., ICCV 2019; arXiv 1908.06112).

L = α·CE + β·RCE. The reverse cross-entropy takes the prediction for the truth and the label for the prediction; for a
hard label it is −A·(1 − p_y), bounded, and so noise-tolerant; the cross-entropy keeps the hard samples learning.

What the official code (YisenWang/symmetric_cross_entropy_for_noisy_labels, Keras) does that a reader of the paper would
not guess:
  - the zeros of the one-hot label become 1e-4, so A = log 1e-4 = −9.21, where the paper discusses A about −4 to −6.
    A only multiplies β: it is fixed here, and β is the setting;
  - its optimizer divides the rate by 1 + 0.005·(steps so far) besides the drops; these come one epoch later (41, 81);
  - only some layers have weight decay: the first dense one of its CIFAR-10 network, all of its CIFAR-100 ResNet;
  - on CIFAR-100 the rate begins at 0.1, which the division brings below 0.01 within five epochs.
What we chose: α and β are the official code's, the schedule is that of a PyTorch reproduction
(HanxunH/SCELoss-Reproduce), which has a plain step schedule and lr 0.01 on both sets. Its Nesterov momentum, its bound
on the gradient (5.0) and its larger decay of one layer are left out. So is the clamp of p at 1e-7: the cross-entropy is
exact in log space, and the reverse one needs none. Backbone and augmentation are the run's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F

from labeltrace.learners.base import Batch, Outcome, learners
from labeltrace.learners.plain import LARGE, OURS, SMALL, Plain, TwoDropSettings, one_drop
from labeltrace.learners.settings import Preset, setting
from labeltrace.learners.terms import reverse_cross_entropy

CODE = "official code (YisenWang/symmetric_cross_entropy_for_noisy_labels)"
AGAIN = "reproduction HanxunH/SCELoss-Reproduce"
OURS_LARGE = "ours, unmeasured: as cross-entropy's recipe for photographs"


@dataclass(frozen=True)
class SCESettings(TwoDropSettings):
    """Settings of symmetric cross-entropy."""

    epochs: int = setting(120, CODE + ", CIFAR-10; " + AGAIN)
    batch_size: int = setting(128, CODE)
    passes: int = setting(1, CODE + ": an epoch is one pass over the data")
    lr: float = setting(0.01, CODE + ", CIFAR-10; " + AGAIN)
    lr_drop: int = setting(40, AGAIN, epochs=True)
    lr_drop_again: int = setting(80, AGAIN, epochs=True)
    lr_factor: float = setting(0.1, CODE)
    momentum: float = setting(0.9, CODE)
    weight_decay: float = setting(5e-4, AGAIN + " (default of its command line)")
    alpha: float = setting(0.1, CODE + ", CIFAR-10: weight of the cross-entropy")
    beta: float = setting(1.0, CODE + ", CIFAR-10: weight of the reverse cross-entropy, whose A is log 1e-4")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "beta"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected ≥ 0")


@learners.register("sce", "symmetric cross-entropy: plus a reverse term that is bounded for a wrong label")
class SCE(Plain):
    """One network, weak view, cross-entropy and reverse cross-entropy."""

    name = "sce"
    when = (
        "as a baseline for the price of plain training that still learns hard samples; which of its two weights "
        "fits depends on the number of classes."
    )
    settings_type = SCESettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images, ten classes (published recipe)"),
        "cifar100": Preset(
            "32-pixel images, about a hundred classes",
            {
                "epochs": (150, CODE + ", CIFAR-100; " + AGAIN),
                "alpha": (6.0, CODE + ", CIFAR-100"),
                "beta": (0.1, CODE + ", CIFAR-100"),
            },
        ),
        "large": Preset("images over 64 pixels", one_drop(LARGE, OURS_LARGE)),
        "small": Preset("images up to 28 pixels, features", one_drop(SMALL, OURS)),
    }
    settings: SCESettings

    def step(self, batch: Batch) -> Outcome:
        """L = mean α·CE + β·RCE with RCE = −log(1e-4)·(1 − p_y)."""
        s, logits = self.settings, self.logits(batch)
        fit = F.cross_entropy(logits, batch.observed)
        reverse = reverse_cross_entropy(logits, batch.observed).mean()
        return Outcome(s.alpha * fit + s.beta * reverse, {"fit": fit.detach(), "reverse": reverse.detach()})
