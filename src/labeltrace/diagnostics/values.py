"""Values that may not exist: a mean over nothing is NaN, is told of once, and is shown as a dash."""

from __future__ import annotations

import math
import warnings

from torch import Tensor

DASH = "–"
PERCENT = 100.0


def mean(values: Tensor) -> float:
    """Return the mean of [n] values or flags; NaN of none.

    >>> import torch
    >>> mean(torch.tensor([True, False])), mean(torch.tensor([]))
    (0.5, nan)
    """
    return float(values.double().mean()) if len(values) else math.nan


def undefined(why: str) -> float:
    """Return NaN, with one warning that says why."""
    warnings.warn(f"{why}: not defined, shown as {DASH}", stacklevel=3)
    return math.nan


def shown(value: float, digits: int = 2, scale: float = 1.0) -> str:
    """Return a number for people, a dash for NaN.

    >>> shown(0.4567, digits=1, scale=PERCENT), shown(math.nan)
    ('45.7', '–')
    """
    return DASH if math.isnan(value) else f"{scale * value:.{digits}f}"
