"""Linear probe: how well a linear classifier on frozen features does on the test set."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labeltrace.diagnostics.values import mean, undefined
from labeltrace.errors import InputError

L2 = 1e-4  # ours, as the optimiser: the paper says "a linear classifier"
ITERATIONS = 200  # of L-BFGS, at most


def linear_probe(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, *, l2: float = L2) -> float:
    """Return the test accuracy of multinomial logistic regression on features.

    Minimises mean cross-entropy + l2/2·‖W‖² (the bias is free) by full-batch L-BFGS in float64, from zero, on features
    that have mean 0 and deviation 1 in training; constant ones are left out. Nothing is drawn.

    Args:
        train: [N, D] features, labels [N]: true ones ask how usable the features are; samples of −1 are left out.
        labels: [N].
        test: [M, D].
        test_labels: [M].
        l2: weight of the penalty.

    >>> x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
    >>> linear_probe(x, torch.tensor([0, 0, 1, 1]), torch.tensor([[-0.5], [0.1]]), torch.tensor([0, 1]))
    1.0
    """
    if train.shape[1:] != test.shape[1:]:
        raise InputError(f"features of the training set are {list(train.shape)}, of the test set {list(test.shape)}")
    train, labels = train[labels >= 0].double(), labels[labels >= 0]
    if not len(train) or not len(test):
        return undefined("linear probe: no samples")
    centre, spread = train.mean(0), train.std(0, correction=0)
    kept = (train != train[0]).any(0) & (spread > 0)
    train, test = ((x[:, kept] - centre[kept]) / spread[kept] for x in (train, test.double()))
    classes = int(max(labels.max(), test_labels.max())) + 1
    weight = train.new_zeros(classes, train.shape[1], requires_grad=True)
    bias = train.new_zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=ITERATIONS, tolerance_grad=1e-6, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(train, weight, bias), labels) + l2 / 2 * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    with torch.no_grad():
        return mean(F.linear(test, weight, bias).argmax(1) == test_labels)
