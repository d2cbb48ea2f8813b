"""L2B, Learning to Bootstrap (Zhou, Li, Liu, Wei, Chen, Yu, Xie, Lungren, Xing, CVPR 2024; arXiv 2202.04291): a rival
plug-in that gives every sample two weights of its own, one for its label and one for what the network says.

The weights are what a small set to be judged by asks for: had a step of gradient descent weighed a loss a little more,
would the loss of that set have fallen? What it would have fallen by, brought to sum one over the batch and both kinds
of loss, and cut off at zero, is the weight. So samples are weighed and relabelled at once, in a step of its own after
each of the learner's.

As the official code (yuyinzhou/L2B) has it on DivideMix: only the first network gets the step; its samples are both
views of the labelled and of the unlabelled ones, unmixed; "the label" is DivideMix's refined or guessed target, and
what the network says is its class for that view after DivideMix's own step; the gradient's norm is at most 0.8.
What is otherwise here:
  - the set to be judged by is the labelled part with its observed labels. The published figures had 1,000 labels known
    to be right (the flag that turns them off is read as true whatever it says); no method here sees the truth;
  - the virtual step is plain gradient descent from where the network stands. The code's has momentum and weight decay,
    which displaces it before any weight counts;
  - what a weight gains is a product of two gradients. It is found by one derivative forwards, so nothing is
    differentiated twice; batch normalisation is in it, and running statistics see the real forward alone;
  - labelled and unlabelled batches are DivideMix's 64, where this code has 128.
The weights of a batch belong together, so several ranks are refused. On f-DivideMix the step is the same, and ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from labeltrace.control.evidence import one_hot
from labeltrace.learners import Batch, DivideMix, FDivideMix, Learner, Loop, Outcome
from labeltrace.learners.settings import setting
from labeltrace.models.output import Output
from labeltrace.plugins.base import Plugin, PluginSettings, plugins

CODE = "official code (yuyinzhou/L2B)"
KINDS = ("rectified", "softmax", "sigmoid")


@dataclass(frozen=True)
class L2BSettings(PluginSettings):
    """Settings of Learning to Bootstrap."""

    weights: str = setting("rectified", CODE + ": CIFAR ('softmax' on ISIC2019; 'sigmoid' is there too)")
    temperature: float = setting(10.0, CODE + ": of 'softmax', ISIC2019")
    clip: float = setting(0.8, CODE + ": largest norm of the gradient on CIFAR (0: any norm, on Clothing1M)")

    def __post_init__(self) -> None:
        if self.weights not in KINDS:
            raise ValueError(f"weights: {self.weights!r}, expected one of {', '.join(KINDS)}")
        if self.temperature <= 0:
            raise ValueError(f"temperature: {self.temperature!r}, expected > 0")
        if self.clip < 0:
            raise ValueError(f"clip: {self.clip!r}, expected ≥ 0")


def gains(logits: Tensor, tangent: Tensor, targets: Tensor) -> Tensor:
    """Return [K, B] by how much each loss would fall along a direction of the weights, for K targets of each sample.

    Args:
        logits: [B, C].
        tangent: [B, C] how the logits change along the direction.
        targets: [K, B, C].

    >>> gains(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]), torch.eye(2)[:, None])
    tensor([[ 0.5000],
            [-0.5000]])
    """
    return ((logits.softmax(1) - targets) * tangent).sum(2)


def weights_of(gain: Tensor, kind: str = "rectified", temperature: float = 10.0) -> Tensor:
    """Return weights like `gain` that are no less than zero and sum to one, or are all zero where nothing is gained.

    >>> weights_of(torch.tensor([[1.0, -2.0], [3.0, 0.0]]))
    tensor([[0.2500, 0.0000],
            [0.7500, 0.0000]])
    """
    if kind == "softmax":
        return (gain / temperature).flatten().softmax(0).view_as(gain)
    raised = gain.sigmoid() if kind == "sigmoid" else gain.relu()
    return raised / (raised.sum() + 1e-10)


def look(network: nn.Module, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """Return the logits [B, C] that a network gives with other parameters; its running statistics stay as they are."""
    state = {**parameters, **{name: buffer.clone() for name, buffer in network.named_buffers()}}
    with torch.compiler.set_stance("force_eager"):  # the compiler knows no derivatives forwards
        # Fabric has its network under two names, which torch would tie and then restore wrongly.
        output: Output = torch.func.functional_call(network, state, (inputs,), tie_weights=False)
    return output.logits.float()


@torch.no_grad()
def tangent_of(network: nn.Module, inputs: Tensor, direction: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the logits [B, C] of inputs, and how they change as the parameters move along a direction."""
    # torch.func's derivative forwards does not get on with autocast, and attention in one kernel has none
    with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
        pairs = zip(network.parameters(), direction, strict=True)
        moving = {parameter: forward_ad.make_dual(parameter.detach(), along) for parameter, along in pairs}
        state = {  # under all of its names, so that a parameter that two layers share moves in both
            name: moving[parameter]
            for place, module in network.named_modules()
            for name, parameter in module.named_parameters(place, recurse=False, remove_duplicate=False)
        }
        logits, tangent = forward_ad.unpack_dual(look(network, state, inputs))
    assert tangent is not None
    return logits, tangent


