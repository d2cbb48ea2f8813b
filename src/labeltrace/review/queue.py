"""The order in which samples are looked at, and the way through it: next, previous, only some."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labeltrace.audit import class_names
from labeltrace.audit.decisions import KEEP
from labeltrace.audit.ranking import DEFAULT, rankings, worst_first
from labeltrace.audit.samples import values
from labeltrace.errors import InputError, nearest
from labeltrace.review.store import SKIP, Event

DOUBTED = "doubted"  # relabel and review together
DECISIONS = (DOUBTED, "review", "relabel", "keep", "all")
OPEN, SKIPPED, DECIDED = range(3)
STATES = {"all": None, "open": OPEN, "skipped": SKIPPED, "decided": DECIDED}
MOVES = ("here", "next", "previous")
AHEAD = 4  # rows that are named because they come next


@dataclass(frozen=True)
class Selection:
    """Which samples of the queue are wanted.

    Attributes:
        decision: of the run: doubted (relabel or review), review, relabel, keep or all.
        observed: class of the label, by number; None for all.
        state: of the review: all, open (nobody has looked), skipped or decided.
    """

    decision: str = DOUBTED
    observed: int | None = None
    state: str = "all"

    def __post_init__(self) -> None:
        for what, value, known in (("decision", self.decision, DECISIONS), ("state", self.state, tuple(STATES))):
            if value not in known:
                raise InputError(f"unknown {what} {value!r}: {nearest(value, known)}")


@dataclass(frozen=True)
class Place:
    """A sample in a selection.

    Attributes:
        row: of the sample; None where the selection is empty.
        position: of the sample in the selection whatever its state, from 1; 0 where it is not in it.
        total: samples of the selection, whatever their state.
        decided: of them, by a person.
        skipped: of them.
        ahead: rows that come next.
    """

    row: int | None
    position: int
    total: int
    decided: int
    skipped: int
    ahead: list[int]


class Queue:
    """The samples of a run with the worst first: those that the run doubts, then those that it keeps.

    Args:
        table: samples table of the run.
    """

    def __init__(self, table: pa.Table) -> None:
        self.classes = class_names(table)
        decision = np.asarray(table["decision"].to_pylist())
        worst = worst_first(rankings[DEFAULT](table))
        self.order = worst[np.argsort(decision[worst] == KEEP, kind="stable")]
        self.place = np.argsort(self.order)  # of each row in the order
        self.decision, self.observed = decision[self.order], values(table, "observed")[self.order]

    def __len__(self) -> int:
        return len(self.order)

    def find(
        self,
        selection: Selection,
        decisions: Iterable[Event],
        row: int | None = None,
        move: str = "here",
    ) -> Place:
        """Return where a move leads.

        Args:
            selection: samples to move among.
            decisions: that hold.
            row: of the sample to start from; None for before the first.
            move: here (the sample itself, in the selection or not), next or previous. Behind the last comes the first.

        Raises:
            InputError: a row or a move that there is not.
        """
        if move not in MOVES:
            raise InputError(f"unknown move {move!r}: {nearest(move, MOVES)}")
        state = np.full(len(self), OPEN, np.int8)
        for event in decisions:
            state[self.place[event.row]] = SKIPPED if event.action == SKIP else DECIDED
        wanted, asked = self._wanted(selection), STATES[selection.state]
        candidates = np.flatnonzero(wanted if asked is None else wanted & (state == asked))
        start = -1 if row is None else int(self.place[self.check(row)])
        place = start if move == "here" and row is not None else _step(candidates, start, move)
        total, decided, skipped = int(wanted.sum()), *(int((state[wanted] == s).sum()) for s in (DECIDED, SKIPPED))
        if place is None:
            return Place(None, 0, total, decided, skipped, [])
        following = candidates[np.searchsorted(candidates, place, side="right") :][:AHEAD]
        position = int(wanted[: place + 1].sum()) if wanted[place] else 0
        return Place(int(self.order[place]), position, total, decided, skipped, self.order[following].tolist())

    def check(self, row: int) -> int:
        """Return the row; refuse one that is no sample's."""
        if not 0 <= row < len(self):
            raise InputError(f"no sample {row}: the run has rows 0 to {len(self) - 1}")
        return row

    def check_class(self, number: int) -> str:
        """Return the name of a class; refuse a number that is no class's."""
        if not 0 <= number < len(self.classes):
            raise InputError(f"no class {number}: the run has classes 0 to {len(self.classes) - 1}")
        return self.classes[number]

    def _wanted(self, selection: Selection) -> NDArray[np.bool_]:
        if selection.decision == DOUBTED:
            wanted = self.decision != KEEP
        else:
            wanted = (self.decision == selection.decision) | (selection.decision == "all")
        if selection.observed is not None:
            self.check_class(selection.observed)
            wanted = wanted & (self.observed == selection.observed)
        return wanted


def _step(candidates: NDArray[np.int64], start: int, move: str) -> int | None:
    """Return the place that a move from a place leads to, round the ends; None where there is no candidate."""
    if not len(candidates):
        return None
    if move == "previous":
        return int(candidates[np.searchsorted(candidates, start, side="left") - 1])
    return int(candidates[np.searchsorted(candidates, start, side="right") % len(candidates)])
