"""The page of results, made from the lines: `python -m labeltrace.experiments.page > docs/results.md`.

With the path of a table of one's own it is the page of that table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from labeltrace.bench.page import markdown
from labeltrace.errors import InputError
from labeltrace.experiments.compare import LEAST, LEVEL, paired_t
from labeltrace.experiments.results import Line, read_lines, results_file, value_of
from labeltrace.experiments.tables import TABLES, Cell, Table, load_table

HEAD = f"""# Results: the paper's tables, and ours

Made from `results/runs.jsonl` by `python -m labeltrace.experiments.page > docs/results.md`; a test compares.
`labeltrace reproduce TABLE` makes the runs and their lines. Nothing stands here that was not run: an empty place was
not measured.

- **published** is what the paper prints. **ours** is the mean ± standard deviation (n − 1) over seeds, in per cent.
- Runs of different length are never averaged. Where a cell has several lengths, its table shows the longest; the list
  below the table has all. *Epochs* are those trained and, after "of", those of the recipe; a shorter run shrinks every
  epoch-valued setting.
- Within a seed all methods train on the same labels. **Differences** are of pairs with the same seed, labels and
  length; p is that of a two-sided paired t test. Nothing is claimed with fewer than {LEAST} seeds, nor with
  p ≥ {LEVEL:g}; p is not corrected for the number of tests.
- A *run* is named by the `id` of its line, which has its config hash, noise hash, seed, versions, revision and command.
"""


@dataclass(frozen=True)
class Measured:
    """The runs of one cell and one length, by seed."""

    cell: Cell
    epochs: int
    recipe: int
    lines: tuple[Line, ...]

    @property
    def values(self) -> list[float]:
        """Their figures, as the table shows them."""
        found = (value_of(line, str(self.cell.measure)) for line in self.lines)
        return [value for value in found if value is not None]

    @property
    def text(self) -> str:
        """Mean ± standard deviation."""
        return spread(self.values, counts=str(self.cell.measure).endswith(".n"))


def page(lines: Sequence[Line], tables: Iterable[Table]) -> str:
    """Return the whole page as Markdown.

    Raises:
        InputError: a line names a cell that no table has.
    """
    tables = list(tables)
    known = {cell.id for table in tables for cell in table.cells}
    for line in lines:
        for cell in line["cells"]:
            if cell not in known:
                raise InputError(f"results: run {line['id']} fills {cell!r}, which is no cell of a table")
    return "\n".join([HEAD, *(section(table, lines) for table in tables), _runs(lines)])


def section(table: Table, lines: Sequence[Line]) -> str:
    """Return one table: the paper's and our numbers, the list of measured cells, the differences."""
    found = [one for cell in table.cells for one in measured(cell, lines)]
    runnable = [cell for cell in table.cells if cell.run]
    filled = len({one.cell.id for one in found})
    parts = [
        f"## {table.name}: {table.title}",
        "",
        f"`{table.label}` of the paper. {table.about.strip()}",
        "",
        f"`labeltrace reproduce {table.name}`: {filled} of {len(runnable)} cells that can be run are measured.",
        *sorted({f"{cell.row}: not run, {cell.refused}." for cell in runnable if cell.refused}),
        "",
        markdown([" ", "  ", *table.columns], _grid(table, found)),
    ]
    if found:
        head = ["cell", "ours", "published", "difference", "n", "epochs", "device", "runs"]
        parts += [markdown(head, [_measured_row(one) for one in found])]
    differences = [row for pair in table.pairs for row in _difference_rows(*pair, lines)]
    if differences:
        head = ["difference", "in", "epochs", "mean", "by seed", "p", "claim"]
        parts += [markdown(head, differences)]
    return "\n".join(parts)


def measured(cell: Cell, lines: Sequence[Line]) -> list[Measured]:
    """Return the runs of a cell by length, the longest first."""
    by_length: dict[tuple[int, int], list[Line]] = {}
    for line in lines:
        if cell.id in line["cells"] and value_of(line, str(cell.measure)) is not None:
            by_length.setdefault((line["epochs"], line["recipe_epochs"]), []).append(line)
    return [
        Measured(cell, *length, tuple(sorted(by_length[length], key=lambda line: int(line["seed"]))))
        for length in sorted(by_length, reverse=True)
    ]


