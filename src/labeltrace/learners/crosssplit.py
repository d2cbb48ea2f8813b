"""CrossSplit (Kim, Baratin, Zhang, Lacoste-Julien, "CrossSplit: Mitigating Label Noise Memorization through Data
Splitting", ICML 2023; arXiv 2212.01674).

The training set is split once into two halves, and each network is taught the labels of its own half only. Its peer,
which is not taught them, softens them: the further the peer's prediction is from a label, for that class, the
more the prediction takes its place. The other half is unlabelled data: the network's own sharpened guess, and a term
that makes two strong views of a sample alike.

What the official code does that a reader of the paper would not guess:
  - its loaders never apply the split: both lists are the whole set, each network sees every label, and an epoch has
    twice the steps (`split="none"`); with the split an epoch is one pass over a half, warm-up still over all labels;
  - least and largest divergence of a class come from one plain view, a sample's own divergence from the mean of two
    weak ones, so the normalised one is clipped;
  - the trained network guesses in train mode, so two passes without gradient move its running statistics, and the two
    projected views two more; the peer predicts in eval mode;
  - the unlabelled part of a step is half as large as the labelled one, so a random half of its list is met per epoch;
  - both targets are sharpened; L_u is divided by the number of classes, which is why λ_u is large;
  - the entropy term of warm-up, for asymmetric noise alone, has weight 0.1; the best test epoch is kept.
What we chose: `split="disjoint"`, the paper. One scoring pass before the epoch's training gives the ranges of both
networks, where the code walks the data again with the updated first network, in train mode. A sample stays in its half
for the whole run, also when an epoch takes only some samples. Where all divergences of a class are equal, they count as
0.5. Of the second list every second row of a batch is taken, so that steps keep one shape. A last short batch is filled
up. The run has 300 epochs, where the code's counter gives 301. A network without labelled samples rests for the epoch.

TRACE gets 1 − β as cleanliness and the peer's prediction, before sharpening, as pseudo target; the target it returns is
sharpened as the base's own is. Its votes are both networks' in the scoring pass: the trained network never sees the
labelled weak views, and a forward for its vote alone would move its running statistics. Weights are mixed with the rows
and multiply the cross-entropy of labelled rows, over which their mean is 1; all else stays unweighted. With
`scope="batch"` structure comes from the peer alone, in both views. The samples table tells how clean a label is held by
the network that is not taught it, or by both without a split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from labeltrace.control import Coupled, Evidence
from labeltrace.control.evidence import one_hot
from labeltrace.control.schedule import ramp
from labeltrace.data.draws import Draws
from labeltrace.data.views import POLICIES
from labeltrace.learners.base import Batch, Loop, Outcome, learners
from labeltrace.learners.contrastive import nt_xent
from labeltrace.learners.divergence import class_normalised, class_ranges, label_divergence
from labeltrace.learners.heads import NormProjected, last_width
from labeltrace.learners.mixing import BetaWeight, mix, permutation
from labeltrace.learners.pair import Pair, PairSettings, votes_of
from labeltrace.learners.rates import cosine
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.learners.terms import prior_penalty, sharpen, squared_error, weighted_cross_entropy
from labeltrace.learners.together import together
from labeltrace.models.parts import forward_parts
from labeltrace.scoring import Field, Scores

CODE = "official code (SAITPublic/CrossSplit)"
OURS = "ours: RoLR's small recipe, so that a comparison changes the method only"
OURS_U = "ours: on digits with 40 % symmetric noise and on three clusters, see docs/decisions.md"
SHARE = "ours: in proportion to the published 300 epochs"
LARGE = "ours, unmeasured: DivideMix's recipe for photos, as the authors' own is not released"
SPLITS = ("disjoint", "none")
HALVING = 1_000_081  # a word that no other draw of a run has


@dataclass(frozen=True)
class CrossSplitSettings(PairSettings):
    """Settings of CrossSplit; `lambda_u_ramp` and the rises of γ count epochs from the end of warm-up."""

    epochs: int = setting(300, CODE + " (it runs one more)")
    warmup: int = setting(10, CODE + ": CIFAR-10 (30 on CIFAR-100)", epochs=True)
    batch_size: int = setting(256, CODE + ": of labelled samples")
    labelled_per_unlabelled: int = setting(2, CODE + ": 256 labelled and 128 unlabelled samples a step")
    warmup_batch_size: int = setting(512, CODE)
    passes: int = setting(1, CODE)
    split: str = setting("disjoint", "paper; the released code applies no split ('none')")
    lr: float = setting(0.1, CODE)
    lr_floor: float = setting(0.02, CODE + ": the cosine ends at 0.002")
    momentum: float = setting(0.9, CODE)
    weight_decay: float = setting(5e-4, CODE)
    gamma: float = setting(0.6, CODE + ": γ, how far β leaves ½; relaxes the divergence")
    gamma_middle: float = setting(0.8, CODE)
    gamma_last: float = setting(1.0, CODE)
    gamma_rise: int = setting(20, CODE + ": epochs after warm-up until γ rises", epochs=True)
    gamma_rise_again: int = setting(30, CODE + ": until it rises again", epochs=True)
    temperature: float = setting(0.5, CODE + ": T of sharpening")
    alpha: float = setting(4.0, CODE + ": of mixup's Beta(α, α)")
    lambda_u: float = setting(30.0, CODE)
    lambda_u_ramp: int = setting(16, CODE + ": epochs from the end of warm-up until λ_u counts fully", epochs=True)
    lambda_c: float = setting(0.025, CODE + ": weight of the contrastive term")
    contrast_temperature: float = setting(0.05, CODE + ": of the contrastive term")
    lambda_p: float = setting(1.0, CODE)
    head_width: int = setting(128, CODE + ": width of the projection")
    policy: str = setting("autoaugment", CODE + ": strong view of colour images; '' for the dataset's own")
    warmup_entropy: float = setting(0.0, CODE + ": 0.1 for asymmetric noise, which a user cannot know")
    loss_window: int = setting(1, "no part of CrossSplit: it fits no mixture to losses")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("labelled_per_unlabelled", "head_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected ≥ 1")
        for name in ("alpha", "lambda_u", "lambda_u_ramp", "lambda_c", "lambda_p", "gamma_rise"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected ≥ 0")
        for name in ("temperature", "contrast_temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected > 0")
        for name in ("gamma", "gamma_middle", "gamma_last", "lr_floor"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected 0 to 1")
        if self.gamma_rise_again < self.gamma_rise:
            raise ValueError(f"gamma_rise_again: {self.gamma_rise_again!r}, expected ≥ gamma_rise, {self.gamma_rise}")
        if self.loss_window != 1:
            raise ValueError(f"loss_window: {self.loss_window!r}, expected 1 (CrossSplit fits no mixture to losses)")
        for name, known in (("split", SPLITS), ("policy", ("", *POLICIES))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected one of {', '.join(map(repr, known))}")


SMALL: dict[str, tuple[Any, str]] = {
    "epochs": (40, OURS),
    "warmup": (4, OURS),
    "batch_size": (64, OURS),
    "warmup_batch_size": (64, OURS),
    "passes": (2, OURS),
    "lr": (0.02, OURS),
    "gamma_rise": (3, SHARE),
    "gamma_rise_again": (4, SHARE),
    "lambda_u": (1.0, OURS_U),
    "lambda_u_ramp": (2, SHARE),
}


@learners.register("crosssplit", "each network is taught half of the labels, softened by its peer")
class CrossSplit(Pair):
    """Two networks, each taught one half of the labels as far as its peer, which is not taught them, confirms."""

    name = "crosssplit"
    when = (
        "when memorised labels are what you fear: after warm-up a label is judged by a network that is not taught "
        "it, and no mixture is fitted. Eight views and two networks make a step slow; half of the labels teach each."
    )
    settings_type = CrossSplitSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images, about ten classes (published recipe, with the paper's split)"),
        "cifar100": Preset("32-pixel images, about a hundred classes", {"warmup": (30, CODE + ": CIFAR-100")}),
        "released": Preset(
            "32-pixel images as the released code trains them: both lists are the whole set",
            {"split": ("none", CODE + ": its loaders do not apply the split")},
        ),
        "oracle_asymmetric": Preset(
            "32-pixel images when the noise is known to depend on the class",
            {"warmup_entropy": (0.1, CODE + ": with asymmetric noise")},
        ),
        "small": Preset("images up to 28 pixels, features", SMALL, trace={"start": (3, OURS), "ramp": (3, OURS)}),
        "large": Preset(
            "photos of more than 64 pixels",
            {
                "epochs": (80, LARGE),
                "warmup": (1, LARGE),
                "batch_size": (32, LARGE),
                "warmup_batch_size": (64, LARGE),
                "lr": (0.01, LARGE),
                "alpha": (0.5, LARGE),
                "gamma_rise": (5, SHARE),
                "gamma_rise_again": (8, SHARE),
                "lambda_u_ramp": (4, SHARE),
            },
            trace={
                "start": (8, "ours: a tenth of the run until TRACE starts, as DivideMix"),
                "ramp": (5, "ours: then a fifteenth, as DivideMix"),
            },
        ),
    }
    settings: CrossSplitSettings
    _counted: int | None = None

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """Whose half a sample is in, its observed label, whether the networks agreed, structure confidence."""
        return {
            "second": Field(dtype=torch.bool),  # network B is taught its label
            "observed": Field(dtype=torch.int64),
            "agree": Field(dtype=torch.bool, fill=1.0),
            "structure": Field(fill=1.0),
        }

    @classmethod
    def extend(cls, settings: LearnerSettings, network: nn.Module, sample: Tensor) -> nn.Module:
        """Add the projection, as wide as the network's last feature asks for."""
        assert isinstance(settings, CrossSplitSettings)
        return NormProjected(network, last_width(network, sample), settings.head_width)

    @cached_property
    def mixing_weight(self) -> BetaWeight:
        """Mixup's weight of a step."""
        return BetaWeight(self.settings.alpha)

    @cached_property
    def ranges(self) -> Tensor:
        """[2, 2, C] least and largest divergence of each class under A and B, where captured steps find them."""
        empty = self.memory["structure"].new_empty((2, 0))
        return class_ranges(empty, self.memory["observed"][:0], self.num_classes)

    def learning_rate(self, epoch: int) -> float:
        """Fall by a cosine over the run, warm-up included."""
        s = self.settings
        return cosine(s.lr, s.lr * s.lr_floor, epoch, s.epochs)

    def gamma(self, epoch: int | Tensor) -> float | Tensor:
        """Return γ of an epoch, counted from the end of warm-up: it rises twice."""
        s = self.settings
        first, second = (ramp(epoch, start, 0) for start in (s.gamma_rise, s.gamma_rise_again))
        return s.gamma + (s.gamma_middle - s.gamma) * first + (s.gamma_last - s.gamma_middle) * second

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Warm both up on all labels, or: score with both, then train A on its half and B on the other."""
        s = self.settings
        self._counted = epoch
        self.memory["observed"] = loop.labels
        self.memory["second"] = self.halve(loop.seed)
        if epoch < s.warmup:
            self.warm_up(loop)
            return
        chosen = loop.chosen()
        self.remember(loop.score(), chosen)
        self.train_in_turn(
            loop,
            epoch,
            self.lists(chosen),
            unlabelled="its half holds no sample",
            labelled="the other half holds no sample",
        )

    def halve(self, seed: int) -> Tensor:
        """Return [N] whether a sample is in the second half: the same in every epoch of a run, by its seed alone."""
        place = torch.arange(self.memory.size, device=self.memory["second"].device)
        order = Draws.at(place, seed, HALVING).uniform(1)[:, 0].argsort(stable=True)
        second = torch.zeros_like(self.memory["second"])
        second[order[(len(order) + 1) // 2 :]] = True
        return second

    def lists(self, chosen: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return the labelled and the unlabelled samples of A and of B, out of `chosen` [n]."""
        if self.settings.split == "none":
            return (chosen, chosen), (chosen, chosen)
        second = self.memory["second"][chosen]
        one, two = chosen[~second], chosen[second]
        return (one, two), (two, one)

    def remember(self, scores: Scores, chosen: Tensor) -> None:
        """Keep what the steps of this epoch need of a scoring pass, at the samples that it looked at."""
        self.ranges.copy_(self.measure(scores)[1])
        if scores.agree is not None:
            self.memory["agree"][chosen] = scores.agree[chosen]
        self.keep_structure(scores, chosen)

    def measure(self, scores: Scores) -> tuple[Tensor, Tensor]:
        """Return the divergences of a pass [2, N], NaN at samples that it did not look at, and their ranges."""
        divergence = label_divergence(torch.exp(-scores.loss))
        seen = ~scores.loss[0].isnan()
        return divergence, class_ranges(divergence[:, seen], self.memory["observed"][seen], self.num_classes)

    def clean(self, divergence: Tensor, ranges: Tensor, observed: Tensor, epoch: int | Tensor) -> Tensor:
        """Return 1 − β, β = γ(n − ½) + ½, of samples [n] by one network.

        Args:
            divergence: [n] between its predictions and the observed labels.
            ranges: [2, C] its least and largest of each class.
            observed: [n] classes.
            epoch: counted from the end of warm-up.
        """
        low, high = ranges[:, observed]
        return 0.5 - self.gamma(epoch) * (class_normalised(divergence, low, high) - 0.5)

    def cleanliness(self, scores: Scores) -> Tensor:
        """Return [N] 1 − β by the network that is not taught the label; without a split the mean of both."""
        last = self.settings.epochs - 1 if self._counted is None else self._counted
        epoch, observed = self.controller_epoch(last), self.memory["observed"]
        a, b = (self.clean(*of_one, observed, epoch) for of_one in zip(*self.measure(scores), strict=True))
        return (a + b) / 2 if self.settings.split == "none" else torch.where(self.memory["second"], a, b)

    def step(self, member: int, epoch: int | Tensor, batch: Batch) -> Outcome:
        """Soften labels by the peer, guess the other half, mix all rows and fit them; two strong views attract."""
        s, network = self.settings, self.networks[member]
        halves = [batch] if batch.beside is None else [batch, self.thin(batch.beside)]
        with torch.no_grad():
            targets = self.targets(member, epoch, halves)
            strong = [self.two_strong(half) for half in halves]
            inputs = torch.cat([view for views in strong for view in views])
            target, weight = (torch.cat(column) for column in zip(*targets, strict=True))
            partner, share = permutation(batch.once.fork(0), len(inputs)), self.mixing_weight(batch.once.fork(1))
            inputs, target, weight = (mix(rows, partner, share) for rows in (inputs, target, weight))
        contrast = None
        if len(halves) > 1:
            one, two = (network(view, branch="project") for view in strong[1])
            contrast = nt_xent(one, two, s.contrast_temperature)
        logits, labelled = network(inputs).logits, 2 * len(batch.index)
        fit = weighted_cross_entropy(logits[:labelled], target[:labelled], weight[:labelled])
        prior = prior_penalty(logits)
        loss, logs = fit + s.lambda_p * prior, {"fit": fit.detach(), "prior": prior.detach()}
        if contrast is not None:
            guess = squared_error(logits[labelled:], target[labelled:])
            loss = loss + s.lambda_u * ramp(epoch + batch.progress, 0, s.lambda_u_ramp) * guess + s.lambda_c * contrast
            logs |= {"guess": guess.detach(), "contrast": contrast.detach()}
        return Outcome(loss, logs)

    def thin(self, beside: Batch) -> Batch:
        """Return the rows of the second list that a step uses, spread over the batch: two at least, for their norms."""
        every = min(self.settings.labelled_per_unlabelled, max(1, len(beside.index) - 1))
        return replace(
            beside,
            index=beside.index[::every],
            inputs=beside.inputs[::every],
            observed=beside.observed[::every],
            draws=Draws(beside.draws.keys[::every]),
        )

    @torch.no_grad()
    def targets(self, member: int, epoch: int | Tensor, halves: list[Batch]) -> list[tuple[Tensor, Tensor]]:
        """Return targets [2n, C] and weights [2n] of each half: labels softened by the peer, then own guesses."""
        network, peer = self.networks[member], self.networks[1 - member]
        weak = [torch.cat([self.views.weak(half.inputs, half.draws.fork(n)) for n in (0, 1)]) for half in halves]
        own, other = together(
            weak[0].device,
            lambda: [forward_parts(network, views, 2) for views in weak[1:]],
            lambda: peer(weak[0]),
        )
        predicted = other.logits.float().softmax(1).unflatten(0, (2, -1)).mean(0)
        features = [[stage.chunk(2)[view] for stage in other.features] for view in (0, 1)]
        made = [self.soften(member, epoch, halves[0], predicted, features)]
        for views in own:
            guess = self.sharpen(torch.stack([view.logits.float().softmax(1) for view in views]).mean(0))
            made.append((guess, torch.ones_like(guess[:, 0])))
        return [(target.repeat(2, 1), weight.repeat(2)) for target, weight in made]

    @torch.no_grad()
    def soften(
        self, member: int, epoch: int | Tensor, batch: Batch, predicted: Tensor, features: list[list[Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return targets [B, C] and weights [B] of labelled samples.

        Args:
            member: the network in training.
            epoch: counted from the end of warm-up.
            batch: the samples.
            predicted: [B, C] what the peer says of them.
            features: of either view, the peer's stage features.
        """
        observed = one_hot(batch.observed, self.num_classes)
        divergence = label_divergence((predicted * observed).sum(1))
        clean = self.clean(divergence, self.ranges[1 - member], batch.observed, epoch)
        supervision = (self.controller or Coupled())(
            Evidence(
                observed=observed,
                pseudo=predicted,
                clean=clean,
                votes=votes_of(self.memory["agree"][batch.index], self.num_classes),
                structure=self.structure(batch.index, features, clean),
                epoch=epoch,
            )
        )
        # a target of two sources that nobody trusts sums to 0 instead of 1: the prediction stands
        trusted = supervision.target.sum(1, keepdim=True) > 0.5
        return self.sharpen(torch.where(trusted, supervision.target, predicted)), supervision.weight

    def sharpen(self, probabilities: Tensor) -> Tensor:
        """Return p^(1/T), rows brought to sum 1 again."""
        return sharpen(probabilities, 1 / self.settings.temperature)

    def two_strong(self, batch: Batch) -> list[Tensor]:
        """Return two independent strong views of a batch: the policy's of colour images, else the dataset's own."""
        colour = batch.inputs.ndim == 4 and batch.inputs.shape[1] == 3
        policy = (self.settings.policy or None) if colour else None
        return [self.views.strong(batch.inputs, batch.draws.fork(number), policy) for number in (2, 3)]
