"""labeltrace data show, check, download: look at a dataset before a run."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from labeltrace.commands import reading
from labeltrace.commands.audit_tables import print_table
from labeltrace.commands.console import console, print_json, talk_console
from labeltrace.commands.download import download
from labeltrace.errors import InputError

if TYPE_CHECKING:
    from labeltrace.data.overview import PartOverview

app = typer.Typer(
    help="Look at data before a run: show what is in it, check it file by file, download CIFAR.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.command()(download)

SHOWN = 30  # classes, or problems, that are printed; --json has all


@app.command()
def show(
    data: Annotated[str, typer.Argument(help="Path of own data, or a dataset by name.")],
    root: Annotated[Path | None, typer.Argument(help="Folder that holds the dataset of that name.")] = None,
    labels: reading.Labels = None,
    test: reading.Test = None,
    path_column: reading.PathColumn = None,
    label_column: reading.LabelColumn = None,
    split_column: reading.SplitColumn = None,
    id_column: reading.IdColumn = None,
    truth_column: reading.TruthColumn = None,
    image_size: reading.ImageSize = None,
    sheet: Annotated[Path | None, typer.Option(help="Contact sheet (default: NAME-sheet.png here).")] = None,
    seed: Annotated[int, typer.Option(help="Of the samples on the sheet.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Show counts, classes and sizes, and draw a contact sheet (PNG).

    Example: labeltrace data show photos/
    """
    from labeltrace.data import load_dataset
    from labeltrace.data.overview import overview
    from labeltrace.report.contact_sheet import draw_contact_sheet

    options = reading.options(
        labels=labels, test=test, path_column=path_column, label_column=label_column, split_column=split_column,
        id_column=id_column, truth_column=truth_column, image_size=image_size,
    )  # fmt: skip
    dataset = load_dataset(data, root, seed, options)
    sheet = sheet or Path(f"{dataset.name}-sheet.png")
    if sheet.suffix.lower() != ".png":
        raise InputError(f"--sheet {sheet}: expected a name that ends in .png")
    if not sheet.parent.is_dir():
        raise InputError(f"{sheet}: there is no folder {sheet.parent}")
    found = overview(dataset)
    try:
        drawn = draw_contact_sheet(dataset, sheet, seed)
    except OSError as error:
        raise InputError(f"--sheet {sheet}: {error.strerror or error}") from None
    if as_json:
        print_json({**asdict(found), "sheet": str(sheet)})
        return
    sees = f"a network sees {list(found.network_sees)}"
    console.print(f"{found.name}: {len(found.classes)} classes; {sees}", soft_wrap=True)
    for name, part in (("train", found.train), ("test", found.test)):
        if part is None:
            console.print(f"{name:>6}: none; accuracy will not be reported (--test adds one)", soft_wrap=True)
            continue
        wrong = "" if part.wrong is None else f", {part.wrong:,} of {part.known:,} labels wrong"
        console.print(f"{name:>6}: {part.samples:,} samples, {part.inputs}{wrong}{_heads(part)}", soft_wrap=True)
    table = Table("class", "train", "test", box=None, padding=(0, 2))
    order = sorted(range(len(found.classes)), key=lambda c: -found.train.counts[c])
    for label in order[:SHOWN]:
        tested = "" if found.test is None else f"{found.test.counts[label]:,}"
        table.add_row(found.classes[label], f"{found.train.counts[label]:,}", tested)
    print_table(table)
    if len(order) > SHOWN:
        smallest = order[-1]
        console.print(
            f"… {len(order) - SHOWN} more; the smallest is {found.classes[smallest]} "
            f"with {found.train.counts[smallest]:,}",
            soft_wrap=True,
        )
    console.print(f"{sheet}  {drawn} classes", soft_wrap=True)
    if found.train.looked:
        same = shlex.join([data] if root is None else [data, str(root)])
        console.print(f"only heads of files were read: labeltrace data check {same} decodes all", soft_wrap=True)


def _heads(part: PartOverview) -> str:
    """What the heads of image files say, and of how many, where not all were looked at."""
    if not part.looked:
        return ""
    of = f"of {part.looked:,} files looked at: " if part.looked < part.samples else "files "
    sizes = [] if part.sizes is None else ["{} (smallest) … {} (median) … {} (largest)".format(*part.sizes)]
    unreadable = [f"{part.unreadable} unreadable"] if part.unreadable else []
    return "; " + of + ", ".join(sizes + unreadable)


@app.command()
def check(
    data: Annotated[str, typer.Argument(help="A dataset by name, or the path of own data.")],
    root: Annotated[Path | None, typer.Argument(help="Folder that holds the dataset of that name.")] = None,
    labels: reading.Labels = None,
    test: reading.Test = None,
    path_column: reading.PathColumn = None,
    label_column: reading.LabelColumn = None,
    split_column: reading.SplitColumn = None,
    id_column: reading.IdColumn = None,
    truth_column: reading.TruthColumn = None,
    image_size: reading.ImageSize = None,
    images: Annotated[bool, typer.Option("--images", help="Decode every image (always done for own data).")] = False,
    workers: reading.NumWorkers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all problems as JSON.")] = False,
) -> None:
    """Tell what is missing or wrong, file by file, before a run starts; exit code 1 if anything is.

    Example: labeltrace data check clothing1m ~/data/clothing1m
    """
    from labeltrace.data import datasets, load_dataset
    from labeltrace.data.sets.check import check_dataset, check_images
    from labeltrace.progress import Bars

    options = reading.options(
        labels=labels, test=test, path_column=path_column, label_column=label_column, split_column=split_column,
        id_column=id_column, truth_column=truth_column, image_size=image_size, workers=workers,
    )  # fmt: skip
    found = check_dataset(data, root) if data in datasets else []
    looked = "layout"
    if not found and (images or data not in datasets):
        looked = "layout and every image"
        with Bars(talk_console(as_json)) as bars:
            found = check_images(load_dataset(data, root, 0, options), options, bars.reading)
    if as_json:
        print_json([{**asdict(finding), "path": str(finding.path)} for finding in found])
    else:
        for finding in found[:SHOWN]:
            console.print(str(finding), soft_wrap=True)
        if len(found) > SHOWN:
            console.print(f"… {len(found) - SHOWN:,} more problems (--json lists all)")
        count = f"{len(found):,} problem{'s' if len(found) > 1 else ''}"
        console.print(f"{data}: {count if found else looked + ' as expected'}", soft_wrap=True)
    if found:
        raise typer.Exit(1)
