"""Runs over features (tables, embeddings): a recipe by the number of rows, and the audit of a file of them."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from labeltrace.data import load_dataset
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.numpy_files import load_npy
from labeltrace.engine import Reporter, RunConfig
from labeltrace.errors import InputError
from labeltrace.files import is_file
from labeltrace.learners import learners
from labeltrace.runs import run
from labeltrace.validation import build

LENGTHS = ((30_000, 10, 256), (300_000, 5, 256), (sys.maxsize, 4, 1024))  # (most rows, epochs, largest batch)


def feature_recipe(rows: int, learner: str = "rolr") -> dict[str, Any]:
    """Return `epochs` and `settings` of a run over `rows` feature vectors, for a `RunConfig`.

    A perceptron learns features in a few epochs, and with more it learns the wrong labels; from many rows it learns in
    fewer still. Larger batches keep the number of steps, and with it the time, within bounds. What the learner has no
    setting for is left out. The figures are ours: docs/decisions.md.

    >>> feature_recipe(150)
    {'epochs': 10, 'settings': {'batch_size': 16, 'warmup_batch_size': 16, 'passes': 1}}
    >>> feature_recipe(1_000_000, "cross_entropy")
    {'epochs': 4, 'settings': {'batch_size': 1024, 'passes': 1}}
    """
    epochs, largest = next((epochs, largest) for most, epochs, largest in LENGTHS if rows <= most)
    batch = 16
    while batch < largest and rows > 64 * batch:  # 32 to 64 steps an epoch; more from 16,000 rows on
        batch *= 2
    known = {field.name for field in fields(learners[learner].settings_type)}
    settings = {"batch_size": batch, "warmup_batch_size": batch, "passes": 1}
    return {"epochs": epochs, "settings": {name: value for name, value in settings.items() if name in known}}


def audit_features(
    features: Path,
    labels: Path | None,
    out: Path,
    *,
    learner: str = "rolr",
    controller: str | None = None,
    epochs: int | None = None,
    label_column: str | None = None,
    seed: int = 0,
    device: str = "auto",
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> pa.Table:
    """Train a network over features in a file and return what it says of every row: the samples table.

    The run lies in `out` like any other: it can be resumed, reported and reviewed.

    Args:
        features: .npy [N, D] of any floating type, .npz, or a table of numbers (.csv, .tsv, .parquet).
        labels: file with a label for each row (.npy, .txt, .csv, .tsv, .parquet); None where `features` has them.
        out: folder of the run.
        learner: training method by name.
        controller: "trace" or "coupled" (default: trace, where one applies).
        epochs: length of the run (default: by the number of rows).
        label_column: of a table of labels.
        seed: of everything that is drawn.
        device: "auto", "cpu", "cuda" or "cuda:N".
        overwrite: delete an earlier run in `out` first.
        reporter: hears of the progress.

    Raises:
        InputError: a file that is missing or cannot be used, or that holds images.
    """
    read = {"labels": labels, "label_column": label_column}
    read = {name: str(value) for name, value in read.items() if value is not None}
    recipe = feature_recipe(_rows(features, build(ReadOptions, read, "read")), learner)
    asked = {"data": str(features), "read": read, "learner": learner, "controller": controller, "seed": seed}
    config = build(RunConfig, {**asked, **recipe, "device": device} | ({"epochs": epochs} if epochs else {}), "audit")
    return run(config, out, overwrite=overwrite, reporter=reporter)[1]


def _rows(path: Path, read: ReadOptions) -> int:
    """The number of rows: the recipe needs it before the run reads them."""
    npy = path.suffix.lower() == ".npy" and is_file(path)
    inputs = load_npy(path) if npy else load_dataset(path, read=read).train.inputs  # an .npy file stays on disk
    if inputs.ndim != 2:
        raise InputError(
            f"{path}: its samples are {list(inputs.shape[1:])}, expected features [N, D]; for images: train"
        )
    return len(inputs)
