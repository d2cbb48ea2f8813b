"""A whole run in one call: train, then write the samples table. What the command and the benchmarks use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from torch import nn

from labeltrace.audit import detection, samples_table, write_samples
from labeltrace.data import Dataset
from labeltrace.engine import Reporter, RunConfig, Trained, train


@dataclass(frozen=True)
class Run:
    """A finished run and its samples table."""

    trained: Trained
    samples: pa.Table

    @property
    def figures(self) -> dict[str, float]:
        """Test accuracy (best, last, mean of last 10) and, with known truth, how well wrong labels were found."""
        found = detection(self.samples) if "truth" in self.samples.column_names else {}
        return self.trained.summary | found


def run(
    config: RunConfig,
    out: Path,
    *,
    dataset: Dataset | None = None,
    make_network: Callable[[], nn.Module] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> Run:
    """Train a run in the folder `out` and write its samples table; arguments as `labeltrace.engine.train`."""
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
    write_samples(table, trained.folder.samples)
    return Run(trained, table)
