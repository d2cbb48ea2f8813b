"""How far wrong labels turn the gradient of each stage: sensitivity G and the projection ratio P9.

TRACE, Preliminary Analysis: the same batch and the same weights, once with the observed and once with the true labels.
G is large only where the network fits true labels better than wrong ones, as in the first epochs: a network that has
learnt the wrong labels by heart has no gradient from them left, and G goes to 1. So measure it on several checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeltrace.diagnostics.stages import evaluating, stage_keys, stage_names
from labeltrace.diagnostics.values import undefined

EPS = 1e-12
LEAST = 1e-10  # a batch whose clean gradient is shorter says nothing
BATCHES, BATCH = 50, 128  # ours; the paper says "the same batch"


def sensitivity(noisy: Tensor, clean: Tensor) -> float:
    """Return ‖noisy − clean‖ / (‖clean‖ + ε) of two gradients [P].

    >>> sensitivity(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0]))
    1.25
    """
    return float((noisy - clean).norm() / (clean.norm() + EPS))


def projection_ratio(noisy: Tensor, clean: Tensor) -> float:
    """Return ⟨n, d⟩ / (‖n‖·‖d‖ + ε), d = n − c: the share of the noisy gradient along the direction of the noise.

    In [−1, 1]; 0 where both gradients agree. The paper names P9 but does not define it; this definition is ours.

    >>> round(projection_ratio(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])), 6)
    0.707107
    """
    noise = noisy - clean
    return float(noisy @ noise / (noisy.norm() * noise.norm() + EPS))


def orthogonal_share(noisy: Tensor, clean: Tensor) -> float:
    """Return √(1 − cos²(n, c)): another reading of P9, the share of the noisy gradient across the clean one.

    >>> round(orthogonal_share(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0])), 6)
    0.8
    """
    cosine = float(noisy @ clean / (noisy.norm() * clean.norm() + EPS))
    return math.sqrt(max(0.0, 1 - cosine**2))


def stage_gradients(network: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the gradient of the mean cross-entropy for the parameters of each stage, flattened to [P_l].

    In eval mode, so that no BatchNorm statistic moves; nothing is left in `.grad`.
    """
    named = dict(network.named_parameters())
    parts = stage_keys(network)
    keys = {stage: [key for key in parts[stage] if key in named] for stage in stage_names(network)}
    wanted = [named[key] for stage in keys for key in keys[stage]]
    with evaluating(network), torch.enable_grad():
        loss = F.cross_entropy(network(inputs).logits, labels)
        found = iter(torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True))
    empty = inputs.new_zeros(0, dtype=torch.float64)
    return {stage: torch.cat([empty, *(next(found).flatten().double() for _ in keys[stage])]) for stage in keys}


@dataclass(frozen=True)
class GradientFigures:
    """Means over batches, a value per stage; `skipped` batches had no clean gradient, `without` no wrong label."""

    sensitivity: dict[str, float]
    projection: dict[str, float]
    orthogonal: dict[str, float]
    batches: int
    skipped: int
    without: int


def gradient_figures(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor, Tensor]]) -> GradientFigures:
    """Return G, P9 and its alternative for every stage.

    G compares the two gradients of the whole batch and is 0 for a batch without a wrong label. P9 is taken over the
    wrongly labelled samples of a batch alone, so such a batch has none. Samples of unknown truth (−1) are left out.

    Args:
        network: returns `Output`.
        batches: (inputs, observed labels, true labels), on the network's device, without augmentation.
    """
    names = stage_names(network)
    sums: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in names} for kind in ("g", "p", "o")}
    count = skipped = without = 0
    for inputs, observed, truth in batches:
        known = truth >= 0
        inputs, observed, truth = inputs[known], observed[known], truth[known]
        if not len(truth):
            continue
        count += 1
        clean = stage_gradients(network, inputs, truth)
        wrong = observed != truth
        if torch.cat(list(clean.values())).norm() < LEAST:
            skipped += 1
        elif not bool(wrong.any()):
            for name in names:
                sums["g"][name].append(0.0)
        else:
            noisy = stage_gradients(network, inputs, observed)
            for name in names:
                if clean[name].norm() >= LEAST:
                    sums["g"][name].append(sensitivity(noisy[name], clean[name]))
        if not bool(wrong.any()):
            without += 1
            continue
        right, turned = (stage_gradients(network, inputs[wrong], labels[wrong]) for labels in (truth, observed))
        for name in names:
            if len(right[name]):
                sums["p"][name].append(projection_ratio(turned[name], right[name]))
                sums["o"][name].append(orthogonal_share(turned[name], right[name]))
    if without == count:
        undefined("projection of noisy gradients: no batch holds a wrong label")
    means = {kind: {name: _mean(values) for name, values in stages.items()} for kind, stages in sums.items()}
    return GradientFigures(means["g"], means["p"], means["o"], count, skipped, without)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
