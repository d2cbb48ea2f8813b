"""DivideMix (Li, Socher, Hoi, "DivideMix: Learning with Noisy Labels as Semi-supervised Learning", ICLR 2020; arXiv
2002.07394).

Each epoch a mixture of two Gaussians divides the samples by their loss under each network. Those that the PEER holds
clean are the labelled set X; the labels of the rest, U, are thrown away, and MixMatch follows: refine the labels of X,
guess those of U, sharpen both, mix all rows, fit.

What the official code does that a reader of the paper would not guess, kept here:
  - the labelled list drives the epoch, ceil(|X|/B) steps, each with B labelled and B unlabelled samples in two weak
    views: 4B rows; the unlabelled list starts anew when it is used up;
  - the trained network makes its guesses in train mode, so that four passes without gradient also move its running
    statistics; the peer guesses in eval mode, and only on U;
  - both divisions are taken before the epoch's training; network A is trained first, then B against the updated A;
  - L_u is divided by the number of classes, which is why λ_u is large;
  - on Clothing1M and WebVision only the labelled rows of the mixture go through the network (`unlabelled=False`);
  - at noise rate 0.9 the losses of five epochs are averaged, and the threshold is 0.6.
What we chose: λ_u of `cifar` is 25, the code's default, which fits CIFAR-10 at 50 and 80 % and costs accuracy at low
noise (91 to 92 % for 95.7 % at 20 %); whoever knows the noise finds each published cell as an `oracle_` preset. The
entropy term of warm-up, which the official code adds for asymmetric noise, is a setting. A last short batch is filled
up. The run has 300 epochs, where the code's counter gives 301. A network without labelled samples rests for the epoch.

TRACE gets the peer's posterior as cleanliness and the sharpened own guess as pseudo target; its votes are both
networks' in the scoring pass, because the peer never sees the labelled views. The division stays as it is. DivideMix
sharpens after mixing label and guess: with `trace_order="base"` the mix by TRACE's branch weights is sharpened as well;
with "trace", once TRACE has started, its own target stands, which is made of the sharpened guess. Unlabelled rows have
no observed branch; they are weighed by the reliability of their guess (`trace_unlabelled`). A weight belongs to a
target and is mixed with it. The prior stays unweighted. With `scope="batch"` structure comes from the trained network
alone, in both views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from labeltrace.control import Coupled, Evidence
from labeltrace.control.evidence import one_hot
from labeltrace.control.schedule import ramp
from labeltrace.learners.base import Batch, Loop, Outcome, learners
from labeltrace.learners.dropping import takes_over
from labeltrace.learners.mixing import BetaWeight, mix, mixed_cross_entropy, permutation
from labeltrace.learners.pair import Pair, PairSettings, votes_of
from labeltrace.learners.rates import dropped
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.learners.terms import prior_penalty, sharpen, squared_error
from labeltrace.learners.together import together
from labeltrace.models.output import Output
from labeltrace.models.parts import forward_parts
from labeltrace.scoring import Field, Scores

CODE = "official code (LiJunnan1992/DivideMix)"
PAPER = "paper, table 7"
CT = "code of Confidence Tracking (Aliinton/ConfidenceTracking)"
OURS = "ours: RoLR's small recipe, so that a comparison changes the method only"
WEBVISION_OURS = "ours: WebVision's one-GPU recipe, the published one for photos and fresh weights"
HUMAN = "ours: errors of people, and those that depend on the image, fall on few classes, as asymmetric noise does"
TRACE_OURS = "ours: a tenth of the run until TRACE starts, then a fifteenth"


@dataclass(frozen=True)
class DivideMixSettings(PairSettings):
    """Settings of DivideMix; all epochs are counted from the start of the run, but for `lambda_u_ramp`'s."""

    epochs: int = setting(300, PAPER + " (the code runs one more)")
    warmup: int = setting(10, CODE + ": CIFAR-10 (30 on CIFAR-100)", epochs=True)
    batch_size: int = setting(64, CODE + ": of labelled samples, and as many unlabelled")
    warmup_batch_size: int = setting(128, CODE)
    passes: int = setting(1, CODE)
    lr: float = setting(0.02, CODE)
    lr_drop: int = setting(150, CODE, epochs=True)
    lr_second_drop: int = setting(0, CODE + ": there is one drop (0: none)", epochs=True)
    lr_factor: float = setting(0.1, CODE)
    momentum: float = setting(0.9, CODE)
    weight_decay: float = setting(5e-4, CODE)
    threshold: float = setting(0.5, CODE + ": τ, a posterior above it makes a sample labelled")
    temperature: float = setting(0.5, CODE + ": T of sharpening")
    alpha: float = setting(4.0, CODE + ": of mixup's Beta(α, α)")
    lambda_u: float = setting(25.0, CODE + ": its default; the paper tunes it by the noise, see the oracle presets")
    lambda_u_ramp: int = setting(16, CODE + ": epochs from the end of warm-up until λ_u counts fully", epochs=True)
    lambda_p: float = setting(1.0, CODE)
    unlabelled: bool = setting(True, CODE + ": CIFAR (the other sets: no mixed unlabelled rows, no L_u)")
    warmup_entropy: float = setting(0.0, CODE + ": 1 for asymmetric noise, which a user cannot know")
    loss_window: int = setting(1, CODE + ": 5 when the noise rate is 0.9, which a user cannot know")
    trace_order: str = setting("base", "ours: with it TRACE's target and the base's differ by the branch weights alone")
    trace_unlabelled: bool = setting(True, "ours: the TRACE paper is silent on samples without a label")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "lambda_u"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected ≥ 0")
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold: {self.threshold!r}, expected 0 ≤ threshold < 1")
        if not self.temperature > 0:
            raise ValueError(f"temperature: {self.temperature!r}, expected > 0")
        if self.trace_order not in ("base", "trace"):
            raise ValueError(f"trace_order: {self.trace_order!r}, expected 'base' or 'trace'")


