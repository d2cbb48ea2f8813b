"""RoLR, robust label refurbishment (Chen et al., "Two Wrongs Don't Make a Right", AAAI 2023; arXiv 2112.02960).

Every sample is kept and trained, on a strong view, towards `w·label + (1−w)·q`: w is the clean posterior of the peer
network's losses, q the mean prediction of both networks on a weak view.

What the official code does that a reader of the paper would not guess, kept here:
  - training batches are 7 × 64 = 448 and the loader is walked twice per epoch; warm-up has batches of 64;
  - after 15 epochs of warm-up the epoch counter restarts: 500 more follow, the rate drops after the 401st;
  - scoring looks at randomly augmented images (weak view), so posteriors are noisy between epochs;
  - both posteriors are taken before the epoch's training; B is trained first, then A against the updated B;
  - the trained network makes its half of q in train mode (batch statistics), the peer in eval mode;
  - "T" is an exponent on q, 1 by default.
What we chose: on CUDA with bf16 every forward runs under autocast (the official code keeps the weak ones in float32);
the entropy term of warm-up, which the official code adds for asymmetric noise, is a setting because a user does not
know the noise; the last warm-up batch is filled up instead of short.
TRACE attaches to the target and the weight alone (`controller`); the prior penalty stays unweighted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from labeltrace.control import Coupled, Evidence
from labeltrace.control.evidence import one_hot
from labeltrace.learners.base import Batch, Loop, Outcome, learners
from labeltrace.learners.pair import Pair, PairSettings
from labeltrace.learners.rates import dropped
from labeltrace.learners.settings import Preset, setting
from labeltrace.learners.terms import prior_penalty, sharpen
from labeltrace.learners.together import together

CODE = "official code (chenmc1996/Robust-LR)"
TABLE = "TRACE paper, Appendix A table"
OURS = "ours: chosen on digits with 40 % symmetric noise, see docs/decisions.md"
LARGE = "DivideMix's WebVision recipe (official code); RoLR's own is not released"
OURS_LARGE = "ours, unmeasured: 20 epochs of 515 in proportion, rounded up"


@dataclass(frozen=True)
class RoLRSettings(PairSettings):
    """Settings of RoLR; epochs after warm-up are counted from 0, as its code does."""

    epochs: int = setting(515, CODE + ": 15 of warm-up, then 500")
    warmup: int = setting(15, CODE + "; " + TABLE, epochs=True)
    batch_size: int = setting(448, CODE + ": 7 × 64")
    warmup_batch_size: int = setting(64, CODE)
    passes: int = setting(2, CODE + ": the loader is walked twice per epoch")
    lr: float = setting(0.02, CODE + "; " + TABLE)
    lr_drop: int = setting(401, CODE + ": a tenth when 500 − epoch < 100, counted after warm-up", epochs=True)
    lr_factor: float = setting(0.1, CODE)
    momentum: float = setting(0.9, CODE + "; " + TABLE)
    weight_decay: float = setting(5e-4, CODE + "; " + TABLE)
    lambda_l: float = setting(1.0, CODE + "; " + TABLE)
    lambda_p: float = setting(1.0, CODE + "; " + TABLE + " (2 in its README example at 80 % noise)")
    exponent: float = setting(1.0, CODE + ": T, an exponent on q; " + TABLE)
    warmup_entropy: float = setting(0.0, CODE + ": 1 for asymmetric noise, which a user cannot know")
    loss_window: int = setting(1, CODE + ": 5 when the noise rate is 0.9, which a user cannot know")
    score_view: str = setting("weak", CODE + ": scoring sees random crops and flips")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score_view not in ("weak", "plain"):
            raise ValueError(f"score_view: {self.score_view!r}, expected 'weak' or 'plain'")


@learners.register("rolr", "robust label refurbishment: two networks correct each other's targets")
class RoLR(Pair):
    """Two networks, soft targets from the peer's clean posterior and both networks' predictions."""

    name = "rolr"
    when = (
        "first: every sample stays in training with a soft target, and nothing about the noise has to be "
        "known. Two networks and three views make it slower than the one-network methods."
    )
    settings_type = RoLRSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images (official code: batches of 448, two passes)"),
        "appendix_a": Preset(
            "32-pixel images, the TRACE paper's table to the letter (batches of 64, one pass)",
            {
                "epochs": (500, TABLE),
                "batch_size": (64, TABLE),
                "passes": (1, TABLE),
                "lr_drop": (385, TABLE + ": the last 100 of 500 epochs, 15 of them warm-up"),
            },
        ),
        "oracle_80": Preset(
            "32-pixel images when 80 % of the labels are known to be wrong",
            {"lambda_p": (2.0, CODE + ": the README's example, CIFAR-10 at 80 %")},
        ),
        "oracle_asymmetric": Preset(
            "32-pixel images when the noise is known to depend on the class",
            {"warmup_entropy": (1.0, CODE + ": with asymmetric noise")},
        ),
        "oracle_90": Preset(
            "32-pixel images when 90 % of the labels are known to be wrong",
            {"loss_window": (5, CODE + ": only at noise rate 0.9")},
        ),
        "large": Preset(
            "images over 64 pixels",
            {
                "epochs": (80, LARGE),
                "warmup": (1, LARGE),
                "batch_size": (32, LARGE),
                "warmup_batch_size": (64, LARGE),
                "passes": (1, LARGE),
                "lr": (0.01, LARGE),
                "lr_drop": (39, LARGE + ": at 40, the first of which is warm-up"),
            },
            trace={"start": (8, "methods page of DivideMix: a tenth of a short run"), "ramp": (5, OURS_LARGE)},
        ),
        "small": Preset(
            "images up to 28 pixels, features",
            {
                "epochs": (40, OURS),
                "warmup": (4, OURS),
                "batch_size": (64, OURS),
                "passes": (2, CODE),
                "lr_drop": (29, OURS + " (the last fifth, as published)"),
            },
            trace={"start": (3, OURS), "ramp": (3, OURS)},
        ),
    }
    settings: RoLRSettings

    @property
    def score_view(self) -> str:
        """As the official code: randomly augmented."""
        return self.settings.score_view

    def learning_rate(self, epoch: int) -> float:
        """Drop once, late; the official counter restarts after warm-up."""
        s = self.settings
        return dropped(s.lr, s.lr_factor, epoch - s.warmup, s.lr_drop)

    def pseudo(self, probabilities: Tensor) -> Tensor:
        """q = sharpened mean of both networks' predictions."""
        return sharpen(probabilities.mean(0), self.settings.exponent)

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Warm both up, or: score with both, then train B with A's posterior and A with B's."""
        s = self.settings
        if epoch < s.warmup:
            self.warm_up(loop)
            return
        self.remember(loop.score(s.score_view), loop.chosen())
        for member in (1, 0):
            step = partial(self.step, member, self.controller_epoch(epoch))
            loop.train(
                step,
                members=[member],
                batch_size=s.batch_size,
                passes=s.passes,
                drop_last=True,
                label=f"train {'AB'[member]}",
            )

    def step(self, member: int, epoch: int | Tensor, batch: Batch) -> Outcome:
        """Refurbish the targets of a batch and fit them on the strong view."""
        s, controller = self.settings, self.controller or Coupled()
        network, peer = self.networks[member], self.networks[1 - member]
        with torch.no_grad():
            weak = self.views.weak(batch.inputs, batch.draws.fork(0))
            own, other = together(weak.device, lambda: network(weak), lambda: peer(weak))
            votes = own.logits.softmax(1), other.logits.softmax(1)
            clean = self.memory["posterior"][batch.index, 1 - member]
            supervision = controller(
                Evidence(
                    observed=one_hot(batch.observed, self.num_classes),
                    pseudo=self.pseudo(torch.stack(votes)),
                    clean=clean,
                    votes=votes,
                    structure=self.structure(batch.index, [own.features, other.features], clean),
                    epoch=epoch,
                )
            )
        logits = network(self.views.strong(batch.inputs, batch.draws.fork(1))).logits
        fit, prior = supervision.loss(logits), prior_penalty(logits)
        loss = s.lambda_l * fit + s.lambda_p * prior
        return Outcome(loss, {"fit": fit.detach(), "prior": prior.detach()})
