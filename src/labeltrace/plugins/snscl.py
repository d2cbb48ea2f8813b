"""SNSCL, stochastic noise-tolerated supervised contrastive learning (Wei, Feng, Sun, Wang, Guo, Yin, CVPR 2023; arXiv
2303.02404): a rival plug-in that changes what features learn and leaves trust alone.

A contrastive loss beside the learner's own: an anchor shall be near to past projections of its class, which lie in a
queue for each class and come from a slowly following copy of the network. Anchors whose label is not believed take the
predicted class instead, and enter its queue only with the probability that their label is right. In place of a stronger
augmentation a second feature is drawn from a Gaussian that the network predicts and that is held near to N(0, I).

The official code (1998v7/SNSCL) is of fine-grained sets alone. What it does that is done otherwise here:
  - it draws ε + s·μ in place of μ + s·ε;
  - a rejected projection still overwrites the slot at the pointer, which only does not move on;
  - it looks the weight of an unreliable sample up under another sample's number.
On DivideMix and f-DivideMix the attachment is ours, as no code of it is released. Each network has a projection, a
Gaussian, a following copy and queues of its own. Anchors of labelled samples have their observed label and weight 1;
those of unlabelled ones have the class of DivideMix's guess and the peer's clean posterior as weight. Queries are made
of the first weak view, keys of the second. DivideMix's losses, guesses and division stay as they are, and their weight
is 1, not 0.1. The copy begins as the network is at the end of warm-up; its statistics are those of its own forwards.
Queues belong to one process, so several ranks are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeltrace.learners import Batch, DivideMix, FDivideMix, Learner, Loop, Outcome
from labeltrace.learners.average import Average
from labeltrace.learners.heads import last_feature, last_width
from labeltrace.learners.settings import LearnerSettings, setting
from labeltrace.models.output import Output
from labeltrace.plugins.base import Plugin, PluginSettings, plugins
from labeltrace.plugins.queues import Queues

CODE = "official code (1998v7/SNSCL)"
PAGE = "ours: the plug-in is not part of the official code"


@dataclass(frozen=True)
class SNSCLSettings(PluginSettings):
    """Settings of SNSCL."""

    weight: float = setting(1.0, CODE + ": of the contrastive losses, beside 0.1 for the classifier's; here beside 1")
    kl_weight: float = setting(1e-4, CODE + ": of the Gaussian's distance from N(0, I)")
    width: int = setting(128, PAGE + "; its runs have 1024 on a ResNet-18 for large images")
    slots: int = setting(32, CODE + ": Q, projections kept of each class")
    temperature: float = setting(0.07, CODE + ": τ")
    decay: float = setting(0.999, CODE + ": m, of the following copy")

    def __post_init__(self) -> None:
        for name, holds, expected in (
            ("weight", self.weight >= 0, "≥ 0"),
            ("kl_weight", self.kl_weight >= 0, "≥ 0"),
            ("width", self.width >= 1, "≥ 1"),
            ("slots", self.slots >= 1, "≥ 1"),
            ("temperature", self.temperature > 0, "> 0"),
            ("decay", 0 <= self.decay < 1, "0 ≤ decay < 1"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")


class Contrasting(nn.Module):
    """A classifier with a projection of its last feature, and a Gaussian around that feature.

    Args:
        body: returns `Output`.
        width: of its last feature.
        outputs: of the projection.

    >>> from labeltrace.models import build_model
    >>> network = Contrasting(build_model("mlp", num_classes=2, input_shape=(4,)), 128, 8)
    >>> feature = network(torch.zeros(3, 4), branch="feature")
    >>> feature.shape, network(feature, branch="project").shape, [x.shape for x in network(feature, branch="gaussian")]
    (torch.Size([3, 128]), torch.Size([3, 8]), [torch.Size([3, 128]), torch.Size([3, 128])])
    """

    def __init__(self, body: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.body = body
        self.project = nn.Linear(width, outputs)
        self.mean, self.log_variance = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, branch: str = "classify") -> Output | Tensor | tuple[Tensor, Tensor]:
        """Return the body's output for inputs, their last feature, or of features the projection or the Gaussian."""
        if branch == "project":
            return F.normalize(self.project(x).float(), dim=1)
        if branch == "gaussian":
            return self.mean(x), self.log_variance(x)
        output: Output = self.body(x)
        if branch == "classify":
            return output
        if branch == "feature":
            return last_feature(output)
        raise ValueError(f"unknown branch {branch!r}: known are classify, feature, project, gaussian")


