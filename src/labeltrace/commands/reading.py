"""The flags that say what data is and how it is read, for every command that takes data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from labeltrace.data import ReadOptions

Data = Annotated[
    str | None,
    typer.Option(
        help="Image folder (class/…), manifest (.csv, .tsv, .parquet), arrays (.npz, .npy), or a dataset by name "
        "(labeltrace list datasets); digits if none is given."
    ),
]
Root = Annotated[Path | None, typer.Option(help="Folder that holds the dataset of that name.")]
Moved = Annotated[
    Path | None, typer.Option(help="Where the data has moved: the folder that holds it now, or own data itself.")
]
Subset = Annotated[int | None, typer.Option(help="Take a stratified random subset of this size.")]
Labels = Annotated[Path | None, typer.Option(help="File of labels, for arrays that carry none.")]
Test = Annotated[Path | None, typer.Option(help="Folder or file with a clean test set, of the same kind.")]
PathColumn = Annotated[str | None, typer.Option(help="Column of a manifest with the image paths.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column with the labels.")]
SplitColumn = Annotated[str | None, typer.Option(help="Column that says train or test.")]
IdColumn = Annotated[str | None, typer.Option(help="Column with the name of each sample.")]
TruthColumn = Annotated[str | None, typer.Option(help="Column with the true label, where known.")]
ImageSize = Annotated[
    int | None, typer.Option(help="Side in pixels of what the network sees (default: by the images).")
]
Flip = Annotated[bool | None, typer.Option("--flip/--no-flip", help="Whether a mirrored image keeps its class.")]
BadImages = Annotated[
    str | None, typer.Option(help="stop (default) at an image that cannot be used, or skip and list it.")
]
CacheGb = Annotated[float | None, typer.Option(help="Most space on disk for decoded images; 10 if none is given.")]
MemoryGb = Annotated[float | None, typer.Option(help="Decoded images up to this stay in memory; 2 if none is given.")]
NumWorkers = Annotated[
    int | None, typer.Option("--workers", help="Processes that decode images (default: one per core).")
]


def given(**values: Any) -> dict[str, Any]:
    """Return the flags that were given."""
    return {name: value for name, value in values.items() if value is not None}


def options(**values: Any) -> ReadOptions:
    """Return the options of reading with the flags that were given."""
    from labeltrace.data import ReadOptions
    from labeltrace.validation import build

    return build(ReadOptions, given(**values), "options")
