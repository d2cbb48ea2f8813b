"""Samples for the case study: wrong labels that were replaced well, and wrong labels whose replacement was held back.

The paper gives no rule; this one is ours. Both rows hold wrongly labelled samples, at most one of a true class.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from labeltrace.diagnostics.reliability import Verdicts

UNSURE = 0.5  # a pseudo target below this confidence is a bad one to take, right or wrong
PER_ROW = 6


def select_cases(v: Verdicts, b: Tensor, per_row: int = PER_ROW) -> tuple[list[int], list[int]]:
    """Return the positions of samples for the two rows; ties go to the lower position.

    Top: right pseudo targets with the largest b. Bottom: the smallest b among pseudo targets that are wrong or of
    confidence below 0.5.

    Args:
        v: the samples.
        b: [n] weight of the pseudo target.
        per_row: at most so many in each.
    """
    doubtful = v.noisy & (~v.ok | (v.confidence < UNSURE))
    top = torch.argsort(b, descending=True, stable=True)
    bottom = torch.argsort(b, stable=True)
    return (
        _first_of_each_class(top[(v.noisy & v.ok)[top]].tolist(), v.truth, per_row),
        _first_of_each_class(bottom[doubtful[bottom]].tolist(), v.truth, per_row),
    )


def _first_of_each_class(order: Iterable[int], truth: Tensor, count: int) -> list[int]:
    first: dict[int, int] = {}
    for position in order:
        first.setdefault(int(truth[position]), position)
    return list(first.values())[:count]
