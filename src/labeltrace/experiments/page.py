"""The page of results, made from the lines: `python -m labeltrace.experiments.page > docs/results.md`.

With the path of a table of one's own it is the page of that table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from labeltrace.bench.page import markdown
from labeltrace.errors import InputError
from labeltrace.experiments.cells import places
from labeltrace.experiments.compare import LEAST, LEVEL, Comparison, paired_t
from labeltrace.experiments.results import Line, noise_made, read_lines, results_file, value_of
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
  p ≥ {LEVEL:g}; p is not corrected for the number of tests. With three seeds the test leans on differences being
  normal: flipping their signs, which assumes less, cannot go below p = 0.25.
- A run marked *older settings* was made with a recipe that has changed since; it is shown, and neither averaged nor
  compared with others.
- A *run* is named by the `id` of its line, which has its config hash, noise hash, seed, versions, revision and command.
"""


@dataclass(frozen=True)
class Measured:
    """The runs of one cell, one length and one config, by seed; `older` where the cell's config is another today."""

    cell: Cell
    epochs: int
    recipe: int
    older: bool
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
        InputError: a line of a cell that is not there, or two for one cell, length and seed.
    """
    tables = list(tables)
    lines = placed(lines, tables)
    return "\n".join([HEAD, *(section(table, lines) for table in tables), _runs(lines)])


def placed(lines: Sequence[Line], tables: Sequence[Table]) -> list[Line]:
    """Return the lines with the cells that their runs fill today.

    A line whose settings or labels are no longer those of the cells that it names keeps them, marked `older`: such runs
    are shown, and never averaged or paired with others.

    Raises:
        InputError: a line names a cell that these tables have not, or a run of none of their cells.
    """
    names = {table.name for table in tables}
    cells = [cell for table in tables for cell in table.cells]
    known = {cell.id for cell in cells if cell.run}
    by_length = {epochs: places(cells, epochs) for epochs in {line["epochs"] for line in lines}}
    found = []
    for line in lines:
        said = [cell for cell in line["cells"] if cell.partition("/")[0] in names]
        for cell in said:
            if cell not in known:
                raise InputError(f"results: run {line['id']} fills {cell!r}, which is no cell of a table")
        key = line["config_sha256"], noise_made(line["noise"])
        filled = [cell.id for cell in by_length[line["epochs"]].get(key, [])]
        older = not set(said) <= set(filled)
        found.append({**line, "cells": said if older else filled, "older": older})
    return found


def section(table: Table, lines: Sequence[Line]) -> str:
    """Return one table: the paper's and our numbers, the list of measured cells, the differences."""
    found = [one for cell in table.cells for one in measured(cell, lines)]
    runnable = [cell for cell in table.cells if cell.run and not cell.refused]
    filled = len({one.cell.id for one in found})
    parts = [
        f"## {table.name}: {table.title}",
        "",
        f"`{table.label}` of the paper. {table.about.strip()}" if table.label else table.about.strip(),
        "",
        f"`labeltrace reproduce {table.name}`: {filled} of {len(runnable)} cells that can be run are measured.",
        *(f"Not run: {words}." for words in table.refusals()),
        "",
        markdown([" ", "  ", *table.columns], _grid(table, found)),
    ]
    if found:
        head = ["cell", "ours", "published", "difference", "n", "epochs", "device", "runs"]
        parts += [markdown(head, [_measured_row(one) for one in found])]
    tested = [_difference_row(one) for pair in table.pairs for one in differences(*pair, lines)]
    if tested:
        head = ["difference", "in", "epochs", "mean", "by seed", "p", "claim"]
        parts += [markdown(head, tested)]
    return "\n".join(parts)


