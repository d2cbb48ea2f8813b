"""ANNE (Cordeiro, Carneiro, "ANNE: Adaptive Nearest Neighbours and Eigenvector-based sample selection for robust
learning with noisy labels", Pattern Recognition 159, 2025, 111132; arXiv 2411.01613).

One network. Each epoch begins with a scoring pass that decides anew: confident samples take over the prediction as
their label; Otsu's method splits all samples by confidence; of the confident ones those stay whose feature points the
way of their class (FINE), of the others those whose label wins the vote of their neighbours. The kept samples, brought
to equal class sizes, are fitted with mixup; all samples, kept or not, are asked for the same feature in two views.

What the official code (filipe-research/anne: SSR+ with another selection) does that a reader of the paper would not
guess, and what we do likewise:
  - the split is by the largest probability, whatever the label, not by a loss; scoring sees random crops and flips;
  - there is no warm-up with plain cross-entropy: its first epochs keep what wins the vote of 200 neighbours;
  - FINE's directions and mixtures come from all samples of a (new) label, its verdict counts for the confident only;
  - the vote is unweighted, each sample is its own first neighbour, and the least numbers of neighbours of the two
    unconfident groups are 40 and 80 whatever is asked for on its command line (here they are settings);
  - three separate batches pass through the network in a step (mixed, weak, strong), each with its own statistics;
  - features are compared in one direction only: the strong view predicts the weak view's projection.
What we chose: votes that tie but for rounding count as ties; the radius falls in exact hundredths; a set smaller than
the number of neighbours votes as a whole; when no cut divides the confidences, all count as confident; the last batch
of kept samples is filled up; repeats of a sample in an epoch get views of their own; one row has no batch statistics,
so it takes the running ones; the WebVision preset uses the CIFAR-10 policy where the code has ImageNet's.

TRACE attaches to the target and the weight of kept samples, both views and both partners of a mixture alike; the kept
set and the feature term stay as they are. Observed is the given label, the pseudo target the prediction of the scoring
pass, the cleanliness FINE's posterior (confident) or the vote's score (others), 0 for a sample that took another label.
The two votes of the agreement gate are the classifier and the neighbours. Without TRACE, and before its start, the
target is the one label that ANNE decided on.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeltrace.control import Coupled, Evidence, Trace
from labeltrace.control.evidence import Supervision, one_hot
from labeltrace.data.draws import Draws
from labeltrace.learners.balanced import balanced_repeats
from labeltrace.learners.base import Batch, Learner, Loop, Outcome, learners
from labeltrace.learners.heads import Headed, feature_consistency, last_width
from labeltrace.learners.mixing import BetaWeight, mix, mixed_cross_entropy, permutation
from labeltrace.learners.rates import cosine, dropped
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.scoring import Field, Scores
from labeltrace.scoring.fine import fine_posterior
from labeltrace.scoring.neighbours import class_shares, nearest, neighbour_vote, radius_count, vote_score
from labeltrace.scoring.otsu import groups, otsu

CODE = "official code (filipe-research/anne)"
README = "official README, CIFAR-100 with 50 % symmetric noise"
SSR = "SSR's README (MrChenFeng/SSR_BMVC2022), whose recipe ANNE keeps"
OURS = "ours: chosen on digits with 40 % symmetric noise, see docs/decisions.md"


@dataclass(frozen=True)
class ANNESettings(LearnerSettings):
    """Settings of ANNE."""

    epochs: int = setting(300, CODE)
    warmup: int = setting(10, "from memory of the paper, CIFAR-10; the code's argument has default 0", epochs=True)
    batch_size: int = setting(128, CODE)
    passes: int = setting(1, CODE + ": an epoch is one pass over all samples")
    lr: float = setting(0.02, CODE)
    lr_schedule: str = setting("cosine", CODE + ": CIFAR ('steps' on the other sets)")
    lr_floor: float = setting(0.02, CODE + ": the cosine ends at a fiftieth")
    lr_drop: int = setting(50, CODE + ": the first step down, where there are steps", epochs=True)
    lr_drop_again: int = setting(100, CODE + ": the second", epochs=True)
    lr_factor: float = setting(0.1, CODE)
    momentum: float = setting(0.9, CODE)
    weight_decay: float = setting(5e-4, CODE)
    relabel: float = setting(0.9, CODE + ": γ_r, a larger probability replaces the label")
    eigen: float = setting(0.5, CODE + ": γ_e, FINE's posterior must exceed it")
    vote: float = setting(1.0, CODE + ": θ_s, least share of the winner's vote; 1: the label wins or ties")
    neighbours: int = setting(200, CODE + ": most neighbours of a sample, and all of them in the first epochs")
    k_highest: int = setting(5, CODE + ": least neighbours above the mean of the confident")
    k_high: int = setting(20, CODE + ": of the other confident ones")
    k_low: int = setting(40, CODE + ": of the unconfident above their mean")
    k_lowest: int = setting(80, CODE + ": of all others")
    alpha: float = setting(4.0, CODE + ": mixup's Beta(α, α), the larger half")
    lambda_fc: float = setting(1.0, CODE + ": weight of the feature term")
    head_hidden: int = setting(256, CODE + ": hidden width of both heads")
    head_width: int = setting(128, CODE + ": width of projection and prediction")
    policy: str = setting("autoaugment", CODE + ": strong view; '' for the dataset's own")
    score_view: str = setting("weak", CODE + ": scoring sees random crops and flips")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("passes", "neighbours", "k_highest", "k_high", "k_low", "k_lowest", "head_hidden", "head_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected ≥ 1")
        for name in ("relabel", "eigen", "vote", "lr_floor"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected 0 to 1")
        for name, known in (("score_view", ("weak", "plain")), ("lr_schedule", ("cosine", "steps"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {known[0]!r} or {known[1]!r}")


class Selection(NamedTuple):
    """What a scoring pass decided of N samples; zeros at samples that it did not look at.

    `label` is the one to train on, `voted` the neighbours' choice, `divided` whether the confidences could be split.
    """

    seen: Tensor
    label: Tensor
    clean: Tensor
    voted: Tensor
    kept: Tensor
    divided: Tensor


STEPS: Mapping[str, tuple[str, str]] = {"lr_schedule": ("steps", CODE + ": a tenth at epochs 50 and 100 of 150")}


@learners.register("anne", "one network keeps what neighbours or class directions confirm, and relabels the confident")
class ANNE(Learner):
    """Relabel, split by confidence, keep by FINE or by neighbours; mixup on the kept, feature consistency on all."""

    name = "anne"
    when = (
        "when neighbours in feature space can be trusted more than losses; it compares all samples with all, "
        "and keeps their features for an epoch."
    )
    networks_needed = 1
    settings_type = ANNESettings
    keeps = ("probabilities", "embedding")
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images, ten classes (defaults of the official code)"),
        "cifar100": Preset(
            "32-pixel images, a hundred classes",
            {
                "warmup": (30, README),
                "relabel": (0.8, SSR + ": from 50 % noise on (0.9 at 20 %); one value, as the noise is not known"),
                "eigen": (0.1, README),
            },
        ),
        "oracle_cifar100_50": Preset(
            "CIFAR-100 when half of the labels are known to be wrong: the one published CIFAR-100 command",
            {"warmup": (30, README), "relabel": (0.5, README), "eigen": (0.1, README)},
        ),
        "oracle_cifar100_20": Preset(
            "CIFAR-100 when a fifth of the labels are known to be wrong",
            {"warmup": (30, README), "relabel": (0.9, SSR), "eigen": (0.1, README)},
        ),
        "animal10n": Preset(
            "ANIMAL-10N, 64 pixels",
            {
                "epochs": (150, "official README, ANIMAL-10N"),
                "warmup": (1, "official README, ANIMAL-10N"),
                "relabel": (0.95, "official README, ANIMAL-10N"),
                "eigen": (0.3, "official README, ANIMAL-10N"),
                "alpha": (0.5, CODE + ": ANIMAL-10N"),
                "policy": ("", CODE + ": RandAugment; ours is the dataset's own"),
                **STEPS,
            },
        ),
        "webvision": Preset(
            "mini-WebVision",
            {
                "epochs": (150, CODE + ": WebVision"),
                "warmup": (0, CODE + ": WebVision, the argument's default"),
                "batch_size": (32, CODE + ": WebVision"),
                "lr": (0.01, CODE + ": WebVision"),
                "weight_decay": (1e-4, CODE + ": WebVision"),
                "relabel": (0.95, CODE + ": WebVision"),
                "eigen": (0.5, CODE + ": WebVision"),
                "alpha": (0.5, CODE + ": WebVision"),
                "head_width": (256, CODE + ": WebVision"),
                **STEPS,
            },
        ),
        "large": Preset(
            "photographs of more than 64 pixels",
            {
                "epochs": (150, "ours: as WebVision, the official recipe for photographs"),
                "warmup": (1, "ours: as ANIMAL-10N, so that one vote precedes the first mixtures"),
                "batch_size": (32, "ours: as WebVision"),
                "lr": (0.01, "ours: as WebVision"),
                "weight_decay": (1e-4, "ours: as WebVision"),
                "relabel": (0.95, "ours: as WebVision and ANIMAL-10N"),
                "alpha": (0.5, "ours: as WebVision and ANIMAL-10N"),
                "head_width": (256, "ours: as WebVision"),
                **STEPS,
            },
        ),
        "small": Preset(
            "images up to 28 pixels, features",
            {
                "epochs": (40, OURS),
                "warmup": (4, OURS),
                "batch_size": (64, OURS),
                "passes": (2, OURS + " (as RoLR's small recipe)"),
            },
            trace={"start": (3, OURS), "ramp": (3, OURS)},
        ),
    }
    settings: ANNESettings
    _decided: tuple[weakref.ref[Scores], int, Selection] | None = None
    _predicted: Tensor | None = None
    _counted: int | None = None

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """The observed label, the label trained on, its cleanliness, the neighbours' choice, structure confidence."""
        number = Field(dtype=torch.int64)
        return {
            "observed": number,
            "label": number,
            "voted": number,
            "clean": Field(fill=1.0),
            "structure": Field(fill=1.0),
        }

    @classmethod
    def extend(cls, settings: LearnerSettings, network: nn.Module, sample: Tensor) -> nn.Module:
        """Add the two heads, as wide as the network's last feature asks for."""
        assert isinstance(settings, ANNESettings)
        return Headed(network, last_width(network, sample), settings.head_hidden, settings.head_width)

    @property
    def score_view(self) -> str:
        """As the official code: randomly augmented."""
        return self.settings.score_view

    def learning_rate(self, epoch: int) -> float:
        """Fall by a cosine over the run, or in two steps."""
        s = self.settings
        if s.lr_schedule == "steps":
            return dropped(s.lr, s.lr_factor, epoch, s.lr_drop, s.lr_drop_again)
        return cosine(s.lr, s.lr * s.lr_floor, epoch, s.epochs)

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Decide which samples are kept and with which label, then train."""
        s = self.settings
        self.memory["observed"] = loop.labels
        self._counted = epoch
        scores = loop.score(s.score_view)
        chosen = self.select(scores)
        self.remember(scores, chosen)
        kept = chosen.kept.nonzero()[:, 0]
        self._report(loop, chosen, epoch)
        order = Draws.at(kept, loop.seed, epoch).uniform(1)[:, 0]
        loop.train(
            partial(self.step, self.controller_epoch(epoch)),
            members=[0],
            batch_size=s.batch_size,
            passes=s.passes,
            drop_last=True,
            label="train",
            beside=kept[balanced_repeats(chosen.label[kept], order)],
        )

    def select(self, scores: Scores) -> Selection:
        """Relabel and select the samples of a scoring pass; made once per pass and epoch."""
        epoch = self.settings.epochs - 1 if self._counted is None else self._counted
        if self._decided is not None and self._decided[0]() is scores and self._decided[1] == epoch:
            return self._decided[2]
        seen = (~scores.loss[0].isnan()).nonzero()[:, 0]
        assert scores.probabilities is not None and scores.embedding is not None
        found = self.decide(
            scores.probabilities[0, seen],
            scores.embedding[0, seen],
            self.memory["observed"][seen],
            simple=epoch < self.settings.warmup,
        )

        def spread(values: Tensor) -> Tensor:
            return values.new_zeros(scores.loss.shape[1]).index_copy(0, seen, values)

        named = {name: spread(values) for name, values in found._asdict().items() if name != "divided"}
        selection = Selection(**named, divided=found.divided)
        self._decided = weakref.ref(scores), epoch, selection
        return selection

    def decide(self, probabilities: Tensor, embedding: Tensor, observed: Tensor, *, simple: bool) -> Selection:
        """Relabel and select n samples.

        Args:
            probabilities: [n, C] of the scoring pass.
            embedding: [n, D] last features.
            observed: [n] labels as given.
            simple: as in the first epochs: every sample is judged by the vote of all `neighbours`.
        """
        s, classes = self.settings, self.num_classes
        confidence, predicted = probabilities.max(1)
        label = torch.where(confidence > s.relabel, predicted, observed)
        similarity, index = nearest(embedding, s.neighbours)
        unit = F.normalize(embedding, dim=1)
        counts = divided = None
        if not simple:
            split = otsu(confidence)
            group, divided = groups(confidence, split), split.threshold > 0
            enough = torch.zeros_like(group)
            for number, least in enumerate((s.k_highest, s.k_high, s.k_low, s.k_lowest)):
                enough = torch.where(group == number, least, enough)
            counts = radius_count(similarity, enough)
        votes = neighbour_vote(label[index], classes, counts=counts, prior=class_shares(label, classes))
        score = vote_score(votes, label)
        clean, kept = score.float(), score >= s.vote
        if not simple:
            aligned = fine_posterior(unit, label, classes, fewest=5)
            clean = torch.where(group < 2, aligned, clean)
            kept = torch.where(group < 2, aligned > s.eigen, kept)
        clean = torch.where(label == observed, clean, 0.0)
        if divided is None:
            divided = torch.ones((), dtype=torch.bool, device=label.device)
        return Selection(torch.ones_like(kept), label, clean, votes.argmax(1), kept, divided)

    def remember(self, scores: Scores, chosen: Selection) -> None:
        """Keep what the steps of this epoch need; the predictions in one place, which captured steps may read."""
        assert scores.probabilities is not None
        for name in ("label", "clean", "voted"):
            self.memory[name] = getattr(chosen, name)
        self.keep_structure(scores, chosen.seen)
        if self._predicted is None:
            self._predicted = torch.empty_like(scores.probabilities[0])
        self._predicted.copy_(scores.probabilities[0])

    def _report(self, loop: Loop, chosen: Selection, epoch: int) -> None:
        """Note what is odd about this epoch's selection."""
        odd = []
        if not bool(chosen.divided):
            odd.append("all confidences are equal, so every sample counts as confident")
        present = torch.bincount(chosen.label[chosen.seen], minlength=self.num_classes) > 0
        trained = torch.bincount(chosen.label[chosen.kept], minlength=self.num_classes) > 0
        if not bool(trained.any()):
            odd.append("no sample is kept, so only the feature term is trained")
        elif int((present & ~trained).sum()):
            odd.append(f"no sample is kept of {int((present & ~trained).sum())} of {int(present.sum())} classes")
        if odd:
            loop.note("; ".join(odd))

    def cleanliness(self, scores: Scores) -> Tensor:
        """Return [N] FINE's posterior or the vote's score, 0 where the label is replaced."""
        return self.select(scores).clean

    def agreement(self, scores: Scores) -> Tensor:
        """Return [N] whether classifier and neighbours name the same class."""
        return scores.suggested == self.select(scores).voted

    def step(self, epoch: int, batch: Batch) -> Outcome:
        """L = mixup cross-entropy of the kept samples + λ_fc · feature consistency of all."""
        s, network = self.settings, self.networks[0]
        fit = torch.zeros((), device=batch.observed.device)
        if batch.beside is not None:
            fit = self.fit(epoch, batch.beside)
        with torch.no_grad():
            projected = network(self.views.weak(batch.inputs, batch.draws.fork(0)), branch="project")
        predicted = network(self._strong(batch.inputs, batch.draws.fork(1)), branch="predict")
        consistency = feature_consistency(predicted, projected)
        return Outcome(fit + s.lambda_fc * consistency, {"fit": fit.detach(), "consistency": consistency.detach()})

    def fit(self, epoch: int, kept: Batch) -> Tensor:
        """Return the mixup cross-entropy of kept samples, each in two strong views."""
        # A sample may come several times in a pass, so its views belong to the step and the place.
        places = torch.arange(len(kept.index), device=kept.index.device)
        draws = Draws.at(places, kept.once.keys)
        supervision = self.supervise(epoch, kept, draws.fork(2))
        inputs = torch.cat([self._strong(kept.inputs, draws.fork(view)) for view in (0, 1)])
        target, weight = supervision.target.repeat(2, 1), supervision.weight.repeat(2)
        share, partner = self.mixing_weight(kept.once.fork(0)), permutation(kept.once.fork(1), len(inputs))
        logits = self.networks[0](mix(inputs, partner, share)).logits
        return mixed_cross_entropy(logits, target, weight, partner, share)

    @torch.no_grad()
    def supervise(self, epoch: int, kept: Batch, draws: Draws) -> Supervision:
        """Ask the controller: about ANNE's own label, or, once TRACE has begun, about label and prediction apart."""
        controller = self.controller or Coupled()
        observed, label = one_hot(kept.observed, self.num_classes), self.memory["label"][kept.index]
        if not controller.begun(epoch):
            own = (label == kept.observed).float()
            return controller(Evidence(observed, one_hot(label, self.num_classes), own, epoch=epoch))
        assert self._predicted is not None
        pseudo, clean = self._predicted[kept.index], self.memory["clean"][kept.index]
        structure = None
        if isinstance(controller, Trace) and controller.config.scope == "batch" and controller.uses_structure:
            output = self.networks[0](self.views.weak(kept.inputs, draws))
            structure = controller.batch_structure([output.features], clean)
        elif controller.uses_structure:
            structure = self.memory["structure"][kept.index]
        votes = pseudo, one_hot(self.memory["voted"][kept.index], self.num_classes)
        return controller(Evidence(observed, pseudo, clean, votes, structure, epoch))

    @cached_property
    def mixing_weight(self) -> BetaWeight:
        """Mixup's weight of a step."""
        return BetaWeight(self.settings.alpha)

    def _strong(self, inputs: Tensor, draws: Draws) -> Tensor:
        return self.views.strong(inputs, draws, policy=self.settings.policy or None)
