"""SELFIE, refurbishing unclean samples (Song, Kim, Lee, ICML 2019; PMLR 97:5907-5915).

Small-loss samples of a batch keep their label. A sample whose last q predictions hardly vary gets their majority as its
label, whatever its loss. All others are left out. The training may be restarted, with the corrected labels kept.

What the official code (kaist-dmlab/SELFIE) does that a reader of the paper would not guess, kept here:
  - every sample of a batch may be refurbished, small-loss ones too, and a correction wins over the observed label;
  - once corrected, always used: with its last corrected label, even when the predictions have become uncertain;
  - losses are ranked against the observed label, in train mode, by a first forward without update; it writes the
    history and leaves the running statistics alone; a second forward sees the samples of the step only;
  - warm-up after a restart trains on corrected labels, and the noise rate becomes min(τ, 1 − share corrected);
  - weight decay on every parameter; Nesterov momentum.
What we chose:
  - a history with fewer than q predictions is not refurbishable (the code starts with q votes for class 0), and a
    restart sets its counter back with it;
  - τ, which the published recipes take from the true rate (`oracle_*` presets), is 1 − the mean clean posterior of the
    loss mixture at the end of the first warm-up;
  - shuffled epochs (the code draws each batch independently), the run's model (theirs is DenseNet-25-12 with dropout),
    the data's own normalisation (theirs is per image);
  - the second forward has the batch's size: the samples of the step, repeated in turn, each counted once in the loss;
  - q counts predictions, not epochs: a shorter run shrinks warm-up and the rate's drops but not q, because a few votes
    are unanimous by chance, and a correction is for good. In a run of fewer than 60 epochs corrections so begin later
    than warm-up ends, when histories are full.

TRACE judges the observed label against the history's shares P as a soft target. c^loss is the posterior of a mixture
over the first-forward losses of the epoch before (`clean_score="rank"`: the small-loss flag); the votes are the current
prediction and P. Its target and weight replace the three-way rule for samples whose history is full; for others the
rule counts, their weight being 1 or 0 beside max(a+b, w_min). With w_min > 0 it drops no sample; w_min=0 keeps the
exclusion. Histories, corrected labels and restarts go on by the base rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeltrace.control import Evidence, Supervision
from labeltrace.control.evidence import one_hot
from labeltrace.learners.base import Batch, Learner, Loop, Outcome, learners
from labeltrace.learners.dropping import kept_only, per_kept, repeated, smallest, takes_over, where
from labeltrace.learners.rates import stepped
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.learners.still import still_statistics
from labeltrace.learners.votes import push_votes, vote_entropy, vote_shares
from labeltrace.models.output import Output
from labeltrace.scoring import Field, Scores, loss_posterior

CODE = "official code (kaist-dmlab/SELFIE)"
RATE = "the true noise rate, as the published runs have it"
OURS = "ours: optimizer of DivideMix's recipe, warm-up a quarter of the epochs and at least the history"
PART = "ours: 30 and 20 of the 75 epochs that follow warm-up on CIFAR, in proportion"
SMALL = "ours: RoLR's small recipe, so that a comparison changes the method only"

CLEAN_SCORES, VIEWS = ("posterior", "rank"), ("weak", "plain")
CHUNK = 8192  # rows whose class shares are counted at a time


@dataclass(frozen=True)
class SelfieSettings(LearnerSettings):
    """Settings of SELFIE; epochs but for `epochs` itself are those of one of the restarts + 1 trainings."""

    epochs: int = setting(100, CODE + ": 25 + 75 for each of the trainings")
    warmup: int = setting(25, CODE, epochs=True)
    restarts: int = setting(0, "ours: bounded cost; published is 2 in the paper, 3 in the main script")
    batch_size: int = setting(128, CODE)
    passes: int = setting(1, CODE + ": ceil(N / batch) steps an epoch")
    history: int = setting(15, CODE + ": q, a number of predictions")
    epsilon: float = setting(0.05, CODE + ": largest normalised entropy of a refurbishable sample")
    tau: float | None = setting(None, "ours: estimated after warm-up, because a user does not know the noise rate")
    lr: float = setting(0.1, CODE)
    lr_drop: int = setting(50, CODE + ": at half of the steps", epochs=True)
    lr_again: int = setting(25, CODE + ": and at three quarters", epochs=True)
    lr_factor: float = setting(0.2, CODE)
    momentum: float = setting(0.9, CODE + ": Nesterov")
    weight_decay: float = setting(5e-4, CODE + ": on every parameter")
    view: str = setting("weak", "ours: crop and flip as in the other learners; the code augments nothing")
    clean_score: str = setting("posterior", "ours (for TRACE): needs no noise rate")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, holds, expected in (
            ("restarts", self.restarts >= 0, "≥ 0"),
            ("passes", self.passes >= 1, "≥ 1"),
            ("history", self.history >= 1, "≥ 1"),
            ("epsilon", self.epsilon >= 0, "≥ 0"),
            ("tau", self.tau is None or 0 <= self.tau <= 1, "0 ≤ tau ≤ 1, or null to estimate it"),
            ("view", self.view in VIEWS, f"one of {', '.join(VIEWS)}"),
            ("clean_score", self.clean_score in CLEAN_SCORES, f"one of {', '.join(CLEAN_SCORES)}"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")


_THREE_RUNS: dict[str, tuple[Any, str]] = {
    "epochs": (300, CODE + ": three trainings of 100"),
    "restarts": (2, "SELFIE paper and the code's readme"),
    "view": ("plain", CODE + ": no augmentation"),
}


def _oracle(tau: float) -> Preset:
    about = f"32-pixel images when {tau:.0%} of the labels are known to be wrong (published: three trainings)"
    return Preset(about, _THREE_RUNS | {"tau": (tau, RATE)})


def _photos(lr: float, lr_drop: int, lr_again: int = 0) -> dict[str, tuple[Any, str]]:
    """DivideMix's optimizer for photographs, for which SELFIE has no published recipe."""
    values = {"batch_size": 64, "lr": lr, "lr_drop": lr_drop, "lr_again": lr_again, "lr_factor": 0.1}
    return {name: (value, OURS) for name, value in values.items()}


