"""What every network returns: the logits, and one pooled feature vector per stage for the relation drift."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn

from labeltrace.errors import InputError, nearest

POOLINGS = ("gap", "flatten")


class Output(NamedTuple):
    """Logits [B, C] and the pooled features of the stages, shallow to deep, each [B, D_l].

    >>> import torch
    >>> output = Output(logits=torch.zeros(2, 3), features=(torch.zeros(2, 8), torch.zeros(2, 4)))
    >>> [tuple(feature.shape) for feature in output.features]
    [(2, 8), (2, 4)]
    """

    logits: Tensor
    features: tuple[Tensor, ...]


def check_pooling(pooling: str) -> str:
    """Return `pooling` when it is a known name, so that a misspelling fails when a model is built, not when it runs.

    Args:
        pooling: "gap" or "flatten".

    Returns:
        The same name.

    Raises:
        InputError: the name is unknown; the message holds the nearest one.

    >>> check_pooling("gap")
    'gap'
    >>> check_pooling("gpa")
    Traceback (most recent call last):
    labeltrace.errors.InputError: unknown pooling 'gpa': did you mean 'gap'?
    """
    if pooling not in POOLINGS:
        raise InputError(f"unknown pooling {pooling!r}: {nearest(pooling, POOLINGS)}")
    return pooling


def pool(feature: Tensor, pooling: str) -> Tensor:
    """Turn the output of a stage into one vector per sample.

    "gap": `out[b, d] = mean over s of feature[b, d, s]`, s running over every axis after the channels; "flatten":
    all axes but the first in one. The channels are axis 1, as in torch's convolutions.

    Args:
        feature: [B, D] or [B, D, ...].
        pooling: "gap" (TRACE's default here) or "flatten".

    Returns:
        [B, D] for "gap", [B, D * ...] for "flatten"; a [B, D] feature is returned as it is.

    Raises:
        InputError: `pooling` is unknown, or the feature has no axis besides the batch.

    >>> import torch
    >>> maps = torch.arange(8.0).reshape(1, 2, 2, 2)
    >>> pool(maps, "gap")
    tensor([[1.5000, 5.5000]])
    >>> pool(maps, "flatten").shape
    torch.Size([1, 8])
    """
    check_pooling(pooling)
    if feature.ndim < 2:
        raise InputError(f"a feature of shape {tuple(feature.shape)} cannot be pooled: expected [B, D] or [B, D, ...]")
    if feature.ndim == 2:
        return feature
    return feature.flatten(2).mean(dim=2) if pooling == "gap" else feature.flatten(1)


def walk(x: Tensor, stages: Iterable[nn.Module], pooling: str) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return what comes out of the last of `stages`, one after another, and the pooled output of each.

    >>> import torch
    >>> x, features = walk(torch.ones(2, 3, 4, 4), (nn.Identity(), nn.MaxPool2d(2)), "gap")
    >>> x.shape, [tuple(feature.shape) for feature in features]
    (torch.Size([2, 3, 2, 2]), [(2, 3), (2, 3)])
    """
    features = []
    for stage in stages:
        x = stage(x)
        features.append(pool(x, pooling))
    return x, tuple(features)
