"""Learning-rate schedules that several learners share."""

from __future__ import annotations


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


def falling(lr: float, epoch: int, start: int, epochs: int) -> float:
    """Return a rate that falls linearly from epoch `start` on, and would be 0 in the epoch after the last.

    >>> [round(falling(0.001, t, start=80, epochs=200), 9) for t in (79, 80, 81, 140, 199)]
    [0.001, 0.001, 0.000991667, 0.0005, 8.333e-06]
    """
    return lr if epoch < start else lr * (epochs - epoch) / max(epochs - start, 1)
