"""Co-learning (Tan, Xia, Wu, Li, "Co-learning: Learning from Noisy Labels with Self-supervision", ACM Multimedia 2021;
arXiv 2108.04063).

One encoder with two heads. Labels act through mixup cross-entropy alone (L_sup); a projection head learns without
labels which views are of one image (NT-Xent, L_int); how alike two samples are as projections is asked of their logits
too (L_str). No noise rate, no selection, no warm-up: no label is ever judged.

What the official code (chengtan9907/Co-learning) does that the paper does not say, and what we do likewise:
  - the paper sums the three terms; the code makes two updates of a batch. The first descends L_str and moves the
    classifier alone, by an Adam of its own, so that no structural gradient reaches the encoder; the second descends
    L_sup + L_int and moves everything;
  - L_str is a cross-entropy with exp(−D²) in place of the paper's divergence with exp(−2D²), a mean over all pairs in
    place of a sum, of raw projections and raw logits; the logarithm's 1e-12 leaves far pairs alone;
  - mixup's weight is one Beta(5, 5) number for a batch, not its larger half; partners come from the weak view;
  - the weak view passes through the network once more before the mixture, for nothing but running statistics;
  - Adam's rate falls on a line from epoch 80 on, where its first moment drops from 0.9 to 0.1, for both optimizers
    alike; the fifth of the rate that the classifier's own is made with (rounded down to 0) never acts;
  - the last, short batch is dropped.
What we chose: backbone and views are the run's, so that a comparison changes the method only. The published views are
a resized crop of 8 % of the area or more, for the strong ones with colour jitter and grey; here raw is the weak view
and the other two are independent strong ones. A set smaller than a batch is filled up. The classifier is all that
stands between the last stage's feature, which the projection reads, and the logits. An epoch numbered 0 comes first,
where the published loop begins with 1. The pass for running statistics builds no gradient.

`objective="paper"` is the sum with equal weights, known to us through others' quotations of its equations: whether the
projections are held fixed in L_str there is not established; here they are. Its sum over the pairs of a batch drowns
the other terms: on digits with 40 % symmetric noise (`small`, seed 0, two CPU cores, 2026-11-19) all logits fall
together and accuracy stays at chance, 9.6 %, where their mean (`pairs="mean"`, ours) ends at 98.2 % and the released
form at 98.4 %:

    labeltrace train --data digits --noise symmetric --rate 0.4 --learner co_learning --set settings.objective=paper
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from labeltrace.control.evidence import one_hot
from labeltrace.errors import InputError
from labeltrace.learners.base import Batch, Loop, Outcome, learners
from labeltrace.learners.contrastive import nt_xent
from labeltrace.learners.falling import Falling, FallingSettings
from labeltrace.learners.heads import Projected, behind_feature
from labeltrace.learners.mixing import BetaWeight, mix, mixed_cross_entropy, permutation
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.learners.structural import KERNELS, PAIRS, structural_cross_entropy, structural_divergence

CODE = "official code (chengtan9907/Co-learning)"
PAPER = "the paper's equation, as quoted by others; for objective='paper'"
OURS = "ours: RoLR's small recipe, so that a comparison changes the method only"
LARGE = "ours: cross-entropy's recipe for large images, so that a comparison changes the method only"

OBJECTIVES = ("released", "paper")


@dataclass(frozen=True)
class CoLearningSettings(FallingSettings):
    """Settings of Co-learning; momentum is Adam's first moment, β1."""

    epochs: int = setting(200, CODE + "; it begins with number 1, so that 199 are run")
    warmup: int = setting(0, "no warm-up: every epoch is the same")
    batch_size: int = setting(128, CODE)
    passes: int = setting(1, CODE + ": an epoch is one pass over the data")
    lr: float = setting(1e-3, CODE + ": of both Adams")
    lr_fall: int = setting(80, CODE + ": epoch_decay_start; from here the rate falls to 0", epochs=True)
    momentum: float = setting(0.9, CODE + ": before the fall")
    momentum_late: float = setting(0.1, CODE + ": from the fall on")
    weight_decay: float = setting(0.0, CODE)
    objective: str = setting("released", CODE + ": two updates of a batch ('paper': one sum)")
    kernel: str = setting("normal", CODE + " ('student': its configuration colearning_distribution)")
    sigma: float = setting(0.5, PAPER)
    pairs: str = setting("sum", PAPER + " ('mean' over the pairs of a batch: ours)")
    mix_alpha: float = setting(5.0, CODE + ": Beta(5, 5), not the larger half")
    temperature: float = setting(0.5, CODE + ": τ of NT-Xent")
    head_width: int = setting(512, CODE + ": width of the projection")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, holds, expected in (
            ("objective", self.objective in OBJECTIVES, f"one of {', '.join(OBJECTIVES)}"),
            ("kernel", self.kernel in KERNELS, f"one of {', '.join(KERNELS)}"),
            ("kernel", self.objective == "released" or self.kernel == "normal", "normal, with objective='paper'"),
            ("sigma", self.sigma > 0, "> 0"),
            ("pairs", self.pairs in PAIRS, f"one of {', '.join(PAIRS)}"),
            ("mix_alpha", self.mix_alpha >= 0, "≥ 0 (0: no mixing)"),
            ("temperature", self.temperature > 0, "> 0"),
            ("head_width", self.head_width >= 1, "≥ 1"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")


@learners.register("co_learning", "a projection learnt without labels says which samples the classifier sees as alike")
class CoLearning(Falling):
    """Mixup on the labels, NT-Xent without them, and the classifier drawn to the structure of the projections."""

    name = "co_learning"
    when = (
        "for self-supervision beside the labels in one network, with neither a noise rate nor a selection to set; "
        "a step sees every image five times."
    )
    networks_needed = 1
    refurbishes = False
    settings_type = CoLearningSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images (published recipe, all noise levels)"),
        "large": Preset(
            "images over 64 pixels",
            {
                "epochs": (80, LARGE),
                "batch_size": (64, LARGE),
                "lr_fall": (32, "ours: in proportion to the published 80 of 200"),
            },
        ),
        "small": Preset(
            "images up to 28 pixels, features",
            {
                "epochs": (40, OURS),
                "batch_size": (64, OURS),
                "passes": (2, OURS),
                "lr_fall": (16, "ours: in proportion to the published 80 of 200"),
            },
        ),
    }
    settings: CoLearningSettings

    @classmethod
    def extend(cls, settings: LearnerSettings, network: nn.Module, sample: Tensor) -> nn.Module:
        """Add the projection head.

        Raises:
            InputError: the classifier cannot be told from the encoder.
        """
        assert isinstance(settings, CoLearningSettings)
        width, classifier = behind_feature(network, sample)
        if settings.objective == "released" and not classifier:
            raise InputError(
                "co_learning moves the classifier apart from the encoder, and this network has no parameters between "
                "its last stage's feature and its logits: name an earlier stage last, or say objective: paper"
            )
        return Projected(network, width, settings.head_width, classifier)

    @classmethod
    def side_optimizer(cls, settings: LearnerSettings, network: nn.Module) -> torch.optim.Optimizer | None:
        """Adam over the classifier alone, for the structural step."""
        assert isinstance(settings, CoLearningSettings) and isinstance(network, Projected)
        return cls.optimizer(settings, network.classifier_parameters()) if settings.objective == "released" else None

    @cached_property
    def mixing_weight(self) -> BetaWeight:
        """Mixup's weight of a step."""
        return BetaWeight(self.settings.mix_alpha, larger_half=False)

    def epoch(self, loop: Loop, epoch: int) -> None:
        """As many passes over the data as asked for; with each batch the structural step, then the main one."""
        s = self.settings
        loop.train(
            self.step,
            before=self.structural_step if s.objective == "released" else None,
            members=[0],
            batch_size=s.batch_size,
            passes=s.passes,
            drop_last=True,
            label="train",
        )

    def structural_step(self, batch: Batch) -> Outcome:
        """L = L_str of the weak view; it moves the classifier alone."""
        loss = self.structural(self.raw(batch))
        return Outcome(loss, {"structural": loss.detach()})

    def step(self, batch: Batch) -> Outcome:
        """L = mixup cross-entropy of the weak view + NT-Xent of two strong views (paper: + L_str of the weak view)."""
        s, network, raw = self.settings, self.networks[0], self.raw(batch)
        released = s.objective == "released"
        structural = None if released else self.structural(raw)
        strong = (self.views.strong(batch.inputs, batch.draws.fork(number)) for number in (1, 2))
        one, two = (network(view, branch="project") for view in strong)
        intrinsic = nt_xent(one, two, s.temperature)
        if released:
            with torch.no_grad():
                network(raw)  # for its running statistics
        fit = self.fit(raw, batch)
        logs = {"fit": fit.detach(), "intrinsic": intrinsic.detach()}
        if structural is None:
            return Outcome(fit + intrinsic, logs)
        return Outcome(fit + intrinsic + structural, {"structural": structural.detach(), **logs})

    def raw(self, batch: Batch) -> Tensor:
        """The weak view, the same in both steps of a batch."""
        return self.views.weak(batch.inputs, batch.draws.fork(0))

    def structural(self, inputs: Tensor) -> Tensor:
        """L_str of a view: how alike the logits are, where the projections say how alike they should be."""
        s = self.settings
        logits, projections = self.networks[0](inputs, branch="both")
        if s.objective == "released":
            return structural_cross_entropy(projections, logits, s.kernel)
        return structural_divergence(projections, logits, s.sigma, s.pairs)

    def fit(self, inputs: Tensor, batch: Batch) -> Tensor:
        """L_sup: each row mixed with another, and asked for both labels in proportion."""
        share, partner = self.mixing_weight(batch.once.fork(0)), permutation(batch.once.fork(1), len(inputs))
        logits = self.networks[0](mix(inputs, partner, share)).logits
        target = one_hot(batch.observed, self.num_classes)
        return mixed_cross_entropy(logits, target, torch.ones_like(target[:, 0]), partner, share)