class Following(Average):
    """A network's following copy that stays in train mode, its statistics being those of its own forwards."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        super().__init__(network, decay)
        self.module.train()

    def _copy_buffers(self, network: nn.Module) -> None:
        """Nothing: what it sees are the keys."""


class Contrasted(DivideMix):
    """DivideMix or f-DivideMix with the contrastive loss of either network; what goes before the learner's class."""

    snscl: ClassVar[SNSCLSettings]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        s, device = self.snscl, self.memory["structure"].device
        self.following = [Following(network, s.decay) for network in self.networks]
        self.queues = [Queues(self.num_classes, s.slots, s.width).to(device) for _ in self.networks]
        self._views: list[list[Tensor]] = []
        self._guessed: Tensor | None = None

    @classmethod
    def extend(cls, settings: LearnerSettings, network: nn.Module, sample: Tensor) -> nn.Module:
        """Add the projection and the Gaussian."""
        return Contrasting(network, last_width(network, sample), cls.snscl.width)

    def companions(self) -> dict[str, nn.Module]:
        """The learner's, the following copies and the queues."""
        added = {f"following {name}": one.module for name, one in zip("AB", self.following, strict=True)}
        return super().companions() | added | {f"queues {n}": q for n, q in zip("AB", self.queues, strict=True)}

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Let the copies begin with the networks as warm-up leaves them, then train."""
        if epoch <= self.settings.warmup:
            for copy, network in zip(self.following, self.networks, strict=True):
                copy.copy(network)
        super().epoch(loop, epoch)

    def two_views(self, batch: Batch) -> list[Tensor]:
        """As DivideMix; they are looked at once more."""
        self._views.append(super().two_views(batch))
        return self._views[-1]

    def guess(self, epoch: int | Tensor, outputs: list[Output], peer: list[Tensor]) -> tuple[Tensor, Tensor]:
        """As DivideMix; the class of a guess is an anchor's label."""
        target, weight = super().guess(epoch, outputs, peer)
        self._guessed = target[: len(target) // 2].argmax(1)
        return target, weight

    def step(self, member: int, epoch: int | Tensor, batch: Batch) -> Outcome:
        """L = DivideMix's + Σ over labelled and unlabelled samples of the contrastive loss and the Gaussian's KL."""
        self._views.clear()
        outcome = super().step(member, epoch, batch)
        parts = [(batch, batch.observed, torch.ones_like(self.memory["structure"][batch.index]))]
        if batch.beside is not None:
            assert self._guessed is not None
            clean = self.memory["posterior"][batch.beside.index, 1 - member]
            parts.append((batch.beside, self._guessed, clean))
        found = [
            self.contrast(member, views, part, labels, weight)
            for views, (part, labels, weight) in zip(self._views[::-1], parts, strict=True)
        ]
        contrast, distance = (torch.stack(column).sum() for column in zip(*found, strict=True))
        loss = outcome.loss + self.snscl.weight * contrast + self.snscl.kl_weight * distance
        return Outcome(loss, {**outcome.logs, "contrast": contrast.detach(), "kl": distance.detach()})

    def contrast(
        self, member: int, views: list[Tensor], batch: Batch, labels: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the contrastive loss of one part of a batch, and its Gaussians' KL; put its keys into the queues.

        Args:
            member: the network in training.
            views: two of the part's samples, [B, …] each.
            batch: the part.
            labels: [B] of the anchors.
            weight: [B] with what probability a key enters its queue.
        """
        network, copy, queues = self.networks[member], self.following[member], self.queues[member]
        feature: Tensor = network(views[0], branch="feature")
        with torch.no_grad():
            copy.update(network)
            followed: Tensor = copy.module(views[1], branch="feature")
        drawn, distance = self.sample(network, feature, batch.draws.fork(10).normal(feature.shape[1]))
        around, other = self.sample(network, followed, batch.draws.fork(11).normal(feature.shape[1]))
        queries = torch.cat([network(x, branch="project") for x in (feature, drawn)])
        with torch.no_grad():
            keys = torch.cat([copy.module(x, branch="project") for x in (followed, around.detach())])
        both = labels.repeat(2)
        loss = queues.loss(queries, keys, both, self.snscl.temperature)
        accepted = torch.cat([batch.draws.fork(tag).uniform(1)[:, 0] < weight for tag in (12, 13)])
        queues.put(keys, both, accepted)
        return loss, distance + other

    def sample(self, network: nn.Module, feature: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ + s·ε of features [B, D], and the mean over them of KL(N(μ, s²) ‖ N(0, I))."""
        mean, log_variance = (x.float() for x in cast(tuple[Tensor, Tensor], network(feature, branch="gaussian")))
        distance = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        return mean + (0.5 * log_variance).exp() * noise, distance


@plugins.register("snscl", "SNSCL: a contrastive loss with queues of each class, which doubtful labels enter by chance")
class SNSCL(Plugin):
    """Attach a projection, a following copy and queues to each network."""

    name = "snscl"
    alone = True
    settings_type = SNSCLSettings
    attached: ClassVar[Mapping[str, type]] = {DivideMix.name: Contrasted, FDivideMix.name: Contrasted}

    def extras(self, learner: type[Learner]) -> dict[str, Any]:
        """The settings."""
        return {"snscl": self.settings}
