"""Are wrongly labelled samples drawn to the prototype of their wrong class? Flip rate and attraction gap (P10)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labeltrace.diagnostics.values import mean, undefined
from labeltrace.errors import InputError


@dataclass(frozen=True)
class Attraction:
    """`flip` is a share, `gap` a distance in units of the features; of `count` wrongly labelled samples."""

    flip: float
    gap: float
    count: int


def prototype_attraction(
    features: Tensor, observed: Tensor, truth: Tensor, *, leave_one_out: bool = False
) -> Attraction:
    """Return how wrongly labelled samples lie between the prototypes of their true and of their observed class.

    flip = mean [d_obs < d_clean] (a tie is no flip), gap = mean (d_clean − d_obs), where d_clean = ‖h − μ_clean(y*)‖,
    d_obs = ‖h − μ_obs(ŷ)‖ and the prototypes are the means of the features by true and by observed class.

    Args:
        features: [N, D], as they are: no normalisation.
        observed: [N] observed classes.
        truth: [N] true classes, −1 where unknown.
        leave_one_out: take the prototypes without the sample itself; a class of this one sample is then skipped.

    >>> h = torch.tensor([[0.0], [2.0], [3.0], [10.0]])
    >>> prototype_attraction(h, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1]))  # 3 lies at 5/3 and at 6.5
    Attraction(flip=0.0, gap=-2.16..., count=1)
    """
    if not len(features) == len(observed) == len(truth):
        raise InputError(f"{len(features)} features, {len(observed)} observed and {len(truth)} true labels")
    features = features.double()
    classes = int(max(observed.max(), truth.max())) + 1 if len(truth) else 0
    known = truth >= 0
    wrong = (known & (observed != truth)).nonzero()[:, 0]
    distances, there = [], torch.ones(len(wrong), dtype=torch.bool, device=features.device)
    for labels, members in ((truth, known), (observed, torch.ones_like(known))):
        sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels[members], features[members])
        counts = torch.bincount(labels[members], minlength=classes).double()
        own, weight = sums[labels[wrong]], counts[labels[wrong]]
        if leave_one_out:
            own, weight = own - features[wrong], weight - 1
        there &= weight > 0
        distances.append((features[wrong] - own / weight.clamp(min=1)[:, None]).norm(dim=1))
    clean, noisy = distances[0][there], distances[1][there]
    if not len(clean):
        undefined("prototype flipping: no sample with a wrong label")
    return Attraction(mean(noisy < clean), mean(clean - noisy), len(clean))
