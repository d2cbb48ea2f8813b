"""labeltrace labels apply, revert: put a label diff into the files, and take it out again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from labeltrace.commands import reading
from labeltrace.commands.console import console, print_json
from labeltrace.errors import InputError
from labeltrace.files import exists

app = typer.Typer(
    help="Change the labels of your own files by a diff (labeltrace audit RUN --diff FILE), and take it back.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Data = Annotated[Path, typer.Argument(help="Class folders, manifest (.csv, .tsv, .parquet) or arrays (.npz, .npy).")]
Diff = Annotated[Path, typer.Option(help="CSV file with columns id, from, to, why.")]
Out = Annotated[
    Path,
    typer.Option(
        help="File to write: of the same kind as DATA, or as the file of --labels; for class folders a manifest .csv."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if there is one.")]
Json = Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")]


@app.command()
def apply(
    data: Data,
    diff: Diff,
    out: Out,
    labels: reading.Labels = None,
    path_column: reading.PathColumn = None,
    label_column: reading.LabelColumn = None,
    id_column: reading.IdColumn = None,
    truth_column: reading.TruthColumn = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write the data's labels anew with the changes of a diff; refused where a label is not what the diff expects.

    Example: labeltrace labels apply photos/ --diff labels.diff.csv --out photos.csv
    """
    _change(data, diff, out, labels, path_column, label_column, id_column, truth_column, overwrite, as_json, False)


@app.command()
def revert(
    data: Data,
    diff: Diff,
    out: Out,
    labels: reading.Labels = None,
    path_column: reading.PathColumn = None,
    label_column: reading.LabelColumn = None,
    id_column: reading.IdColumn = None,
    truth_column: reading.TruthColumn = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write the labels as they were before the diff was applied.

    Example: labeltrace labels revert new.csv --diff labels.diff.csv --out old.csv
    """
    _change(data, diff, out, labels, path_column, label_column, id_column, truth_column, overwrite, as_json, True)


def _change(
    data: Path,
    diff: Path,
    out: Path,
    labels: Path | None,
    path_column: str | None,
    label_column: str | None,
    id_column: str | None,
    truth_column: str | None,
    overwrite: bool,
    as_json: bool,
    back: bool,
) -> None:
    from labeltrace.audit.diff import read_diff
    from labeltrace.audit.export import check_file
    from labeltrace.audit.labels import open_labels
    from labeltrace.files import expanded

    options = reading.options(
        labels=labels, path_column=path_column, label_column=label_column, id_column=id_column,
        truth_column=truth_column,
    )  # fmt: skip
    changes = read_diff(diff)
    changes = changes.reverse() if back else changes
    found = open_labels(expanded(data), options)
    found.check_out(out)
    check_file(out, "--out", (found.suffix,))
    if out.exists() and not overwrite:
        raise InputError(f"--out {out} exists; choose another name, or replace it with --overwrite")
    rows = changes.changes(found.ids, found.labels, found.known, str(found.path))
    found.write(out, rows)
    emptied = found.emptied(rows)
    if as_json:
        done = {"data": str(data), "diff": str(diff), "out": str(out), "changed": len(rows), "reverted": back}
        print_json({**done, "emptied": emptied})
        return
    verb = "taken back" if back else "changed"
    console.print(f"{len(rows):,} of {len(found.labels):,} labels {verb}", soft_wrap=True)
    if emptied:
        console.print(f"no sample is labelled {' or '.join(map(repr, emptied))} any more", soft_wrap=True)
    console.print(str(out), soft_wrap=True)


def apply_command(run: Path | None, diff: Path) -> str:
    """Return the command that puts a diff into the labels of a run's data, with their path where the run knows it.

    Where labels apply would refuse the data, what to do instead.
    """
    from labeltrace.data.own.huggingface import is_huggingface
    from labeltrace.engine import RunFolder, load_config

    words, new = ["DATA"], "NEW"
    config = None if run is None else load_config(RunFolder(run).config, {})
    if config is not None and config.own_files is not None and exists(config.own_files):
        if is_huggingface(config.own_files):
            return f"labels of a saved Hugging Face dataset are changed by its own map(): {config.data}"
        flags = ("labels", "path_column", "label_column", "id_column", "truth_column")
        given = {name: str(config.read[name]) for name in flags if config.read.get(name) is not None}
        words = [config.data]
        for name, value in given.items():
            words += [f"--{name.replace('_', '-')}", value]
        file = Path(given.get("labels", config.data))
        new = str(file.with_name(f"{file.name}-new.csv" if file.is_dir() else f"{file.stem}-new{file.suffix}"))
    return f"labeltrace labels apply {shlex.join([*words, '--diff', str(diff), '--out', new])}"
