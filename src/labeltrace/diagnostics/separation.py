"""How far apart the classes lie: the Fisher discriminant ratio, from sums of one pass."""

from __future__ import annotations

import torch
from torch import Tensor

from labeltrace.diagnostics.values import undefined
from labeltrace.errors import InputError

EPS = 1e-12


class Fisher:
    """Collects features batch by batch; holds a sum per class and one of squares.

    >>> fisher = Fisher()
    >>> fisher.add(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 0]))
    >>> fisher.add(torch.tensor([[4.0], [6.0]]), torch.tensor([1, 1]))
    >>> round(fisher.ratio(), 9)
    4.0
    """

    def __init__(self) -> None:
        self._first: Tensor | None = None  # all features count from here: large means then lose no digits
        self._squares = 0.0
        self._sums = torch.zeros(0, 0)
        self._counts = torch.zeros(0)

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Add features [B, D] of classes [B]."""
        if len(features) != len(labels):
            raise InputError(f"{len(features)} features but {len(labels)} labels")
        if not len(features):
            return
        values = features.double()
        if self._first is None:
            self._first = values[0].clone()
            self._sums, self._counts = values.new_zeros(0, values.shape[1]), values.new_zeros(0)
        values = values - self._first
        more = max(0, int(labels.max()) + 1 - len(self._counts))
        self._sums = torch.cat([self._sums, self._sums.new_zeros(more, values.shape[1])])
        self._counts = torch.cat([self._counts, self._counts.new_zeros(more)])
        self._sums.index_add_(0, labels, values)
        self._counts.index_add_(0, labels, torch.ones_like(values[:, 0]))
        self._squares += float(values.square().sum())

    def ratio(self) -> float:
        """Return tr(S_b) / (tr(S_w) + ε); 0 for one class and for features that are all equal."""
        if self._first is None:
            return undefined("Fisher ratio: no samples")
        full = self._counts > 0
        sums, counts = self._sums[full], self._counts[full]
        inside = float((sums.square().sum(1) / counts).sum())  # Σ_c n_c‖μ_c‖²
        between = inside - float(sums.sum(0).square().sum() / counts.sum())
        return max(between, 0.0) / (max(self._squares - inside, 0.0) + EPS)


def fisher_ratio(features: Tensor, labels: Tensor) -> float:
    """Return the Fisher ratio tr(S_b) / (tr(S_w) + ε) of features [N, D] with classes [N].

    tr S_b = Σ_c n_c‖μ_c − μ‖², tr S_w = Σ_i ‖h_i − μ_{y_i}‖².

    >>> round(fisher_ratio(torch.tensor([[0.0], [2.0], [4.0], [6.0]]), torch.tensor([0, 0, 1, 1])), 9)
    4.0
    """
    fisher = Fisher()
    fisher.add(features, labels)
    return fisher.ratio()
