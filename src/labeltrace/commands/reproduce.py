"""labeltrace reproduce."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from labeltrace.commands.console import complain, console, print_json, talk_console
from labeltrace.errors import InputError

if TYPE_CHECKING:
    from labeltrace.experiments.plan import Planned
    from labeltrace.experiments.tables import Cell

SEEDS = "0,42,1027"  # the paper's


def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE", help="Tables (see --list); with --collect run folders, beside a table of your own."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Only rows or columns with this name or text; repeatable.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Length of each run; shorter than the recipe shrinks it (default: the recipe's).")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Of the runs and their noise, e.g. 0,42,1027.")] = SEEDS,
    jobs: Annotated[int, typer.Option(help="Runs at a time, on one device.")] = 1,
    root: Annotated[Path | None, typer.Option(help="Folder that holds the datasets.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="ImageNet checkpoint, for the columns that start from one.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs and their noise files.")] = Path("runs/reproduce"),
    results: Annotated[
        Path | None, typer.Option(help="File of one line per finished run (default: results/runs.jsonl).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    again: Annotated[bool, typer.Option("--again", help="Train again what is done; the new line replaces it.")] = False,
    slim: Annotated[bool, typer.Option("--slim", help="Delete a run's checkpoints once it has its line.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and how long it takes.")] = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="Add the finished runs in these folders to the results.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Fill a table of the paper with runs of your own; a second call goes on where the first was stopped.

    Example: labeltrace reproduce ablation --root ~/data --epochs 100 --jobs 4

    Example: labeltrace reproduce main --only RoLR --only "CIFAR-10 sym 50 %" --seeds 0 --dry-run

    A table of your own is a YAML file as those in labeltrace/experiments/paper; its results lie beside it.
    """
    from labeltrace.experiments.cells import all_cells
    from labeltrace.experiments.plan import DONE, plan_runs
    from labeltrace.experiments.results import RUNS, read_lines, results_file
    from labeltrace.experiments.tables import is_own, load_table, pick

    if list_:
        _list(as_json)
        return
    if not what:
        raise InputError("name a table (labeltrace reproduce --list), or run folders with --collect")
    if collect:
        own = [name for name in what if is_own(name)]
        folders = [Path(name) for name in what if name not in own]
        _collect(folders, own, results or (results_file(own) if own else RUNS), again, as_json)
        return
    if epochs is not None and epochs < 1:
        raise InputError(f"--epochs {epochs}: expected at least 1")
    if jobs < 1:
        raise InputError(f"--jobs {jobs}: expected at least one run at a time")
    tables = {name: load_table(name) for name in what}
    cells = pick(list(tables.values()), only or [])
    results = results or results_file(what)
    bench, lines = results.parent / "bench_gpu.json", read_lines(results)
    planned = plan_runs(
        cells, _seeds(seeds), out, lines, epochs=epochs, bench=bench, root=root, device=device, weights=weights
    )
    refused = [
        f"{table.name}: {words}"
        for table in tables.values()
        for words in table.refusals([cell for cell in cells if cell.table == table.name])
    ]
    if not planned:
        raise InputError(f"nothing to run: {'; '.join(refused) or 'these cells are differences of others'}")
    if dry_run:
        _show(planned, refused, as_json)
        return
    if weights is None and any(cell.pretrained for run in planned for cell in run.cells):
        columns = ", ".join(sorted({cell.column for run in planned for cell in run.cells if cell.pretrained}))
        raise InputError(f"{columns}: networks start from ImageNet weights; give --weights, or leave it out by --only")
    todo = [run for run in planned if again or run.state != DONE]
    failed = _fill(todo, all_cells(what), out, results, jobs, again, slim, as_json)
    if as_json:
        print_json(
            {"runs": len(planned), "trained": len(todo) - len(failed), "failed": failed, "results": str(results)}
        )
    else:
        was = len(planned) - len(todo)
        console.print(f"{len(todo) - len(failed)} of {len(todo)} runs finished, {was} were done before: {results}")
    if failed:
        by_words: dict[str, list[str]] = {}
        for name, words in failed.items():
            by_words.setdefault(words, []).append(name)
        for words, names in by_words.items():
            complain(f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {words}", 1)
        raise typer.Exit(1)


def _fill(
    todo: list[Planned],
    cells: list[Cell],
    out: Path,
    results: Path,
    jobs: int,
    again: bool,
    slim: bool,
    as_json: bool,
) -> dict[str, str]:
    from labeltrace.experiments.runner import fill
    from labeltrace.grid import GridBars

    if not todo:
        return {}
    bars = GridBars(talk_console(as_json), {run.name: run.config.epochs or 0 for run in todo})
    with bars:
        try:
            return fill(todo, out, results, cells, bars, jobs=jobs, again=again, slim=slim)
        except KeyboardInterrupt:
            raise typer.Exit(complain("stopped, all saved; the same command goes on", 130)) from None


def _collect(paths: list[Path], own: list[str], results: Path, again: bool, as_json: bool) -> None:
    """Add runs made elsewhere; what is no finished run of a table is named and left out."""
    from labeltrace.experiments.cells import all_cells
    from labeltrace.experiments.results import add_line, line_of, run_folders

    added: list[str] = []
    there: list[str] = []
    left: dict[str, str] = {}
    cells = all_cells(own)
    if not paths:
        raise InputError("--collect: name the folders of runs, or the folder that holds them")
    for folder in run_folders(paths):
        try:
            line = line_of(folder, cells)
        except InputError as error:
            left[str(folder)] = str(error)
            continue
        (added if add_line(results, line, again=again) else there).append(line["id"])
    if as_json:
        print_json({"added": added, "there": there, "left_out": left, "results": str(results)})
        return
    for words in left.values():
        console.print(f"left out: {words}", soft_wrap=True)
    console.print(
        f"{len(added)} runs added to {results}, {len(there)} were there, {len(left)} left out", soft_wrap=True
    )


def _list(as_json: bool) -> None:
    from labeltrace.experiments.tables import TABLES, load_table

    tables = [load_table(name) for name in TABLES]
    if as_json:
        keys = ("name", "title", "label", "rows", "columns")
        print_json([{key: getattr(table, key) for key in keys} for table in tables])
        return
    shown = Table(box=None, padding=(0, 2), pad_edge=False)
    for heading in ("table", "rows", "columns", "cells to run", "title"):
        shown.add_column(heading, justify="left" if heading in ("table", "title") else "right")
    for table in tables:
        counts = (len(table.rows), len(table.columns), sum(bool(cell.run and not cell.refused) for cell in table.cells))
        shown.add_row(table.name, *map(str, counts), table.title)
    console.print(shown)


def _show(planned: list[Planned], refused: list[str], as_json: bool) -> None:
    """Print the plan."""
    from labeltrace.experiments.plan import DONE, never_starts

    left = [run for run in planned if run.state != DONE]
    unknown = sum(run.seconds is None for run in left)
    seconds = sum(run.seconds or 0.0 for run in left)
    if as_json:
        runs: list[dict[str, Any]] = [
            {
                "name": run.name,
                "state": run.state,
                "cells": [cell.id for cell in run.cells],
                "epochs": run.config.epochs,
                "seed": run.config.seed,
                "seconds": run.seconds,
            }
            for run in planned
        ]
        total = {"seconds": None if unknown else seconds, "without_estimate": unknown, "refused": refused}
        print_json({"runs": runs, **total})
        return
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for heading in ("run", "seed", "epochs", "state", "time"):
        table.add_column(heading, justify="left" if heading in ("run", "state") else "right", no_wrap=heading != "run")
    for run in planned:
        time = "–" if run.seconds is None else _time(run.seconds)
        table.add_row(_cells(run.cells), str(run.config.seed), str(run.config.epochs), run.state, time)
    console.print(table)
    for words in refused:
        console.print(f"not run: {words}", soft_wrap=True)
    idle = sum(never_starts(run.config) for run in planned)
    if idle:
        console.print(f"in {idle} of these runs TRACE never starts: they are too short", soft_wrap=True)
    states = [run.state for run in planned]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    estimate = "no estimate" if unknown == len(left) else f"{_time(seconds)} one after another"
    rest = f", {unknown} without an estimate" if 0 < unknown < len(left) else ""
    runs_ = "1 run" if len(planned) == 1 else f"{len(planned)} runs"
    console.print(f"{runs_}: {counted}; {estimate if left else 'nothing left to run'}{rest}", soft_wrap=True)


def _cells(cells: tuple[Cell, ...]) -> str:
    """The rows and columns a run fills, without repetition."""
    rows, columns = (dict.fromkeys(getattr(cell, side) for cell in cells) for side in ("row", "column"))
    return f"{' = '.join(rows)} · {', '.join(columns)}"


def _time(seconds: float) -> str:
    """Return a time as people say it.

    >>> _time(59), _time(5400), _time(200000)
    ('59 s', '1.5 h', '2.3 days')
    """
    for unit, size, digits in (("days", 86400, 1), ("h", 3600, 1), ("min", 60, 0)):
        if seconds >= (1 if unit != "days" else 2) * size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def _seeds(text: str) -> list[int]:
    """Return seeds from a list with commas or spaces."""
    words = [word for word in re.split(r"[,\s]+", text) if word]
    if not words or not all(word.isdecimal() and int(word) < 2**32 for word in words):
        raise InputError(f"--seeds {text!r}: expected numbers with commas between them, e.g. {SEEDS}")
    return list(dict.fromkeys(map(int, words)))
