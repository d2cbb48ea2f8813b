"""Epoch-valued settings: the ramp that switches TRACE on, and the shrinking of a recipe to a shorter run."""

from __future__ import annotations

from typing import overload

from torch import Tensor


@overload
def ramp(epoch: int, start: int, length: int) -> float: ...
@overload
def ramp(epoch: Tensor, start: int, length: int) -> Tensor: ...
def ramp(epoch: int | Tensor, start: int, length: int) -> float | Tensor:
    """Return the activation β_t = clip((t − start)/length, 0, 1); with length 0 a step that is 1 from `start` on.

    Args:
        epoch: t, counted from the end of warm-up; a 0-d tensor where the step is captured.
        start: last epoch at which β is still 0 (the first one at which a step of length 0 is 1).
        length: epochs from 0 to 1.

    >>> [ramp(t, start=30, length=20) for t in (0, 30, 40, 50, 99)]
    [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    if length < 0:
        raise ValueError(f"length: {length}, expected ≥ 0")
    if length == 0:
        return (epoch >= start).float() if isinstance(epoch, Tensor) else float(epoch >= start)
    if isinstance(epoch, Tensor):
        return ((epoch - start) / length).clamp(0.0, 1.0)
    return min(max((epoch - start) / length, 0.0), 1.0)


def shrink(value: int, epochs: int, recipe_epochs: int) -> int:
    """Return an epoch-valued setting of a recipe, in proportion to a shorter run (never longer, never below 1).

    >>> shrink(15, epochs=103, recipe_epochs=515), shrink(15, epochs=600, recipe_epochs=515)
    (3, 15)
    """
    if epochs >= recipe_epochs or value <= 0:
        return value
    return max(1, round(value * epochs / recipe_epochs))
