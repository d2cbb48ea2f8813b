"""Linear CKA: how alike two networks see the same samples. Exact in either form, and from sums of one pass."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labeltrace.diagnostics.values import undefined
from labeltrace.errors import InputError


def linear_cka(x: Tensor, y: Tensor) -> float:
    """Return CKA of features [N, D] and [N, E] of the same samples, in [0, 1]; NaN where one side is constant.

    Takes the form with the smaller matrices; both are equal. Invariant to rotations and to one scale per side.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> y = torch.stack([2 * x[:, 0], x[:, 1], 0 * x[:, 0]], 1)
    >>> round(linear_cka(x, y), 6)
    0.857493
    """
    return cka_by_samples(x, y) if len(x) < min(x.shape[1], y.shape[1]) else cka_by_features(x, y)


def cka_by_features(x: Tensor, y: Tensor) -> float:
    """Return ‖XᵀY‖² / (‖XᵀX‖·‖YᵀY‖) in Frobenius norms, columns centred: matrices of D × E."""
    x, y = _centred(x, y)
    return _ratio(float((x.T @ y).square().sum()), float((x.T @ x).norm()), float((y.T @ y).norm()))


def cka_by_samples(x: Tensor, y: Tensor) -> float:
    """Return ⟨K, L⟩ / (‖K‖·‖L‖), K = XXᵀ, L = YYᵀ, columns of X and Y centred: matrices of N × N."""
    x, y = _centred(x, y)
    k, l = x @ x.T, y @ y.T  # noqa: E741
    return _ratio(float((k * l).sum()), float(k.norm()), float(l.norm()))


class StreamingCKA:
    """Collects two networks' features batch by batch; the result is exact, whatever the batches.

    Mean of per-batch values would be something else: few samples give high values, of pure noise too.

    >>> cka, x = StreamingCKA(), torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> for row in x:
    ...     cka.add(row[None], 3 * row[None])
    >>> round(cka.value(), 12)
    1.0
    """

    def __init__(self) -> None:
        self._count = 0

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add features [B, D] and [B, E] of the same samples."""
        _check_pair(x, y)
        if not len(x):
            return
        x, y = x.double(), y.double()
        if not self._count:  # all counts from the first sample: large means lose no digits, constants give exact zeros
            self._from = x[0].clone(), y[0].clone()
            wide, high = x.shape[1], y.shape[1]
            self._sums = x.new_zeros(wide), x.new_zeros(high)
            self._xx, self._yy, self._xy = x.new_zeros(wide, wide), x.new_zeros(high, high), x.new_zeros(wide, high)
        x, y = x - self._from[0], y - self._from[1]
        self._count += len(x)
        self._sums = self._sums[0] + x.sum(0), self._sums[1] + y.sum(0)
        self._xx, self._yy, self._xy = self._xx + x.T @ x, self._yy + y.T @ y, self._xy + x.T @ y

    def value(self) -> float:
        """Return CKA of everything added."""
        if not self._count:
            return undefined("CKA: no samples")
        x, y = (total / self._count for total in self._sums)
        xx, yy, xy = (
            sums - self._count * torch.outer(one, two)
            for sums, one, two in ((self._xx, x, x), (self._yy, y, y), (self._xy, x, y))
        )
        return _ratio(float(xy.square().sum()), float(xx.norm()), float(yy.norm()))


def _ratio(cross: float, x: float, y: float) -> float:
    if x == 0 or y == 0:
        return undefined("CKA: the features are constant")
    return min(cross / (x * y), 1.0) if math.isfinite(cross) else math.nan


def _centred(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    _check_pair(x, y)
    if not len(x):
        raise InputError("CKA of no samples")
    x, y = (values.double() - values[0].double() for values in (x, y))
    return x - x.mean(0), y - y.mean(0)


def _check_pair(x: Tensor, y: Tensor) -> None:
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise InputError(f"CKA of {list(x.shape)} and {list(y.shape)}: expected [N, D] and [N, E] of the same samples")
