"""Time and memory of an audit of embeddings: class clusters in a random projection, a fifth of the labels wrong.

Run: python benchmarks/embeddings.py
     python benchmarks/embeddings.py --rows 100000
Writes results/embeddings_1m.json (embeddings_100k.json, …). The embeddings lie in a float32 .npy file and the labels in
a .csv file, as a user's would; both, and the run, go into a temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from rich.console import Console
from shared import RESULTS, parser_of
from sklearn.metrics import average_precision_score

from labeltrace.audit import detection
from labeltrace.bench.environment import environment, write_result
from labeltrace.bench.memory import PeakMemory
from labeltrace.engine import RunFolder, load_config
from labeltrace.features import audit_features
from labeltrace.progress import Bars

CHUNK = 65_536
LATENT = 16  # dimensions in which the classes differ


def main() -> None:
    """Make the data, audit it, write the figures."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=128)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.2, help="share of wrong labels")
    parser.add_argument("--dtype", default="float32", choices=["float16", "float32"])
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embeddings-") as temporary:
        folder = Path(temporary)
        truth, observed = write_data(folder, arguments)
        started = time.perf_counter()
        with Bars(Console()) as bars, PeakMemory() as peak:
            table = audit_features(
                folder / "emb.npy", folder / "labels.csv", folder / "run", device=arguments.device, reporter=bars
            )
        seconds = time.perf_counter() - started
        config = load_config(folder / "run" / "config.yaml", {})
        epochs = [record["seconds"] for record in RunFolder.open(folder / "run").read_metrics()]
    wrong = truth != observed
    found = detection(table.append_column("truth", pa.array(truth.astype(np.int32))))
    result = {
        "command": "python benchmarks/embeddings.py"
        + (f" --rows {arguments.rows}" if arguments.rows != parser.get_default("rows") else ""),
        "rows": arguments.rows,
        "dimensions": arguments.dimensions,
        "classes": arguments.classes,
        "dtype": arguments.dtype,
        "wrong_labels": float(wrong.mean()),
        "learner": f"{config.learner} + {config.controller}",
        "epochs": config.epochs,
        "batch_size": config.settings["batch_size"],
        "threads": torch.get_num_threads(),
        "seconds": round(seconds, 1),
        "seconds_of_epochs": [round(value, 1) for value in epochs],
        "peak_memory_mb": None if peak.bytes is None else round(peak.bytes / 2**20),
        "features_mb": round(4 * arguments.rows * arguments.dimensions / 2**20),
        "average_precision_clean": float(average_precision_score(wrong, 1 - table["clean"].to_numpy())),
        "average_precision_loss": float(average_precision_score(wrong, table["loss"].to_numpy())),
        **found,
        "environment": environment(),
    }
    write_result(result, RESULTS / f"embeddings_{size_name(arguments.rows)}.json")
    print(f"{arguments.rows:,} × {arguments.dimensions}: {seconds:.0f} s, {result['peak_memory_mb']} MB at most")


def write_data(folder: Path, arguments: argparse.Namespace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Write emb.npy and labels.csv; return the true and the observed classes [N]."""
    rng = np.random.default_rng(0)
    rows, classes = arguments.rows, arguments.classes
    centres = rng.normal(size=(classes, LATENT))
    projection = rng.normal(size=(LATENT, arguments.dimensions)) / np.sqrt(LATENT)
    truth = rng.integers(0, classes, rows)
    features = open_memmap(folder / "emb.npy", "w+", arguments.dtype, (rows, arguments.dimensions))
    for start in range(0, rows, CHUNK):
        part = truth[start : start + CHUNK]
        latent = centres[part] + rng.normal(size=(len(part), LATENT))
        features[start : start + CHUNK] = latent @ projection + 0.3 * rng.normal(size=(len(part), arguments.dimensions))
    features.flush()
    wrong = rng.random(rows) < arguments.rate
    observed = np.where(wrong, (truth + rng.integers(1, classes, rows)) % classes, truth)
    (folder / "labels.csv").write_text("label\n" + "".join(f"{label}\n" for label in observed), encoding="utf-8")
    return truth, observed


def size_name(rows: int) -> str:
    """1,000,000 is 1m, 100,000 is 100k."""
    for unit, size in (("m", 10**6), ("k", 10**3)):
        if rows % size == 0:
            return f"{rows // size}{unit}"
    return str(rows)


if __name__ == "__main__":
    main()
