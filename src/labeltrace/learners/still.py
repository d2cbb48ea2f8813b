"""A forward in train mode that leaves no trace in the running statistics of batch normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def still_statistics(network: nn.Module) -> Iterator[None]:
    """Let batch normalisation use batch statistics without touching its running ones."""
    tracking = [m for m in network.modules() if getattr(m, "track_running_stats", False)]
    try:
        for module in tracking:
            module.track_running_stats = False  # type: ignore[assignment]
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True  # type: ignore[assignment]
