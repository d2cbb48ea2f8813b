"""A whole run in one call: train, then write the samples table. What the command and the benchmarks use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from torch import nn

from labeltrace.audit import detection, read_samples, samples_table, write_samples
from labeltrace.data import Dataset
from labeltrace.engine import Reporter, RunConfig, RunFolder, Trained, summarise, train


def run(
    config: RunConfig,
    out: Path,
    *,
    dataset: Dataset | None = None,
    make_network: Callable[[], nn.Module] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> tuple[Trained, pa.Table]:
    """Train a run in the folder `out` and write its samples table; arguments as `labeltrace.engine.train`.

    Under torchrun every rank gets the table and the first one writes it.
    """
    trained = train(
        config,
        out,
        dataset=dataset,
        make_network=make_network,
        resume=resume,
        overwrite=overwrite,
        reporter=reporter,
    )
    table = samples_table(trained)
    if trained.first:
        write_samples(table, trained.folder.samples)
    return trained, table


def figures(folder: Path) -> dict[str, float]:
    """Return what a finished run came to, from the files it left.

    Test accuracy (best, last, mean of last 10) where there is a test set; how well wrong labels were found where the
    truth is known.
    """
    table = read_samples(folder)
    found = detection(table) if "truth" in table.column_names else {}
    return summarise(RunFolder.open(folder).read_metrics()) | found
