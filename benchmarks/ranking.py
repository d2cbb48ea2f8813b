"""Which score finds wrong labels first: every ranking of the audit on runs whose truth is known.

Run: python benchmarks/ranking.py digits             (minutes on two cores)
     python benchmarks/ranking.py cifar10 --root DATA --subset 10000 --epochs 60 --model resnet18 --human cifar10n-worst
     python benchmarks/ranking.py NAME RUN…          (finished runs; nothing is trained)
Without runs it trains RoLR with TRACE in runs/ranking-<name>, once for each of four noises and for human labels where
they are named. Writes results/ranking_<name>.json: average precision and AUROC of each ranking for "the label is
wrong", the noise rate that the audit estimates beside the true one, and the mean over the runs. Higher is better; ties
count as one step.
"""

from __future__ import annotations

import argparse
import json
import statistics
from datetime import date
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

import labeltrace
from labeltrace.audit import average_precision, read_samples
from labeltrace.audit.estimate import estimate_noise
from labeltrace.audit.ranking import DEFAULT, rankings
from labeltrace.audit.samples import class_names, values
from labeltrace.data.noise.transitions import Transitions
from labeltrace.engine import RunConfig
from labeltrace.engine.folder import code_revision
from labeltrace.engine.signals import auroc
from labeltrace.files import write_atomically
from labeltrace.grid import run_all
from labeltrace.progress import Bars

RESULTS = Path(__file__).resolve().parent.parent / "results"
NOISES = {"symmetric": 0.4, "asymmetric": 0.4, "pair": 0.3, "instance": 0.4}


def main() -> None:
    """Compare the rankings and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="dataset by name; with runs, of the result: results/ranking_<name>.json")
    parser.add_argument("runs", nargs="*", type=Path, help="folders of finished runs (none: they are trained now)")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--subset", type=int)
    parser.add_argument("--model")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--human", help="the same images with people's labels, a dataset by name")
    parser.add_argument("--jobs", type=int, help="runs at a time when training (default: one per core)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result")
    arguments = parser.parse_args()
    runs = arguments.runs or trained(arguments)
    words = [run.name for run in arguments.runs]
    for name in ("subset", "epochs", "model", "human"):
        words += [f"--{name} {getattr(arguments, name)}"] if getattr(arguments, name) else []
    rows = [row(path) for path in runs]
    mean = {name: statistics.mean(row["average_precision"][name] for row in rows) for name in rankings}
    record = {
        "command": " ".join(["python benchmarks/ranking.py", arguments.name, *words]),
        "date": date.today().isoformat(),
        "labeltrace": labeltrace.__version__,
        "revision": code_revision(),
        "default": DEFAULT,
        "best": max(mean, key=lambda name: mean[name]),
        "mean_average_precision": mean,
        "runs": rows,
    }
    text = json.dumps(record, indent=2) + "\n"
    write_atomically(arguments.results / f"ranking_{arguments.name}.json", lambda path: path.write_text(text))
    print(page(record))


def trained(asked: argparse.Namespace) -> list[Path]:
    """Train RoLR with TRACE under every noise; finished runs stay."""
    shared = {name: getattr(asked, name) for name in ("root", "subset", "model", "epochs")}
    shared |= {"data": asked.name, "learner": "rolr", "controller": "trace", "seed": 0}
    changes: dict[str, dict] = {
        f"{noise}{rate:g}": {"noise": noise, "rate": rate}
        for noise, rate in NOISES.items()
        if noise != "asymmetric" or asked.name.startswith("cifar")  # it is defined by CIFAR's classes
    }
    if asked.human:
        changes[asked.human] = {"data": asked.human}
    configs = {name: RunConfig.model_validate({**shared, **change}) for name, change in changes.items()}
    out = Path(f"runs/ranking-{asked.name}")
    with Bars(Console()) as bars:
        run_all(configs, out, bars, asked.jobs, resume=True)
    return [out / name for name in configs]


def row(path: Path) -> dict:
    """Return what each ranking comes to on one run."""
    table = read_samples(path)
    truth, observed = values(table, "truth"), values(table, "observed")
    known = truth >= 0
    wrong = (truth != observed)[known]
    scores = {name: rankings[name](table)[known] for name in rankings}
    estimate = estimate_noise(table)
    actual = Transitions.between(truth[known], observed[known], len(class_names(table))).matrix()
    return {
        "run": path.name,
        "samples": int(known.sum()),
        "wrong": float(wrong.mean()),
        "estimated_wrong": estimate.rate,
        "transition_error": float(np.abs(estimate.transition - actual).sum(1).mean() / 2),
        "average_precision": {name: average_precision(score, wrong) for name, score in scores.items()},
        "auroc": {
            name: auroc(torch.from_numpy(score), torch.from_numpy(np.asarray(wrong))) for name, score in scores.items()
        },
    }


def page(record: dict) -> str:
    """Return the figures as a Markdown table: average precision in per cent, best ranking first."""
    rows = record["runs"]
    lines = [
        "| average precision, % | " + " | ".join(row["run"] for row in rows) + " | mean |",
        "|---" * (len(rows) + 2) + "|",
    ]
    mean = record["mean_average_precision"]
    for name in sorted(mean, key=lambda name: -mean[name]):
        cells = [row["average_precision"][name] for row in rows] + [mean[name]]
        lines.append(f"| {name} | " + " | ".join(f"{100 * cell:.2f}" for cell in cells) + " |")
    lines.append("")
    for row in rows:
        lines.append(
            f"{row['run']}: {100 * row['wrong']:.1f} % wrong, estimated {100 * row['estimated_wrong']:.1f} %; "
            f"transition matrix {row['transition_error']:.3f} from the true one (mean total variation of its rows)"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
