"""DISC, dynamic instance-specific selection and correction (Li, Han, Shan, Chen, CVPR 2023).

One network, a weak and a strong view. Each sample has a threshold per view, the running mean of its past largest
confidence. A label whose confidence passes it in both views is clean (cross-entropy), in one view hard (generalised
cross-entropy); where neither view selects the label but both together are very sure of a class, the label is purified,
that is, replaced. Clean, hard and purified samples together are trained once more, mixed with each other.

What the official code (JackYFL/DISC) does that a reader of the paper would not guess, kept here:
  - thresholds start at 1/N, not 1/C, and are updated in warm-up too: after the first epoch nearly all labels are clean;
  - a sample is selected by its label's confidence, against the mean of its largest ones, before that mean is updated;
  - confidences are those of the training forwards, in train mode, each before its step; nothing else is evaluated;
  - clean and hard terms are divided by the batch, the mixture's by the number of mixed samples;
  - each view is mixed apart, with its own weight and partners, in a forward of its own;
  - SGD has no momentum; at 80 % noise it is Adam, whose rate and first moment fall one epoch late;
  - σ is 0.5 everywhere (0.3 for low noise in the supplement), the cap of its threshold 0.99 (0.90 in a first release);
  - strong views have levels up to 4 of 10 on CIFAR-10 and up to 9 on every other set.
What we chose: steps have one shape, so the mixed batch keeps its size: rows that no mixed sample fills repeat the mixed
ones and count for nothing but batch statistics; a batch without any selected sample is a step of zero gradient, where
the code skips it (weight decay is all that happens); the last batch is filled up instead of short; large images are
seen through the dataset's own window, without a mirrored border; the momentum m of the thresholds is given as the
epochs it remembers, 1/(1 − m), which shrink with a shorter run.
TRACE (the paper does not say how it meets DISC) takes over the target and the weights of the mixture alone: the label's
score is the share of views that select it, the replacement is the mean prediction of both views, their votes are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeltrace.control import Coupled, Evidence, Supervision
from labeltrace.control.evidence import one_hot
from labeltrace.learners.base import Batch, Learner, Loop, Outcome, learners
from labeltrace.learners.dropping import where
from labeltrace.learners.mixing import BetaWeight, mix, mix_among
from labeltrace.learners.rates import dropped, falling
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.learners.terms import generalised_cross_entropy
from labeltrace.scoring import Field, Scores

CODE = "official code (JackYFL/DISC)"
SUPPLEMENT = "the paper's supplement, confirmed by the authors in issue 7 of the official code"
PAGE = "ours: DISC is silent; the score that TRACE needs of a sample"
OURS = "ours: RoLR's small recipe, so that a comparison changes the method only"
SCORES = ("views", "smooth")
OPTIMIZERS = ("sgd", "adam")
STRONG = ("auto", "disc", "disc_mild")


@dataclass(frozen=True)
class DISCSettings(LearnerSettings):
    """Settings of DISC; the defaults are those of CIFAR with 20 to 50 % symmetric noise, but know no rate."""

    epochs: int = setting(200, CODE)
    warmup: int = setting(20, CODE + ": start_epoch (15 for instance noise)", epochs=True)
    batch_size: int = setting(128, CODE)
    passes: int = setting(1, CODE + ": an epoch is one pass over the data")
    optimizer: str = setting("sgd", CODE + ": adam above 60 % noise, which a user cannot know")
    lr: float = setting(0.1, CODE)
    lr_drop: int = setting(80, CODE, epochs=True)
    lr_drop_again: int = setting(160, CODE, epochs=True)
    lr_factor: float = setting(0.1, CODE)
    lr_fall: int = setting(120, CODE + ": epoch_decay_start; from here Adam's rate falls to 0", epochs=True)
    momentum: float = setting(0.0, CODE + ": SGD without momentum on every dataset")
    weight_decay: float = setting(1e-3, CODE)
    threshold_epochs: int = setting(
        100, CODE + ": momentum 0.99 = 1 − 1/100 (0.95, 20 epochs, for asymmetric noise and from 60 % on)", epochs=True
    )
    sigma: float = setting(0.5, CODE + " (0.3 for low noise in the paper's supplement)")
    cap: float = setting(0.99, CODE + ", since July 2023; 0.90 before")
    lambda_ce: float = setting(1.0, CODE)
    lambda_h: float = setting(1.0, CODE + " (0.2 from 60 % noise on)")
    gce_q: float = setting(0.7, CODE)
    mix_alpha: float = setting(5.0, CODE + ": Beta(5, 5), the larger half")
    strong: str = setting("auto", CODE + ": levels up to 4 on CIFAR-10, else 9; here by classes, up to 10 or more")
    clean_score: str = setting("views", PAGE + " (share of the views that select it)")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("passes", "threshold_epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected ≥ 1")
        if not 0 <= self.cap <= 1:
            raise ValueError(f"cap: {self.cap!r}, expected 0 to 1")
        if not 0 < self.gce_q <= 1:
            raise ValueError(f"gce_q: {self.gce_q!r}, expected 0 < q ≤ 1")
        for name, known in (("optimizer", OPTIMIZERS), ("strong", STRONG), ("clean_score", SCORES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected one of {', '.join(known)}")


_HIGH = {
    "threshold_epochs": (20, CODE + ": momentum 0.95 from 60 % on"),
    "lambda_h": (0.2, CODE + ": from 60 % on"),
}
_PHOTOS = {
    "epochs": (100, CODE + ", Food-101 and Clothing1M"),
    "warmup": (10, CODE + ", Food-101 and Clothing1M"),
    "batch_size": (32, CODE + ", Food-101 and Clothing1M"),
    "lr": (0.01, CODE + ", Food-101 and Clothing1M"),
    "lr_drop": (50, CODE + ", Food-101 and Clothing1M"),
    "lr_drop_again": (80, CODE + ", Food-101 and Clothing1M"),
    "weight_decay": (5e-4, CODE + ", Food-101 and Clothing1M"),
    "threshold_epochs": (20, CODE + ", Food-101 and Clothing1M: momentum 0.95"),
    "strong": ("disc", CODE + ": levels up to 9 on large images"),
}


@learners.register("disc", "per-sample thresholds on two views select, correct and mix; one network")
class DISC(Learner):
    """One network; clean, hard and purified samples by thresholds of their own."""

    name = "disc"
    when = (
        "for one network with a threshold of its own for every sample and no mixture to fit; it keeps two "
        "predictions of every sample."
    )
    networks_needed = 1
    settings_type = DISCSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images (published recipe; nothing in it depends on the noise)"),
        "tiny_imagenet": Preset("64-pixel images", {"warmup": (15, CODE), "strong": ("disc", CODE)}),
        "large": Preset("photos, from a pre-trained network (the published Food-101 recipe)", _PHOTOS),
        "food101n": Preset("Food-101N; the published recipe is of Food-101, which its code calls Food101N", _PHOTOS),
        "clothing1m": Preset("Clothing1M with `epoch_samples: 32000`, drawn anew and alike from all classes", _PHOTOS),
        "webvision": Preset(
            "mini-WebVision, Inception-ResNet-v2 from scratch",
            {
                "epochs": (100, CODE),
                "warmup": (15, CODE),
                "batch_size": (32, CODE),
                "lr_drop": (60, CODE),
                "lr_drop_again": (80, CODE),
                "weight_decay": (5e-4, CODE),
                "strong": ("disc", CODE + ": levels up to 9 on large images"),
            },
        ),
        "animal10n": Preset(
            "ANIMAL-10N, VGG-19-BN from scratch",
            {
                "epochs": (120, CODE),
                "warmup": (10, CODE),
                "batch_size": (64, CODE),
                "lr": (0.05, CODE),
                "lr_drop": (50, CODE),
                "lr_drop_again": (80, CODE),
                "weight_decay": (5e-4, CODE),
                "strong": ("disc", CODE + ": levels up to 9 on large images"),
            },
        ),
        "oracle_low": Preset(
            "32-pixel images when the noise is known to be low (20 to 40 %)", {"sigma": (0.3, SUPPLEMENT)}
        ),
        "oracle_asymmetric": Preset(
            "32-pixel images when the noise is known to be asymmetric",
            {"threshold_epochs": (20, CODE + ": momentum 0.95 for asymmetric noise")},
        ),
        "oracle_instance": Preset(
            "32-pixel images when the noise is known to depend on the image (published with ResNet-34)",
            {"warmup": (15, CODE + ": instance noise")},
        ),
        "oracle_instance_60": Preset("the same at 60 %", {"warmup": (15, CODE + ": instance noise"), **_HIGH}),
        "oracle_60": Preset("32-pixel images when 60 % of the labels are known to be wrong", _HIGH),
        "oracle_80": Preset(
            "32-pixel images when 80 % of the labels are known to be wrong",
            {
                **_HIGH,
                "optimizer": ("adam", CODE + ": above 60 %"),
                "lr": (1e-3, CODE + ": above 60 %"),
                "weight_decay": (0.0, CODE + ": above 60 %"),
            },
        ),
        "small": Preset(
            "images up to 28 pixels, features",
            {
                "epochs": (40, OURS),
                "warmup": (4, OURS),
                "batch_size": (64, OURS),
                "passes": (2, OURS),
                "lr_drop": (16, "ours: in proportion to the published 80 of 200"),
                "lr_drop_again": (32, "ours: in proportion to the published 160 of 200"),
                "threshold_epochs": (20, "ours: in proportion to the published 100 of 200"),
            },
            trace={"start": (3, OURS), "ramp": (3, OURS)},
        ),
    }
    settings: DISCSettings

    @cached_property
    def mixing_weight(self) -> BetaWeight:
        """Mixup's weight of a step."""
        return BetaWeight(self.settings.mix_alpha)

    @property
    def policy(self) -> str:
        """How strong views are made: mildly for few classes, unless one way is asked for."""
        strong = self.settings.strong
        return "disc_mild" if strong == "disc_mild" or (strong == "auto" and self.num_classes <= 10) else "disc"

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """Thresholds, membership of the sets, working labels, the last prediction of each view."""
        return {
            "weak": Field((num_classes,)),
            "strong": Field((num_classes,)),
            "threshold": Field((2,)),
            "selecting": Field(dtype=torch.int8),  # how many of the two views select the label
            "purified": Field(dtype=torch.bool),
            "label": Field(dtype=torch.int64),  # working label of the mixture
            "clean": Field(),
            "structure": Field(fill=1.0),
        }

    @classmethod
    def optimizer(cls, settings: LearnerSettings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """SGD without momentum, or Adam."""
        assert isinstance(settings, DISCSettings)
        if settings.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=settings.lr, weight_decay=settings.weight_decay)
        return super().optimizer(settings, parameters)

    def learning_rate(self, epoch: int) -> float:
        """Two drops for SGD; for Adam the plan of the epoch before."""
        s = self.settings
        if s.optimizer == "adam":
            return self.adam_plan(max(epoch - 1, 0))[0]
        return dropped(s.lr, s.lr_factor, epoch, s.lr_drop, s.lr_drop_again)

    def tune(self, optimizer: torch.optim.Optimizer, epoch: int) -> None:
        """Set the rate, and Adam's first moment, which falls with it."""
        super().tune(optimizer, epoch)
        for group in optimizer.param_groups:
            if "betas" in group:
                group["betas"] = (self.adam_plan(max(epoch - 1, 0))[1], group["betas"][1])

    def adam_plan(self, epoch: int) -> tuple[float, float]:
        """Return Adam's (rate, first moment β1) as planned for an epoch; the code applies it after that epoch."""
        s = self.settings
        return falling(s.lr, epoch, s.lr_fall, s.epochs), 0.9 if epoch < s.lr_fall else 0.1

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Train on the sets of the epoch before, then choose those of the next one."""
        s = self.settings
        if epoch == 0:
            self.memory["threshold"] = torch.full_like(self.memory["threshold"], 1 / self.memory.size)
        if epoch < s.warmup:
            loop.train(self.warmup_step, members=[0], batch_size=s.batch_size, passes=s.passes, label="warm-up")
        else:
            counted = self.controller_epoch(epoch)
            self.score_structure(loop, counted)
            step = partial(self.step, counted)
            loop.train(step, members=[0], batch_size=s.batch_size, passes=s.passes, label="train")
        self.choose(loop.labels)
        if epoch + 1 >= s.warmup:
            self.report(loop)

    def report(self, loop: Loop) -> None:
        """Say which of the next epoch's sets is empty."""
        mixed = self.memory["selecting"].gt(0) | self.memory["purified"]
        if not bool(mixed.any()):
            loop.note("no label is selected or purified, so the next epoch fits nothing")
        elif not bool(self.memory["selecting"].eq(2).any()):
            loop.note("no label is clean in both views, so the next epoch fits hard and purified ones alone")

    @torch.no_grad()
    def choose(self, observed: Tensor) -> None:
        """Select among the observed labels [N], correct, and move the thresholds, in the published order."""
        s, m = self.settings, self.memory
        both, threshold = self.mean_view(), m["threshold"]
        views = torch.stack([m["weak"], m["strong"]], 1)  # [N, 2, C]
        of_label = views.gather(2, observed[:, None, None].expand(-1, 2, 1))[:, :, 0]
        selecting = of_label > threshold
        selected = selecting.any(1)
        sure = both.amax(1) > (threshold.mean(1) + s.sigma).clamp(max=s.cap)
        purified = sure & ~selected
        smooth = (of_label / threshold.clamp_min(1e-12)).clamp(0, 1)
        m["clean"] = (selecting.float() if s.clean_score == "views" else smooth).mean(1)
        m["selecting"], m["purified"] = selecting.sum(1), purified
        m["label"] = torch.where(selected, observed, torch.where(purified, both.argmax(1), m["label"]))
        kept = 1 - 1 / s.threshold_epochs  # the published momentum
        m["threshold"] = kept * threshold + (1 - kept) * views.amax(2)

    def mean_view(self) -> Tensor:
        """[N, C] mean of both views' last predictions; zeros for a sample that was never met."""
        return (self.memory["weak"] + self.memory["strong"]) / 2

    def cleanliness(self, scores: Scores) -> Tensor:
        """[N] share of the views that select the label, as the next epoch's mixture takes it."""
        return self.memory["clean"].clone()

    def agreement(self, scores: Scores) -> Tensor:
        """[N] whether both views name the same class."""
        return self.memory["weak"].argmax(1) == self.memory["strong"].argmax(1)

    def suggestion(self, scores: Scores) -> tuple[Tensor, Tensor]:
        """Class and confidence of the mean view; of a sample that was never met, those of the scoring pass."""
        confidence, suggested = self.mean_view().max(1)
        met = confidence > 0
        return torch.where(met, suggested, scores.suggested), torch.where(met, confidence, scores.confidence)

    def both_views(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, list[list[Tensor]]]:
        """Make both views, see them in one forward, remember its predictions.

        Returns:
            The two views [B, …], logits [2, B, C], and the stage features of either view.
        """
        weak = self.views.weak(batch.inputs, batch.draws.fork(0), reflect=True)
        strong = self.views.strong(batch.inputs, batch.draws.fork(1), policy=self.policy)
        output = self.networks[0](torch.cat([weak, strong]))
        logits = output.logits.float().unflatten(0, (2, -1))
        with torch.no_grad():
            for name, view in zip(("weak", "strong"), logits.softmax(2), strict=True):
                self.memory[name][batch.index] = view
        features = [[stage.detach().chunk(2)[view] for stage in output.features] for view in (0, 1)]
        return weak, strong, logits, features

    def warmup_step(self, batch: Batch) -> Outcome:
        """L = mean CE(weak) + mean CE(strong)."""
        _, _, logits, _ = self.both_views(batch)
        return Outcome(F.cross_entropy(logits[0], batch.observed) + F.cross_entropy(logits[1], batch.observed))

    def step(self, epoch: int | Tensor, batch: Batch) -> Outcome:
        """Clean labels by CE, hard ones by GCE, all chosen ones mixed within either view."""
        s, m, index = self.settings, self.memory, batch.index
        selecting, purified = m["selecting"][index], m["purified"][index]
        chosen = (selecting > 0) | purified
        before = m["weak"][index], m["strong"][index]  # what the sets were made of, or since then a first visit
        weak, strong, logits, features = self.both_views(batch)
        rows, labels = batch.observed.shape[0], batch.observed.repeat(2)
        clean, hard = ((selecting == number).float().repeat(2) for number in (2, 1))
        flat = logits.flatten(0, 1)
        fit = (clean * F.cross_entropy(flat, labels, reduction="none")).sum() / rows
        robust = (hard * generalised_cross_entropy(flat, labels, s.gce_q)).sum() / rows
        supervision = self.supervise(epoch, batch, chosen, before, features)
        mixture = self.mixture(weak, chosen, supervision, batch, 2) + self.mixture(
            strong, chosen, supervision, batch, 4
        )
        loss = s.lambda_ce * fit + s.lambda_h * robust + mixture
        logs = {
            "fit": fit.detach(),
            "robust": robust.detach(),
            "mixture": mixture.detach(),
            "clean": clean.mean(),
            "hard": hard.mean(),
            "purified": purified.float().mean(),
        }
        return Outcome(loss, logs)

    @torch.no_grad()
    def supervise(
        self,
        epoch: int | Tensor,
        batch: Batch,
        chosen: Tensor,
        votes: tuple[Tensor, Tensor],
        features: list[list[Tensor]],
    ) -> Supervision:
        """Return targets and weights of the mixture: DISC's hard labels, or what the controller makes of them.

        Rows outside `chosen` count for nothing; they hold the observed label.
        """
        m, index, controller = self.memory, batch.index, self.controller or Coupled()
        observed = one_hot(batch.observed, self.num_classes)
        over = controller.begun(epoch)
        if over is not False:
            weak, strong = (torch.where(chosen[:, None], vote, observed) for vote in votes)
            clean = m["clean"][index]
            structure = self.structure(index, features, clean)
            late = controller(Evidence(observed, (weak + strong) / 2, clean, (weak, strong), structure, epoch))
        if over is not True:
            label = torch.where(chosen, m["label"][index], batch.observed)
            selected = (m["selecting"][index] > 0).float()
            early = Coupled()(Evidence(observed, one_hot(label, self.num_classes), selected))
        if isinstance(over, Tensor):
            return where(over, late, early)
        return late if over else early

    def mixture(self, inputs: Tensor, chosen: Tensor, supervision: Supervision, batch: Batch, tag: int) -> Tensor:
        """Mix the chosen samples of one view among each other and return the mean loss over them."""
        share = self.mixing_weight(batch.once.fork(tag))
        rows, partners, counted = mix_among(chosen, batch.draws.fork(tag + 1))
        inside = chosen.float()
        # Over the chosen samples, not over the batch, the weights have mean 1.
        total = (supervision.weight * inside).sum()
        weight = supervision.weight * inside.sum() / torch.where(total > 0, total, 1.0)
        logits = self.networks[0](mix(inputs[rows], partners, share)).logits.float()
        target = mix((weight[:, None] * supervision.target)[rows], partners, share)
        loss = -(target * F.log_softmax(logits, dim=1)).sum(1)
        return (loss * counted).sum() / inside.sum().clamp_min(1)
