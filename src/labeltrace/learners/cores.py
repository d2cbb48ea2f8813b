"""CORES², a confidence-regularised sample sieve (Cheng et al., ICLR 2021; arXiv 2010.02347).

Cross-entropy minus β times its expectation under a label drawn from the noisy prior rewards confident predictions. A
sample whose label has less than the mean logit is sieved out of the loss; no noise rate is needed.

What the official code (UCSC-REAL/cores) does that a reader of the paper would not guess, kept here:
  - plain SGD, neither momentum nor weight decay, and the rate is divided by 1 + β of the epoch;
  - the regulariser takes −log(softmax + 1e-8), at most 18.42, while the cross-entropy is exact; without that cap it
    drives the smallest logits to −∞;
  - the regulariser weighs classes by the labels kept in the last epoch, the sieve by their plain mean;
  - β rises from epoch 10 on, nothing is dropped before epoch 31, and the sieve looks at the training forward itself
    (weak view, train mode, moving weights);
  - the mean is over the kept samples; Confidence Tracking's code ([CT], Aliinton/ConfidenceTracking) divides by the
    whole batch.
What we chose: a batch that keeps nothing has loss 0 (the official code breaks there); the last batch is filled up; no
prior is known in the first epoch, whose β is 0 in every recipe, and has to be. Phase 2 (CORES²*), a second training
from scratch with another optimizer, clipped gradients and unequal batches, is not part of this file.

TRACE needs a pseudo target, which the sieve has not: the sharpened mean prediction of the network and of its moving
average on the same weak view; the two are the votes. c^loss = sigmoid(κ(z_y − mean z)) is ½ where the sieve cuts
(`clean_score="hard"`: the sieve's flag). The regulariser stays as it is, over the base's kept samples and with their
prior. In the samples table cleanliness is that of the final pass; suggestion and agreement are those of each sample's
last training step (the pass does not see the average), or of the pass for a sample that TRACE never supervised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from labeltrace.control import Evidence, Supervision, Trace
from labeltrace.control.evidence import one_hot
from labeltrace.control.schedule import ramp
from labeltrace.learners.average import DECAY, Average
from labeltrace.learners.base import Batch, Learner, Loop, Outcome, learners
from labeltrace.learners.dropping import kept_only, takes_over, where
from labeltrace.learners.rates import stepped
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.learners.terms import sharpen
from labeltrace.models.output import Output
from labeltrace.scoring import Field, Scores

CODE = "official code (UCSC-REAL/cores), phase 1"
CT = "Confidence Tracking's code (Aliinton/ConfidenceTracking)"
RECALLED = "CORES² paper on Clothing1M, as recalled; unverified"
OURS = "ours: no published value"
SMALL = "ours: RoLR's small recipe, so that a comparison changes the method only"

CLEAN_SCORES, REDUCTIONS = ("soft", "hard"), ("kept", "batch")


@dataclass(frozen=True)
class CoresSettings(LearnerSettings):
    """Settings of CORES²; warm-up is the time in which every sample is kept."""

    epochs: int = setting(100, CODE)
    warmup: int = setting(31, CODE + ": all samples are kept in epochs 0 to 30", epochs=True)
    batch_size: int = setting(64, CODE)
    passes: int = setting(1, CODE + ": an epoch is one pass over the data")
    lr: float = setting(0.1, CODE + ": a fixed plan, its argument is ignored")
    lr_drop: int = setting(50, CODE, epochs=True)
    lr_again: int = setting(0, CODE + ": one drop (0)", epochs=True)
    lr_factor: float = setting(0.1, CODE)
    lr_divided: bool = setting(True, CODE + ": the rate is divided by 1 + β of the epoch")
    momentum: float = setting(0.0, CODE)
    weight_decay: float = setting(0.0, CODE)
    beta: float = setting(2.0, CODE + ": final weight of the confidence regulariser")
    beta_start: int = setting(10, CODE + ": last epoch at which β is 0", epochs=True)
    beta_ramp: int = setting(29, CODE + ": 30 values from 0 to 2 over epochs 10 to 39", epochs=True)
    reduction: str = setting("kept", CODE + ": mean over the kept samples")
    clean_score: str = setting("soft", "ours (for TRACE): the sieve's statistic through a sigmoid")
    clean_scale: float = setting(1.0, "ours (for TRACE): κ of that sigmoid")
    temperature: float = setting(0.5, "ours (for TRACE): sharpening of the pseudo target, DivideMix's T")
    ema_decay: float = setting(DECAY, "ours (for TRACE): Mean Teacher's decay")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, holds, expected in (
            ("passes", self.passes >= 1, "≥ 1"),
            ("beta", self.beta >= 0, "≥ 0"),
            ("beta_ramp", self.beta_ramp >= 0, "≥ 0"),
            (
                "beta_start",
                self.beta_start >= (not self.beta_ramp),
                "≥ 0, and ≥ 1 with beta_ramp=0: the first epoch knows no prior yet, so its β is 0",
            ),
            ("reduction", self.reduction in REDUCTIONS, f"one of {', '.join(REDUCTIONS)}"),
            ("clean_score", self.clean_score in CLEAN_SCORES, f"one of {', '.join(CLEAN_SCORES)}"),
            ("clean_scale", self.clean_scale > 0, "> 0"),
            ("temperature", self.temperature > 0, "> 0"),
            ("ema_decay", 0 <= self.ema_decay < 1, "0 ≤ ema_decay < 1"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")


def _tracking(source: str) -> dict[str, tuple[Any, str]]:
    """What Confidence Tracking's real-world recipes have in common."""
    return {
        "warmup": (1, source + ": all samples are kept in epoch 0"),
        "lr_divided": (False, source),
        "momentum": (0.9, source),
        "weight_decay": (5e-4, source),
        "reduction": ("batch", source + ": dropped samples count as 0"),
    }


