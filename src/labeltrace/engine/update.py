"""The updates of a batch: as a rule one; two where a step of its own for some parameters comes before the main one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labeltrace.learners.base import Step


def present(*optimizers: Sequence[torch.optim.Optimizer | None]) -> list[torch.optim.Optimizer]:
    """Return those that there are, in order.

    >>> present([None], [None, None])
    []
    """
    return [one for some in optimizers for one in some if one is not None]


def suit(groups: Sequence[dict[str, Any]], device: torch.device) -> None:
    """Let Adam and its kind keep their counters where a device wants them: in a captured step on the device itself."""
    for group in groups:
        if "capturable" in group:
            group["capturable"] = device.type == "cuda"


class Update(NamedTuple):
    """A step, who descends its loss, and which parameters they move; with `only`, no others get a gradient."""

    step: Step
    optimizers: Sequence[torch.optim.Optimizer]
    parameters: Sequence[Tensor]
    only: bool = False
