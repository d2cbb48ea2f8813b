"""Every learner on the same wrong labels, as published and with TRACE, over three seeds.

Run: python benchmarks/learners.py digits
     python benchmarks/learners.py cifar10 --root DATA --subset 5000 --epochs 40 --model resnet18 --name cifar10_5k
Writes results/learners_<name>.json (every run) and .md (the table). The noise differs from seed to seed; within a seed
all runs train on the same labels. A second call goes on where the first was stopped.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from rich.console import Console
from shared import GRID, RESULTS, add_grid_flags, command_of, parser_of, row, write_page

from labeltrace.bench.environment import environment
from labeltrace.engine import RunConfig
from labeltrace.grid import run_all
from labeltrace.learners import learners
from labeltrace.progress import Bars

COLUMNS = {
    "mean_last_10": "test, mean of last 10",
    "best": "best epoch",
    "precision": "wrong labels found: precision",
    "recall": "recall",
    "suggestion_accuracy": "suggested right",
}


def main() -> None:
    """Run the grid and write the results."""
    parser = parser_of(__doc__)
    add_grid_flags(parser)
    parser.add_argument("--learners", nargs="+", default=list(learners), choices=list(learners))
    parser.add_argument("--name", help="of the results (default: that of the data)")
    parser.add_argument("--out", type=Path, help="folder of the runs (default: runs/learners-<name>)")
    arguments = parser.parse_args()
    name = arguments.name or Path(arguments.data).stem
    out = arguments.out or Path(f"runs/learners-{name}")
    shared = {name: getattr(arguments, name) for name in GRID}
    configs = {
        f"{name}-s{seed}": RunConfig.model_validate({**shared, **change, "seed": seed})
        for seed in arguments.seeds
        for name, change in runs(arguments.learners).items()
    }
    started = time.perf_counter()
    with Bars(Console()) as bars:
        run_all(configs, out, bars, arguments.jobs, resume=True)
    record = {
        "command": command_of("learners.py", arguments.data, arguments, ("subset", "model", "epochs", "noise", "rate")),
        "noise": f"{arguments.noise}, rate {arguments.rate}",
        "seeds": arguments.seeds,
        "seconds": round(time.perf_counter() - started),
        "environment": environment(),
        "runs": [
            row(name, seed, out / f"{name}-s{seed}") for name in runs(arguments.learners) for seed in arguments.seeds
        ],
    }
    write_page(record, page(record), RESULTS / f"learners_{name}")
    print(page(record))


def runs(names: list[str]) -> dict[str, dict[str, str]]:
    """Return name of the run → what it changes."""
    found: dict[str, dict[str, str]] = {}
    for name in sorted(names, key=lambda name: (learners[name].refurbishes, name)):
        if not learners[name].refurbishes:
            found[name] = {"learner": name}
            continue
        for controller in ("coupled", "trace"):
            found[name + ("+trace" if controller == "trace" else "")] = {"learner": name, "controller": controller}
    return found


def page(record: dict) -> str:
    """Return the results as a Markdown table: mean ± standard deviation over the seeds, in per cent."""
    first = record["runs"][0]
    lines = [
        f"# Learners: {record['command'].split()[2]}, {record['noise']}",
        "",
        f"`{record['command']}` on {record['environment']['date']}: seeds {', '.join(map(str, record['seeds']))}, "
        f"{first['model']}, recipe `{first['preset']}`, {_all(record, 'device')}, torch {_all(record, 'torch')}. "
        "Mean ± standard deviation over seeds, per cent; every run is a row of the JSON file beside this page.",
        "",
        "| run | epochs | " + " | ".join(COLUMNS.values()) + " | TRACE − base, by seed |",
        "|---" * (len(COLUMNS) + 3) + "|",
    ]
    by_run: dict[str, list[dict]] = {}
    for run in record["runs"]:
        by_run.setdefault(run["run"], []).append(run)
    for name, found in by_run.items():
        cells = []
        for key in COLUMNS:
            values = [100 * run[key] for run in found if run[key] is not None]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}" if values else "–")
        base = by_run.get(name.removesuffix("+trace")) if name.endswith("+trace") else None
        pairs = zip(found, base or [], strict=False)
        gains = ", ".join(f"{100 * (one['mean_last_10'] - two['mean_last_10']):+.1f}" for one, two in pairs)
        lines.append(f"| {name} | {found[0]['epochs']} | " + " | ".join(cells) + f" | {gains or '–'} |")
    return "\n".join(lines) + "\n"


def _all(record: dict, key: str) -> str:
    """What the runs have under `key`, each once."""
    return " and ".join(sorted({run[key] for run in record["runs"]}))


if __name__ == "__main__":
    main()
