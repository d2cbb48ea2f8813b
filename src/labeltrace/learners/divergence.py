"""How far a prediction is from a label, and how far that is for its class (CrossSplit's measure of disagreement).

The Jensen–Shannon divergence of a one-hot label and a prediction depends on nothing but the probability of the label,
so the losses of a scoring pass hold all of it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labeltrace.scoring.checks import work

MOST = math.log(2)  # the divergence from a prediction that rules the label out


def label_divergence(probability: Tensor) -> Tensor:
    """Return JSD(one-hot y, p) = ln 2 + ½[a ln a − (1 + a) ln(1 + a)] with a = p_y, in [0, ln 2].

    It is ½KL(y‖m) + ½KL(p‖m), m = (y + p)/2, in nats; the classes other than y add (1 − a) ln 2 together.

    Args:
        probability: a of each sample, of any shape.

    >>> label_divergence(torch.tensor([1.0, 0.7, 0.1, 0.0]))
    tensor([0.0000, 0.1173, 0.5256, 0.6931])
    """
    a = work(probability)
    return (MOST + (torch.xlogy(a, a) - (1 + a) * torch.log1p(a)) / 2).clamp_min(0)


def class_ranges(divergence: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return the least and the largest divergence of each observed class, [M, 2, C].

    A class without samples has least ln 2 and largest 0, a range that `class_normalised` takes for none.

    Args:
        divergence: [M, N] of M networks.
        labels: [N] observed classes.
        num_classes: C.

    >>> class_ranges(torch.tensor([[0.1, 0.6, 0.3]]), torch.tensor([0, 0, 1]), 2)
    tensor([[[0.1000, 0.3000],
             [0.6000, 0.3000]]])
    """
    columns = labels.expand_as(divergence)
    shape = len(divergence), num_classes
    low = divergence.new_full(shape, MOST).scatter_reduce(1, columns, divergence, "amin")
    high = divergence.new_zeros(shape).scatter_reduce(1, columns, divergence, "amax")
    return torch.stack([low, high], 1)


def class_normalised(divergence: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return n = clip((J − low)/(high − low), 0, 1), and ½ where low and high do not differ.

    Args:
        divergence: J of each sample, of any shape.
        low: the least of its observed class, of the same shape.
        high: the largest.

    >>> low, high = torch.tensor([0.1, 0.1, 0.3]), torch.tensor([0.5, 0.5, 0.3])
    >>> class_normalised(torch.tensor([0.2, 0.6, 0.3]), low, high)
    tensor([0.2500, 1.0000, 0.5000])
    """
    extent = high - low
    spread = extent > 0
    share = (divergence - low) / torch.where(spread, extent, 1.0)
    return torch.where(spread, share.clamp(0, 1), 0.5)
