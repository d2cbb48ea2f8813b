"""Relation drift: how far a sample's neighbours change from shallow to deep stages of a network.

TRACE (Method, "Observed-Label Reliability"): cosine relations in a batch, cut to the k nearest and symmetrised, one
matrix per stage; the drift of a sample is the way its row moves from stage to stage; small drift means confidence.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from labeltrace.scoring.checks import check_finite, check_rows, looks_free, work

DRIFT_NORMS = ("minmax", "rank")
TRANSITIONS = ("all", "last")
POOLINGS = ("gap", "flatten")


def relation_matrix(features: Tensor, k: int) -> Tensor:
    """Return the sparse symmetric relation matrix R = ½(A⊙M + (A⊙M)ᵀ) of a batch.

    A is the cosine similarity; M keeps, per row, the sample itself and its k largest off-diagonal similarities (ties:
    lowest column). Mutual neighbours keep A, one-sided ones half of it. A zero feature has an all-zero row.

    Args:
        features: [B, D…], flattened per sample.
        k: neighbours kept; clamped to B−1.

    Returns:
        [B, B], float32 (float64 for float64 features).

    Raises:
        ValueError: k < 1, no batch dimension, NaN or infinite features (with the index, on the CPU).

    >>> relation_matrix(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), k=1)
    tensor([[1., 1., 0.],
            [1., 1., 0.],
            [0., 0., 1.]])
    """
    if features.ndim < 2:
        raise ValueError(f"features: shape {tuple(features.shape)}, expected [B, D…]")
    check_finite("features", features)
    with torch.autocast(features.device.type, enabled=False):
        return _relations(features.flatten(1)[None], _neighbours(k, features.shape[0]))[0]


def relation_drift(layers: Sequence[Tensor], k: int, transitions: str = "all") -> Tensor:
    """Return δ_i = Σ_l ‖R_i^(l+1) − R_i^(l)‖₂ / √B, the drift of each sample's relations from shallow to deep.

    Args:
        layers: L ≥ 2 tensors [B, D…], shallow to deep.
        k: neighbours kept per row; clamped to B−1.
        transitions: "all" sums every step between neighbouring stages (the paper), "last" takes the deepest only.

    Returns:
        [B], between 0 and 2(L−1).

    Raises:
        ValueError: fewer than two layers, layers of different batch size, k < 1, NaN features.

    >>> shallow, deep = torch.eye(3), torch.ones(3, 2)
    >>> relation_drift([shallow, deep], k=2)
    tensor([0.8165, 0.8165, 0.8165])
    """
    if len(layers) < 2:
        raise ValueError(f"layers: {len(layers)} stage given, expected at least 2 (drift is a change between stages)")
    for number, layer in enumerate(layers):
        if layer.ndim < 2:
            raise ValueError(f"layers[{number}]: shape {tuple(layer.shape)}, expected [B, D…]")
        check_rows(f"layers[{number}]", layer, layers[0].shape[0], "layers[0]")
        check_finite(f"layers[{number}]", layer)
    with torch.autocast(layers[0].device.type, enabled=False):
        return grouped_drift([layer.flatten(1)[None] for layer in layers], k, transitions)[0]


def grouped_drift(layers: Sequence[Tensor], k: int, transitions: str = "all") -> Tensor:
    """Return the drift inside each of G groups at once: L tensors [G, B, D] → [G, B]."""
    if transitions not in TRANSITIONS:
        raise ValueError(f"transitions: {transitions!r}, expected one of {', '.join(TRANSITIONS)}")
    size = layers[0].shape[1]
    neighbours = _neighbours(k, size)
    used = layers if transitions == "all" else layers[-2:]
    relations = [_relations(layer, neighbours) for layer in used]
    steps = [(deep - shallow).norm(dim=2) for shallow, deep in itertools.pairwise(relations)]
    return torch.stack(steps).sum(0) / math.sqrt(size)


def structure_confidence(drift: Tensor, gamma: float, norm: str = "minmax") -> Tensor:
    """Return c^str = Norm(exp(−γ Norm(δ))): 1 for the least drift, 0 for the most.

    Args:
        drift: [N], the whole scoring pass (Norm runs over it).
        gamma: γ > 0, how fast confidence falls with drift.
        norm: "minmax" is the paper's; "rank" puts ranks in place of both Norms, which spreads the confidence evenly
            over [0, 1] and makes it independent of γ.

    Returns:
        [N] in [0, 1]; constant drift gives ones, with one warning on the CPU (nothing is relatively unstable).

    Raises:
        ValueError: γ ≤ 0, not one-dimensional, unknown norm, NaN drift.

    >>> structure_confidence(torch.tensor([0.0, 1.0, 2.0]), gamma=5.0)
    tensor([1.0000, 0.0759, 0.0000])
    """
    if drift.ndim != 1 or len(drift) == 0:
        raise ValueError(f"drift: shape {tuple(drift.shape)}, expected [N] with N ≥ 1")
    if not gamma > 0:
        raise ValueError(f"gamma: {gamma}, expected > 0")
    if norm not in DRIFT_NORMS:
        raise ValueError(f"norm: {norm!r}, expected one of {', '.join(DRIFT_NORMS)}")
    check_finite("drift", drift)
    drift = work(drift)
    low, high = drift.aminmax()
    constant = high <= low
    if looks_free(drift) and bool(constant):
        warnings.warn("relation drift is the same for every sample: structure confidence is 1 for all", stacklevel=2)
    if norm == "rank":
        confidence = 1 - _ranks(drift)
    else:
        # The outer Norm in closed form: exp(−γ·) of a quantity that spans exactly [0, 1].
        spread = torch.where(constant, torch.ones_like(high), high - low)
        floor = math.exp(-gamma)
        confidence = ((torch.exp(-gamma * (drift - low) / spread) - floor) / (1 - floor)).clamp(0, 1)
    return torch.where(constant, torch.ones_like(confidence), confidence)


def _neighbours(k: int, size: int) -> int:
    """Clamp k to the batch: a sample has B−1 others."""
    if k < 1:
        raise ValueError(f"k: {k}, expected at least 1 neighbour")
    if k > size - 1 and not torch.compiler.is_compiling():
        # Python shows a warning from one place once per process.
        warnings.warn(f"k = {k} neighbours asked of a group of {size}: clamped to {size - 1}", stacklevel=3)
    return min(k, size - 1)


def pool(features: Tensor, pooling: str) -> Tensor:
    """Return one vector per sample [B, D]: the mean over positions ("gap") or everything in a row ("flatten")."""
    if features.ndim > 2 and pooling == "gap":
        return features.flatten(2).mean(2)
    return features.flatten(1)


def _relations(features: Tensor, neighbours: int) -> Tensor:
    """[G, B, D] → [G, B, B]."""
    features = work(features)
    unit = features / features.norm(dim=2, keepdim=True).clamp_min(1e-12)
    cosine = unit @ unit.mT
    size = cosine.shape[1]
    if neighbours == size - 1:  # every neighbour is kept: nothing to select
        return cosine
    self_ = torch.eye(size, dtype=torch.bool, device=cosine.device)
    others = cosine.masked_fill(self_, -torch.inf)
    kept = cosine * (_nearest(others, neighbours) | self_)
    return 0.5 * (kept + kept.mT)


def _nearest(others: Tensor, neighbours: int) -> Tensor:
    """Say which are the largest entries of each row [G, B, B], as many as asked for; of equal ones the lowest columns.

    On the host numpy sorts the values ten times faster than torch; the columns of equal ones are then counted.
    """
    if not looks_free(others):
        # A stable sort, not topk: equal similarities must keep the lowest column on every device.
        order = others.sort(dim=2, descending=True, stable=True).indices
        return torch.zeros_like(others, dtype=torch.bool).scatter_(2, order[..., :neighbours], True)
    least = torch.from_numpy(np.sort(others.detach().numpy(), axis=2)[..., [-neighbours]])
    above, equal = others > least, others == least
    missing = neighbours - above.sum(2, keepdim=True)
    return above | (equal & (equal.cumsum(2) <= missing))


def _ranks(values: Tensor) -> Tensor:
    """Average ranks scaled to [0, 1]; equal values share a rank."""
    ordered = values.sort().values
    below = torch.searchsorted(ordered, values, right=False)
    through = torch.searchsorted(ordered, values, right=True)
    return (below + through - 1).to(values.dtype) / (2 * max(len(values) - 1, 1))
