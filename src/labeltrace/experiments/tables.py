"""A table of the paper: rows, columns, what each cell is a run of, and the numbers the paper prints.

A table is a YAML file in `paper/`. The run of a cell is the table's, its column's and its row's keys together; a cell
whose run names no learner or no data has none (methods that are not here, columns of differences). `published` holds
the row's numbers as printed, `_` where the paper leaves a place blank; columns marked `ours` are not in the paper.
Own files are known by the last part of their path, so that a table and its results can move with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from labeltrace.data import datasets
from labeltrace.engine.config import read_yaml
from labeltrace.errors import InputError, nearest
from labeltrace.files import expanded
from labeltrace.validation import build

FOLDER = Path(__file__).parent / "paper"
#: the tables in the paper's order, then one of our own
TABLES = (
    "main", "cifar-n", "large-scale", "plugins", "ablation", "pseudo-summary", "sensitivity", "pair-instance-20",
    "sensitivity-appendix", "pseudo-reliability", "hard-regime", "choices",
)  # fmt: skip
BLANK = "_"
#: keys of a cell's run; seed, epochs and where it computes are said when a table is filled, and labels are made for it
KEYS = (
    "data", "subset", "read", "noise", "rate", "learner", "controller", "plugin", "plugin_settings", "model",
    "epoch_samples", "settings", "trace",
)  # fmt: skip


def _records(run: dict[str, Any]) -> dict[str, Any]:
    """Refuse a run in which settings are no keys and values: those of table, column and row are put together."""
    for key in ("read", "plugin_settings", "settings", "trace"):
        if not isinstance(run.get(key, {}), dict):
            raise ValueError(f"run: {key}: expected keys and values, got {run[key]!r}")
    return run


Run = Annotated[dict[str, Any], AfterValidator(_records)]


class Entry(BaseModel):
    """A row, a column, or what all cells of a table share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: Run = Field(default_factory=dict, description="keys of the run")
    recipes: list[str] = Field(default_factory=list, description="presets, the first that the learner has")
    measure: str | None = Field(None, description="figure of a run; that of a row goes before that of its column")
    published: str | None = Field(None, description="of a row: the paper's numbers, as printed")
    against: list[str] = Field(default_factory=list, description="the rows (columns) that this one is tested against")
    ours: bool = Field(False, description="of a column: not in the paper")
    pretrained: bool = Field(False, description="networks start from given weights")
    refused: str | None = Field(None, description="why this cannot be run")


class _File(BaseModel):
    """A table's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    label: str = Field("", description="of the paper's table; empty where it has none")
    about: str
    columns: dict[str, Entry]
    rows: dict[str, Entry]
    measure: str | None = None
    run: Run = Field(default_factory=dict)
    recipes: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class Cell:
    """One place of a table: what the paper prints there, and the run that would fill it.

    Args:
        table, row, column: where it is.
        published: the number as printed; None where there is none.
        measure: which figure of the run it shows.
        run: keys of the run, without epochs and seed; empty where there is no run.
        recipes: presets in order of preference.
        pretrained: networks start from given weights.
        refused: why it cannot be run, where it cannot.
    """

    table: str
    row: str
    column: str
    published: str | None
    measure: str | None
    run: dict[str, Any]
    recipes: tuple[str, ...]
    pretrained: bool
    refused: str | None

    @property
    def id(self) -> str:
        """Its name in results and pages."""
        return f"{self.table}/{self.row}/{self.column}"

    @property
    def number(self) -> float | None:
        """The published number."""
        return None if self.published is None or self.published == "--" else float(self.published)


@dataclass(frozen=True)
class Table:
    """A table; `cells` go through the rows, and within a row through the columns."""

    name: str
    title: str
    label: str
    about: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    pairs: tuple[tuple[Cell, Cell], ...]

    def cell(self, row: str, column: str) -> Cell:
        """Return the cell of a row and a column."""
        return self.cells[self.rows.index(row) * len(self.columns) + self.columns.index(column)]

    def pick(self, only: Sequence[str]) -> list[Cell]:
        """Return the cells with a run that `only` leaves.

        A text picks the rows or columns of that name, or else those that hold it; several texts on one side add up, and
        rows and columns picked restrict each other.

        Raises:
            InputError: a text that fits no row and no column.
        """
        unknown = next((text for text in only if not self.has(text)), None)
        if unknown is not None:
            names = ", ".join((*self.rows, *self.columns))
            raise InputError(f"--only {unknown!r}: no such row or column of {self.name}; it has: {names}")
        rows: list[str] = []
        columns: list[str] = []
        for text in only:
            found = [_matching(text, self.rows), _matching(text, self.columns)]
            exact = [[name for name in names if name.lower() == text.lower()] for names in found]
            rows += exact[0] if any(exact) else found[0]
            columns += exact[1] if any(exact) else found[1]
        return [
            cell
            for cell in self.cells
            if (cell.run or cell.refused) and (not rows or cell.row in rows) and (not columns or cell.column in columns)
        ]

    def has(self, text: str) -> bool:
        """Whether a text fits one of its rows or columns."""
        return bool(_matching(text, self.rows) or _matching(text, self.columns))

    def refusals(self, cells: Sequence[Cell] | None = None) -> list[str]:
        """Return why what is not run is not: one line for each reason, with its rows or columns before it.

        Args:
            cells: of this table; all where left out.
        """
        whole = {row for row in self.rows if all(cell.refused for cell in self.cells if cell.row == row)}
        found: dict[str, dict[str, None]] = {}
        for cell in self.cells if cells is None else cells:
            if cell.refused:
                found.setdefault(cell.refused, {})[cell.row if cell.row in whole else cell.column] = None
        return [f"{', '.join(names)}: {why}" for why, names in found.items()]


def pick(tables: Sequence[Table], only: Sequence[str]) -> list[Cell]:
    """Return the cells of several tables that `only` leaves; a table that lacks one of the texts gives none.

    Raises:
        InputError: a text that fits no row and no column of any table, or no table that has them all.
    """
    if len(tables) == 1:
        return tables[0].pick(only)
    for text in only:
        if not any(table.has(text) for table in tables):
            raise InputError(f"--only {text!r}: no such row or column of {', '.join(table.name for table in tables)}")
    fitting = [table for table in tables if all(table.has(text) for text in only)]
    if not fitting:
        raise InputError(f"--only {', '.join(map(repr, only))}: none of these tables has them all; name one table")
    return [cell for table in fitting for cell in table.pick(only)]


def load_table(name: str) -> Table:
    """Return a table of the paper by its name, or one's own by the path of its YAML file.

    >>> load_table("ablation").cell("TRACE", "Best").published
    '76.95'
    >>> load_table("abblation")
    Traceback (most recent call last):
    labeltrace.errors.InputError: unknown table 'abblation': did you mean 'ablation'?
    """
    if name in TABLES:
        return read_table(FOLDER / f"{name}.yaml")
    if is_own(name):
        return read_table(expanded(Path(name)))
    raise InputError(f"unknown table {name!r}: {nearest(name, TABLES)}")


def is_own(name: str) -> bool:
    """Whether a table's name is the path of a file."""
    return Path(name).suffix in (".yaml", ".yml")


