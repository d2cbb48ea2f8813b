"""What benchmarks share: where results go, the flags of a grid of runs, work in several processes."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from labeltrace.bench.environment import environment, write_result
from labeltrace.data import load_noise
from labeltrace.engine import RunConfig, RunFolder, load_config
from labeltrace.engine.folder import finite
from labeltrace.grid import run_all
from labeltrace.progress import Bars
from labeltrace.runs import figures

T = TypeVar("T")
R = TypeVar("R")

RESULTS = Path(__file__).resolve().parent.parent / "results"
GRID = ("data", "root", "subset", "model", "epochs", "noise", "rate")  # what the runs of a grid share
SIGNALS = ("auroc_clean", "auroc_structure", "auroc_observed", "auroc_pseudo")


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


def add_grid_flags(parser: argparse.ArgumentParser) -> None:
    """Add what a grid of runs on one dataset with one noise needs, see `GRID`."""
    parser.add_argument("data", help="dataset by name, or a path")
    add_run_flags(parser)
    parser.add_argument("--noise", default="symmetric")
    parser.add_argument("--rate", type=float, default=0.4)
    parser.add_argument("--jobs", type=int, help="runs at a time (default: one per core)")
    parser.add_argument("--name", help="of the results (default: made of the flags above)")


def run_grid(
    script: str, asked: argparse.Namespace, changes: Mapping[str, dict[str, Any]], out: Path
) -> dict[str, Any]:
    """Train every change for every seed on the same labels, whatever is not finished; return the record of all.

    Args:
        script: the benchmark's own file name.
        asked: its flags, see `add_grid_flags`.
        changes: name of the run → what it changes in the config.
        out: folder of the runs.
    """
    shared = {name: getattr(asked, name) for name in GRID}
    configs = {
        f"{name}-s{seed}": RunConfig.model_validate({**shared, **change, "seed": seed})
        for seed in asked.seeds
        for name, change in changes.items()
    }
    started = time.perf_counter()
    with Bars(Console()) as bars:
        run_all(configs, out, bars, asked.jobs, resume=True)
    return {
        "command": command_of(script, asked.data, asked, ("subset", "model", "epochs", "noise", "rate", "name")),
        "noise": f"{asked.noise}, rate {asked.rate}",
        "seeds": asked.seeds,
        "seconds": round(time.perf_counter() - started),
        "environment": environment(),
        "runs": [row(name, seed, out / f"{name}-s{seed}") for name in changes for seed in asked.seeds],
    }


def command_of(script: str, first: str, asked: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the command that repeats a measurement: those of the flags that were given, folders left out."""
    given = {name: getattr(asked, name) for name in names if getattr(asked, name)}
    words = [
        f"--{name} {' '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in given.items()
    ]
    return " ".join([f"python benchmarks/{script}", first, *words])


def row(name: str, seed: int, folder: Path) -> dict[str, object]:
    """Return one run's figures with what identifies it, and how its signals stand in the last epoch."""
    run = RunFolder(folder)
    config, metrics = load_config(run.config, {}), run.read_metrics()
    signals = metrics[-1].get("signals", {})
    noise = load_noise(run.noise)[1]
    where = run.read_environment()
    return {
        "run": name,
        "seed": seed,
        "epochs": config.epochs,
        "preset": config.preset,
        "model": config.model,
        "noise_sha256": noise.sha256,
        "rate": noise.actual,
        "device": where["device"],
        "torch": where["torch"],
        "revision": where["revision"],
        "seconds": round(sum(record["seconds"] for record in metrics), 1),
        **finite(figures(folder)),
        **{name: signals.get(name) for name in SIGNALS},
    }


def write_page(record: dict[str, Any], text: str, stem: Path) -> None:
    """Write a result as JSON and its page as Markdown, beside each other."""
    write_result(record, stem.with_suffix(".json"))
    stem.with_suffix(".md").write_text(text, encoding="utf-8")


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