@learners.register(
    "selfie", "SELFIE: labels that predictions contradict steadily are corrected, uncertain ones left out"
)
class Selfie(Learner):
    """One network; small losses keep their label, steady predictions replace it, the rest waits."""

    name = "selfie"
    when = (
        "when a list of corrected labels is wanted that changes rarely: only samples predicted alike many "
        "times are corrected. Published with the noise rate given; without it the rate is estimated."
    )
    networks_needed = 1
    settings_type = SelfieSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images (published recipe, one training, noise rate estimated)"),
        "restarts": Preset("32-pixel images, three trainings as published, noise rate estimated", _THREE_RUNS),
        "oracle_10": _oracle(0.1),
        "oracle_20": _oracle(0.2),
        "oracle_30": _oracle(0.3),
        "oracle_40": _oracle(0.4),
        "oracle_animal10n": Preset(
            "ANIMAL-10N, whose noise rate the authors put at 8 % (published: three trainings)",
            _THREE_RUNS | {"tau": (0.08, CODE + ": cross-validated")},
        ),
        "clothing1m": Preset(
            "Clothing1M, whole epochs (ResNet-50 with ImageNet weights)",
            _photos(lr=0.002, lr_drop=40) | {"epochs": (80, OURS), "warmup": (20, OURS), "weight_decay": (1e-3, OURS)},
            trace={"start": (24, PART), "ramp": (16, PART)},
        ),
        "webvision": Preset("WebVision (InceptionResNetV2 from scratch)", _photos(lr=0.01, lr_drop=50)),
        "food101n": Preset(
            "Food-101N (ResNet-50 with ImageNet weights)",
            _photos(lr=0.002, lr_drop=10, lr_again=10) | {"epochs": (30, OURS), "warmup": (15, OURS)},
            trace={"start": (6, PART), "ramp": (4, PART)},
        ),
        "large": Preset("own photos above 64 pixels (as WebVision)", _photos(lr=0.01, lr_drop=50)),
        "small": Preset(
            "images up to 28 pixels, features",
            {
                "epochs": (40, SMALL),
                "warmup": (4, SMALL),
                "batch_size": (64, SMALL),
                "passes": (2, SMALL),
                "history": (8, "ours: full when warm-up ends"),
                "lr": (0.02, SMALL),
                "lr_drop": (33, SMALL + " (the last fifth)"),
                "lr_again": (0, SMALL),
                "lr_factor": (0.1, SMALL),
            },
            trace={"start": (3, SMALL), "ramp": (3, SMALL)},
        ),
    }
    settings: SelfieSettings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        device, tau = self.memory["history"].device, self.settings.tau
        self.state = nn.Module()
        unknown = float("nan") if tau is None else tau
        self.state.register_buffer("tau", torch.tensor(unknown, dtype=torch.float64, device=device))
        self.idle = torch.zeros((), device=device)  # batches of this epoch without a sample to train on

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """Past predictions (−1: none), how many there were, the corrected label (−1: none), and what TRACE needs."""
        assert isinstance(settings, SelfieSettings)
        return {
            "history": Field((settings.history,), torch.int16, fill=-1),
            "count": Field(dtype=torch.int32),
            "corrected": Field(dtype=torch.int16, fill=-1),
            "loss": Field(fill=float("nan")),
            "clean": Field(fill=1.0),
            "structure": Field(fill=1.0),
        }

    @classmethod
    def optimizer(cls, settings: LearnerSettings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum (which needs a momentum)."""
        momentum = settings.momentum
        return torch.optim.SGD(
            parameters, settings.lr, momentum, weight_decay=settings.weight_decay, nesterov=momentum > 0
        )

    def companions(self) -> dict[str, nn.Module]:
        """The noise rate."""
        return {"state": self.state}

    @property
    def tau(self) -> Tensor:
        """τ, 0-d; NaN before it is estimated."""
        assert isinstance(self.state.tau, Tensor)
        return self.state.tau

    def place(self, epoch: int) -> tuple[int, int]:
        """Return the training that an epoch belongs to, and its number within it; the last one takes the remainder."""
        s = self.settings
        length = max(1, s.epochs // (s.restarts + 1))
        training = min(epoch // length, s.restarts)
        return training, epoch - training * length

    def controller_epoch(self, epoch: int) -> int:
        """Count from the end of warm-up, anew in every training."""
        return self.place(epoch)[1] - self.settings.warmup

    def learning_rate(self, epoch: int) -> float:
        """A fifth at half and at three quarters of each training."""
        s = self.settings
        return stepped(s.lr, s.lr_factor, self.place(epoch)[1], s.lr_drop, s.lr_again)

    def full(self, index: Tensor | slice) -> Tensor:
        """Whether histories hold q predictions."""
        return self.memory["count"][index] >= self.settings.history

    def cleanliness(self, scores: Scores) -> Tensor:
        """The pass's loss posterior, or the small-loss flag over the whole set."""
        if self.settings.clean_score == "posterior":
            return scores.clean
        loss = scores.loss[0]
        return smallest(loss, clean_count(self.tau.nan_to_num(0.0), len(loss))).to(loss.dtype)

    def agreement(self, scores: Scores) -> Tensor:
        """Whether the pass names the majority of the history; True where there is no full history to ask."""
        majority, _ = self.majority()
        return (majority == scores.suggested) | ~self.full(slice(None))

    def suggestion(self, scores: Scores) -> tuple[Tensor, Tensor]:
        """The majority of the history and its share; the pass's prediction where the history is not full."""
        full = self.full(slice(None))
        majority, share = self.majority()
        return torch.where(full, majority, scores.suggested), torch.where(full, share, scores.confidence)

    def majority(self) -> tuple[Tensor, Tensor]:
        """Return the most frequent class [N] of every history, and its share [N]."""
        parts = [vote_shares(rows, self.num_classes).max(1) for rows in self.memory["history"].split(CHUNK)]
        return torch.cat([part.indices for part in parts]), torch.cat([part.values for part in parts])

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Warm up on the labels as they are, or: rank, refurbish, train on what remains."""
        s = self.settings
        training, number = self.place(epoch)
        if training and not number:
            self.restart(loop, training)
        if not epoch:
            self.report_length(loop)
        self.idle.zero_()
        if number < s.warmup:
            loop.train(self.warmup_step, members=[0], batch_size=s.batch_size, passes=s.passes, label="warm-up")
            return
        counted = number - s.warmup
        waiting = 1 - self.full(loop.chosen()).float().mean()
        if not counted and waiting:
            loop.note(f"{float(waiting):.1%} of the samples have had fewer than {s.history} predictions")
        if self.tau.isnan():
            self.estimate(loop)
        if takes_over(self.controller, counted):
            self.remember(loop, counted)
        step = partial(self.step, counted)
        loop.train(step, members=[0], batch_size=s.batch_size, passes=s.passes, label="train")
        if self.idle:
            loop.note(f"{int(self.idle)} batches had neither a clean nor a refurbishable sample and trained nothing")

    def report_length(self, loop: Loop) -> None:
        """Say so where a training, the last of which is the longest, ends before the method can begin."""
        s = self.settings
        length = self.place(s.epochs - 1)[1] + 1
        if s.restarts and length <= s.warmup:
            loop.note(f"{s.epochs} epochs in {s.restarts + 1} trainings: each of them is warm-up only")
        elif length * s.passes <= s.history:
            loop.note(f"{length * s.passes} predictions of a sample, histories hold {s.history}: no label is corrected")

    def restart(self, loop: Loop, training: int) -> None:
        """Begin a training anew: fresh weights, empty histories; corrected labels stay and lower τ."""
        loop.restart(training)
        corrected = (self.memory["corrected"] >= 0).double().mean()
        self.tau.copy_(torch.minimum(self.tau, 1 - corrected))
        self.memory["history"].fill_(-1)
        self.memory["count"].zero_()
        self.memory["loss"].fill_(float("nan"))
        loop.note(f"training {training + 1}: {float(corrected):.1%} of the labels corrected, τ {float(self.tau):.3f}")

    def estimate(self, loop: Loop) -> None:
        """τ = 1 − mean clean posterior of a pass after warm-up."""
        clean = loop.score(self.score_view).clean[loop.chosen()]
        self.tau.copy_(1 - clean.double().mean())
        loop.note(f"noise rate estimated as {float(self.tau):.3f}")

    def remember(self, loop: Loop, counted: int) -> None:
        """Turn the last epoch's losses into posteriors, and keep the structure confidence of a pass."""
        losses = self.memory["loss"]
        known = losses.isfinite()
        if self.settings.clean_score == "posterior" and known.any():  # without a loss there is no full history either
            self.memory["clean"][known] = loss_posterior(losses[known])
        self.score_structure(loop, counted)

    def see(self, batch: Batch) -> Tensor:
        """The batch as the network sees it, in both forwards of a step."""
        if self.settings.view == "plain":
            return self.views.plain(batch.inputs)
        return self.views.weak(batch.inputs, batch.draws)

    def push(self, index: Tensor, logits: Tensor, observed: Tensor) -> None:
        """Write a forward's predictions and losses; a sample that stands twice in a batch is written once."""
        push_votes(self.memory["history"], self.memory["count"], index, logits.argmax(1))
        self.memory["loss"][index] = F.cross_entropy(logits, observed, reduction="none")

    def warmup_step(self, batch: Batch) -> Outcome:
        """L = mean CE(network(x), y), y corrected where an earlier training corrected it."""
        logits = self.networks[0](self.see(batch)).logits.float()
        self.push(batch.index, logits.detach(), batch.observed)
        corrected = self.memory["corrected"][batch.index].long()
        return Outcome(F.cross_entropy(logits, torch.where(corrected >= 0, corrected, batch.observed)))

    def step(self, epoch: int | Tensor, batch: Batch) -> Outcome:
        """Sort a batch into corrected, clean and left out by a first forward; fit the first two in a second one."""
        network, seen = self.networks[0], self.see(batch)
        with torch.no_grad():
            with still_statistics(network):
                first = network(seen)
            logits = first.logits.float()
            shares = vote_shares(self.memory["history"][batch.index], self.num_classes)
            supervision, small = self.sort(logits, shares, batch)
            if takes_over(self.controller, epoch) is not False:
                supervision = self.supervise(supervision, first, shares, small, epoch, batch)
            self.push(batch.index, logits, batch.observed)
            used = supervision.weight > 0
            self.idle += ~used.any()
            rows, _, counted = repeated(used)
            supervision = replace(
                supervision, target=supervision.target[rows], weight=supervision.weight[rows] * counted
            )
        fit = supervision.loss(network(seen[rows]).logits)
        return Outcome(fit, {"used": used.float().mean(), "clean": small.float().mean()})

    def sort(self, logits: Tensor, shares: Tensor, batch: Batch) -> tuple[Supervision, Tensor]:
        """Return the base rule's supervision of a batch, and which of its samples have small losses."""
        losses = F.cross_entropy(logits, batch.observed, reduction="none")
        small = smallest(losses, clean_count(self.tau, len(losses)))
        certain = self.full(batch.index) & (vote_entropy(shares) <= self.settings.epsilon)
        corrected = torch.where(certain, shares.argmax(1), self.memory["corrected"][batch.index].long())
        self.memory["corrected"][batch.index] = corrected.to(torch.int16)
        has_label = corrected >= 0
        label = torch.where(has_label, corrected, batch.observed)
        return kept_only(one_hot(label, self.num_classes), has_label | small), small

    def supervise(
        self, base: Supervision, first: Output, shares: Tensor, small: Tensor, epoch: int | Tensor, batch: Batch
    ) -> Supervision:
        """Let the controller judge samples with a full history; the others keep the base rule's answer."""
        controller, index = self.controller, batch.index
        assert controller is not None
        over = self.full(index) & takes_over(controller, epoch)
        soft = self.settings.clean_score == "posterior"
        clean = self.memory["clean"][index] if soft else small.float()
        structure = self.structure(index, [first.features], clean)
        prediction = first.logits.float().softmax(1)
        evidence = Evidence(
            observed=one_hot(batch.observed, self.num_classes),
            pseudo=torch.where(over[:, None], shares, prediction),  # rows of a short history sum to less than 1
            clean=clean,
            votes=(prediction, torch.where(over[:, None], shares, prediction)),
            structure=structure,
            epoch=epoch,
        )
        merged = where(over, controller(evidence), base)
        # a sample under the base rule has a = 1 or 0 and b = 0; the floor is not for those it leaves out
        counts = over | (base.a > 0)
        return replace(merged, weight=per_kept(controller.weigh(merged.a, merged.b) * counts))


def clean_count(tau: Tensor, rows: int) -> Tensor:
    """Return ceil(rows · (1 − τ)), 0-d; rounding of τ does not count as a sample.

    >>> clean_count(torch.tensor(0.4, dtype=torch.float64), 128)
    tensor(77., dtype=torch.float64)
    """
    return torch.ceil(rows * (1 - tau) - 1e-6)
