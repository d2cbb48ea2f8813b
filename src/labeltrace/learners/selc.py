"""SELC and SELC+, self-ensemble label correction (Lu, He, IJCAI 2022; arXiv 2205.01156).

One network. Up to the turning point T_e (`warmup`) plain cross-entropy; then each target is a running mean that starts
at the observed label and takes in the network's own predictions, so that after n of them the label's share is α^n. No
selection, no second view, no other loss.

What the official code (MacLLL/SELC) does that a reader of the paper would not guess, kept here:
  - T_e is a number per dataset and noise rate, mostly where the learning rate drops first; nothing estimates it;
  - a target takes the prediction of the very forward it is then compared with, in train mode, before the step;
  - SELC+ starts from fresh weights on the hard corrected labels, with mixup whose Beta(0.9, 0.9) is not folded.
What we chose: the label and the ensemble are kept apart, as n and e = Σ_k (1−α) α^{n−k} p_k, from which q = e/(1−α^n)
and the target α^n·label + (1−α^n)·q follow; that is `Coupled` with a cleanliness of α^n. A target takes in one
prediction per epoch, also where a sample fills up a last batch or an epoch has several passes. α^n is one number for
all, so the samples table shows the loss posterior instead (`clean_score`). SELC+ is the second part of the same run
(`plus_epochs`), with the schedule counted anew; its unused forward on unmixed images is left out. So are the momentum
buffers that the IDN and PMD scripts lose every epoch, and the smaller weight decay of IDN's first epoch.
TRACE takes over target and weight: its cleanliness is the loss posterior, q is as above, the votes are the present
prediction and q. It does not start before T_e.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from labeltrace.control import Controller, Coupled, Evidence, Supervision
from labeltrace.control.evidence import one_hot
from labeltrace.learners.base import Batch, Learner, Loop, Outcome, Step, learners
from labeltrace.learners.dropping import where
from labeltrace.learners.mixing import BetaWeight, mix, mixed_cross_entropy, permutation
from labeltrace.learners.rates import dropped
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.scoring import Field, Scores, loss_posterior

CODE = "official code (MacLLL/SELC)"
PAGE = "ours: SELC weighs all labels alike, TRACE needs a score per sample"
OURS = "ours: RoLR's small recipe, so that a comparison changes the method only"
CLEAN_SCORES = ("posterior", "schedule")


@dataclass(frozen=True)
class SELCSettings(LearnerSettings):
    """Settings of SELC; `warmup` is its turning point T_e."""

    epochs: int = setting(200, CODE)
    warmup: int = setting(30, "ours: T_e between the 20 and 40 of the official code, which knows the rate", epochs=True)
    batch_size: int = setting(128, CODE)
    passes: int = setting(1, CODE + ": an epoch is one pass over the data")
    lr: float = setting(0.02, CODE)
    lr_drop: int = setting(40, CODE, epochs=True)
    lr_drop_again: int = setting(80, CODE, epochs=True)
    lr_factor: float = setting(0.1, CODE)
    momentum: float = setting(0.9, CODE)
    weight_decay: float = setting(1e-3, CODE)
    alpha: float = setting(0.9, CODE + ": share of a target that stays when it takes in a prediction")
    plus_epochs: int = setting(0, CODE + ": SELC+ is a script of its own; 0 leaves it out", epochs=True)
    plus_alpha: float = setting(0.9, CODE + ": Beta(0.9, 0.9) of SELC+'s mixup")
    clean_score: str = setting("posterior", PAGE + " (the loss posterior; 'schedule' is α^n)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passes < 1:
            raise ValueError(f"passes: {self.passes!r}, expected ≥ 1")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha: {self.alpha!r}, expected 0 to 1")
        if self.clean_score not in CLEAN_SCORES:
            raise ValueError(f"clean_score: {self.clean_score!r}, expected one of {', '.join(CLEAN_SCORES)}")
        if not 0 <= self.plus_epochs <= self.epochs:
            raise ValueError(f"plus_epochs: {self.plus_epochs!r}, expected 0 to the {self.epochs} epochs of the run")


def _oracle() -> dict[str, Preset]:
    """The published turning points, which know dataset and rate."""
    points = {
        "cifar10": {"20": 40, "40": 30, "60": 30, "80": 40, "asymmetric_40": 40},
        "cifar100": {"20": 30, "40": 20, "60": 30, "80": 40, "asymmetric_40": 20},
    }
    return {
        f"oracle_{data}_{rate}": Preset(
            f"{data} when the noise is known: {rate.replace('_', ' ')} %", {"warmup": (point, CODE + ": es")}
        )
        for data, rates in points.items()
        for rate, point in rates.items()
    }


_INSTANCE = {
    "lr": (0.1, CODE + ", instance-dependent noise"),
    "weight_decay": (5e-4, CODE + ", instance-dependent noise"),
    "lr_drop": (60, CODE + ", instance-dependent noise"),
    "lr_drop_again": (120, CODE + ", instance-dependent noise"),
    "lr_factor": (0.2, CODE + ", instance-dependent noise"),
    "warmup": (40, CODE + ", instance-dependent noise"),
}
_CLOTHING = {
    "epochs": (40, CODE + ", Clothing1M"),
    "warmup": (5, CODE + ", Clothing1M"),
    "batch_size": (64, CODE + ", Clothing1M"),
    "lr": (0.01, CODE + ", Clothing1M"),
    "lr_drop": (10, CODE + ", Clothing1M"),
    "lr_drop_again": (20, CODE + ", Clothing1M"),
    "alpha": (0.8, CODE + ", Clothing1M"),
}
_SMALL = {
    "epochs": (40, OURS),
    "warmup": (4, OURS),
    "batch_size": (64, OURS),
    "passes": (2, OURS),
    "lr_drop": (33, OURS),
    "lr_drop_again": (40, "ours: no second drop"),
    "weight_decay": (5e-4, OURS),
}


@learners.register("selc", "targets that fade from the label to the network's own running prediction; one network")
class SELC(Learner):
    """One network, soft targets from a running mean of its predictions; perhaps a second training on the result."""

    name = "selc"
    when = (
        "as the cheapest correction: one network, one view, targets that drift from the label to the "
        "prediction. When it starts (`warmup`) matters."
    )
    networks_needed = 1
    settings_type = SELCSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images (published recipe; its turning point without knowing the rate)"),
        "cifar100": Preset(
            "32-pixel images, about a hundred classes",
            {"warmup": (25, "ours: T_e at 50 %, between the official code's values for CIFAR-100")},
        ),
        "plus": Preset(
            "32-pixel images, SELC+: as long again on the corrected labels, with mixup",
            {"epochs": (400, CODE + ": 200, then 200 anew"), "plus_epochs": (200, CODE)},
        ),
        "cifar_instance": Preset("32-pixel images, the recipe for instance-dependent noise (WRN-28-10)", _INSTANCE),
        "cifar_pmd": Preset(
            "32-pixel images, the recipe for polynomial-margin noise (PreAct ResNet-18)",
            {**_INSTANCE, "epochs": (150, CODE + ", polynomial-margin noise")},
        ),
        **_oracle(),
        "large": Preset("photos, from a pre-trained network (the published Clothing1M recipe)", _CLOTHING),
        "clothing1m": Preset("Clothing1M; the code draws its balanced subset of 128,000 images once", _CLOTHING),
        "webvision": Preset(
            "mini-WebVision, Inception-ResNet-v2 from scratch",
            {
                "epochs": (100, CODE),
                "warmup": (40, CODE),
                "batch_size": (32, CODE),
                "lr": (0.01, CODE),
                "weight_decay": (5e-4, CODE),
            },
        ),
        "animal10n": Preset(
            "ANIMAL-10N, VGG-19-BN from scratch",
            {
                "epochs": (100, CODE),
                "warmup": (41, CODE + ": 40, its epochs counted from 0"),
                "lr": (0.1, CODE),
                "lr_drop": (50, CODE),
                "lr_drop_again": (75, CODE),
                "lr_factor": (0.2, CODE),
                "momentum": (0.0, CODE + ": no momentum on this set"),
            },
        ),
        "small": Preset("images up to 28 pixels, features", _SMALL, trace={"start": (3, OURS), "ramp": (3, OURS)}),
    }
    settings: SELCSettings

    @cached_property
    def mixing_weight(self) -> BetaWeight:
        """Mixup's weight of a step of SELC+."""
        return BetaWeight(self.settings.plus_alpha, larger_half=False)

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """The ensemble of predictions, how often and when it was updated, the scores of the epoch."""
        assert isinstance(settings, SELCSettings)
        declared = {
            "ensemble": Field((num_classes,)),
            "updates": Field(),
            "updated": Field(dtype=torch.int64, fill=-1),  # the epoch of the last update
            "posterior": Field(fill=1.0),
            "structure": Field(fill=1.0),
        }
        if settings.plus_epochs:
            declared["corrected"] = Field(dtype=torch.int64)
        return declared

    @property
    def correcting_epochs(self) -> int:
        """Epochs before SELC+ begins."""
        return self.settings.epochs - self.settings.plus_epochs

    def learning_rate(self, epoch: int) -> float:
        """Drop twice; SELC+ counts anew."""
        s = self.settings
        if epoch >= self.correcting_epochs:
            epoch -= self.correcting_epochs
        return dropped(s.lr, s.lr_factor, epoch, s.lr_drop, s.lr_drop_again)

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Cross-entropy up to the turning point, then running targets, then perhaps mixup on hard ones."""
        s = self.settings

        def walk(step: Step, label: str) -> None:
            loop.train(step, members=[0], batch_size=s.batch_size, passes=s.passes, label=label)

        if epoch >= self.correcting_epochs:
            if epoch == self.correcting_epochs:
                self.correct(loop, epoch)
                loop.restart(1)
            walk(self.plus_step, "SELC+")
        elif epoch < s.warmup:
            walk(self.warmup_step, "warm-up")
        else:
            counted = self.controller_epoch(epoch)
            if self.controller is not None and self.controller.begun(counted):
                self.remember(loop, self.controller)
            walk(partial(self.step, counted), "train")

    def remember(self, loop: Loop, controller: Controller) -> None:
        """Keep what the steps of this epoch need of a scoring pass."""
        if self.settings.clean_score == "schedule" and not controller.uses_structure:
            return
        scores, chosen = loop.score(), loop.chosen()
        self.memory["posterior"][chosen] = scores.clean[chosen]
        self.keep_structure(scores, chosen)

    def ensemble(self, index: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Return (label share α^n [B], q [B, C]) of samples; q is uniform where there was no update yet."""
        kept = self.settings.alpha ** self.memory["updates"][index]
        gone = (1 - kept)[:, None]
        rows = self.memory["ensemble"][index]
        return kept, torch.where(gone > 0, rows / torch.where(gone > 0, gone, 1.0), 1 / self.num_classes)

    def cleanliness(self, scores: Scores) -> Tensor:
        """[N] the loss posterior, or α^n where that is asked for."""
        return scores.clean if self.settings.clean_score == "posterior" else self.ensemble()[0]

    def agreement(self, scores: Scores) -> Tensor:
        """[N] whether the present prediction and the ensemble name the same class; true before the first update."""
        return (self.ensemble()[1].argmax(1) == scores.suggested) | (self.memory["updates"] == 0)

    def suggestion(self, scores: Scores) -> tuple[Tensor, Tensor]:
        """Class and confidence of the ensemble; before a first update, those of the scoring pass."""
        confidence, suggested = self.ensemble()[1].max(1)
        met = self.memory["updates"] > 0
        return torch.where(met, suggested, scores.suggested), torch.where(met, confidence, scores.confidence)

    def warmup_step(self, batch: Batch) -> Outcome:
        """L = mean CE(network(x_weak), y)."""
        logits = self.networks[0](self.views.weak(batch.inputs, batch.draws)).logits
        return Outcome(F.cross_entropy(logits.float(), batch.observed))

    def step(self, epoch: int | Tensor, batch: Batch) -> Outcome:
        """Take the predictions into the targets, then compare the two."""
        output = self.networks[0](self.views.weak(batch.inputs, batch.draws))
        with torch.no_grad():
            present = output.logits.float().softmax(1)
            self.update(epoch, batch, present)
            supervision = self.supervise(epoch, batch, present, [[f.detach() for f in output.features]])
        return Outcome(supervision.loss(output.logits), {"observed_share": supervision.a.mean()})

    def update(self, epoch: int | Tensor, batch: Batch, present: Tensor) -> None:
        """e ← α·e + (1−α)·p and n ← n + 1, once per sample and epoch."""
        m, index, alpha = self.memory, batch.index, self.settings.alpha
        first = m["updated"][index] != epoch
        old = m["ensemble"][index]
        m["ensemble"][index] = torch.where(first[:, None], alpha * old + (1 - alpha) * present, old)
        m["updates"][index] = m["updates"][index] + first
        m["updated"][index] = torch.where(first, epoch, m["updated"][index])

    def supervise(
        self, epoch: int | Tensor, batch: Batch, present: Tensor, features: list[list[Tensor]]
    ) -> Supervision:
        """Return the targets after this update: SELC's own, or what the controller makes of label and ensemble."""
        m, index, controller = self.memory, batch.index, self.controller or Coupled()
        observed = one_hot(batch.observed, self.num_classes)
        share, q = self.ensemble(index)
        over = controller.begun(epoch)
        if over is not False:
            clean = share if self.settings.clean_score == "schedule" else m["posterior"][index]
            structure = self.structure(index, features, clean)
            late = controller(Evidence(observed, q, clean, (present, q), structure, epoch))
        if over is not True:
            early = Coupled()(Evidence(observed, q, share))
        if isinstance(over, Tensor):
            return where(over, late, early)
        return late if over else early

    @torch.no_grad()
    def correct(self, loop: Loop, epoch: int) -> None:
        """Fix the hard labels of SELC+: the largest entry of every sample's last target."""
        m, controller, counted = self.memory, self.controller or Coupled(), self.controller_epoch(epoch - 1)
        share, q = self.ensemble()
        observed = one_hot(loop.labels, self.num_classes)
        target = Coupled()(Evidence(observed, q, share)).target
        if controller.begun(counted):
            scores, at = loop.score(), loop.chosen()
            clean = share if self.settings.clean_score == "schedule" else scores.clean
            present = torch.where((m["updates"] > 0)[:, None], one_hot(scores.suggested, self.num_classes), q)
            structure = scores.structure[at] if scores.structure is not None and controller.uses_structure else None
            evidence = Evidence(observed[at], q[at], clean[at], (present[at], q[at]), structure, counted)
            target[at] = controller(evidence).target
        m["corrected"] = target.argmax(1)
        changed = float((m["corrected"] != loop.labels).float().mean())
        loop.note(f"SELC+ begins on fresh weights: {changed:.1%} of the labels are corrected")

    def plus_step(self, batch: Batch) -> Outcome:
        """L = l·CE(z, y_i) + (1−l)·CE(z, y_j) on mixed images and corrected labels."""
        weak = self.views.weak(batch.inputs, batch.draws.fork(0))
        share, partners = self.mixing_weight(batch.once), permutation(batch.draws.fork(1))
        target = one_hot(self.memory["corrected"][batch.index], self.num_classes)
        logits = self.networks[0](mix(weak, partners, share)).logits
        return Outcome(mixed_cross_entropy(logits, target, torch.ones_like(target[:, 0]), partners, share))


def estimate_turning_point(losses: Tensor) -> int:
    """Return the epoch, counted from 1, at which clean and wrong losses lie farthest apart. Experimental.

    The idea is the paper's, without true labels: each epoch's losses [N] are split by a mixture of two Gaussians, and
    the distance between the means of its parts rises until the network begins to fit the wrong labels.

    Args:
        losses: [E, N] of the training samples in each epoch of a plain run.

    >>> apart = torch.tensor([0.1, 1.0, 0.4])[:, None] * torch.tensor([0.0, 0.05, 0.9, 1.0])
    >>> estimate_turning_point(apart)
    2
    """
    if losses.ndim != 2 or losses.numel() == 0:
        raise ValueError(f"losses: shape {tuple(losses.shape)}, expected [E, N], a row per epoch")
    distances = []
    for row in losses:
        low = loss_posterior(row).to(row.dtype)
        means = [(part * row).sum() / part.sum().clamp_min(1e-12) for part in (low, 1 - low)]
        distances.append(torch.where((1 - low).sum() > 0, means[1] - means[0], 0.0))
    return int(torch.stack(distances).argmax()) + 1
