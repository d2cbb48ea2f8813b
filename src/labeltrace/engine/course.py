"""The batches of a phase, each made on the device from its number alone: a captured step makes its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from labeltrace.data.draws import Draws, key_of
from labeltrace.learners.base import Batch

# Words that no phase or pass of a learner has: of the draws of a step, of the lists beside the first.
ONCE = 1_000_039
LISTS = {"beside": 1_000_037, "meta": 2_000_003}


class Course:
    """Walks rows of sample numbers, pass after pass, in tensors that keep their place in memory.

    Args:
        labels: [N] observed classes, on the device.
        resident: [N, …] inputs on the device; None where `inputs` is set before each step.
        passes: how many there will be.
    """

    def __init__(self, labels: Tensor, resident: Tensor | None, passes: int) -> None:
        self.labels, self.resident, self.passes = labels, resident, passes
        self.inputs: Tensor | None = None
        self.at, self.total, self.number = (labels.new_zeros(1) for _ in range(3))  # step of the pass, of all; pass
        self.keys = labels.new_zeros(2 + len(LISTS))
        self.rows: Tensor | None = None

    def begin(self, words: tuple[int, ...], order: Tensor, lists: Mapping[str, Tensor]) -> None:
        """Start the pass whose draws belong to `words`, the last of which is its number.

        Args:
            words: seed, epoch, phase, pass.
            order: [S, B] sample numbers.
            lists: [S, B] of those beside it, by their names in `LISTS`.
        """
        rows = torch.cat([order, *lists.values()], 1)
        if self.rows is None:
            self.rows, self.names, self.steps, self.size = rows, list(lists), *order.shape
        else:
            self.rows.copy_(rows)
        key = key_of(*words)
        for place, one in enumerate((key, *(key_of(word, key=key) for word in (ONCE, *LISTS.values())))):
            self.keys[place].fill_(one)
        self.at.zero_()
        self.number.fill_(words[-1])

    def take(self, inputs: Tensor) -> None:
        """Set the inputs of the next step, where they are not resident."""
        if self.inputs is None:
            self.inputs = inputs
        else:
            self.inputs.copy_(inputs)

    def batch(self) -> Batch:
        """Return the batch of the present step."""
        assert self.rows is not None
        row = self.rows.index_select(0, self.at)[0]
        inputs = self.inputs if self.resident is None else self.resident[row]
        assert inputs is not None
        progress = ((self.number + self.at / self.steps) / self.passes)[0]
        once = Draws.at(self.at, key=self.keys[1])
        (index, *others), (first, *rest) = row.split(self.size), inputs.split(self.size)
        lists: dict[str, Batch] = {}
        for name, samples, seen in zip(self.names, others, rest, strict=True):
            key = self.keys[2 + list(LISTS).index(name)]
            draws = Draws.at(
                samples, self.at[0], key=key
            )  # a list may name a sample twice: the step is part of its key
            lists[name] = Batch(samples, seen, self.labels[samples], draws, once, progress)
        draws = Draws.at(index, key=self.keys[0])
        return Batch(index, first, self.labels[index], draws, once, progress, **lists)

    def advance(self) -> None:
        """Go on to the next step."""
        self.at += 1
        self.total += 1
