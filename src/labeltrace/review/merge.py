"""People's decisions and the run's own, as one label diff. Where a person has decided, the run has no say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from labeltrace.audit.decisions import RELABEL
from labeltrace.audit.diff import COLUMNS, LabelDiff, label_diff, read_diff
from labeltrace.audit.samples import class_names
from labeltrace.errors import InputError
from labeltrace.review.store import SKIP, Event


def reviewed_diff(table: pa.Table, decisions: Iterable[Event], *, only_reviewed: bool = False) -> LabelDiff:
    """Return the changes of labels that people and the run ask for, in the order of the samples.

    A skipped sample was seen and not decided: what the run says of it stands.

    Args:
        table: samples table of the run.
        decisions: that hold, see `Store.decisions`.
        only_reviewed: leave out what the run relabels and nobody has decided.
    """
    names = class_names(table)
    decided = {event.row: event for event in decisions if event.action != SKIP}
    theirs = [event for event in decided.values() if event.action == RELABEL]
    columns = [
        [event.id for event in theirs],
        [names[table["observed"][event.row].as_py()] for event in theirs],
        [event.label for event in theirs],
        [f"reviewed {event.time}" for event in theirs],
    ]
    people = pa.table([pa.array(column, pa.string()) for column in columns], names=list(COLUMNS))
    rows = np.array([event.row for event in theirs], np.int64)
    if only_reviewed:
        return LabelDiff(people.take(np.argsort(rows)))
    left = np.ones(table.num_rows, bool)
    left[list(decided)] = False
    machine = label_diff(table.filter(pa.array(left)))
    relabelled = np.flatnonzero(left & (np.asarray(table["decision"].to_pylist()) == RELABEL))
    both = pa.concat_tables([people, machine.table.cast(people.schema)])
    return LabelDiff(both.take(np.argsort(np.concatenate([rows, relabelled]))))


def could_be_exported(path: Path, table: pa.Table, history: Iterable[Event]) -> bool:
    """Whether a file holds nothing but what an export of this run has written, so that a new one may take its place.

    That is a label diff whose every change is one that the run suggests or that a person has once made.

    Args:
        path: of the file.
        table: samples table of the run.
        history: every event, see `Store.history`.
    """
    names = pa.array(class_names(table), pa.string())
    observed, suggested = (names.take(table[column].combine_chunks()) for column in ("observed", "suggested"))
    made = {(event.row, event.label) for event in history}
    try:
        with path.open(encoding="utf-8") as file:
            header, more = file.readline().rstrip("\n"), file.read(1)
        changes = read_diff(path).changes(table["id"], observed, names, str(path)) if more else {}
    except (InputError, OSError, ValueError):  # another kind of file, or about other samples
        return False
    ours = all(label == suggested[row].as_py() or (row, label) in made for row, label in changes.items())
    return header == ",".join(COLUMNS) and ours
