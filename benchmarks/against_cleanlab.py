"""Finding wrong labels: one run of labeltrace beside cleanlab's recommended use, on the same labels and network.

Run: pip install 'labeltrace[compare]'
     python benchmarks/against_cleanlab.py digits
     python benchmarks/against_cleanlab.py cifar10n-worst --root DATA --subset 10000 --epochs 60 --model resnet18
Writes results/cleanlab_<data>.json (every run) and .md (the table). cleanlab gets `CleanLearning`, five folds, on the
same network, trained by cross-entropy with the same recipe and epochs, and once more for a quarter of them, because
cross-entropy learns wrong labels by heart and whoever knows that stops early; its flags, its ranking (`label_quality`)
and its suggestion (`predicted_label`) are taken as they come. From labeltrace come the decisions other than keep, the
queue's ranking, and the suggested class. Seconds are of the whole audit; they include no reading of data, and compare
with one another only where `--jobs` is 1. A second call measures what the file does not hold yet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from shared import RESULTS, add_run_flags, command_of, parser_of, side_by_side, write_page
from torch import Tensor

from labeltrace.audit import average_precision, measure
from labeltrace.bench.environment import environment
from labeltrace.data import Dataset, add_noise, load_dataset
from labeltrace.engine import RunConfig
from labeltrace.engine.folder import code_revision
from labeltrace.runs import run
from labeltrace.sklearn import TraceClassifier

NOISES = {"symmetric": 0.4, "pair": 0.3, "instance": 0.4}
WAYS: dict[str, dict[str, Any] | float] = {  # a run of ours, or the share of the epochs that cleanlab's networks train
    "labeltrace, rolr+trace": {"trace": {"structure": True}},
    "labeltrace, rolr+trace without structure": {"trace": {"structure": False}},
    "labeltrace, rolr": {"controller": "coupled"},
    "cleanlab, 5 folds": 1.0,
    "cleanlab, 5 folds, a quarter of the epochs": 0.25,
}
RECIPE = 40  # epochs of the recipe for small images
COLUMNS = {
    "average_precision": "average precision",
    "precision": "flagged: precision",
    "recall": "recall",
    "suggestion_accuracy": "suggested right, all",
    "suggestion_accuracy_wrong": "of wrong labels",
    "seconds": "seconds",
}


def main() -> None:
    """Run every way on every noise and seed, then write the results."""
    parser = parser_of(__doc__)
    parser.add_argument("data", help="dataset by name; one that brings its own wrong labels gets no noise")
    add_run_flags(parser)
    parser.add_argument("--jobs", type=int, default=1, help="audits at a time")
    arguments = parser.parse_args()
    with_noise = not _has_wrong(load_dataset(arguments.data, arguments.root))
    noises = list(NOISES) if with_noise else ["its own"]
    command = command_of("against_cleanlab.py", arguments.data, arguments, ("subset", "epochs", "model"))
    stem = RESULTS / f"cleanlab_{arguments.data}"
    records = measured(stem.with_suffix(".json"), command, arguments.jobs)
    wanted = [(noise, seed, way) for noise in noises for seed in arguments.seeds for way in WAYS]
    todo = [one for one in wanted if one not in records]
    for record in side_by_side(partial(one, arguments), todo, arguments.jobs, "audits", in_words):
        records[record["noise"], record["seed"], record["way"]] = record
        result = {
            "command": command,
            "seeds": arguments.seeds,
            "samples": record["samples"],
            "jobs": arguments.jobs,
            "versions": {"cleanlab": _version("cleanlab")},
            "runs": [records[one] for one in wanted if one in records],
            "environment": environment(),
        }
        write_page(result, page(result), stem)
    print(stem.with_suffix(".md").read_text(encoding="utf-8"))


def measured(path: Path, command: str, jobs: int) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Return what the same command has measured before, by noise, seed and way."""
    if not path.exists():
        return {}
    result = json.loads(path.read_text(encoding="utf-8"))
    if (result["command"], result["jobs"]) != (command, jobs):
        return {}
    return {(record["noise"], record["seed"], record["way"]): record for record in result["runs"]}


def in_words(record: dict[str, Any]) -> str:
    """Return which audit a record is of."""
    return f"{record['noise']}, seed {record['seed']}, {record['way']}"


