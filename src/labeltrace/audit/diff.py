"""A label diff: which labels change from what to what, and why. It can be applied, and taken back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labeltrace.audit.checked import find_ids
from labeltrace.audit.decisions import RELABEL
from labeltrace.audit.export import write_table
from labeltrace.audit.samples import class_names, values
from labeltrace.data.own.load import told
from labeltrace.data.own.table import open_table
from labeltrace.errors import InputError, nearest
from labeltrace.files import is_file

COLUMNS = ("id", "from", "to", "why")
MOST_NAMED = 20  # classes that an error lists


@dataclass(frozen=True, eq=False)
class LabelDiff:
    """Changes of labels, classes by name.

    Attributes:
        table: columns id, from, to, why, all strings.
        file: it was read from, for messages.
        lines: [K] of the file that the changes stand in.
        reverted: whether it is taken back: from `to` to `from`.
    """

    table: pa.Table
    file: str = "the diff"
    lines: NDArray[np.int64] | None = None
    reverted: bool = False

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def place(self, i: int) -> str:
        """Return where change `i` is, for a message."""
        return f"{self.file}, line {i + 2 if self.lines is None else self.lines[i]}"

    def reverse(self) -> LabelDiff:
        """Return the diff that takes this one back."""
        return replace(self, reverted=not self.reverted)

    @property
    def old(self) -> Any:
        """[K] the labels that it expects to find."""
        return self.table["to" if self.reverted else "from"]

    @property
    def new(self) -> Any:
        """[K] the labels that it leaves."""
        return self.table["from" if self.reverted else "to"]

    def changes(self, ids: Any, labels: Any, known: Any, where: str) -> dict[int, str]:
        """Return the new label of each row that changes.

        Args:
            ids: [N] of the samples, strings.
            labels: [N] they have now, strings.
            known: classes of the set, strings.
            where: the samples are, for messages.

        Raises:
            InputError: an id that the set does not have, a label that is not the one expected, a class that the set
                does not know. A class that this diff emptied is known to the one that takes it back.
        """
        rows = find_ids(self.table["id"], ids, self.place, where)
        now = labels.take(pa.array(rows))
        differs = np.asarray(pc.fill_null(pc.not_equal(now, self.old), True))
        if differs.any():
            i = int(differs.argmax())
            found, there = now[i].as_py(), self.new[i].as_py()
            taken = " (has the diff been taken back already?)" if self.reverted else " (is the diff applied already?)"
            raise InputError(
                f"{where}: {self.table['id'][i].as_py()!r} is labelled {found!r}, {self.file} expects "
                f"{self.old[i].as_py()!r}{taken if found == there else ': the labels have changed since it was made'}"
            )
        strange = np.asarray(pc.invert(pc.is_in(self.new, value_set=pa.array(known, pa.string()))))
        if not self.reverted and strange.any():
            i = int(strange.argmax())
            word = self.new[i].as_py()
            hint = nearest(word, known) if len(known) <= MOST_NAMED else nearest(word, known).partition("known")[0]
            raise InputError(f"{self.place(i)}: {where} has no class {word!r}{': ' if hint else ''}{hint}")
        return dict(zip(rows.tolist(), self.new.to_pylist(), strict=True))

    def write(self, path: Path) -> None:
        """Write the diff as CSV, whole or not at all."""
        write_table(self.table, path)


def label_diff(table: pa.Table) -> LabelDiff:
    """Return the changes that the relabelled rows of a samples table ask for, in the order of its rows."""
    names = pa.array(class_names(table), pa.string())
    rows = table.filter(pc.equal(table["decision"], RELABEL))
    trusts = zip(values(rows, "observed_reliability"), values(rows, "confidence"), strict=True)
    why = [f"label reliability {label:.2f}, confidence {suggestion:.2f}" for label, suggestion in trusts]
    columns = [
        rows["id"],
        names.take(rows["observed"].combine_chunks()),
        names.take(rows["suggested"].combine_chunks()),
        pa.array(why, pa.string()),
    ]
    return LabelDiff(pa.table(columns, names=list(COLUMNS)))


def read_diff(path: Path) -> LabelDiff:
    """Read a diff from a CSV file with columns id, from and to; `why` is for people.

    Raises:
        InputError: no such file, another header, a change without an id or a class, or from a class to itself.
    """
    if path.suffix.lower() != ".csv" or not is_file(path):
        raise InputError(f"--diff {path}: expected a .csv file with columns {', '.join(COLUMNS)}")
    with told(path):
        file = open_table(path)
        if not set(COLUMNS[:3]) <= set(file.names):
            raise InputError(f"{path}: expected columns {', '.join(COLUMNS)}; found {', '.join(map(repr, file.names))}")
        table, lines = file.read(COLUMNS[:3])
    diff = LabelDiff(table, str(path), lines)
    for name in COLUMNS[:3]:
        empty = pc.index(pc.is_null(table[name]), True).as_py()
        if empty >= 0:
            raise InputError(f"{diff.place(empty)}: no value in column {name!r}")
    idle = pc.index(pc.equal(table["from"], table["to"]), True).as_py()
    if idle >= 0:
        raise InputError(f"{diff.place(idle)}: from {table['from'][idle].as_py()!r} to itself; remove the line")
    return diff
