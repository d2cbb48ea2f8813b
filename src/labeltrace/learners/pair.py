"""What learners with two networks share: a warm-up of each, and posteriors that each of them makes for its peer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labeltrace.control.evidence import one_hot
from labeltrace.learners.base import Batch, Learner, Loop, Outcome
from labeltrace.learners.settings import LearnerSettings, setting
from labeltrace.learners.terms import warmup_loss, window_posterior
from labeltrace.scoring import Field, Scores


@dataclass(frozen=True)
class PairSettings(LearnerSettings):
    """What every learner with two networks has besides; each declares them anew with its own values and sources."""

    warmup_batch_size: int = setting(64, "declared by each learner")
    passes: int = setting(1, "declared by each learner")
    warmup_entropy: float = setting(0.0, "declared by each learner")
    loss_window: int = setting(1, "declared by each learner")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("passes", "loss_window", "warmup_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected ≥ 1")


class Pair(Learner):
    """Two networks, A (0) and B (1), each of which judges labels for the other."""

    settings: PairSettings

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """Both networks' posteriors, the structure confidence, and the loss history where a window is asked for."""
        assert isinstance(settings, PairSettings)
        declared = {"posterior": Field((2,), fill=1.0), "structure": Field(fill=1.0)}
        if settings.loss_window > 1:
            declared["losses"] = Field((2, settings.loss_window), fill=float("nan"))
        return declared

    def warm_up(self, loop: Loop) -> None:
        """Train A on all samples, then B."""
        for member in (0, 1):
            loop.train(
                partial(self.warmup_step, member),
                members=[member],
                batch_size=self.settings.warmup_batch_size,
                label=f"warm-up {'AB'[member]}",
            )

    def warmup_step(self, member: int, batch: Batch) -> Outcome:
        """L = mean CE(network(x_weak), y), plus the entropy term where it is asked for."""
        logits = self.networks[member](self.views.weak(batch.inputs, batch.draws)).logits
        return Outcome(warmup_loss(logits, batch.observed, self.settings.warmup_entropy))

    def train_in_turn(
        self, loop: Loop, epoch: int, lists: Sequence[tuple[Tensor, Tensor]], *, unlabelled: str, labelled: str
    ) -> None:
        """Train A, then B, each on labelled samples with unlabelled ones beside them; a note says who lacks either.

        Args:
            loop: the engine's.
            epoch: counted from the start of the run.
            lists: sample numbers, labelled and unlabelled, of A and of B.
            unlabelled: why a network may have no labelled sample; it then rests.
            labelled: why it may have no unlabelled one.
        """
        odd = []
        for member, (known, rest) in enumerate(lists):
            if not len(known):
                odd.append(f"{'AB'[member]} rests, {unlabelled}")
                continue
            if not len(rest):
                odd.append(f"{'AB'[member]} has no unlabelled part, {labelled}")
            loop.train(
                **self.turn(loop, member, epoch, known),
                members=[member],
                batch_size=self.settings.batch_size,
                passes=self.settings.passes,
                label=f"train {'AB'[member]}",
                index=known,
                beside=rest,
            )
        if odd:
            loop.note("; ".join(odd))

    def turn(self, loop: Loop, member: int, epoch: int, known: Tensor) -> dict[str, Any]:
        """Return what `Loop.train` does in a network's turn; `known` are the numbers of its labelled samples."""
        return {"step": partial(self.step, member, self.controller_epoch(epoch))}

    @abstractmethod
    def step(self, member: int, epoch: int | Tensor, batch: Batch) -> Outcome:
        """Return what a batch costs network `member`."""

    def remember(self, scores: Scores, chosen: Tensor) -> None:
        """Keep what the steps of this epoch need of a scoring pass, at the samples that it looked at."""
        self.memory["posterior"][chosen] = self.posterior(scores, chosen).T
        self.keep_structure(scores, chosen)

    def posteriors(self, scores: Scores) -> Tensor:
        """Return [2, N] how clean each network holds each label by this pass alone."""
        return scores.posterior

    def cleanliness(self, scores: Scores) -> Tensor:
        """Return [N] the mean of both networks' posteriors."""
        return self.posteriors(scores).mean(0)

    def posterior(self, scores: Scores, chosen: Tensor) -> Tensor:
        """Return [2, n] how clean each network holds the labels of the samples `chosen` [n]."""
        if self.settings.loss_window == 1:
            return self.posteriors(scores)[:, chosen]
        history = self.memory["losses"]
        history[chosen], posterior = window_posterior(history[chosen], scores.loss[:, chosen])
        return posterior


def votes_of(agree: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return two one-hot votes [B, C] that differ where the networks named different classes in the scoring pass.

    The pass keeps whether they agree [B], not whom they named.

    >>> votes_of(torch.tensor([True, False]), 2)
    (tensor([[1., 0.],
            [1., 0.]]), tensor([[1., 0.],
            [0., 1.]]))
    """
    other = (~agree).long() % num_classes
    return one_hot(torch.zeros_like(other), num_classes), one_hot(other, num_classes)
