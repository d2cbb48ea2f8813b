"""Several batches through a network in one forward, each normalised by statistics of its own.

Small batches leave a large GPU idle, and a network in train mode must not mix them: batch normalisation would see all
their rows as one. `norm_by_parts` prepares a network once; `forward_parts` then gives what forwards one after the other
give, running statistics included, up to rounding. It gains only where layers are compiled: `labeltrace.engine.compiled`
prepares the networks, and any other network takes its batches one after the other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labeltrace.models.output import Output


class PartNorm2d(nn.BatchNorm2d):
    """Batch normalisation of `parts` equal batches that lie one below the other; of one, the ordinary layer."""

    parts = 1

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [P·B, C, H, W], each part by its own mean and variance."""
        if self.parts == 1 or not self.training:
            return super().forward(x)
        values = x.unflatten(0, (self.parts, -1)).to(self.weight.dtype)
        variance, mean = torch.var_mean(values, (1, 3, 4), correction=0, keepdim=True)
        per_channel = (1, 1, -1, 1, 1)
        scale = torch.rsqrt(variance + self.eps) * self.weight.view(per_channel)
        self._move(mean.flatten(1), variance.flatten(1), rows=values[0, :, 0].numel())
        return ((values - mean) * scale + self.bias.view(per_channel)).flatten(0, 1).to(x.dtype)

    @torch.no_grad()
    def _move(self, means: Tensor, variances: Tensor, rows: int) -> None:
        """Move the running statistics by each part in turn."""
        for mean, variance in zip(means, variances * (rows / (rows - 1)), strict=True):
            self.running_mean.lerp_(mean, self.momentum)  # type: ignore[union-attr, arg-type]
            self.running_var.lerp_(variance, self.momentum)  # type: ignore[union-attr, arg-type]
        self.num_batches_tracked.add_(self.parts)  # type: ignore[union-attr]


def norm_by_parts(network: nn.Module) -> None:
    """Prepare a network in place; parameters and their names stay. One with other layers of the kind stays as it is."""
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]
    if all(
        type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats and norm.momentum is not None
        for norm in norms
    ):
        for norm in norms:
            norm.__class__ = PartNorm2d


def forward_parts(network: nn.Module, inputs: Tensor, parts: int) -> list[Output]:
    """Return the outputs of equal batches, in one forward where the network was prepared for it.

    Args:
        network: returns `Output`.
        inputs: [P·B, …], the batches one below the other.
        parts: P, how many they are.
    """
    norms = [module for module in network.modules() if isinstance(module, PartNorm2d)]
    if not norms:
        return [network(batch) for batch in inputs.chunk(parts)]
    try:
        for norm in norms:
            norm.parts = parts
        output = network(inputs)
    finally:
        for norm in norms:
            norm.parts = 1
    features = [feature.chunk(parts) for feature in output.features]
    return [
        Output(logits, tuple(feature[part] for feature in features))
        for part, logits in enumerate(output.logits.chunk(parts))
    ]
