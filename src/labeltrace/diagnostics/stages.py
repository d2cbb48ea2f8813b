"""The stages of a network: what they say of each sample, and which of its parameters belong to which."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.learners.heads import Headed
from labeltrace.models import Staged, pool
from labeltrace.models.inception_resnet_v2 import InceptionResNetV2
from labeltrace.models.mlp import MLP

STEM, HEAD = "stem", "head"


def stage_names(network: nn.Module) -> list[str]:
    """Return the names of the stages, shallow to deep, as the paper writes them.

    >>> from labeltrace.models import build_model
    >>> stage_names(build_model("small_cnn", num_classes=10, input_shape=(1, 8, 8)))
    ['layer1', 'layer2', 'layer3', 'layer4']
    """
    return [f"layer{number + 1}" for number in range(len(_stage_modules(network)))]


def stage_keys(network: nn.Module) -> dict[str, list[str]]:
    """Return which entries of the state (parameters and buffers) belong to "stem", "layer1", …, "head".

    A stage owns its module, and what stands between the stage before and it; the stem is what stands before the first
    stage, the head what stands after the last. Every entry is in one part, so all parts together are the network.

    Raises:
        InputError: a network whose stages have no names here; wrap it in `Staged`.

    >>> from labeltrace.models import build_model
    >>> keys = stage_keys(build_model("small_cnn", num_classes=10, input_shape=(1, 8, 8)))
    >>> list(keys), keys["head"]
    (['stem', 'layer1', 'layer2', 'layer3', 'layer4', 'head'], ['fc.weight', 'fc.bias'])
    """
    place = {name: number for number, (name, _) in enumerate(network.named_modules())}
    ends = []  # place of the last module of each stage
    for stage in _stage_modules(network):
        ends.append(max((place[name] for name in place if _inside(name, stage)), default=-1))
    starts = [place[stage] if stage else -1 for stage in _stage_modules(network)]
    parts: dict[str, list[str]] = {name: [] for name in (STEM, *stage_names(network), HEAD)}
    names = list(parts)
    for key in network.state_dict():
        at = place[key.rpartition(".")[0]]
        if at < starts[0]:
            parts[STEM].append(key)
        else:  # the first stage that has not ended before it; the head where all have
            parts[names[1 + sum(end < at for end in ends)]].append(key)
    return parts


@contextmanager
def evaluating(network: nn.Module) -> Iterator[nn.Module]:
    """Hold the network in eval mode; it gets its modes back."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield network
    finally:
        for module, mode in modes:
            module.training = mode


@torch.no_grad()
def stage_features(network: nn.Module, batches: Iterable[Tensor]) -> list[Tensor]:
    """Return the features of every stage over a set: L tensors [N, D_l] on the CPU, averaged over positions.

    Args:
        network: returns `Output`; runs in eval mode.
        batches: inputs as the network takes them, on its device.

    >>> from labeltrace.models import build_model
    >>> network = build_model("mlp", num_classes=3, input_shape=(5,))
    >>> [tuple(f.shape) for f in stage_features(network, [torch.zeros(4, 5), torch.zeros(2, 5)])]
    [(6, 5), (6, 256), (6, 256), (6, 128)]
    """
    parts = []
    with evaluating(network), pooled(network, "gap"):
        for batch in batches:
            parts.append([pool(feature, "gap").float().cpu() for feature in network(batch).features])
    if not parts:
        raise InputError("there are no samples to take features of")
    return [torch.cat(stage) for stage in zip(*parts, strict=True)]


@torch.no_grad()
def accuracy(network: nn.Module, batches: Iterable[Tensor], labels: Tensor) -> float:
    """Return the share of samples whose largest logit is that of their label, in eval mode; labels [N] on the CPU."""
    with evaluating(network):
        predicted = torch.cat([network(batch).logits.argmax(1).cpu() for batch in batches])
    return float((predicted == labels).double().mean())


@contextmanager
def pooled(network: nn.Module, pooling: str) -> Iterator[nn.Module]:
    """Let the network return its features pooled this way, "gap" or "flatten", whatever it was built for."""
    before = [(m, m.pooling) for m in network.modules() if isinstance(getattr(m, "pooling", None), str)]
    for module, _ in before:
        module.pooling = pooling  # type: ignore[assignment]
    try:
        yield network
    finally:
        for module, old in before:
            module.pooling = old


def _stage_modules(network: nn.Module) -> Sequence[str]:
    """Names of the submodules whose outputs are the stage features; "" where a stage is the bare input."""
    if isinstance(network, Headed):
        return [f"body.{name}" if name else "" for name in _stage_modules(network.body)]
    if isinstance(network, Staged):
        return [f"module.{name}" for name in network.stages]
    if isinstance(network, MLP):
        return ["", *(f"layers.{number}" for number in range(len(network.layers)))]
    if isinstance(network, InceptionResNetV2):
        return ["mixed_5b", "repeat", "repeat_1", "conv2d_7b"]
    named = list(itertools.takewhile(lambda name: hasattr(network, name), (f"layer{n}" for n in range(1, 100))))
    if not named:
        raise InputError(
            f"{type(network).__name__} has no layer1, layer2, …: name its stages with labeltrace.models.Staged"
        )
    return named


def _inside(name: str, stage: str) -> bool:
    return bool(stage) and (name == stage or name.startswith(stage + "."))
