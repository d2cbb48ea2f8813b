"""What the steps of a phase came to: a table on the device, read once."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from labeltrace.engine.parallel import Ranks


class LossNotFinite(RuntimeError):
    """A loss, or the weights after a step, turned NaN or infinite."""

    def __init__(self, label: str, batch: int) -> None:
        super().__init__(f"{label}, batch {batch}")  # counted from 1
        self.label, self.batch = label, batch


class History:
    """A row for each step: its loss, and the numbers it wants logged."""

    def __init__(self, steps: int, label: str) -> None:
        self.steps, self.label = steps, label
        self.names: list[str] = []
        self.table: Tensor | None = None

    def check(self, place: Tensor, loss: Tensor) -> None:
        """On a CPU refuse a loss that is no number before it reaches the weights."""
        if loss.device.type == "cpu" and not math.isfinite(loss):
            raise LossNotFinite(self.label, int(place) + 1)

    def put(self, place: Tensor, loss: Tensor, logs: Mapping[str, Tensor]) -> None:
        """Write the row `place` [1]."""
        if self.table is None:
            self.names = list(logs)
            self.table = torch.zeros(self.steps, 1 + len(self.names), device=loss.device)
        row = torch.stack([loss.float(), *(logs[name].float() for name in self.names)])
        self.table.index_copy_(0, place, row[None])

    def loss(self, place: int) -> float:
        """The loss of a step: waits for the device."""
        assert self.table is not None
        return float(self.table[place, 0])

    def summary(self, ranks: Ranks) -> dict[str, float]:
        """The means of the phase."""
        assert self.table is not None
        ranks.mean_([self.table])
        table = self.table.cpu()
        bad = (~torch.isfinite(table[:, 0])).nonzero()
        if len(bad):
            raise LossNotFinite(self.label, int(bad[0, 0]) + 1)
        means = table.double().mean(0).tolist()
        return {"loss": means[0], "steps": self.steps, **dict(zip(self.names, means[1:], strict=True))}
