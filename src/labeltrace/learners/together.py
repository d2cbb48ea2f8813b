"""Two independent pieces of a step side by side: on a GPU each on a stream of its own, elsewhere one after the other.

A forward of a small batch leaves much of a large GPU idle; the peer's forward can have it. The second stream begins
after all that came before and is waited for at the end, so results and memory are as safe as on one stream, also in a
captured step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import torch

One = TypeVar("One")
Two = TypeVar("Two")


def together(device: torch.device, first: Callable[[], One], second: Callable[[], Two]) -> tuple[One, Two]:
    """Return what both functions return; neither may use what the other changes.

    >>> together(torch.device("cpu"), lambda: 1, lambda: 2)
    (1, 2)
    """
    if device.type != "cuda":
        return first(), second()
    here, side = torch.cuda.current_stream(device), _side(device)
    side.wait_stream(here)
    with torch.cuda.stream(side):
        two = second()
    one = first()
    here.wait_stream(side)
    return one, two


@lru_cache(maxsize=8)
def _side(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