def measured(cell: Cell, lines: Sequence[Line]) -> list[Measured]:
    """Return the runs of a cell by length, the longest first, those of older settings last.

    Raises:
        InputError: two of one length and seed, which only their labels can tell apart.
    """
    by_length: dict[tuple[int, int, bool, str], dict[int, Line]] = {}
    for line in lines:
        if cell.id in line["cells"] and value_of(line, str(cell.measure)) is not None:
            kind = line["epochs"], line["recipe_epochs"], line["older"], line["config_sha256"]
            by_seed = by_length.setdefault(kind, {})
            other = by_seed.setdefault(int(line["seed"]), line)
            if other is not line:
                raise InputError(f"results: runs {other['id']} and {line['id']} are one run on other labels; keep one")
    return [
        Measured(cell, *kind[:3], tuple(by_length[kind][seed] for seed in sorted(by_length[kind])))
        for kind in sorted(by_length, key=lambda kind: (kind[2], -kind[0], -kind[1], kind[3]))
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
    schedule = f"{one.epochs} of {one.recipe}" + (", older settings" if one.older else "")
    return [where, one.text, one.cell.published or "", difference, str(len(one.values)), schedule, devices, ids]


@dataclass(frozen=True)
class Difference:
    """Two cells over the seeds and labels that both have, at one length.

    Args:
        first, second: the runs, in the same order.
        found: what they come to.
    """

    first: Measured
    second: Measured
    found: Comparison

    @property
    def names(self) -> tuple[str, str]:
        """What is compared, and where."""
        one, two = self.first.cell, self.second.cell
        if one.column == two.column:
            return f"{one.row} − {two.row}", one.column
        return f"{one.column} − {two.column}", one.row


def differences(cell: Cell, other: Cell, lines: Sequence[Line]) -> list[Difference]:
    """Return what two cells differ by, for each length that both have; one run in both is no pair."""
    seconds = {one.epochs: one for one in measured(other, lines) if not one.older}
    found = []
    for first in measured(cell, lines):
        second = None if first.older else seconds.get(first.epochs)
        partner = {(line["seed"], line["noise_sha256"]): line for line in second.lines} if second else {}
        pairs = [(line, partner.get((line["seed"], line["noise_sha256"]))) for line in first.lines]
        both = [(one, two) for one, two in pairs if two is not None and one["id"] != two["id"]]
        if second and both:
            one = replace(first, lines=tuple(line for line, _ in both))
            two = replace(second, lines=tuple(line for _, line in both))
            found.append(Difference(one, two, paired_t(one.values, two.values)))
    return found


def in_words(p: float | None) -> str:
    """Return a p as it is shown.

    >>> in_words(0.0312), in_words(1e-5), in_words(None)
    ('0.031', '<0.001', '')
    """
    return "" if p is None else "<0.001" if p < 0.0005 else f"{p:.3f}"


def _difference_row(one: Difference) -> list[str]:
    seeds = [line["seed"] for line in one.first.lines]
    by_seed = ", ".join(f"{seed}: {gap:+.2f}" for seed, gap in zip(seeds, one.found.differences, strict=True))
    found = one.found
    return [*one.names, str(one.first.epochs), f"{found.mean:+.2f}", by_seed, in_words(found.p), found.claim]


def _runs(lines: Sequence[Line]) -> str:
    title = "## Runs\n"
    if not lines:
        return f"{title}\nNone yet.\n"
    rows = []
    for line in lines:
        method = "+".join(filter(None, (line["learner"], line["controller"], line.get("plugin"))))
        made = line["noise"]
        noise = "own" if made is None else f"{made['kind']} {made['nominal']:g}, actual {made['actual']:.4f}"
        row = [f"`{line['id']}`", line["data"], noise, f"`{line['noise_sha256'][:12]}`", method, str(line["seed"])]
        accuracy = value_of(line, "mean_last_10")
        row += [f"{line['epochs']} of {line['recipe_epochs']}", "" if accuracy is None else f"{accuracy:.2f}"]
        rows.append([*row, f"{line['seconds']:.0f}", str(line["revision"] or ""), line["started"][:10]])
    head = ["run", "data", "noise", "labels", "method", "seed", "epochs", "last 10", "seconds", "revision", "date"]
    clock = "*Seconds* are by the clock of runs that shared their device with others: no measure of speed."
    return f"{title}\n{clock}\n\n{markdown(head, rows)}"


if __name__ == "__main__":
    from labeltrace.commands.console import complaining

    with complaining():
        given = sys.argv[1:] or list(TABLES)
        sys.stdout.write(page(read_lines(results_file(given)), map(load_table, given)))