def _webvision(source: str) -> dict[str, tuple[Any, str]]:
    return _tracking(source) | {
        "lr": (0.01, source),
        "lr_drop": (50, source),
        "beta_start": (1, source),
        "beta_ramp": (10, source),
    }


@learners.register("cores", "CORES²: a regulariser that rewards confidence, a sieve that drops labels below the mean")
class Cores(Learner):
    """One network; samples with an unlikely label are left out of a confidence-regularised loss."""

    name = "cores"
    when = (
        "for the cost of plain training: one network, one view, a sieve in closed form. With many classes the "
        "sieve lets related wrong labels pass."
    )
    networks_needed = 1
    settings_type = CoresSettings
    keeps = ("probabilities",)
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset(
            "32-pixel images (official code, phase 1)",
            trace={
                "start": (0, "ours: when the sieve starts, epoch 31"),
                "ramp": (20, "TRACE paper, Appendix A table"),
            },
        ),
        "webvision": Preset(
            "WebVision (InceptionResNetV2 from scratch)",
            _webvision(CT),
            trace={"start": (29, "TRACE paper: epoch 30"), "ramp": (20, "TRACE paper, Appendix A table")},
        ),
        "food101n": Preset(
            "Food-101N (ResNet-50 with ImageNet weights)",
            _tracking(CT)
            | {
                "epochs": (30, CT),
                "lr": (0.002, CT),
                "lr_drop": (10, CT),
                "lr_again": (10, CT),
                "beta_start": (1, CT + ": 0 in epoch 0, then 2"),
                "beta_ramp": (0, CT),
            },
            trace={"start": (8, OURS + "; in proportion to WebVision's"), "ramp": (6, OURS + "; in proportion")},
        ),
        "clothing1m": Preset(
            "Clothing1M (ResNet-50 with ImageNet weights; 1000 batches an epoch: epoch_samples=32000)",
            {
                "epochs": (120, RECALLED),
                "warmup": (80, OURS + "; while β is 0"),
                "batch_size": (32, RECALLED),
                "lr": (0.01, RECALLED),
                "lr_drop": (30, RECALLED),
                "lr_again": (30, RECALLED),
                "lr_divided": (False, OURS + "; as Confidence Tracking's recipes"),
                "momentum": (0.9, OURS + "; as Confidence Tracking's recipes"),
                "weight_decay": (1e-3, OURS + "; DivideMix's on Clothing1M"),
                "beta": (0.4, RECALLED),
                "beta_start": (80, RECALLED),
                "beta_ramp": (20, RECALLED),
            },
            trace={"start": (0, "ours: when the sieve starts"), "ramp": (20, "TRACE paper, Appendix A table")},
        ),
        "large": Preset(
            "own photos above 64 pixels",
            _webvision("ours: Confidence Tracking's WebVision recipe"),
            trace={"start": (29, "TRACE paper: epoch 30"), "ramp": (20, "TRACE paper, Appendix A table")},
        ),
        "small": Preset(
            "images up to 28 pixels, features",
            {
                "epochs": (40, SMALL),
                "warmup": (4, SMALL),
                "passes": (2, SMALL),
                "lr_drop": (33, SMALL + " (the last fifth)"),
                "beta_start": (1, "ours: the published order in 40 epochs, β rises before the sieve starts"),
                "beta_ramp": (5, "ours: the published order in 40 epochs, β is full soon after the sieve starts"),
                "ema_decay": (0.99, "ours: a thousand steps are most of such a run"),
            },
            trace={"start": (3, SMALL), "ramp": (3, SMALL)},
        ),
    }
    settings: CoresSettings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        device = self.memory["kept"].device
        self.state = nn.Module()
        self.state.register_buffer("prior", torch.full((self.num_classes,), 1 / self.num_classes, device=device))
        self.idle = torch.zeros((), device=device)  # batches of this epoch that kept nothing
        needed = isinstance(self.controller, Trace)
        self.average = Average(self.networks[0], self.settings.ema_decay) if needed else None

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """The class under which each sample was kept in the last epoch (−1: sieved), and what TRACE saw of it."""
        return {
            "kept": Field(dtype=torch.int32, fill=-1),
            "structure": Field(fill=1.0),
            "suggested": Field(dtype=torch.int32),
            "confidence": Field(fill=-1.0),  # negative: TRACE has not supervised this sample
            "agree": Field(dtype=torch.bool, fill=1.0),
        }

    def companions(self) -> dict[str, nn.Module]:
        """The prior, and the average where TRACE votes with it."""
        return {"state": self.state} | ({} if self.average is None else {"average": self.average.module})

    @property
    def prior(self) -> Tensor:
        """π [C], shares of the classes among the labels kept in the last epoch."""
        assert isinstance(self.state.prior, Tensor)
        return self.state.prior

    def beta(self, epoch: int) -> float:
        """β_t, the weight of the confidence regulariser."""
        s = self.settings
        return s.beta * ramp(epoch, s.beta_start, s.beta_ramp)

    def learning_rate(self, epoch: int) -> float:
        """Step down, and divide by 1 + β_t: the regulariser makes the gradient that much larger."""
        s = self.settings
        rate = stepped(s.lr, s.lr_factor, epoch, s.lr_drop, s.lr_again)
        return rate / (1 + self.beta(epoch)) if s.lr_divided else rate

    def pseudo(self, probabilities: Tensor) -> Tensor:
        """q = sharpened mean prediction."""
        return sharpen(probabilities.mean(0), 1 / self.settings.temperature)

    def cleanliness(self, scores: Scores) -> Tensor:
        """As in a step, from the pass: log p_y − mean log p is z_y − mean z."""
        assert scores.probabilities is not None
        log_p = scores.probabilities[0].clamp_min(torch.finfo(scores.probabilities.dtype).tiny).log()
        return self.clean(-scores.loss[0] - log_p.mean(1))

    def agreement(self, scores: Scores) -> Tensor | None:
        """Whether network and average named the same class when the sample was last trained on."""
        return None if self.average is None else self.memory["agree"]

    def suggestion(self, scores: Scores) -> tuple[Tensor, Tensor]:
        """The pseudo target of each sample's last step; the pass's for a sample TRACE has not supervised."""
        known = self.memory["confidence"] >= 0
        suggested = torch.where(known, self.memory["suggested"].to(scores.suggested.dtype), scores.suggested)
        return suggested, torch.where(known, self.memory["confidence"], scores.confidence)

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Train on what the sieve lets through, then renew the prior from it."""
        s, counted = self.settings, self.controller_epoch(epoch)
        if self.average is not None and epoch <= s.warmup:
            self.average.copy(self.networks[0])
        self.score_structure(loop, counted)
        self.memory["kept"].fill_(-1)
        self.idle.zero_()
        step = partial(self.step, counted, self.beta(epoch))
        loop.train(step, members=[0], batch_size=s.batch_size, passes=s.passes, label="train")
        if self.idle:
            lost = "had no regulariser" if takes_over(self.controller, counted) else "trained nothing"
            loop.note(f"{int(self.idle)} batches kept no sample and {lost}")
        if not self.renew_prior():
            loop.note("the sieve kept no sample; the class prior stays that of the epoch before")

    def renew_prior(self) -> bool:
        """π_c ∝ samples kept with label c; unchanged, and False, where none was kept."""
        kept = self.memory["kept"]
        counts = torch.bincount(kept[kept >= 0].long(), minlength=self.num_classes)
        if not counts.any():
            return False
        self.prior.copy_(counts / counts.sum())
        return True

    def clean(self, margin: Tensor) -> Tensor:
        """c^loss of margins z_y − mean z: ½ where the sieve cuts, or its flag."""
        if self.settings.clean_score == "hard":
            return (margin >= 0).to(margin.dtype)
        return torch.sigmoid(self.settings.clean_scale * margin)

    def margin(self, logits: Tensor, batch: Batch) -> Tensor:
        """What the sieve asks of a batch [B]: from 0 on a sample is kept."""
        return label_margin(logits, batch.observed)

    def step(self, epoch: int | Tensor, beta: float | Tensor, batch: Batch) -> Outcome:
        """L = Σ_i v_i (ℓ_i,y − β Σ_c π_c ℓ_i,c) / Σ_i v_i; a controller replaces the first term's label and weight."""
        weak = self.views.weak(batch.inputs, batch.draws)
        output = self.networks[0](weak)
        logits = output.logits.float()
        margin = self.margin(logits.detach(), batch)
        kept = (margin >= 0) | (epoch < 0)  # in warm-up every sample
        self.memory["kept"][batch.index] = torch.where(kept, batch.observed, -1).int()
        self.idle += ~kept.any()
        supervision = kept_only(one_hot(batch.observed, self.num_classes), kept)
        if self.settings.reduction == "batch":
            supervision = replace(supervision, weight=kept.float())
        base_weight = supervision.weight
        if self.average is not None:
            self.average.update(self.networks[0])
        over = takes_over(self.controller, epoch)
        if over is not False:
            late = self.supervise(weak, output, margin, epoch, batch)
            supervision = late if over is True else where(torch.as_tensor(over), late, supervision)
        fit = supervision.loss(logits)
        confidence = (base_weight * prior_loss(logits, self.prior)).mean()
        logs = {"fit": fit.detach(), "confidence": confidence.detach(), "kept": kept.float().mean()}
        return Outcome(fit - beta * confidence, logs)

    @torch.no_grad()
    def supervise(self, weak: Tensor, output: Output, margin: Tensor, epoch: int | Tensor, batch: Batch) -> Supervision:
        """Let the controller judge the label against the prediction of the network and its average."""
        assert self.controller is not None and self.average is not None
        votes = output.logits.detach().float().softmax(1), self.average(weak).logits.float().softmax(1)
        q, clean = self.pseudo(torch.stack(votes)), self.clean(margin)
        confidence, suggested = q.max(1)
        self.memory["suggested"][batch.index] = suggested.int()
        self.memory["confidence"][batch.index] = confidence
        self.memory["agree"][batch.index] = votes[0].argmax(1) == votes[1].argmax(1)
        structure = self.structure(batch.index, [output.features], clean)
        observed = one_hot(batch.observed, self.num_classes)
        return self.controller(
            Evidence(observed=observed, pseudo=q, clean=clean, votes=votes, structure=structure, epoch=epoch)
        )


def label_margin(logits: Tensor, observed: Tensor) -> Tensor:
    """Return z_y − mean_c z_c of logits [B, C]: the sieve keeps a sample from 0 on.

    It is minus the paper's statistic ℓ(y) − mean_c ℓ(c), from which the log-partition cancels.

    >>> label_margin(torch.tensor([[2.0, 1.0, 0.0, -1.0]]).repeat(4, 1), torch.arange(4))
    tensor([ 1.5000,  0.5000, -0.5000, -1.5000])
    """
    return logits.gather(1, observed[:, None])[:, 0] - logits.mean(1)


def prior_loss(logits: Tensor, prior: Tensor) -> Tensor:
    """Return Σ_c π_c ℓ_c with ℓ_c = −log(softmax(z)_c + 1e-8) of logits [B, C] and a prior [C], as the code caps it.

    >>> prior_loss(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.full((4,), 0.25))
    tensor([1.9402])
    """
    return -(logits.softmax(1) + 1e-8).log() @ prior
