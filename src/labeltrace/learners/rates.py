"""Learning-rate schedules that several learners share."""

from __future__ import annotations

import math


def dropped(lr: float, factor: float, epoch: int, *drops: int) -> float:
    """Return a rate that is multiplied by `factor` at each of the epochs `drops`.

    >>> [round(dropped(0.1, 0.1, t, 80, 160), 6) for t in (79, 80, 160)]
    [0.1, 0.01, 0.001]
    """
    return float(lr * factor ** sum(epoch >= drop for drop in drops))


def falling(lr: float, epoch: int, first: int, epochs: int) -> float:
    """Return a rate that stays as it is until epoch `first`, and from there falls on a line that ends at 0 at `epochs`.

    >>> [round(falling(0.1, t, first=8, epochs=10), 6) for t in (7, 8, 9)]
    [0.1, 0.1, 0.05]
    """
    return lr if epoch < first else lr * (epochs - epoch) / max(epochs - first, 1)


def stepped(lr: float, factor: float, epoch: int, first: int, again: int = 0) -> float:
    """Return a rate that is multiplied by `factor` at epoch `first`, and then every `again` epochs (0: never again).

    >>> [round(stepped(0.1, 0.2, t, first=50, again=25), 6) for t in (49, 50, 74, 75)]
    [0.1, 0.02, 0.02, 0.004]
    """
    if epoch < first:
        return lr
    return lr * factor ** (1 + ((epoch - first) // again if again else 0))


def cosine(lr: float, floor: float, epoch: int, period: int) -> float:
    """Return floor + (lr − floor) · (1 + cos(π·epoch/period))/2: from `lr` at epoch 0 to `floor` after `period` epochs.

    For warm restarts give the epoch modulo the period.

    >>> [round(cosine(0.02, 0.001, t % 10, 10), 6) for t in (0, 5, 9, 10)]
    [0.02, 0.0105, 0.001465, 0.02]
    """
    return floor + (lr - floor) * (1 + math.cos(math.pi * epoch / period)) / 2
