"""Digits with 40 % symmetric noise over three seeds: cross-entropy, RoLR, RoLR+TRACE, and TRACE without structure.

Run: python benchmarks/digits.py [--jobs N]   (or `make benchmark`; about ten minutes on two cores)
Writes results/digits.json (every run) and results/digits.md (the table). The noise differs from seed to seed; within a
seed all methods train on the same labels.
"""

from __future__ import annotations

import platform
import statistics
import time
from datetime import date
from pathlib import Path

import torch
from rich.console import Console
from shared import RESULTS, SIGNALS, parser_of, row, write_page

import labeltrace
from labeltrace.demo import RUNS, demo_configs
from labeltrace.engine import RunFolder, load_config
from labeltrace.engine.folder import code_revision
from labeltrace.grid import run_all
from labeltrace.progress import Bars

SEEDS = (0, 42, 1027)
RATE = 0.4
COLUMNS = {
    "mean_last_10": "test, mean of last 10",
    "best": "test, best epoch",
    "precision": "wrong labels found: precision",
    "recall": "wrong labels found: recall",
    "suggestion_accuracy": "suggested labels right",
}


def main() -> None:
    """Run the grid and write the results."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, help="runs at a time (default: one per core)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-digits"), help="folder of the runs")
    arguments = parser.parse_args()
    configs = {f"{name}-s{seed}": config for seed in SEEDS for name, config in demo_configs(RATE, seed, None).items()}
    started = time.perf_counter()
    with Bars(Console()) as bars:
        run_all(configs, arguments.out, bars, arguments.jobs)
    rows = [row(name, seed, arguments.out / f"{name}-s{seed}") for name in RUNS for seed in SEEDS]
    schedule = {name: load_config(RunFolder(arguments.out / f"{name}-s0").config, {}).epochs for name in RUNS}
    record = {
        "command": "python benchmarks/digits.py",
        "date": date.today().isoformat(),
        "device": f"CPU, {torch.get_num_threads()} threads in all ({platform.machine()})",
        "labeltrace": labeltrace.__version__,
        "revision": code_revision(),
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - started),
        "noise": f"symmetric, exclusive, rate {RATE}",
        "epochs": schedule,
        "runs": rows,
    }
    write_page(record, page(record), RESULTS / "digits")
    print(page(record))


def page(record: dict) -> str:
    """Return the results as a Markdown table: mean ± standard deviation over the seeds, in per cent."""
    lines = [
        "# Digits, 40 % symmetric noise",
        "",
        f"`{record['command']}` on {record['date']}: seeds {', '.join(map(str, SEEDS))}, {record['device']}, "
        f"torch {record['torch']}, {record['epochs']['rolr']} epochs per run (recipe `small`), {record['seconds']} s. "
        "Mean ± standard deviation over seeds, per cent; every run is a row of `digits.json`.",
        "",
        "| run | " + " | ".join(COLUMNS.values()) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for name in RUNS:
        cells = []
        for key in COLUMNS:
            values = [100 * run[key] for run in record["runs"] if run["run"] == name]
            cells.append(f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "AUROC in the last epoch (mean over seeds): of clean, structure and observed reliability for",
        '"the label is right", of pseudo reliability for "the suggestion is right".',
        "",
    ]
    lines += ["| run | " + " | ".join(key.removeprefix("auroc_") for key in SIGNALS) + " |", "|---" * 5 + "|"]
    for name in RUNS:
        runs = [run for run in record["runs"] if run["run"] == name]
        means = [
            statistics.mean(values) if None not in (values := [run[key] for run in runs]) else None for key in SIGNALS
        ]
        lines.append(f"| {name} | " + " | ".join("–" if mean is None else f"{mean:.3f}" for mean in means) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
