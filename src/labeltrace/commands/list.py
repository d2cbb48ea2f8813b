"""labeltrace list."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from labeltrace.commands.console import console, print_json
from labeltrace.errors import InputError, nearest

KINDS = ("learners", "controllers", "plugins", "models", "datasets", "noises")


def list_(
    kind: Annotated[str | None, typer.Argument(help=f"One of {', '.join(KINDS)} (default: all).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List what can be named: learners, controllers, plug-ins, models, datasets, noises.

    Example: labeltrace list learners
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}: {nearest(kind, KINDS)}")
    from labeltrace.catalogue import catalogue

    entries = {name: rows for name, rows in catalogue().items() if kind in (None, name)}
    if as_json:
        print_json(entries)
        return
    for name, rows in entries.items():
        table = Table(title=name, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for row, about in rows.items():
            table.add_row(row, about)
        console.print(table)
