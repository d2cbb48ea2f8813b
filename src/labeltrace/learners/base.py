"""What every learner is: networks, settings, a controller, and an `epoch` written in terms of a `Loop`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from labeltrace.control import Controller, Coupled
from labeltrace.data.draws import Draws
from labeltrace.data.views import Views
from labeltrace.learners.settings import LearnerSettings, Preset
from labeltrace.registry import Registry
from labeltrace.scoring import Field, SampleMemory, Scores
from labeltrace.scoring.score import mean_prediction


@dataclass(frozen=True)
class Batch:
    """Samples of one step, of a fixed size.

    Args:
        index: [B] sample numbers.
        inputs: [B, C, H, W] uint8 images or [B, D] float features.
        observed: [B] observed classes.
        draws: the randomness of these samples in this pass; fork it per view.
        once: the randomness of the step itself (one stream, [1, n] numbers): a mixing weight, say.
        progress: 0-d, share of the phase (all its passes) that lay behind when the step began.
        beside: samples of the second list that `Loop.train` was given, as many as of the first.
        meta: likewise of the list by which a step is judged.
    """

    index: Tensor
    inputs: Tensor
    observed: Tensor
    draws: Draws
    once: Draws
    progress: Tensor
    beside: Batch | None = None
    meta: Batch | None = None


@dataclass(frozen=True)
class Outcome:
    """What a step returns: the scalar to descend, numbers to log (detached scalars), the gradient's largest norm."""

    loss: Tensor
    logs: Mapping[str, Tensor] = field(default_factory=dict)
    clip: float | None = None


Step = Callable[[Batch], Outcome]


