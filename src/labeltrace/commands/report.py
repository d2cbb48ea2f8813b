"""labeltrace report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labeltrace.commands.console import console, print_json, talk_console
from labeltrace.commands.reading import Moved
from labeltrace.errors import InputError


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of finished runs, shown side by side.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file (default: report.html in the run; of several, beside the first).")
    ] = None,
    samples: Annotated[int, typer.Option(help="Samples of each decision in a gallery.")] = 12,
    root: Moved = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Write what runs came to as one HTML file that opens without a network: curves, reliabilities, classes, samples.

    Example: labeltrace report runs/demo/rolr runs/demo/rolr+trace --out report.html
    """
    from labeltrace.diagnostics.runs import Run
    from labeltrace.progress import Bars
    from labeltrace.report import write_report

    target = out or report_path(runs)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {target}: expected a name that ends in .html")
    with Bars(talk_console(as_json)) as bars:
        found = write_report(
            [Run(path, root=root, reporter=bars) for path in runs], target, samples=samples,
            progress=lambda done, total: bars.show("report", total, done, "", unit="runs"),
        )  # fmt: skip
    if open_:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
    size = target.stat().st_size
    if as_json:
        runs_json = {f.name: {**f.figures, "no_pictures": f.no_pictures} for f in found}
        print_json({"file": str(target), "bytes": size, "runs": runs_json})
        return
    for f in found:
        if f.no_pictures is not None:
            console.print(f"{f.name}: without pictures: {f.no_pictures}", soft_wrap=True)
    console.print(f"{target}  {size / 1024:,.0f} KB, opens without a network", soft_wrap=True)


def report_path(runs: list[Path]) -> Path:
    """Return where a report goes when nothing is said: into the one run, or beside the first of several."""
    from labeltrace.engine import RunFolder

    inside = RunFolder(runs[0]).report
    return inside if len(runs) == 1 else runs[0].absolute().parent / inside.name
