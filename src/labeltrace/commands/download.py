"""labeltrace data download."""

from __future__ import annotations

import contextlib
import shlex
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from labeltrace.commands.console import complain, console, print_json, talk_console

if TYPE_CHECKING:
    from labeltrace.data.sets.download import Download

LINE_EVERY = 10.0  # seconds between two lines where the output is no terminal


def download(
    name: Annotated[str, typer.Argument(help="cifar10 or cifar100.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to put the dataset's own folder in.")],
    url: Annotated[str | None, typer.Option(help="Another address of the archive; its MD5 is checked too.")] = None,
    keep_archive: Annotated[
        bool, typer.Option("--keep-archive", help="Keep the archive after it has been unpacked.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Download a dataset from its official address, check and unpack it; after a stop, repeat it to go on.

    Example: labeltrace data download cifar10 ~/data
    """
    from labeltrace.data.sets.download import download_dataset

    found: Download | None = None
    with _Bar(talk_console(as_json)) as bar, contextlib.suppress(KeyboardInterrupt):
        found = download_dataset(name, folder, url=url, keep_archive=keep_archive, progress=bar)
    if found is None:
        raise typer.Exit(complain("stopped; what has arrived is saved, and the same command goes on from there", 130))
    if as_json:
        print_json({"data": name, "folder": str(found.folder), "source": found.source})
        return
    how = {"there": "is already there, nothing to do", "archive": "unpacked from the archive", "url": "downloaded"}
    console.print(f"{found.folder}  {how[found.source]}", soft_wrap=True)
    console.print(f"Train on it: labeltrace train --data {name} --root {shlex.quote(str(folder))}", soft_wrap=True)


class _Bar:
    """Draws bytes, speed and time left; where the output is no terminal, prints a line now and then instead."""

    def __init__(self, to: Console) -> None:
        self.console = to
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            DownloadColumn(),
            TransferSpeedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=to,
            disable=not to.is_terminal,
        )
        self._label = ""
        self._said = 0.0

    def __enter__(self) -> _Bar:
        self.progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.__exit__(kind, error, trace)

    def __call__(self, done: int, total: int, label: str) -> None:
        if label != self._label:
            self._label, self._said = label, 0.0
            self._task = self.progress.add_task(label, total=total, completed=done)
        self.progress.update(self._task, completed=done)
        if not self.console.is_terminal and time.monotonic() - self._said > LINE_EVERY:
            self._said = time.monotonic()
            self.console.print(f"{label}: {done:,} of {total:,} bytes", soft_wrap=True)