class Bootstrapped(DivideMix):
    """DivideMix or f-DivideMix whose first network takes a weighed step after each of its own."""

    l2b: ClassVar[L2BSettings]
    _rate = 0.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._views: list[list[Tensor]] = []
        self._targets: list[Tensor] = []

    def turn(self, loop: Loop, member: int, epoch: int, known: Tensor) -> dict[str, Any]:
        """As DivideMix; in the first network's turn the step is followed by the other."""
        turn = super().turn(loop, member, epoch, known)
        if member:
            return turn
        self._rate = self.learning_rate(epoch)
        return turn | {"step": [turn["step"], partial(self.bootstrap, loop)], "meta": known}

    def step(self, member: int, epoch: int | Tensor, batch: Batch) -> Outcome:
        """As DivideMix; its views and targets are looked at once more."""
        self._views.clear()
        self._targets.clear()
        return super().step(member, epoch, batch)

    def two_views(self, batch: Batch) -> list[Tensor]:
        """As DivideMix."""
        self._views.append(super().two_views(batch))
        return self._views[-1]

    def refine(self, member: int, epoch: int | Tensor, batch: Batch, outputs: list[Output]) -> tuple[Tensor, Tensor]:
        """As DivideMix."""
        target, weight = super().refine(member, epoch, batch, outputs)
        self._targets.append(target)
        return target, weight

    def guess(self, epoch: int | Tensor, outputs: list[Output], peer: list[Tensor]) -> tuple[Tensor, Tensor]:
        """As DivideMix."""
        target, weight = super().guess(epoch, outputs, peer)
        self._targets.append(target)
        return target, weight

    def bootstrap(self, loop: Loop, batch: Batch) -> Outcome:
        """L = Σ w₁ CE(target) + w₂ CE(what the network says); the weights take no gradient."""
        assert batch.meta is not None
        network, meta = self.networks[0], batch.meta
        judged = look(network, dict(network.named_parameters()), self.views.weak(meta.inputs, meta.draws))
        direction = loop.gradient(F.cross_entropy(judged, meta.observed), list(network.parameters()))
        inputs = torch.cat([view for views in self._views[::-1] for view in views])  # labelled first, as the targets
        tried, tangent = tangent_of(network, inputs, direction)
        gain = self._rate * gains(tried, tangent, self.both_targets(tried))
        weights = weights_of(gain, self.l2b.weights, self.l2b.temperature)
        logits = network(inputs).logits.float()  # other ones where the network has dropout
        losses = [F.cross_entropy(logits, target, reduction="none") for target in self.both_targets(logits.detach())]
        loss = (weights * torch.stack(losses)).sum()
        return Outcome(loss, {"bootstrap": loss.detach(), "said": weights[1].sum()}, clip=self.l2b.clip or None)

    def both_targets(self, logits: Tensor) -> Tensor:
        """Return [2, B, C] the target of each sample of a step, and what logits [B, C] say of it."""
        return torch.stack([torch.cat(self._targets), one_hot(logits.argmax(1), self.num_classes)])


@plugins.register(
    "l2b", "Learning to Bootstrap: a step whose weights for label and prediction lower the clean part's loss"
)
class LearningToBootstrap(Plugin):
    """Attach a weighed step to the first network."""

    name = "l2b"
    alone = True
    settings_type = L2BSettings
    attached: ClassVar[Mapping[str, type]] = {DivideMix.name: Bootstrapped, FDivideMix.name: Bootstrapped}

    def extras(self, learner: type[Learner]) -> dict[str, Any]:
        """The settings."""
        return {"l2b": self.settings}
