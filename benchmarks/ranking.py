"""Which score finds wrong labels first, and which rule decides best, on runs whose truth is known.

Run: python benchmarks/ranking.py digits             (minutes on two cores)
     python benchmarks/ranking.py cifar10 --root DATA --subset 10000 --epochs 60 --model resnet18 --human cifar10n-worst
Trains RoLR with TRACE in runs/ranking-<name>, once for each noise and for human labels where they are named; what is
finished stays. Writes results/ranking_<name>.json: average precision and AUROC of each score for "the label is wrong",
the noise rate that the audit estimates beside the true one, and what keep, relabel and review come to when the label is
trusted by one score or another. The scores are the audit's rankings and three that a samples table does not hold: each
network's posterior alone, and the mean of the last epochs. Ties count as one step.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from shared import RESULTS, add_run_flags, command_of, parser_of, side_by_side

from labeltrace.audit import average_precision, read_samples
from labeltrace.audit.decisions import TRUST_LABEL, decide
from labeltrace.audit.estimate import estimate_noise
from labeltrace.audit.measures import detection
from labeltrace.audit.ranking import DEFAULT, rankings
from labeltrace.audit.samples import class_names, values
from labeltrace.bench.environment import environment, write_result
from labeltrace.data.noise.transitions import Transitions
from labeltrace.engine import RunConfig, RunFolder, Trained
from labeltrace.engine.signals import auroc
from labeltrace.runs import run

engine = importlib.import_module("labeltrace.engine.train")  # the package gives its function this name
NOISES = {"symmetric": 0.4, "asymmetric": 0.4, "pair": 0.3, "instance": 0.4}
LAST = 5  # epochs whose posteriors are averaged
BY = ("reliability", "posterior", "probability", "transition")  # scores that a label may be trusted by
SURE = (0.8, 0.9, 0.95)  # confidence from which a suggestion is taken


class Watched(engine.Training):  # type: ignore[misc, name-defined]
    """A run that also keeps each network's posteriors of the last epochs, [epochs, networks, N]."""

    def train(self, resume: bool) -> Trained:
        """Train, then write what was kept."""
        self.kept: deque[np.ndarray] = deque(maxlen=LAST)
        trained = super().train(resume)
        np.save(kept_in(self.folder.path), np.stack(self.kept))
        return trained

    def epoch(self, epoch: int) -> dict[str, Any]:
        """Train an epoch and keep what its scoring pass found."""
        record = super().epoch(epoch)
        if self.loop.scores is not None:
            self.kept.append(self.loop.scores.posterior.cpu().numpy())
        return record


def main() -> None:
    """Compare the rankings and write the figures."""
    parser = parser_of(__doc__)
    parser.add_argument("name", help="dataset by name")
    add_run_flags(parser)
    parser.add_argument("--human", help="the same images with people's labels, a dataset by name")
    parser.add_argument("--jobs", type=int, help="runs at a time (default: one per core)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result")
    asked = parser.parse_args()
    rows = [row(path) for path in trained(asked)]
    mean = {name: statistics.mean(row["average_precision"][name] for row in rows) for name in rows[0]["auroc"]}
    record = {
        "command": command_of("ranking.py", asked.name, asked, ("subset", "epochs", "model", "human", "seeds")),
        "default": DEFAULT,
        "best": max(mean, key=lambda name: mean[name]),
        "mean_average_precision": mean,
        "runs": rows,
        "environment": environment(),
    }
    write_result(record, asked.results / f"ranking_{asked.name}.json")
    print(page(record))


def trained(asked: argparse.Namespace) -> list[Path]:
    """Train RoLR with TRACE under every noise; finished runs stay."""
    shared = {name: getattr(asked, name) for name in ("root", "subset", "model", "epochs")}
    shared |= {"data": asked.name, "learner": "rolr", "controller": "trace"}
    changes: dict[str, dict[str, Any]] = {
        f"{noise} {rate:g}": {"noise": noise, "rate": rate}
        for noise, rate in NOISES.items()
        if noise != "asymmetric" or asked.name.startswith("cifar")  # it is defined by CIFAR's classes
    }
    if asked.human:
        changes[asked.human] = {"data": asked.human}
    out = Path(f"runs/ranking-{asked.name}")
    todo = {
        out / f"{name} s{seed}": {**shared, **change, "seed": seed}
        for name, change in changes.items()
        for seed in asked.seeds
    }
    return list(side_by_side(one, list(todo.items()), asked.jobs, "runs", lambda folder: folder.name))


def one(todo: tuple[Path, dict[str, Any]]) -> Path:
    """Train a run unless it is there; return its folder."""
    folder, config = todo
    if not (RunFolder(folder).samples.exists() and kept_in(folder).exists()):
        torch.set_num_threads(1)
        engine.Training = Watched
        run(RunConfig.model_validate(config), folder, overwrite=True)
    return folder


def kept_in(folder: Path) -> Path:
    """Return the file beside a run's folder that holds its posteriors."""
    return folder.with_name(f"{folder.name}.npy")


def row(path: Path) -> dict:
    """Return what each score and rule comes to on one run."""
    table = read_samples(path)
    truth, observed = values(table, "truth"), values(table, "observed")
    known = truth >= 0
    wrong = (truth != observed)[known]
    posteriors = np.load(kept_in(path))
    scores = {name: rankings[name](table)[known] for name in rankings}
    scores |= {f"posterior of network {'AB'[m]}": 1 - p[known] for m, p in enumerate(posteriors[-1])}
    scores[f"posterior, mean of {LAST} epochs"] = 1 - posteriors.mean((0, 1))[known]
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
        "rules": [rule(table, by, sure) for by in BY for sure in SURE],
    }


def rule(table: pa.Table, by: str, sure: float) -> dict[str, Any]:
    """Return what the decisions come to when labels are trusted by a score, suggestions from a confidence on."""
    observed, suggested, truth = (values(table, name) for name in ("observed", "suggested", "truth"))
    trust = 1 - rankings[by](table)
    decision = decide(observed, suggested, trust, values(table, "confidence"), trust_suggestion=sure)
    again = table.set_column(table.column_names.index("decision"), "decision", decision)
    decided = decision.to_numpy(zero_copy_only=False)[truth >= 0]
    after = np.where(decided == "relabel", suggested[truth >= 0], observed[truth >= 0])
    return {
        "by": by,
        "sure": sure,
        **detection(again),
        "relabel": float((decided == "relabel").mean()),
        "review": float((decided == "review").mean()),
        "right_after": float((after == truth[truth >= 0]).mean()),
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
    lines += [
        "",
        f"Rules, mean over the runs, %; a label is trusted from {TRUST_LABEL:g} on:",
        "",
        "| label trusted by | suggestion from | found: precision | recall | relabelled | right | to review | "
        "labels right after relabelling |",
        "|---" + "|--:" * 7 + "|",
    ]
    keys = ("precision", "recall", "relabel", "relabel_accuracy", "review", "right_after")
    for place, first in enumerate(rows[0]["rules"]):
        cells = [f"{100 * statistics.mean(row['rules'][place][key] for row in rows):.1f}" for key in keys]
        lines.append(f"| {first['by']} | {first['sure']:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
