"""Learning-rate schedules that several learners share."""

from __future__ import annotations

import math


def dropped(lr: float, factor: float, epoch: int, *drops: int) -> float:
    """Return a rate that is multiplied by `factor` at each of the epochs `drops`.

    >>> [round(dropped(0.1, 0.1, t, 80, 160), 6) for t in (79, 80, 160)]
    [0.1, 0.01, 0.001]
    """
    return float(lr * factor ** sum(epoch >= drop for drop in drops))


def stepped(lr: float, factor: float, epoch: int, first: int, again: int = 0) -> float:
    """Return a rate that is multiplied by `factor` at epoch `first`, and then every `again` epochs (0: never again).

    >>> [round(stepped(0.1, 0.2, t, first=50, again=25), 6) for t in (49, 50, 74, 75)]
    [0.1, 0.02, 0.02, 0.004]
    """
    if epoch < first:
        return lr
    return lr * factor ** (1 + ((epoch - first) // again if again else 0))


def cosine(lr: float, floor: float, epoch: int, epochs: int) -> float:
    """Return a rate that falls from `lr` to the share `floor` of it along half a cosine over `epochs`.

    >>> [round(cosine(0.1, 0.02, t, 300), 5) for t in (0, 10, 150, 300)]
    [0.1, 0.09973, 0.051, 0.002]
    """
    least = lr * floor
    return least + (lr - least) * (1 + math.cos(math.pi * epoch / epochs)) / 2
