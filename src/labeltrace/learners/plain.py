"""What learners share that train one network on weak views of all samples, in one phase: only their loss differs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from labeltrace.learners.base import Batch, Learner, Loop, Outcome
from labeltrace.learners.rates import dropped
from labeltrace.learners.settings import LearnerSettings, setting

OURS = "ours: set to the refurbishment learners' small recipe, so that a comparison changes the method only"
DIVIDEMIX = "warm-up of DivideMix's WebVision recipe (official code), so that a comparison changes the method only"
NO_WARMUP = "no warm-up: every epoch is the same"

Values = Mapping[str, tuple[Any, str]]

#: what these learners' recipes for small inputs and for photographs have in common
SMALL: Values = {
    "epochs": (40, OURS),
    "batch_size": (64, OURS),
    "passes": (2, OURS),
    "lr": (0.02, OURS),
    "lr_drop": (33, OURS),
}
LARGE: Values = {
    "epochs": (80, DIVIDEMIX),
    "batch_size": (64, DIVIDEMIX),
    "lr": (0.01, DIVIDEMIX),
    "lr_drop": (40, DIVIDEMIX),
}


def one_drop(recipe: Values, source: str) -> dict[str, tuple[Any, str]]:
    """Return such a recipe for a learner that was published with two drops and another weight decay.

    >>> one_drop({"lr": (0.1, "paper")}, "ours")["lr_drop_again"]
    (0, 'ours; one drop (0)')
    """
    return {
        **recipe,
        "lr_drop_again": (0, source + "; one drop (0)"),
        "lr_factor": (0.1, source),
        "weight_decay": (5e-4, source),
    }


@dataclass(frozen=True)
class PlainSettings(LearnerSettings):
    """What such a learner has besides; each declares them anew with its own values and sources."""

    warmup: int = setting(0, NO_WARMUP)
    passes: int = setting(1, "declared by each learner")
    lr_drop: int = setting(60, "declared by each learner", epochs=True)
    lr_factor: float = setting(0.1, "declared by each learner")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passes < 1:
            raise ValueError(f"passes: {self.passes!r}, expected ≥ 1")

    @property
    def drops(self) -> tuple[int, ...]:
        """The epochs at which the learning rate is multiplied by `lr_factor`."""
        return (self.lr_drop,)


@dataclass(frozen=True)
class TwoDropSettings(PlainSettings):
    """The same with a second drop, which 0 leaves out."""

    lr_drop_again: int = setting(0, "declared by each learner", epochs=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lr_drop_again < 0:
            raise ValueError(f"lr_drop_again: {self.lr_drop_again!r}, expected ≥ 0")

    @property
    def drops(self) -> tuple[int, ...]:
        """The epochs at which the learning rate is multiplied by `lr_factor`."""
        return (self.lr_drop, self.lr_drop_again) if self.lr_drop_again else (self.lr_drop,)


class Plain(Learner):
    """One network, weak view, every sample in every pass; a subclass says what a step costs."""

    networks_needed = 1
    refurbishes = False
    settings: PlainSettings

    def learning_rate(self, epoch: int) -> float:
        """Drop at the epochs of the recipe."""
        s = self.settings
        return dropped(s.lr, s.lr_factor, epoch, *s.drops)

    def epoch(self, loop: Loop, epoch: int) -> None:
        """As many passes over the data as asked for."""
        loop.train(
            self.step, members=[0], batch_size=self.settings.batch_size, passes=self.settings.passes, label="train"
        )

    def logits(self, batch: Batch) -> Tensor:
        """Return the network's logits [B, C] on the weak view, in float32 whatever the precision of the run."""
        return self.networks[0](self.views.weak(batch.inputs, batch.draws)).logits.float()

    @abstractmethod
    def step(self, batch: Batch) -> Outcome:
        """Return what a batch costs."""
