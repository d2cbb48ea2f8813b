"""labeltrace review."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from labeltrace.commands.console import console, print_json, talk_console
from labeltrace.commands.labels import apply_command
from labeltrace.commands.reading import Moved
from labeltrace.commands.trust import TrustLabel, TrustSuggestion, as_flags, thresholds
from labeltrace.errors import InputError


def review(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    export: Annotated[
        Path | None, typer.Option(help="Serve nothing; write the label diff with your decisions, .csv.")
    ] = None,
    only_reviewed: Annotated[
        bool, typer.Option("--only-reviewed", help="With --export: leave out what only the run has decided.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="With --export: replace a file that is not this run's label diff.")
    ] = False,
    trust_label: TrustLabel = None,
    trust_suggestion: TrustSuggestion = None,
    root: Moved = None,
    port: Annotated[int, typer.Option(help="To listen at (default: a free one).")] = 0,
    host: Annotated[str, typer.Option(help="Address of this machine to listen at; no other is taken.")] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
    device: Annotated[str, typer.Option(help="For similar samples: auto, cpu, cuda or cuda:N.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the address, or what was written, as JSON.")] = False,
) -> None:
    """Decide the queue on a local page: keep, relabel, choose, skip. Every decision is kept at once in the run folder.

    The page is for this machine only, at the address that is printed; Ctrl-C ends it, and the same command goes on.

    Example: labeltrace review runs/photos --open

    Example: labeltrace review runs/photos --export labels.diff.csv
    """
    trust = thresholds(trust_label, trust_suggestion)
    if export is not None:
        _export(run, export, only_reviewed, overwrite, trust, as_json)
        return
    for flag, given in (("--only-reviewed", only_reviewed), ("--overwrite", overwrite)):
        if given:
            raise InputError(f"{flag} is given without --export, the file it is about")

    from labeltrace.diagnostics.runs import Run
    from labeltrace.progress import Bars
    from labeltrace.review import ReviewServer
    from labeltrace.review.store import SKIP

    talk = talk_console(as_json)
    with Bars(talk) as bars:
        server = ReviewServer(Run(run, device=device, root=root, reporter=bars), host=host, port=port, trust=trust)

    def ready() -> None:
        if as_json:
            print_json({"run": str(run), "address": server.address, "decisions": str(server.store.path)})
        else:
            decisions = server.store.decisions()
            skipped = sum(event.action == SKIP for event in decisions)
            made = f"{len(decisions) - skipped:,} decided, {skipped:,} skipped so far"
            console.print(f"{run}: {made}. Open\n", soft_wrap=True)
            console.print(f"  {server.address}\n", soft_wrap=True)
            console.print(f"Decisions go to {server.store.path} at once; Ctrl-C ends.", soft_wrap=True)
        console.file.flush()  # for who reads the address through a pipe
        if open_:
            import threading
            import webbrowser

            threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()  # it may not return

    server.serve(ready)
    flags = "" if trust is None else f" {as_flags(trust)}"
    again = f"labeltrace review {shlex.quote(str(run))}{flags} --export labels.diff.csv"
    whose = "your decisions, and the run's relabels where you have made none (--only-reviewed leaves those out)"
    talk.print(f"ended; {again} writes {whose}", soft_wrap=True)


def _export(
    run: Path, export: Path, only_reviewed: bool, overwrite: bool, trust: tuple[float, float] | None, as_json: bool
) -> None:
    from labeltrace.audit import read_samples
    from labeltrace.audit.decisions import KEEP, RELABEL
    from labeltrace.audit.export import check_file
    from labeltrace.audit.samples import decided_by
    from labeltrace.engine import RunFolder
    from labeltrace.review.merge import could_be_exported, reviewed_diff
    from labeltrace.review.store import SKIP, Store

    check_file(export, "--export", (".csv",))
    folder = RunFolder.open(run)
    table, file = decided_by(read_samples(folder.path), trust), folder.review
    decisions, history = [], []
    if file.exists():  # else nobody has decided anything, and an export leaves no file behind that says so
        store = Store(file, table)
        decisions, history = store.decisions(), store.history()
        store.close()
    elif only_reviewed:
        again = f"labeltrace review {shlex.quote(str(run))}"
        raise InputError(f"{run}: nobody has decided anything yet; {again} opens the page")
    if export.exists() and not overwrite and not could_be_exported(export, table, history):
        raise InputError(f"--export {export}: exists and is no label diff of this run; --overwrite replaces it")
    diff = reviewed_diff(table, decisions, only_reviewed=only_reviewed)
    diff.write(export)
    counts = {action: sum(event.action == action for event in decisions) for action in (KEEP, RELABEL, SKIP)}
    people, alone = counts[RELABEL], len(diff) - counts[RELABEL]
    if as_json:
        rows = {"labels": len(diff), "by_people": people, "by_run": alone}
        print_json({"run": str(run), "file": str(export), **rows, "reviewed": counts})
        return
    console.print("reviewed: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()), soft_wrap=True)
    whose = f"{people:,} decided by a person, {alone:,} by the run alone"
    if alone:
        whose += f" (--only-reviewed leaves these {alone:,} out)"
    console.print(f"{export}  {len(diff):,} labels: {whose}", soft_wrap=True, style="bold")
    if len(diff):
        console.print(apply_command(folder.path, export), soft_wrap=True)
