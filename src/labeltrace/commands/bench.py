"""labeltrace bench: measure this package on the machine at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from labeltrace.commands.console import console, print_json, talk_console
from labeltrace.errors import InputError

app = typer.Typer(
    help="Measure this package on the machine at hand.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.command()
def data(
    files: Annotated[
        list[int] | None, typer.Option(help="How many files; once for each count. 1,000 and 10,000 if none is given.")
    ] = None,
    size: Annotated[str, typer.Option(metavar="WIDTHxHEIGHT", help="Of the pictures in the files.")] = "500x375",
    workers: Annotated[int | None, typer.Option(help="Processes that decode (default: one per core).")] = None,
    repeats: Annotated[int, typer.Option(help="Passes of each way; they take turns, the best counts.")] = 3,
    out: Annotated[
        Path | None, typer.Option(help="Also write the figures and the environment to this JSON file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
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