MANY_CLASSES = {"warmup": (30, CODE + ": CIFAR-100")}
PHOTOS: dict[str, tuple[Any, str]] = {
    "warmup": (1, CODE),
    "batch_size": (32, CODE),
    "warmup_batch_size": (64, CODE),
    "alpha": (0.5, CODE),
    "lambda_u": (0.0, CODE),
    "unlabelled": (False, CODE),
}
WEBVISION = PHOTOS | {"epochs": (100, CODE + ": the two-GPU script; " + CT), "lr": (0.01, CODE), "lr_drop": (50, CODE)}


def _oracle(classes: int, noise: str, lambda_u: float) -> Preset:
    """A published cell of CIFAR, whose λ_u was chosen knowing the noise."""
    values: dict[str, tuple[Any, str]] = dict(MANY_CLASSES) if classes == 100 else {}
    values["lambda_u"] = (lambda_u, PAPER)
    if noise == "asymmetric 40 %":
        values["warmup_entropy"] = (1.0, CODE + ": with asymmetric noise")
    if noise == "90 %":
        values["threshold"] = (0.6, "author, in the repository's issues: at 90 % noise")
        values["loss_window"] = (5, CODE + ": only at noise rate 0.9")
    return Preset(f"CIFAR-{classes} when the noise is known: {noise}", values)