class Loop(Protocol):
    """What the engine offers a learner inside an epoch.

    Attributes:
        labels: [N] observed classes of the training set, on the device.
        seed: of the run, for draws that belong to no step.
    """

    labels: Tensor
    seed: int

    def train(
        self,
        step: Step | Sequence[Step],
        *,
        members: Sequence[int],
        batch_size: int,
        passes: int = 1,
        drop_last: bool = False,
        label: str,
        index: Tensor | None = None,
        beside: Tensor | None = None,
        meta: Tensor | None = None,
        before: Step | None = None,
    ) -> None:
        """Run `step` over samples in shuffled batches of one size and descend its loss.

        Networks in `members` are in train mode and updated; the others are in eval mode. A last short batch is
        filled up with samples of the same pass, or dropped.

        Args:
            step: batch → outcome; of several, each batch takes one after the other, with an update each.
            members: numbers of the networks that are trained.
            batch_size: of every step.
            passes: how often the samples are walked.
            drop_last: leave out what does not fill a batch.
            label: name of this phase in the logs.
            index: sample numbers of the pass, repeats allowed; None for the whole (epoch's) training set. An empty
                list trains nothing.
            beside: a second list; each step also gets a batch of it, which starts anew when the list is used up. With
                an empty list `Batch.beside` is None.
            meta: a third list, likewise, as `Batch.meta`.
            before: a step on the same batch that comes first. Its gradients reach what the members' side optimizers
                move, and nothing else. The losses of all steps are logged as one sum, their other numbers side by side.
        """

    def gradient(self, loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return ∂loss/∂parameters, within a step and before it reaches for its own; nothing is moved."""

    def score(self, view: str = "plain") -> Scores:
        """Score the whole training set (once per epoch: a second call returns the same scores)."""

    def chosen(self) -> Tensor:
        """Return the numbers of the samples that this epoch is about, ascending: all, unless the run takes some."""

    def restart(self, number: int) -> None:
        """Give every network fresh weights, the `number`-th set, and its optimizers a fresh state."""

    def note(self, message: str) -> None:
        """Say something that a person should know; it stands in the epoch's record and in the log."""


class Learner(ABC):
    """A training method. One file, one class, one settings record; the conformance tests find it in the registry.

    Args:
        settings: of this run.
        networks: `networks_needed` modules that return `Output`.
        views: how inputs become network inputs.
        num_classes: C.
        memory: per-sample fields that `fields` declared.
        controller: for a refurbishment learner; None otherwise.
    """

    name: ClassVar[str]
    networks_needed: ClassVar[int] = 2
    refurbishes: ClassVar[bool] = True
    settings_type: ClassVar[type[LearnerSettings]]
    presets: ClassVar[Mapping[str, Preset]]
    #: ends the sentence "Choose it …" in docs/learners.md
    when: ClassVar[str]
    #: what a scoring pass keeps of every sample besides its numbers: "probabilities" [M, N, C], "embedding" [M, N, D]
    keeps: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        settings: LearnerSettings,
        networks: Sequence[nn.Module],
        views: Views,
        num_classes: int,
        memory: SampleMemory,
        controller: Controller | None,
    ) -> None:
        self.settings = settings
        self.networks = networks
        self.views = views
        self.num_classes = num_classes
        self.memory = memory
        self.controller = controller

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """Return what this learner remembers of each sample."""
        return {}

    @classmethod
    def extend(cls, settings: LearnerSettings, network: nn.Module, sample: Tensor) -> nn.Module:
        """Return the network with what this learner adds to it (heads, say); `sample` [2, …] is what it takes.

        The result still returns an `Output` when it is called with inputs alone.
        """
        return network

    @classmethod
    def optimizer(cls, settings: LearnerSettings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer of one network."""
        return torch.optim.SGD(
            parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
        )

    @classmethod
    def side_optimizer(cls, settings: LearnerSettings, network: nn.Module) -> torch.optim.Optimizer | None:
        """Return an optimizer of its own for some of a network's parameters, or None.

        It moves them by the steps that `Loop.train` is given as `before`; the network's optimizer moves them too.
        """
        return None

    def tune(self, optimizer: torch.optim.Optimizer, epoch: int) -> None:
        """Set an optimizer, of a network or of its side, for an epoch: its learning rate."""
        for group in optimizer.param_groups:
            group["lr"] = self.learning_rate(epoch)

    @abstractmethod
    def learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from the start of the run."""

    @abstractmethod
    def epoch(self, loop: Loop, epoch: int) -> None:
        """Train one epoch."""

    @property
    def score_view(self) -> str:
        """The view that the scoring pass of an epoch looks at: "plain" or "weak"."""
        return "plain"

    def controller_epoch(self, epoch: int) -> int:
        """Return the epoch that a controller counts: from the end of warm-up."""
        return epoch - self.settings.warmup

    def predict(self, logits: Tensor) -> Tensor:
        """Combine the networks' logits [M, B, C] into one [B, C]: their sum."""
        return logits.sum(0)

    def pseudo(self, probabilities: Tensor) -> Tensor:
        """Combine the networks' probabilities [M, B, C] into the pseudo target [B, C]."""
        return mean_prediction(probabilities)

    def cleanliness(self, scores: Scores) -> Tensor:
        """Return [N] how clean this learner holds each label to be after a scoring pass."""
        return scores.clean

    def agreement(self, scores: Scores) -> Tensor | None:
        """Return [N] whether the two votes of each sample agree; None for a learner without a second vote."""
        return scores.agree

    def suggestion(self, scores: Scores) -> tuple[Tensor, Tensor]:
        """Return the class [N] of each sample's pseudo target, and its probability [N]."""
        return scores.suggested, scores.confidence

    def keep_structure(self, scores: Scores, chosen: Tensor) -> None:
        """Keep the structure confidence of a pass, where there is one, at the samples that it looked at."""
        if scores.structure is not None:
            self.memory["structure"][chosen] = scores.structure[chosen]

    def score_structure(self, loop: Loop, epoch: int) -> None:
        """Score for structure confidence alone, once the controller uses it (`epoch` counts from its zero)."""
        controller = self.controller
        if controller is not None and controller.uses_structure and controller.begun(epoch):
            self.keep_structure(loop.score(self.score_view), loop.chosen())

    def structure(self, index: Tensor, features: Sequence[Sequence[Tensor]], clean: Tensor) -> Tensor | None:
        """Return structure confidence [B] of samples `index` [B] as the controller wants it, or None.

        Args:
            index: sample numbers.
            features: of each network or view, its stage features of this batch.
            clean: [B] cleanliness.
        """
        controller = self.controller or Coupled()
        found = controller.batch_structure(features, clean)
        return self.memory["structure"][index] if found is None and controller.uses_structure else found

    def companions(self) -> dict[str, nn.Module]:
        """Return modules that belong to the run's state but are not trained (an average of weights, say)."""
        return {}


learners: Registry[type[Learner]] = Registry("learner")
