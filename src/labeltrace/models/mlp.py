"""A multilayer perceptron for samples that are feature vectors: tables, embeddings of a pre-trained network.

Ours; no paper. Hidden layers are linear-BN-ReLU. The input counts as the shallowest stage: for embeddings it is where
the relations between samples are still those of the encoder, which never saw the noisy labels. Initialisation is
torch's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from labeltrace.models.inputs import feature_dimension
from labeltrace.models.output import Output, check_pooling

HIDDEN = (256, 256, 128)  # ours: with the input it gives four stages, as many as the residual networks have


class MLP(nn.Module):
    """Hidden linear-BN-ReLU layers and a linear head; the features are the input, then each hidden layer's output.

    Args:
        num_classes: C.
        in_features: D, the dimension of a sample.
        hidden: widths of the hidden layers, at least one.
        pooling: accepted for the common signature; a [B, D] feature has nothing to pool.

    Raises:
        InputError: unknown pooling.
        ValueError: no hidden layer.

    >>> import torch
    >>> output = MLP(num_classes=3, in_features=20, hidden=(16, 8))(torch.zeros(2, 20))
    >>> output.logits.shape, [feature.shape[1] for feature in output.features]
    (torch.Size([2, 3]), [20, 16, 8])
    """

    def __init__(
        self, num_classes: int, in_features: int, hidden: Sequence[int] = HIDDEN, pooling: str = "gap"
    ) -> None:
        super().__init__()
        if not hidden:
            raise ValueError("hidden is empty: the drift between stages needs at least one hidden layer, e.g. (256,)")
        check_pooling(pooling)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU())
            for inputs, outputs in pairwise((in_features, *hidden))
        )
        self.fc = nn.Linear(hidden[-1], num_classes)

    def forward(self, x: Tensor) -> Output:
        """Return logits [B, C] and one feature per stage for samples [B, D]."""
        features = [x]
        for layer in self.layers:
            features.append(layer(features[-1]))
        return Output(self.fc(features[-1]), tuple(features))


def mlp(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> MLP:
    """Build the perceptron for samples of shape (D,).

    >>> sum(parameter.numel() for parameter in mlp(10, (64,)).parameters())
    117258
    """
    return MLP(num_classes, feature_dimension("mlp", input_shape), pooling=pooling)