def _trace_epochs(epochs: int) -> dict[str, tuple[int, str]]:
    return {"start": (epochs // 10, TRACE_OURS), "ramp": (round(epochs / 15), TRACE_OURS)}


@learners.register("dividemix", "the peer's clean samples stay labelled, the rest is guessed (MixMatch)")
class DivideMix(Pair):
    """Two networks divide the data for each other and train on it as on a semi-supervised task."""

    name = "dividemix"
    when = (
        "when much of the data is wrong and there is enough of it to throw labels away. Four views a step and "
        "two networks make it the slowest; λ_u matters and depends on the noise."
    )
    settings_type: ClassVar[type[LearnerSettings]] = DivideMixSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "cifar": Preset("32-pixel images, about ten classes (published recipe, one λ_u for every noise)"),
        "cifar100": Preset(
            "32-pixel images, about a hundred classes",
            MANY_CLASSES | {"lambda_u": (150.0, PAPER + ": CIFAR-100 at 50, 80 and 90 %")},
        ),
        "cifar10n": Preset(
            "CIFAR-10N, and 32-pixel images whose wrong labels depend on the image", {"warmup_entropy": (1.0, HUMAN)}
        ),
        "cifar100n": Preset(
            "CIFAR-100N, and the like with about a hundred classes",
            MANY_CLASSES
            | {
                "lambda_u": (150.0, PAPER + ": CIFAR-100 at 50, 80 and 90 %"),
                "warmup_entropy": (1.0, HUMAN),
            },
        ),
        "oracle_cifar10n_low": Preset(
            "CIFAR-10N when the noise is known to be low (aggregate and random labels)",
            {"lambda_u": (0.0, "suggestion of CIFAR-N's authors for low noise"), "warmup_entropy": (1.0, HUMAN)},
        ),
        "oracle_cifar10_20": _oracle(10, "20 %", 0.0),
        "oracle_cifar10_50": _oracle(10, "50 %", 25.0),
        "oracle_cifar10_80": _oracle(10, "80 %", 25.0),
        "oracle_cifar10_90": _oracle(10, "90 %", 50.0),
        "oracle_cifar10_asymmetric_40": _oracle(10, "asymmetric 40 %", 0.0),
        "oracle_cifar100_20": _oracle(100, "20 %", 25.0),
        "oracle_cifar100_50": _oracle(100, "50 %", 150.0),
        "oracle_cifar100_80": _oracle(100, "80 %", 150.0),
        "oracle_cifar100_90": _oracle(100, "90 %", 150.0),
        "small": Preset(
            "images up to 28 pixels, features",
            {
                "epochs": (40, OURS),
                "warmup": (4, OURS),
                "batch_size": (64, OURS),
                "warmup_batch_size": (64, OURS),
                "passes": (2, OURS),
                "lr_drop": (33, OURS + " (the last fifth)"),
            },
            trace={"start": (3, OURS), "ramp": (3, OURS)},
        ),
        "large": Preset(
            "photos of more than 64 pixels",
            {name: (value, WEBVISION_OURS) for name, (value, _) in WEBVISION.items()}
            | {"epochs": (80, WEBVISION_OURS), "lr_drop": (40, WEBVISION_OURS)},
            trace=_trace_epochs(80),
        ),
        "webvision": Preset("WebVision, first 50 classes (InceptionResNetV2)", WEBVISION, trace=_trace_epochs(100)),
        "food101n": Preset(
            "Food-101N (ResNet-50, ImageNet weights)",
            {name: (value, CT) for name, (value, _) in PHOTOS.items()}
            | {"epochs": (30, CT), "lr": (0.002, CT), "lr_drop": (10, CT), "lr_second_drop": (20, CT)},
            trace=_trace_epochs(30),
        ),
        "clothing1m": Preset(
            "Clothing1M (ResNet-50, ImageNet weights; 32,000 samples an epoch: --epoch-samples)",
            PHOTOS
            | {
                "epochs": (80, CODE),
                "lr": (0.002, CODE),
                "lr_drop": (40, CODE),
                "weight_decay": (1e-3, CODE),
                "warmup_entropy": (1.0, CODE + ": Clothing1M"),
            },
            trace=_trace_epochs(80),
        ),
    }
    settings: DivideMixSettings

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """What every pair has, and whether the networks agreed in the scoring pass."""
        return super().fields(settings, num_classes) | {"agree": Field(dtype=torch.bool, fill=1.0)}

    @cached_property
    def mixing_weight(self) -> BetaWeight:
        """Mixup's weight of a step."""
        return BetaWeight(self.settings.alpha)

    def learning_rate(self, epoch: int) -> float:
        """Drop once, or twice."""
        s = self.settings
        return dropped(s.lr, s.lr_factor, epoch, s.lr_drop, *([s.lr_second_drop] if s.lr_second_drop else []))

    def pseudo(self, probabilities: Tensor) -> Tensor:
        """Return the sharpened mean of the networks' predictions: the guess of an unlabelled sample."""
        return self.sharpen(probabilities.mean(0))

    def sharpen(self, probabilities: Tensor) -> Tensor:
        """Return p^(1/T), rows brought to sum 1 again."""
        return sharpen(probabilities, 1 / self.settings.temperature)

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Warm both up, or: score with both, then train A with B's division and B with A's."""
        s = self.settings
        if epoch < s.warmup:
            self.warm_up(loop)
            return
        chosen = loop.chosen()
        self.remember(loop.score(), chosen)
        clean = [self.memory["posterior"][chosen, 1 - member] > s.threshold for member in (0, 1)]
        self.train_in_turn(
            loop,
            epoch,
            [(chosen[held], chosen[~held]) for held in clean],
            unlabelled="its peer holds no label clean",
            labelled="its peer holds every label clean",
        )

    def remember(self, scores: Scores, chosen: Tensor) -> None:
        """As every pair, and whether the networks agree."""
        super().remember(scores, chosen)
        if scores.agree is not None:
            self.memory["agree"][chosen] = scores.agree[chosen]

    def step(self, member: int, epoch: int | Tensor, batch: Batch) -> Outcome:
        """Refine labels, guess the missing ones, mix all rows and fit them."""
        s, network = self.settings, self.networks[member]
        with torch.no_grad():
            # unlabelled first, as the official code: the order in which the running statistics are moved
            halves = [half for half in (batch.beside, batch) if half is not None]
            views = [torch.cat(self.two_views(half)) for half in halves]
            own, peer = self.see(member, views)
            made = [self.refine(member, epoch, batch, own[-2:])]
            if peer:
                made.append(self.guess(epoch, own[:2], peer))
            inputs = torch.cat(views[::-1])
            target, weight = (torch.cat(column) for column in zip(*made, strict=True))
            labelled = 2 * len(batch.index)
            partner = permutation(batch.once.fork(0), len(inputs))
            share = self.mixing_weight(batch.once.fork(1))
            mixed = mix(inputs, partner if s.unlabelled else partner[:labelled], share)
        logits = network(mixed).logits
        fit = mixed_cross_entropy(logits[:labelled], target, weight, partner[:labelled], share)
        prior = prior_penalty(logits)
        loss = fit + s.lambda_p * prior
        logs = {"fit": fit.detach(), "prior": prior.detach()}
        if peer and s.unlabelled:
            guess = squared_error(
                logits[labelled:], mix(target, partner, share)[labelled:], mix(weight, partner, share)[labelled:]
            )
            loss = loss + s.lambda_u * ramp(epoch + batch.progress, 0, s.lambda_u_ramp) * guess
            logs["guess"] = guess.detach()
        return Outcome(loss, logs)

    @torch.no_grad()
    def see(self, member: int, views: list[Tensor]) -> tuple[list[Output], list[Tensor]]:
        """Look at the views of a step.

        Args:
            member: the network in training.
            views: [2B, …] each, a view below the other: of unlabelled samples, if there are any, and of labelled ones.

        Returns:
            What the network says of each view, and the probabilities [B, C] that its peer gives each unlabelled view.
        """
        network, peer, inputs = self.networks[member], self.networks[1 - member], torch.cat(views)
        own, rest = together(
            inputs.device,
            lambda: forward_parts(network, inputs, 2 * len(views)),
            lambda: [peer(unlabelled).logits.float().softmax(1) for unlabelled in views[:-1]],
        )
        return own, [view for both in rest for view in both.chunk(2)]

    @torch.no_grad()
    def refine(self, member: int, epoch: int | Tensor, batch: Batch, outputs: list[Output]) -> tuple[Tensor, Tensor]:
        """Return targets [2B, C] and weights [2B] of labelled samples by what their network says of either view."""
        controller = self.controller or Coupled()
        own = torch.stack([output.logits.float().softmax(1) for output in outputs]).mean(0)
        observed = one_hot(batch.observed, self.num_classes)
        clean = self.memory["posterior"][batch.index, 1 - member]
        supervision = controller(
            Evidence(
                observed=observed,
                pseudo=self.sharpen(own),
                clean=clean,
                votes=votes_of(self.memory["agree"][batch.index], self.num_classes),
                structure=self.structure(batch.index, [output.features for output in outputs], clean),
                epoch=epoch,
            )
        )
        a, b = supervision.a[:, None], supervision.b[:, None]
        b = torch.where(a + b > 0, b, 1.0)  # where nothing is trusted at all, the guess stands
        target = self.sharpen((a * observed + b * own) / (a + b))
        late = self.trace_orders(epoch)
        if isinstance(late, Tensor):
            target = torch.where(late, supervision.target, target)
        elif late:
            target = supervision.target
        return target.repeat(2, 1), supervision.weight.repeat(2)

    @torch.no_grad()
    def guess(self, epoch: int | Tensor, outputs: list[Output], peer: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return targets [2B, C] and weights [2B] of unlabelled samples by both networks; no label is looked at."""
        own = [output.logits.float().softmax(1) for output in outputs]
        target = self.sharpen(torch.stack([*own, *peer]).mean(0))
        weight = torch.ones_like(target[:, 0])
        if self.controller is not None and self.settings.trace_unlabelled:
            none = torch.zeros_like(weight)
            _, trust = self.controller.reliabilities(none, none, None, target.amax(1), epoch)
            weight = self.controller.weigh(none, trust)
        return target.repeat(2, 1), weight.repeat(2)

    def two_views(self, batch: Batch) -> list[Tensor]:
        """Return two independent weak views of a batch."""
        return [self.views.weak(batch.inputs, batch.draws.fork(number)) for number in (0, 1)]

    def trace_orders(self, epoch: int | Tensor) -> bool | Tensor:
        """Say whether TRACE's own target stands at this epoch: only once it has started."""
        return self.settings.trace_order == "trace" and takes_over(self.controller, epoch)
