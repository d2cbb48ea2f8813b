"""labeltrace demo."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from labeltrace.commands.console import console, file_names, print_json, talk_console


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the four runs, a picture and the report.")] = Path("runs/demo"),
    rate: Annotated[float, typer.Option(help="Share of training labels made wrong.")] = 0.4,
    seed: Annotated[int, typer.Option(help="Of the noise, the networks and everything drawn.")] = 0,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each run (default: the recipe's).")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time (default: one per core).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Solve a noisy-label problem four ways on scikit-learn's digits; takes a few minutes on two cores.

    Example: labeltrace demo --rate 0.4
    """
    import time

    from labeltrace import demo as the
    from labeltrace.data import load_noise
    from labeltrace.engine import RunFolder
    from labeltrace.grid import run_all
    from labeltrace.progress import Bars

    started = time.perf_counter()
    configs = the.demo_configs(rate, seed, epochs)
    talk = talk_console(as_json)
    talk.print(f"digits, {rate:.0%} of the training labels made wrong; four runs with the same labels and seed")
    with Bars(talk) as bars:
        run_all(configs, out, bars, jobs)
    picture, found, file = the.draw_demo(out), the.demo_figures(out), the.report_demo(out)
    if as_json:
        print_json(found)
        return
    _, record = load_noise(RunFolder(out / next(iter(configs))).noise)
    console.print(record.describe(), soft_wrap=True)
    console.print(the.demo_table(found))
    console.print(f"{time.perf_counter() - started:.0f} s. Wrong labels found are those not marked keep. Written:")
    console.print(f"  {picture}  a dozen samples: label, suggestion, a, b, keep / relabel / review", soft_wrap=True)
    for name in reversed(configs):
        console.print(f"  {out / name}/  {file_names(out / name)}", soft_wrap=True)
    console.print(f"  {file}  the four runs side by side: open it in a browser", soft_wrap=True)
    console.print(f"To decide yourself what the labels should be: labeltrace review {quote(str(out / the.SHOWN))}",
                  soft_wrap=True)  # fmt: skip
