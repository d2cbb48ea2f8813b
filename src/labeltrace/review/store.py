"""What a person decided, in a small SQLite file in the run folder: one row per event, none ever changed.

A decision counts from the moment `record` returns: it is on the disk, whatever happens to the process. The newest event
of a sample that no undo has taken back is what holds; all others stay as its history. Nothing is kept in memory, so
every tab, and every process that opens the same file, sees what the others have decided.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa

from labeltrace.audit.decisions import KEEP, RELABEL
from labeltrace.audit.samples import values
from labeltrace.data.noise.record import label_hash
from labeltrace.errors import InputError

SKIP, UNDO = "skip", "undo"
ACTIONS = (KEEP, RELABEL, SKIP)
VERSION = 1  # of the tables
PATIENCE = 10  # seconds to wait for another process that is writing

_TABLES = """
CREATE TABLE about (labels_sha256 TEXT NOT NULL);
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    tab TEXT NOT NULL,
    row INTEGER NOT NULL,
    id TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('keep', 'relabel', 'skip', 'undo')),
    label TEXT CHECK ((label IS NOT NULL) = (action = 'relabel')),
    undoes INTEGER UNIQUE REFERENCES events (number) CHECK ((undoes IS NOT NULL) = (action = 'undo'))
);
CREATE VIEW standing AS
    SELECT * FROM events
    WHERE action != 'undo' AND number NOT IN (SELECT undoes FROM events WHERE undoes IS NOT NULL);
CREATE VIEW decisions AS
    SELECT * FROM standing WHERE number IN (SELECT max(number) FROM standing GROUP BY row);
"""


@dataclass(frozen=True)
class Event:
    """Something a person did.

    Attributes:
        number: of the event, ascending.
        time: in UTC, ISO 8601.
        tab: of the browser it was done in.
        row: of the sample in the samples table.
        id: its name.
        action: keep, relabel, skip or undo.
        label: the class that a relabel gives, by name.
        undoes: number of the event that an undo takes back.
    """

    number: int
    time: str
    tab: str
    row: int
    id: str
    action: str
    label: str | None = None
    undoes: int | None = None


class Store:
    """The decisions of a run; `store.py` says what is promised of them.

    Args:
        path: of the file, which is made where there is none.
        table: samples table of the run; decisions are about its labels and no others.

    Raises:
        InputError: no such place, a file of another kind, or decisions about other labels.

    >>> import tempfile, json
    >>> names = {"labeltrace.classes": json.dumps(["cat", "dog"])}
    >>> table = pa.table({"id": ["a", "b"], "observed": [0, 1]}).replace_schema_metadata(names)
    >>> store = Store(Path(tempfile.mkdtemp()) / "review.sqlite", table)
    >>> store.record(0, "relabel", "dog").id, store.record(1, "skip").id
    ('a', 'b')
    >>> store.undo().row, [event.action for event in store.decisions()]
    (1, ['relabel'])
    """

    def __init__(self, path: Path, table: pa.Table) -> None:
        self.path, self._ids = path, table["id"]
        self._lock = threading.Lock()
        sha256 = label_hash(values(table, "observed"))
        try:
            self._connection = sqlite3.connect(path, PATIENCE, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")  # on the disk when the commit returns
            with self._writing() as connection:
                _make(connection, sha256, path)
                self._before = connection.execute("SELECT coalesce(max(number), 0) FROM events").fetchone()[0]
        except sqlite3.Error as error:
            raise InputError(f"{path}: decisions cannot be kept here ({error})") from None

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def record(self, row: int, action: str, label: str | None = None, tab: str = "") -> Event:
        """Write a decision; when this returns it is on the disk.

        Args:
            row: of the sample.
            action: keep, relabel or skip.
            label: name of the class, for relabel.
            tab: of the browser that it comes from.
        """
        if action not in ACTIONS or (label is not None) != (action == RELABEL):
            raise ValueError(f"no such decision: {action!r} with label {label!r}")
        with self._writing() as connection:
            return self._add(connection, tab, row, action, label, None)

    def undo(self, tab: str = "") -> Event | None:
        """Take back the newest decision of this tab, or one made before this server was started; None where none is.

        What another open tab has just decided is not touched.
        """
        with self._writing() as connection:
            found = connection.execute(
                "SELECT number, row FROM standing WHERE tab = ? OR number <= ? ORDER BY number DESC LIMIT 1",
                (tab, self._before),
            ).fetchone()
            return None if found is None else self._add(connection, tab, found[1], UNDO, None, found[0])

    def decisions(self) -> list[Event]:
        """Return what holds: at most one event per sample, in the order they were made."""
        return self._read("SELECT * FROM decisions ORDER BY number")

    def history(self, row: int | None = None) -> list[Event]:
        """Return every event, of one sample where asked for, undone ones and undos too."""
        if row is None:
            return self._read("SELECT * FROM events ORDER BY number")
        return self._read("SELECT * FROM events WHERE row = ? ORDER BY number", row)

    def _read(self, query: str, *values: Any) -> list[Event]:
        with self._lock:
            return [Event(*found) for found in self._connection.execute(query, values)]

    def _add(
        self, connection: sqlite3.Connection, tab: str, row: int, action: str, label: str | None, undoes: int | None
    ) -> Event:
        time, id_ = datetime.now(timezone.utc).isoformat(timespec="milliseconds"), self._ids[row].as_py()
        cursor = connection.execute(
            "INSERT INTO events (time, tab, row, id, action, label, undoes) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (time, tab, row, id_, action, label, undoes),
        )
        assert cursor.lastrowid is not None
        return Event(cursor.lastrowid, time, tab, row, id_, action, label, undoes)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the file for writing: all of the block happens, or none of it."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # on a full disk SQLite has taken it back itself
                    self._connection.execute("ROLLBACK")
                raise


def _make(connection: sqlite3.Connection, sha256: str, path: Path) -> None:
    """Make the tables in an empty file; check those of any other."""
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        for statement in _TABLES.strip().removesuffix(";").split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO about VALUES (?)", (sha256,))
        connection.execute(f"PRAGMA user_version = {VERSION}")
        return
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != VERSION:
        raise InputError(f"{path}: not a file of decisions of version {VERSION} (it says {found}); move it away")
    if connection.execute("SELECT labels_sha256 FROM about").fetchone() != (sha256,):
        raise InputError(f"{path}: its decisions are about other labels than this run's; move it away to start anew")
