"""labeltrace bench: measure this package on the machine at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from labeltrace.commands.console import console, print_json, talk_console
from labeltrace.errors import InputError, nearest

app = typer.Typer(
    help="Measure this package on the machine at hand.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Out = Annotated[Path | None, typer.Option(help="Also write the figures and the environment to this JSON file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]


@app.command("all")
def all_(
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write bench_gpu.json, bench_cpu.json and so on into it.")
    ] = None,
) -> None:
    """Everything below, one after another, with its usual values; what needs a GPU is left out where there is none.

    Example: labeltrace bench all --out results
    """
    import torch

    from labeltrace.files import is_file

    if out is not None and is_file(out):
        raise InputError(f"--out {out}: a file; expected a folder")
    for measurement in (gpu, cpu, growth, data):
        name = measurement.__name__
        console.print(f"bench {name}", style="bold")
        if measurement is gpu and not torch.cuda.is_available():
            console.print("left out: torch finds no CUDA device here\n")
            continue
        measurement(out=None if out is None else out / f"bench_{name}.json")


@app.command()
def data(
    files: Annotated[
        list[int] | None, typer.Option(help="How many files; once for each count. 1,000 and 10,000 if none is given.")
    ] = None,
    size: Annotated[str, typer.Option(metavar="WIDTHxHEIGHT", help="Of the pictures in the files.")] = "500x375",
    workers: Annotated[int | None, typer.Option(help="Processes that decode (default: one per core).")] = None,
    repeats: Annotated[int, typer.Option(help="Passes of each way; they take turns, the best counts.")] = 3,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Reading of image folders: images per second and peak memory, beside a plain Pillow DataLoader.

    Example: labeltrace bench data --files 1000 --files 10000
    """
    from labeltrace.bench.data import WAYS, bench_data
    from labeltrace.bench.environment import environment, write_result
    from labeltrace.data import ReadOptions

    try:
        width, height = (int(part) for part in size.lower().split("x"))
    except ValueError:
        raise InputError(f"--size {size!r}: expected WIDTHxHEIGHT, e.g. 500x375") from None
    if min(width, height, repeats, *(files or [1])) < 1:
        raise InputError("--size, --files and --repeats are 1 or more")
    processes = ReadOptions(workers=workers).processes
    talk = talk_console(as_json)
    records = bench_data(files or [1000, 10000], width, height, processes, talk.print, repeats)
    result = {"size": size, "workers": processes, "records": records, "environment": environment()}
    if out is not None:
        write_result(result, out)
    if as_json:
        print_json(result)
        return
    table = Table("files", "way", "images/s", "memory, usual", "most", "against Pillow", box=None, padding=(0, 2))
    plain = {record["files"]: record["images_per_second"] for record in records if record["way"] == "pillow"}
    for record in records:
        usual, most = (
            "–" if record[key] is None else f"{record[key] / 1e6:,.0f} MB" for key in ("usual_bytes", "peak_bytes")
        )
        speed = record["images_per_second"]
        factor = f"{speed / plain[record['files']]:.2f}×"
        table.add_row(f"{record['files']:,}", WAYS[record["way"]], f"{speed:,.0f}", usual, most, factor)
    console.print(table)
    console.print(f"{size} JPEG, {processes} workers, best of {repeats} passes")


@app.command()
def growth(
    samples: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="How many samples; once for each size. 1e4, 1e5, 1e6 and 1e7 if none is given."),
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """What grows with the training set: time and memory of scores, mixture fit, sample memory and samples table.

    Example: labeltrace bench growth --samples 1e4 --samples 1e6
    """
    from labeltrace.bench.growth import FEWEST, SIZES, bench_growth, tables

    sizes = [_count(text, FEWEST) for text in samples] if samples else list(SIZES)
    _measure(lambda note: bench_growth(sizes, note), tables, out, as_json)


@app.command()
def cpu(
    learner: Annotated[list[str] | None, typer.Option(help="Once for each learner; all if none is given.")] = None,
    epochs: Annotated[int, typer.Option(min=2, help="Of a run on digits; its second half counts.")] = 6,
    batches: Annotated[int, typer.Option(min=1, help="Of an epoch of ResNet-18.")] = 6,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each; they take turns, the median counts.")] = 5,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Training on the cores at hand: an epoch of digits for every learner, and our loop beside a plain PyTorch loop.

    Example: labeltrace bench cpu --learner rolr --repeats 3
    """
    from labeltrace.bench.cpu import bench_cpu, tables
    from labeltrace.learners import learners

    names = list(learner or learners)
    for name in names:
        learners[name]  # an unknown one is refused before anything is measured
    _measure(lambda note: bench_cpu(names, epochs, repeats, batches, note), tables, out, as_json)


@app.command()
def gpu(
    learner: Annotated[
        list[str] | None, typer.Option(help="Once for each learner; dividemix and rolr if none is given.")
    ] = None,
    way: Annotated[
        list[str] | None, typer.Option(help="How steps run: plain, captured or compiled; all if none is given.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Epochs that count; the median is taken.")] = 3,
    samples: Annotated[str, typer.Option(metavar="N", help="Of the synthetic training set.")] = "50000",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """An epoch on the GPU, steps plain, captured and compiled, as published and with TRACE, beside the device's floor.

    Example: labeltrace bench gpu --learner disc --way captured
    """
    from labeltrace.bench.gpu import WAYS, bench_gpu, tables
    from labeltrace.learners import learners

    names, ways = list(learner or ["dividemix", "rolr"]), list(way or WAYS)
    for name in names:
        learners[name]  # an unknown one is refused before anything is measured
    for name in ways:
        if name not in WAYS:
            raise InputError(f"--way {name!r}: {nearest(name, WAYS)}")
    count = _count(samples, 1000)
    _measure(lambda note: bench_gpu(names, ways, repeats, count, note), tables, out, as_json)


def _count(text: str, fewest: int) -> int:
    """Return a number of samples, which may be written as 1e6."""
    try:
        value = float(text)
        if value >= fewest and value == int(value):
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise InputError(f"--samples {text!r}: expected a whole number of {fewest} or more, e.g. 10000 or 1e6")


def _measure(
    work: Callable[[Callable[[int, int, str], None]], dict[str, Any]],
    tables: Callable[[dict[str, Any]], dict[str, tuple[list[str], list[list[str]]]]],
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure with a bar, add the environment, then write, and print tables or JSON."""
    from labeltrace.bench.environment import environment, write_result
    from labeltrace.progress import Bars

    with Bars(talk_console(as_json)) as bars:
        result = work(lambda done, total, what: bars.show("measuring", total, done, what, unit="measurements"))
    result["environment"] = environment()
    if out is not None:
        write_result(result, out)
    if as_json:
        print_json(result)
        return
    for title, (head, rows) in tables(result).items():
        console.print(title)
        table = Table(box=None, padding=(0, 2))
        for number, name in enumerate(head):
            table.add_column(name, justify="left" if number == 0 else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print()
    console.print(f"{result['threads']} threads")
