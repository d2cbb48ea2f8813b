"""labeltrace noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from labeltrace.commands import reading
from labeltrace.commands.console import console, print_json, talk_console
from labeltrace.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from labeltrace.data import Dataset, NoiseRecord, ReadOptions

READS_IMAGES = ("instance", "instance-standardised", "open-set")
MOST_CLASSES = 20  # that are printed one by one


def noise(
    kind: Annotated[str, typer.Argument(help="Kind of noise (labeltrace list noises).")],
    out: Annotated[Path, typer.Option(help="File to write, .npz.")],
    data: reading.Data = None,
    root: reading.Root = None,
    subset: reading.Subset = None,
    rate: Annotated[float | None, typer.Option(help="Share of labels to make wrong, as the kind defines it.")] = None,
    seed: Annotated[int, typer.Option(help="Of the split and the subset, as in labeltrace train.")] = 0,
    noise_seed: Annotated[int | None, typer.Option(help="Of the noise (default: --seed).")] = None,
    matrix: Annotated[
        Path | None,
        typer.Option(help="transition: C × C probabilities, .csv (perhaps with class names), .npy or .npz."),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="instance-idn: N × C scores of a network trained on clean labels, .npy or .npz.")
    ] = None,
    foreign: Annotated[
        str | None, typer.Option(help="open-set: data that foreign images are taken from, as for --data.")
    ] = None,
    foreign_root: Annotated[Path | None, typer.Option(help="Folder that holds it (default: --root).")] = None,
    open_share: Annotated[
        float | None, typer.Option(help="open-set: share of the corrupted samples that get a foreign image.")
    ] = None,
    labels: reading.Labels = None,
    path_column: reading.PathColumn = None,
    label_column: reading.LabelColumn = None,
    split_column: reading.SplitColumn = None,
    id_column: reading.IdColumn = None,
    truth_column: reading.TruthColumn = None,
    image_size: reading.ImageSize = None,
    bad_images: reading.BadImages = None,
    cache_gb: reading.CacheGb = None,
    memory_gb: reading.MemoryGb = None,
    workers: reading.NumWorkers = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if there is one.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Make noisy labels once, in a file that every method can be trained on.

    Example: labeltrace noise symmetric --data cifar10 --root ~/data --rate 0.5 --seed 0 --out noise.npz
    """
    from labeltrace.data import save_noise
    from labeltrace.data.noise.foreign import load_foreign
    from labeltrace.data.noise.inputs import read_matrix, read_scores
    from labeltrace.data.noise.make import check_inputs, make_noise

    check_inputs(
        kind, reading.given(rate=rate, matrix=matrix, scores=scores, foreign=foreign, open_share=open_share).keys()
    )
    if foreign_root is not None and foreign is None:
        raise InputError("--foreign-root is given without --foreign, the dataset in it")
    for flag, value in (("--seed", seed), ("--noise-seed", noise_seed or 0)):
        if value < 0:
            raise InputError(f"{flag} {value} is negative")
        if value >= 2**32:
            raise InputError(f"{flag} {value} is too large; expected less than 2**32, as labeltrace train takes it")
    _check_out(out, overwrite)
    read = reading.options(
        labels=labels, path_column=path_column, label_column=label_column, split_column=split_column,
        id_column=id_column, truth_column=truth_column, image_size=image_size, bad_images=bad_images,
        cache_gb=cache_gb, memory_gb=memory_gb, workers=workers,
    )  # fmt: skip
    dataset = _load(data or "digits", root, subset, seed, read, kind in READS_IMAGES, talk_console(as_json))
    noisy, record = make_noise(
        dataset,
        kind,
        rate,
        seed if noise_seed is None else noise_seed,
        matrix=None if matrix is None else read_matrix(matrix, dataset.classes),
        scores=None if scores is None else read_scores(scores),
        foreign=None if foreign is None else load_foreign(foreign, foreign_root or root, seed, dataset, read),
        open_share=open_share,
    )
    try:
        save_noise(out, noisy.train.labels, record)
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror or error}") from error
    if as_json:
        print_json({"file": str(out), "noise": record.to_dict(), "classes": _rates(record)})
        return
    console.print(record.describe(), soft_wrap=True)
    if record.num_classes <= MOST_CLASSES:
        console.print(_table(record))
    console.print(str(out), soft_wrap=True)


def _load(
    data: str, root: Path | None, subset: int | None, seed: int, read: ReadOptions, pixels: bool, talk: Console
) -> Dataset:
    """Return the samples that a run would be trained on; their images are decoded only where that matters."""
    from labeltrace.data import load_dataset, prepare
    from labeltrace.progress import Bars

    dataset = load_dataset(data, root, seed, read)
    if subset is not None:
        dataset = dataset.subset(subset, seed)
    if not pixels and read.bad_images != "skip":
        return dataset
    with Bars(talk) as bars:
        return prepare(dataset, read, bars.reading)[0]


def _check_out(out: Path, overwrite: bool) -> None:
    """Refuse a file that could not be written, before anything is read."""
    if out.suffix != ".npz":
        raise InputError(f"--out {out}: expected a name that ends in .npz")
    try:
        is_folder, is_there = out.is_dir(), out.exists()
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror or error}") from None
    if is_folder:
        raise InputError(f"--out {out} is a folder")
    if is_there and not overwrite:
        raise InputError(f"--out {out} exists; choose another name, or replace it with --overwrite")


def _rates(record: NoiseRecord) -> dict[str, dict[str, float | int | str | None]]:
    """Return for each class its samples, the share of them with a wrong label, and the most frequent wrong one."""
    seen = record.transitions
    rows = zip(record.classes, seen.class_counts(), seen.wrong_counts(), seen.usual_mistake(), strict=True)
    return {
        name: {
            "samples": int(count),
            "wrong": float(wrong / count) if count else None,
            "most_often": None if usual < 0 else record.classes[usual],
        }
        for name, count, wrong, usual in rows
    }


def _table(record: NoiseRecord) -> Table:
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for heading, justify in (("class", "left"), ("samples", "right"), ("wrong", "right"), ("most often", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for name, row in _rates(record).items():
        wrong = "–" if row["wrong"] is None else f"{row['wrong']:.4f}"
        table.add_row(name, f"{row['samples']:,}", wrong, str(row["most_often"] or "–"))
    return table
