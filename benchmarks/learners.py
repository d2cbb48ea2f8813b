"""Every learner on the same wrong labels, as published, with TRACE and with its rivals, over three seeds.

Run: python benchmarks/learners.py digits
     python benchmarks/learners.py cifar10 --root DATA --subset 5000 --epochs 40 --model resnet18 --name cifar10_5k
Writes results/learners_<name>.json (every run) and .md (the table). The noise differs from seed to seed; within a seed
all runs train on the same labels. A second call goes on where the first was stopped.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from shared import RESULTS, add_grid_flags, parser_of, run_grid, write_page

from labeltrace.learners import learners
from labeltrace.plugins import plugins

COLUMNS = {
    "mean_last_10": "test, mean of last 10",
    "best": "best epoch",
    "suggestion_accuracy": "suggested right",
}


def main() -> None:
    """Run the grid and write the results."""
    parser = parser_of(__doc__)
    add_grid_flags(parser)
    parser.add_argument("--learners", nargs="+", default=list(learners), choices=list(learners))
    parser.add_argument("--out", type=Path, help="folder of the runs (default: runs/learners-<name>)")
    arguments = parser.parse_args()
    name = arguments.name or Path(arguments.data).stem
    out = arguments.out or Path(f"runs/learners-{name}")
    record = run_grid("learners.py", arguments, runs(arguments.learners), out)
    write_page(record, page(record), RESULTS / f"learners_{name}")
    print(page(record))


def runs(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return name of the run → what it changes."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(names, key=lambda name: (learners[name].refurbishes, name)):
        if not learners[name].refurbishes:
            found[name] = {"learner": name}
            continue
        found[name] = {"learner": name, "controller": "coupled"}
        found[f"{name}+trace"] = {"learner": name, "controller": "trace", "trace": {"structure": True}}  # the paper's
        for plugin in plugins:
            if name in plugins[plugin].attached:
                found[f"{name}+{plugin}"] = {"learner": name, "controller": "coupled", "plugin": plugin}
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
        "| run | epochs | " + " | ".join(COLUMNS.values()) + " | less the base, by seed |",
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
        base = by_run.get(name.partition("+")[0]) if "+" in name else None
        pairs = zip(found, base or [], strict=False)
        gains = ", ".join(f"{100 * (one['mean_last_10'] - two['mean_last_10']):+.1f}" for one, two in pairs)
        lines.append(f"| {name} | {found[0]['epochs']} | " + " | ".join(cells) + f" | {gains or '–'} |")
    return "\n".join(lines) + "\n"


def _all(record: dict, key: str) -> str:
    """What the runs have under `key`, each once."""
    return " and ".join(sorted({run[key] for run in record["runs"]}))


if __name__ == "__main__":
    main()