def spread(values: Sequence[float], *, counts: bool = False) -> str:
    """Return mean ± standard deviation of values.

    >>> spread([75.0, 76.0, 77.0]), spread([75.0]), spread([])
    ('76.00 ± 1.00', '75.00', '')
    """
    if not values:
        return ""
    digits = 0 if counts else 2
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}"


def _grid(table: Table, found: Sequence[Measured]) -> list[list[str]]:
    ours: dict[str, str] = {}
    for one in found:
        ours.setdefault(one.cell.id, one.text)
    rows = []
    for row in table.rows:
        cells = [table.cell(row, column) for column in table.columns]
        name = row
        if any(cell.published for cell in cells):
            rows.append([name, "published", *(cell.published or "" for cell in cells)])
            name = ""
        if any(cell.run for cell in cells):
            rows.append([name, "ours", *(ours.get(cell.id, "") for cell in cells)])
    return rows


def _measured_row(one: Measured) -> list[str]:
    published = one.cell.number
    difference = "" if published is None else f"{mean(one.values) - published:+.2f}"
    devices = ", ".join(sorted({f"{line['device']}, {line['precision']}" for line in one.lines}))
    ids = ", ".join(f"`{line['id']}`" for line in one.lines)
    where = f"{one.cell.row} · {one.cell.column}"
    schedule = f"{one.epochs} of {one.recipe}"
    return [where, one.text, one.cell.published or "", difference, str(len(one.values)), schedule, devices, ids]


def _difference_rows(cell: Cell, other: Cell, lines: Sequence[Line]) -> list[list[str]]:
    rows = []
    seconds = {one.epochs: one for one in measured(other, lines)}
    for first in measured(cell, lines):
        second = seconds.get(first.epochs)
        if second is None:
            continue
        partner = {(line["seed"], line["noise_sha256"]): line for line in second.lines}
        pairs = [(line, partner.get((line["seed"], line["noise_sha256"]))) for line in first.lines]
        both = [(one, two) for one, two in pairs if two is not None and one["id"] != two["id"]]
        if not both:
            continue
        found = paired_t(
            Measured(cell, 0, 0, tuple(one for one, _ in both)).values,
            Measured(other, 0, 0, tuple(two for _, two in both)).values,
        )
        by_seed = ", ".join(f"{one['seed']}: {gap:+.2f}" for (one, _), gap in zip(both, found.differences, strict=True))
        row, column = cell.row, cell.column
        what, where = (
            (f"{row} − {other.row}", column) if column == other.column else (f"{column} − {other.column}", row)
        )
        p = "" if found.p is None else f"{found.p:.3f}"
        rows.append([what, where, str(first.epochs), f"{found.mean:+.2f}", by_seed, p, found.claim])
    return rows


def _runs(lines: Sequence[Line]) -> str:
    title = "## Runs\n"
    if not lines:
        return f"{title}\nNone yet.\n"
    rows = []
    for line in lines:
        method = line["learner"] + (f"+{line['controller']}" if line["controller"] else "")
        made = line["noise"]
        noise = "own" if made is None else f"{made['kind']} {made['nominal']:g}, actual {made['actual']:.4f}"
        row = [f"`{line['id']}`", line["data"], noise, f"`{line['noise_sha256'][:12]}`", method, str(line["seed"])]
        accuracy = value_of(line, "mean_last_10")
        row += [f"{line['epochs']} of {line['recipe_epochs']}", "" if accuracy is None else f"{accuracy:.2f}"]
        rows.append([*row, f"{line['seconds']:.0f}", str(line["revision"] or ""), line["started"][:10]])
    head = ["run", "data", "noise", "labels", "method", "seed", "epochs", "last 10", "seconds", "revision", "date"]
    return f"{title}\n{markdown(head, rows)}"


if __name__ == "__main__":
    given = sys.argv[1:] or list(TABLES)
    sys.stdout.write(page(read_lines(results_file(given)), map(load_table, given)))
