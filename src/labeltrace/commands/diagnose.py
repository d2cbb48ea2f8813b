"""labeltrace diagnose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from labeltrace.commands.console import console, print_json, talk_console
from labeltrace.commands.reading import Moved
from labeltrace.errors import InputError

if TYPE_CHECKING:
    from labeltrace.diagnostics.figures import Request

HEADINGS = {
    "subset": "subset", "n": "n", "n_noisy": "wrong", "pseudo_accuracy": "right", "follow_noisy": "follows",
    "hc_error": "hc error", "hc_wrong_joint": "hc joint", "ece": "ECE",
}  # fmt: skip


def diagnose(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="Folders of finished runs.")] = None,
    figure: Annotated[list[str] | None, typer.Option(help="Figure to draw; may be given again (see --list).")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("figures"),
    clean: Annotated[
        Path | None, typer.Option(metavar="RUN", help="representation: a run of the same network on clean labels.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="surrogate: reference labels, a table with id and label.")
    ] = None,
    score: Annotated[
        str, typer.Option(help="How far a label is trusted: observed_reliability, or clean (the loss posterior).")
    ] = "observed_reliability",
    regime: Annotated[
        str, typer.Option(help="Where mid- and high-clean begin: midpoint (of ten bins) or score (0.35, 0.65).")
    ] = "midpoint",
    tau: Annotated[float, typer.Option(help="From where confidence is high.")] = 0.9,
    low: Annotated[float, typer.Option(help="Below which a score is low-clean.")] = 0.3,
    pooling: Annotated[
        str | None, typer.Option(help="drift-strata: score again with these features, gap or flatten.")
    ] = None,
    checkpoint: Annotated[
        str, typer.Option(help="depth, representation, --pooling: whose weights, last, best or a file.")
    ] = "last",
    batches: Annotated[int, typer.Option(help="depth: batches of 128 that gradients are taken of.")] = 50,
    probe_labels: Annotated[str, typer.Option(help="depth: fit the probe to true or observed labels.")] = "true",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    root: Moved = None,
    list_: Annotated[bool, typer.Option("--list", help="List the figures.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Measure finished runs whose true labels are known; without --figure, print how reliable pseudo targets are.

    Figures: mismatch, depth, drift-strata, reliability, cases, landscape, surrogate, representation. Each is written
    as PNG, SVG and a CSV of its numbers.

    Example: labeltrace diagnose runs/rolr runs/rolr+trace --figure reliability --figure landscape --out figures
    """
    from labeltrace.diagnostics.figures import Request, draw, figures

    if list_:
        _list(as_json)
        return
    if not runs:
        raise InputError("no run given; say labeltrace diagnose RUN… --figure NAME (--list shows the figures)")
    for name in figure or ():
        figures[name]
    if batches < 1:
        raise InputError(f"--batches {batches}: expected 1 or more")
    for flag, value in (("--tau", tau), ("--low", low)):
        if not 0 <= value <= 1:
            raise InputError(f"{flag} {value:g}: expected 0 to 1")

    from labeltrace.diagnostics.runs import Run
    from labeltrace.progress import Bars

    talk = talk_console(as_json)
    with Bars(talk) as bars:

        def opened(path: Path) -> Run:
            return Run(path, checkpoint=checkpoint, device=device, root=root, reporter=bars)

        request = Request(
            [opened(path) for path in runs], None if clean is None else opened(clean), labels, score, regime, tau, low,
            pooling, batches, probe_labels,
            progress=lambda what, done, total: bars.show(what, total, done, "", unit="steps"),
        )  # fmt: skip
        drawn = {name: draw(name, request, out) for name in dict.fromkeys(figure or ())}
    if as_json:
        found = {n: {"files": [str(p) for p in paths], "rows": d.rows} for n, (paths, d) in drawn.items()}
        print_json(found or {"reliability": _reliability(request)})
        return
    if not drawn:
        _print_reliability(request)
    for paths, _ in drawn.values():
        console.print("  ".join(str(path) for path in paths), soft_wrap=True)


def _list(as_json: bool) -> None:
    from labeltrace.diagnostics.figures import figures

    if as_json:
        print_json({name: figures.about(name) for name in figures})
        return
    table = Table("figure", "what it shows", box=None, padding=(0, 2))
    for name in figures:
        table.add_row(name, figures.about(name))
    console.print(table)


def _reliability(request: Request) -> dict[str, list[dict[str, str | int | float]]]:
    from labeltrace.diagnostics.reliability import reliability_table

    return {
        name: reliability_table(run.verdicts(request.score), low=request.low, tau=request.tau)
        for name, run in zip(request.folders(), request.runs, strict=True)
    }


def _print_reliability(request: Request) -> None:
    """A table per run; shares in per cent, a dash where there is no sample."""
    from labeltrace.diagnostics.values import PERCENT, shown

    for name, rows in _reliability(request).items():
        table = Table(title=f"{name}: pseudo targets, per cent", title_justify="left", box=None)
        for column in rows[0]:
            table.add_column(HEADINGS[column], justify="left" if column == "subset" else "right", no_wrap=True)
        for row in rows:
            cells = (shown(value, 2, PERCENT) if isinstance(value, float) else value for value in row.values())
            table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells))
        console.print(table)
