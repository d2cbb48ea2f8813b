"""What benchmarks share: where results go, the flags of a grid of runs, work in several processes."""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from labeltrace.progress import Bars

T = TypeVar("T")
R = TypeVar("R")

RESULTS = Path(__file__).resolve().parent.parent / "results"


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a script's docstring as it stands."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add what every run of a grid has in common, and the seeds."""
    parser.add_argument("--root", type=Path)
    parser.add_argument("--subset", type=int)
    parser.add_argument("--model")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 42, 1027])


def command_of(script: str, first: str, asked: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the command that repeats a measurement: those of the flags that were given, folders left out."""
    given = {name: getattr(asked, name) for name in names if getattr(asked, name)}
    words = [
        f"--{name} {' '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in given.items()
    ]
    return " ".join([f"python benchmarks/{script}", first, *words])


def side_by_side(
    work: Callable[[T], R],
    todo: Sequence[T],
    jobs: int | None,
    unit: str,
    say: Callable[[R], str],
    prepare: Callable[[], None] | None = None,
) -> Iterator[R]:
    """Do work in processes of its own under a bar; yield what it returns, in order.

    Args:
        work: a function of a module, which a process can import.
        todo: what it is called with.
        jobs: processes at a time; None is one per core.
        unit: what is counted, "runs".
        say: of a result, what the bar shows.
        prepare: called once in every process.
    """
    context: Any = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU
    with Bars(Console(stderr=True)) as bars, ProcessPoolExecutor(jobs, context, prepare) as pool:
        bars.show(unit, len(todo), 0, "", unit=unit)
        for number, result in enumerate(pool.map(work, todo)):
            bars.show(unit, len(todo), number + 1, say(result), unit=unit)
            yield result
