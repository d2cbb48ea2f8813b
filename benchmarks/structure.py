"""What structure confidence is good for on small sets: how often a run finds less than half of the wrong labels.

Run: python benchmarks/structure.py
Writes results/structure.json and .md. Features of scikit-learn's sets, labels made wrong at two rates, sixteen seeds;
RoLR as published, with the paper's TRACE, and with TRACE without structure, each by the recipe for features.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from features import quiet, sets
from shared import RESULTS, side_by_side, write_page

from labeltrace.audit import measure
from labeltrace.bench.environment import environment
from labeltrace.data import add_noise, from_arrays
from labeltrace.engine import RunConfig
from labeltrace.features import feature_recipe
from labeltrace.runs import run

SETS, RATES, SEEDS = ("iris", "wine", "breast_cancer", "digits"), (0.3, 0.4), range(16)
WAYS: dict[str, dict[str, Any]] = {
    "rolr": {"controller": "coupled"},
    "rolr+trace": {"trace": {"structure": True}},
    "rolr+trace without structure": {"trace": {"structure": False}},
}
COLUMNS = {
    "average_precision": "average precision",
    "precision": "found: precision",
    "recall": "recall",
    "suggestion_accuracy": "suggested right",
    "right_after": "labels right once relabelled",
}


def main() -> None:
    """Run every way on every set, rate and seed and write what came out."""
    todo = [(name, rate, seed, way) for name in SETS for rate in RATES for seed in SEEDS for way in WAYS]
    records = list(side_by_side(one, todo, None, "runs", lambda r: f"{r['set']} {r['rate']}", quiet))
    record = {"command": "python benchmarks/structure.py", "runs": records, "environment": environment()}
    write_page(record, page(record), RESULTS / "structure")
    print(page(record))


def one(asked: tuple[str, float, int, str]) -> dict[str, object]:
    """Return what one run finds."""
    name, rate, seed, way = asked
    x, y = sets()[name]
    data, _ = add_noise(from_arrays(x, y, name="features"), "symmetric", rate, seed)
    config = RunConfig.model_validate({**feature_recipe(len(x)), "seed": seed, "device": "cpu", **WAYS[way]})
    with tempfile.TemporaryDirectory() as folder:
        found = measure(run(config, Path(folder) / "run", dataset=data)[1])
    return {"set": name, "rate": rate, "seed": seed, "way": way, **found}


def page(record: dict[str, Any]) -> str:
    """Return the results as Markdown: means over the seeds, and in how many runs recall was under a half."""
    where = record["environment"]
    lines = [
        "# Structure on small sets",
        "",
        f"`{record['command']}` on {where['date']}: features, symmetric noise, seeds {SEEDS[0]} to {SEEDS[-1]}, "
        f"{where['device']}, torch {where['torch']}. Means over the seeds in per cent; in the last column the runs "
        "that found less than half of the wrong labels.",
        "",
        "| set | wrong | method | " + " | ".join(COLUMNS.values()) + " | under half |",
        "|---|--:|---" + "|--:" * (len(COLUMNS) + 1) + "|",
    ]
    for name in SETS:
        for rate in RATES:
            for way in WAYS:
                of = {"set": name, "rate": rate, "way": way}.items()
                mine = [run for run in record["runs"] if of <= run.items()]
                means = [f"{100 * statistics.mean(run[key] for run in mine):.1f}" for key in COLUMNS]
                missed = sum(run["recall"] < 1 / 2 for run in mine)
                cells = [name, f"{rate:.0%}", way, *means, f"{missed} of {len(mine)}"]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