def read_table(path: Path) -> Table:
    """Return the table of a YAML file.

    Raises:
        InputError: not such a file, or one whose rows and columns do not fit together.
    """
    file = build(_File, read_yaml(path), path.name)
    printed = [name for name, column in file.columns.items() if not column.ours]
    cells = []
    for name, row in file.rows.items():
        numbers = [BLANK] * len(printed) if row.published is None else row.published.split()
        if len(numbers) != len(printed):
            raise InputError(f"{path.name}: {name}: {len(numbers)} published numbers for {len(printed)} columns")
        shown = dict(zip(printed, numbers, strict=True))
        cells += [_cell(path.stem, file, name, column, shown.get(column, BLANK)) for column in file.columns]
    _check_runs(path.name, cells)
    table = Table(
        path.stem, file.title, file.label, file.about, tuple(file.rows), tuple(file.columns), tuple(cells), ()
    )
    return replace(table, pairs=tuple(_pairs(path.name, file, table)))


def _cell(table: str, file: _File, row_name: str, column_name: str, published: str) -> Cell:
    row, column = file.rows[row_name], file.columns[column_name]
    run: dict[str, Any] = {**file.run, **column.run, **row.run}
    trace = {**file.run.get("trace", {}), **column.run.get("trace", {}), **row.run.get("trace", {})}
    measure = ".".join(entry.measure for entry in (row, column) if entry.measure) or file.measure
    if trace:
        run["trace"] = trace
    if "learner" not in run or "data" not in run or measure is None:
        run = {}
    return Cell(
        table,
        row_name,
        column_name,
        None if published == BLANK else published,
        measure if run else None,
        run,
        tuple(row.recipes or column.recipes or file.recipes),
        row.pretrained or column.pretrained,
        row.refused or column.refused,
    )


def data_name(data: str) -> str:
    """Return what data is called in names and hashes: of own files the last part of their path.

    >>> data_name("cifar10"), data_name("/photos/dogs.csv")
    ('cifar10', 'dogs.csv')
    """
    return data if data in datasets else expanded(Path(data)).absolute().name


def _check_runs(where: str, cells: Sequence[Cell]) -> None:
    """Refuse keys that say nothing of a cell's run, and files that runs could not tell apart."""
    files: dict[tuple[str, str], Path] = {}
    for cell in cells:
        place = f"{where}: {cell.row}, {cell.column}"
        for key in cell.run:
            if key not in KEYS:
                raise InputError(f"{place}: {key!r} is no key of a table's run: {nearest(key, KEYS)}")
        if ("noise" in cell.run) != ("rate" in cell.run):
            raise InputError(f"{place}: noise and rate go together, e.g. noise: symmetric, rate: 0.4")
        named = {"data": cell.run.get("data"), **cell.run.get("read", {})}
        for key in ("data", "labels", "test"):
            name = named.get(key)
            if not isinstance(name, str) or (key == "data" and name in datasets):
                continue
            path = expanded(Path(name)).absolute()
            first = files.setdefault((key, path.name), path)
            if first != path:
                raise InputError(f"{place}: {path} and {first} would be taken for one, as their names are; rename one")


def _pairs(where: str, file: _File, table: Table) -> list[tuple[Cell, Cell]]:
    """Cell and the cell it is tested against, both with a run."""
    found = []
    for cell in table.cells:
        others = [(name, cell.column, file.rows) for name in file.rows[cell.row].against]
        others += [(cell.row, name, file.columns) for name in file.columns[cell.column].against]
        for row, column, side in others:
            if (row if side is file.rows else column) not in side:
                raise InputError(
                    f"{where}: {cell.row}, {cell.column}: tested against {row}, {column}, which is not there"
                )
            other = table.cell(row, column)
            if cell.run and other.run:
                found.append((cell, other))
    return found


def _matching(text: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if text.lower() in name.lower()]
