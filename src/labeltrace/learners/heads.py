"""Heads on a network's last feature: a projection, perhaps with a prediction of another view's (SimSiam's shape)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeltrace.models.output import Output, pool


class RowNorm(nn.BatchNorm1d):
    """Batch normalisation of [B, D] that takes a single row by the running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalised."""
        if len(x) > 1 or not self.training:
            return super().forward(x)
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)


def _head(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), RowNorm(hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Headed(nn.Module):
    """A classifier with a projection of its last feature and a prediction of another view's projection.

    Args:
        body: returns `Output`.
        width: of its last feature.
        hidden: of both heads.
        outputs: of both heads.

    >>> import torch
    >>> from labeltrace.models import build_model
    >>> network = Headed(build_model("mlp", num_classes=2, input_shape=(4,)), 128, 16, 8)
    >>> x = torch.zeros(3, 4)
    >>> network(x).logits.shape, network(x, branch="predict").shape
    (torch.Size([3, 2]), torch.Size([3, 8]))
    """

    def __init__(self, body: nn.Module, width: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.body = body
        self.project = _head(width, hidden, outputs)
        self.predict = _head(outputs, hidden, outputs)

    def forward(self, x: Tensor, branch: str = "classify") -> Output | Tensor:
        """Return the body's output, the projection ("project") or the prediction made from it ("predict")."""
        output: Output = self.body(x)
        if branch == "classify":
            return output
        projected: Tensor = self.project(last_feature(output))
        if branch == "project":
            return projected
        if branch == "predict":
            return cast(Tensor, self.predict(projected))
        raise ValueError(f"unknown branch {branch!r}: known are classify, project, predict")


class Projected(nn.Module):
    """A classifier with a projection of its last feature: linear, ReLU, linear (SimCLR's shape).

    Args:
        body: returns `Output`.
        width: of its last feature, and of the hidden layer.
        outputs: of the projection.
        classifier: names of the body's parameters behind that feature, see `behind_feature`.

    >>> import torch
    >>> from labeltrace.models import build_model
    >>> network = Projected(build_model("mlp", num_classes=2, input_shape=(4,)), 128, 8, ["fc.weight", "fc.bias"])
    >>> logits, projected = network(torch.zeros(3, 4), branch="both")
    >>> logits.shape, projected.shape, [p.shape for p in network.classifier_parameters()]
    (torch.Size([3, 2]), torch.Size([3, 8]), [torch.Size([2, 128]), torch.Size([2])])
    """

    def __init__(self, body: nn.Module, width: int, outputs: int, classifier: Sequence[str]) -> None:
        super().__init__()
        self.body, self.classifier = body, tuple(classifier)
        self.project = nn.Sequential(nn.Linear(width, width, bias=False), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, x: Tensor, branch: str = "classify") -> Output | Tensor | tuple[Tensor, Tensor]:
        """Return the body's output, the projection ("project"), or logits and projection ("both")."""
        output: Output = self.body(x)
        if branch == "classify":
            return output
        projected: Tensor = self.project(last_feature(output))
        if branch == "project":
            return projected
        if branch == "both":
            return output.logits, projected
        raise ValueError(f"unknown branch {branch!r}: known are classify, project, both")

    def classifier_parameters(self) -> list[nn.Parameter]:
        """Return what stands between the last feature and the logits: the classifier alone."""
        return [self.body.get_parameter(name) for name in self.classifier]


def behind_feature(network: nn.Module, sample: Tensor) -> tuple[int, list[str]]:
    """Return the width of a network's last feature, and the names of the parameters that only its logits depend on.

    Args:
        network: returns `Output`.
        sample: [2, …] inputs; they are seen in eval mode.

    >>> import torch
    >>> from labeltrace.models import build_model
    >>> behind_feature(build_model("mlp", num_classes=2, input_shape=(4,)), torch.zeros(2, 4))
    (128, ['fc.weight', 'fc.bias'])
    """
    mode = network.training
    with torch.enable_grad():
        output = network.eval()(sample)
    network.train(mode)
    feature = last_feature(output)
    early, late = (_reached(network, values) for values in (feature, output.logits))
    return feature.shape[1], [name for name in late if name not in early]


def _reached(network: nn.Module, values: Tensor) -> list[str]:
    """The names of the parameters that `values` depend on."""
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    if not named or not values.requires_grad:
        return []
    found = torch.autograd.grad(values.sum(), list(named.values()), retain_graph=True, allow_unused=True)
    return [name for name, gradient in zip(named, found, strict=True) if gradient is not None]


class NormProjected(nn.Module):
    """A classifier with a linear projection of its last feature, batch-normalised, for contrasting views.

    Args:
        body: returns `Output`.
        width: of its last feature.
        outputs: of the projection.

    >>> import torch
    >>> from labeltrace.models import build_model
    >>> network = NormProjected(build_model("mlp", num_classes=2, input_shape=(4,)), 128, 8)
    >>> x = torch.zeros(3, 4)
    >>> network(x).logits.shape, network(x, branch="project").shape
    (torch.Size([3, 2]), torch.Size([3, 8]))
    """

    def __init__(self, body: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.body = body
        self.project = nn.Sequential(nn.Linear(width, outputs), RowNorm(outputs))

    def forward(self, x: Tensor, branch: str = "classify") -> Output | Tensor:
        """Return the body's output, or the projection ("project")."""
        output: Output = self.body(x)
        if branch == "classify":
            return output
        if branch == "project":
            return cast(Tensor, self.project(last_feature(output)))
        raise ValueError(f"unknown branch {branch!r}: known are classify, project")


@torch.no_grad()
def last_width(network: nn.Module, sample: Tensor) -> int:
    """Return the width of the last feature that a network makes of `sample` [B, …]; its mode stays."""
    mode = network.training
    width = last_feature(network.eval()(sample)).shape[1]
    network.train(mode)
    return width


def last_feature(output: Output) -> Tensor:
    """Return the pooled feature of the last stage, as a scoring pass keeps it; a network without stages: its logits."""
    return pool(output.features[-1], "gap") if len(output.features) else output.logits


def feature_consistency(predicted: Tensor, projected: Tensor) -> Tensor:
    """Return −mean cos(predicted, projected) of rows [B, D], in [−1, 1]; no gradient goes to `projected`.

    >>> import torch
    >>> feature_consistency(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
    tensor(-1.)
    """
    return -F.cosine_similarity(predicted.float(), projected.detach().float(), dim=1).mean()
