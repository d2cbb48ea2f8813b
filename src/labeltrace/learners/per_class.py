"""Fields of the sample memory that hold a number per class, whose shape is known once a learner knows its classes."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from labeltrace.scoring import Field, SampleMemory


def remember_per_class(memory: SampleMemory, names: Iterable[str], num_classes: int) -> None:
    """Add fields [N, C] of zeros to a memory that does not have them yet; they are saved with the others.

    >>> memory = SampleMemory(4, {"clean": Field()})
    >>> remember_per_class(memory, ["mean"], num_classes=3)
    >>> memory["mean"].shape, memory.bytes_per_sample
    (torch.Size([4, 3]), 16)
    """
    device = next(iter(memory.state_dict().values())).device
    for name in names:
        if name not in memory.fields:
            memory.fields[name] = Field((num_classes,))
            memory._values[name] = torch.zeros(memory.size, num_classes, device=device)
