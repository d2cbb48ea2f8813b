"""Adam as Co-teaching's code has it, and after it JoCoR's and Co-learning's: rate and first moment fall late.

The rate is constant up to an epoch and then falls on a line towards 0; in that epoch the first moment drops at once.
What Adam remembers stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from labeltrace.learners.base import Learner
from labeltrace.learners.rates import falling
from labeltrace.learners.settings import LearnerSettings, setting

BETA2 = 0.999  # Adam's second moment, in all of these codes


@dataclass(frozen=True)
class FallingSettings(LearnerSettings):
    """What such a learner has besides; each declares them anew with its own values and sources."""

    passes: int = setting(1, "declared by each learner")
    lr_fall: int = setting(80, "declared by each learner", epochs=True)
    momentum: float = setting(0.9, "declared by each learner")
    momentum_late: float = setting(0.1, "declared by each learner")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, holds, expected in (
            ("passes", self.passes >= 1, "≥ 1"),
            ("lr_fall", self.lr_fall >= 0, "≥ 0"),
            ("momentum", self.momentum < 1, "0 ≤ momentum < 1"),
            ("momentum_late", 0 <= self.momentum_late < 1, "0 ≤ momentum_late < 1"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")


class Falling(Learner):
    """A learner whose networks are trained with this Adam."""

    settings: FallingSettings

    @classmethod
    def optimizer(cls, settings: LearnerSettings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Adam."""
        betas = settings.momentum, BETA2
        return torch.optim.Adam(parameters, lr=settings.lr, betas=betas, weight_decay=settings.weight_decay)

    def learning_rate(self, epoch: int) -> float:
        """Constant, then a straight line that reaches 0 one epoch after the last."""
        s = self.settings
        return falling(s.lr, epoch, s.lr_fall, s.epochs)

    def first_moment(self, epoch: int) -> float:
        """Adam's β1 in an epoch."""
        s = self.settings
        return s.momentum if epoch < s.lr_fall else s.momentum_late

    def tune(self, optimizer: torch.optim.Optimizer, epoch: int) -> None:
        """Set the rate and β1."""
        super().tune(optimizer, epoch)
        for group in optimizer.param_groups:
            group["betas"] = self.first_moment(epoch), BETA2
