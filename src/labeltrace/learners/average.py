"""A network's moving average: a second opinion that costs one forward and no training.

As in Mean Teacher (Tarvainen and Valpola, NeurIPS 2017, arXiv 1703.01780): parameters are averaged, buffers (running
statistics) are copied, and the copy predicts in eval mode. What we chose: no ramp of the decay; a learner calls `copy`
where the average should begin (the end of its warm-up), so that initial weights leave no trace in it.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from labeltrace.models.output import Output

DECAY = 0.999


class Average:
    """The exponential moving average of a network's parameters: ā ← decay · ā + (1 − decay) · a.

    `module` holds it and is what a learner returns from `companions`, so that it is saved with the run. A learner's
    step runs before the optimizer's: an update at the beginning of a step takes in the weights that the last step left.

    Args:
        network: to average; it is copied once, with its device and precision.
        decay: in [0, 1); 0 follows the network at once.

    Raises:
        ValueError: the decay is out of range.

    >>> network = nn.Linear(1, 1)
    >>> average = Average(network, decay=0.75)
    >>> with torch.no_grad():
    ...     before = network.weight.clone()
    ...     network.weight += 4.0
    >>> average.update(network)
    >>> bool(torch.isclose(average.module.weight, before + 1.0))
    True
    """

    def __init__(self, network: nn.Module, decay: float = DECAY) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay: {decay!r}, expected 0 ≤ decay < 1")
        self.module = copy.deepcopy(network).requires_grad_(False).eval()
        self._blend = get_ema_multi_avg_fn(decay)

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Move the average towards the network, and copy its buffers; no host synchronisation."""
        self._blend(list(self.module.parameters()), list(network.parameters()), 0)
        self._copy_buffers(network)

    @torch.no_grad()
    def copy(self, network: nn.Module) -> None:
        """Begin anew with the network as it is."""
        for mine, its in zip(self.module.parameters(), network.parameters(), strict=True):
            mine.copy_(its)
        self._copy_buffers(network)

    @torch.no_grad()
    def __call__(self, inputs: Tensor) -> Output:
        """Return the average's output, in eval mode, without gradient."""
        output: Output = self.module(inputs)
        return output

    def _copy_buffers(self, network: nn.Module) -> None:
        for mine, its in zip(self.module.buffers(), network.buffers(), strict=True):
            mine.copy_(its)