def one(asked: argparse.Namespace, todo: tuple[str, int, str]) -> dict[str, Any]:
    """Return what one way finds in one noise and seed, and how long it takes."""
    noise, seed, way = todo
    warnings.simplefilter("ignore")
    data = load_dataset(asked.data, asked.root)
    if asked.subset is not None:
        data = data.subset(asked.subset, seed)
    if noise in NOISES:
        data, _ = add_noise(data, noise, NOISES[noise], seed)
    options = {"model": asked.model, "epochs": asked.epochs, "seed": seed}
    began = time.perf_counter()
    what = WAYS[way]
    found = ours(data, {**options, **what}) if isinstance(what, dict) else theirs(data, options, what)
    seconds = round(time.perf_counter() - began, 1)
    name = {"noise": noise, "seed": seed, "way": way}
    return {**name, "samples": len(data.train), **found, "seconds": seconds, "revision": code_revision()}


def ours(data: Dataset, asked: dict[str, Any]) -> dict[str, float]:
    """One run, its decisions, ranking and suggestions."""
    config = RunConfig.model_validate({**asked, "checkpoint_seconds": 1e6})
    with tempfile.TemporaryDirectory() as folder:
        table = run(config, Path(folder) / "run", dataset=data)[1]
    found = measure(table)
    columns = {name: table[name].to_numpy() for name in ("observed", "suggested", "truth")}
    wrong = columns["observed"] != columns["truth"]
    right = columns["suggested"] == columns["truth"]
    keys = ("average_precision", "precision", "recall", "suggestion_accuracy")
    return {name: found[name] for name in keys} | {"suggestion_accuracy_wrong": float(right[wrong].mean())}


def theirs(data: Dataset, asked: dict[str, Any], share: float) -> dict[str, float]:
    """CleanLearning with out-of-fold probabilities of the same network."""
    from cleanlab.classification import CleanLearning

    images, labels, truth = data.train.inputs, data.train.labels.numpy(), data.train.truth
    assert isinstance(images, Tensor) and truth is not None
    network = TraceClassifier(
        "cross_entropy",
        None,
        model=asked["model"],
        epochs=round(share * (asked["epochs"] or RECIPE)),
        random_state=asked["seed"],
        flip=_flips(data),
    )
    cleaner = CleanLearning(network, seed=asked["seed"], cv_n_folds=5, find_label_issues_kwargs={"n_jobs": 1})
    issues = cleaner.find_label_issues(
        images.numpy(), labels
    )  # one job: its own processes do not start in a spawned one
    wrong, flagged = labels != truth.numpy(), issues["is_label_issue"].to_numpy()
    right = issues["predicted_label"].to_numpy() == truth.numpy()
    return {
        "average_precision": average_precision(1 - issues["label_quality"].to_numpy(), wrong),
        "precision": float(wrong[flagged].mean()) if flagged.any() else float("nan"),
        "recall": float(flagged[wrong].mean()),
        "suggestion_accuracy": float(right.mean()),
        "suggestion_accuracy_wrong": float(right[wrong].mean()),
    }


def page(result: dict[str, Any]) -> str:
    """Return the results as Markdown: mean ± standard deviation over the seeds, in per cent, and seconds."""
    where = result["environment"]
    lines = [
        f"# Beside cleanlab: {result['command'].split()[2]}",
        "",
        f"`{result['command']}` on {where['date']}: {result['samples']:,} samples, "
        f"seeds {', '.join(map(str, result['seeds']))}, {where['device']}, {where['threads']} threads, "
        f"{result['jobs']} at a time, torch {where['torch']}, cleanlab {result['versions']['cleanlab']}."
        f"{result.get('remark', '')}",
        "",
        "| noise | | " + " | ".join(COLUMNS.values()) + " |",
        "|---|---" + "|--:" * len(COLUMNS) + "|",
    ]
    for noise, way in dict.fromkeys((record["noise"], record["way"]) for record in result["runs"]):
        mine = [record for record in result["runs"] if (record["noise"], record["way"]) == (noise, way)]
        cells = []
        for key in COLUMNS:
            scale = 1 if key == "seconds" else 100
            values = [scale * record[key] for record in mine if record[key] is not None]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}")
        lines.append(f"| {noise} | {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _has_wrong(data: Dataset) -> bool:
    return data.train.truth is not None and bool((data.train.truth != data.train.labels).any())


def _flips(data: Dataset) -> bool:
    return bool(getattr(data.views, "flip", True))


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


if __name__ == "__main__":
    main()
