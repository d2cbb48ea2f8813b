"""Which score finds wrong labels first, and which rule decides best, on runs whose truth is known.

Run: python benchmarks/ranking.py digits             (minutes on two cores)
     python benchmarks/ranking.py cifar10 --root DATA --subset 10000 --epochs 60 --model resnet18 --human cifar10n-worst
     python benchmarks/ranking.py learners_cifar10_5k --runs runs/learners-cifar10_5k   (finished runs of any kind)
Trains RoLR with TRACE in runs/ranking-<name>, once for each noise and for human labels where they are named; what is
finished stays. Writes results/ranking_<name>.json: average precision and AUROC of each score for "the label is wrong",
the noise rate that the audit estimates beside the true one, and what keep, relabel and review come to when the label is
trusted by one score or another. The scores are the audit's rankings and, for the runs trained here, three that a
samples table does not hold: each network's posterior alone, and the mean of the last epochs. Ties count as one step.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from shared import RESULTS, add_run_flags, command_of, parser_of, side_by_side

from labeltrace.audit import average_precision, read_samples
from labeltrace.audit.decisions import KEEP, TRUST_LABEL, TRUST_SUGGESTION, decide
from labeltrace.audit.estimate import estimate_noise
from labeltrace.audit.measures import detection
from labeltrace.audit.ranking import DEFAULT, rankings
from labeltrace.audit.samples import class_names, values
from labeltrace.bench.environment import environment, write_result
from labeltrace.data.noise.transitions import Transitions
from labeltrace.engine import RunConfig, RunFolder, Trained
from labeltrace.engine.config import load_config
from labeltrace.engine.signals import auroc
from labeltrace.runs import run

engine = importlib.import_module("labeltrace.engine.train")  # the package gives its function this name
NOISES = {"symmetric": 0.4, "asymmetric": 0.4, "pair": 0.3, "instance": 0.4}
LAST = 5  # epochs whose posteriors are averaged
BY = ("reliability", "posterior", "probability", "transition", "probability+transition")  # what may speak for a label
TRUSTED = (0.5, 0.7, 0.9)  # from where it does
SURE = (0.8, 0.95)  # confidence from which a suggestion is taken, beside the default
#: label trusted by, from where, suggestion from where, whether a trusted label is kept against one that is not sure
RULES = [(by, trusted, TRUST_SUGGESTION, True) for by in BY for trusted in TRUSTED]
RULES += [("reliability", TRUST_LABEL, sure, True) for sure in SURE]
RULES += [("reliability", TRUST_LABEL, TRUST_SUGGESTION, False)]


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
    parser.add_argument("name", help="dataset by name; with --runs, the name of the result")
    add_run_flags(parser)
    parser.add_argument("--human", help="the same images with people's labels, a dataset by name")
    parser.add_argument("--runs", type=Path, help="folder of finished runs to look at; nothing is trained")
    parser.add_argument("--jobs", type=int, help="runs at a time (default: one per core)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result")
    asked = parser.parse_args()
    rows = [row(path) for path in trained(asked)] if asked.runs is None else finished(asked.runs)
    names = rows[0]["average_precision"]
    mean = {name: statistics.mean(row["average_precision"][name] for row in rows) for name in names}
    record = {
        "command": command_of("ranking.py", asked.name, asked, ("subset", "epochs", "model", "human", "seeds", "runs")),
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
    shared |= {"data": asked.name, "learner": "rolr", "controller": "trace", "trace": {"structure": True}}
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


def finished(folder: Path) -> list[dict]:
    """Return the rows of the runs below a folder whose samples have wrong labels, known as such."""
    rows = [row(path.parent) for path in sorted(folder.rglob("samples.parquet"))]
    found = [row for row in rows if row["wrong"] > 0]
    if not found:
        raise SystemExit(f"--runs {folder}: no finished run in it that has labels known to be wrong")
    return found


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
    table, folder = read_samples(path), RunFolder(path)
    config = load_config(folder.config, {})
    truth, observed = values(table, "truth"), values(table, "observed")
    known = truth >= 0
    wrong = (truth != observed)[known]
    scores = {name: rankings[name](table)[known] for name in rankings}
    if kept_in(path).exists():
        posteriors = np.load(kept_in(path))
        scores |= {f"posterior of network {'AB'[m]}": 1 - p[known] for m, p in enumerate(posteriors[-1])}
        scores[f"posterior, mean of {LAST} epochs"] = 1 - posteriors.mean((0, 1))[known]
    estimate = estimate_noise(table)
    actual = Transitions.between(truth[known], observed[known], len(class_names(table))).matrix()
    return {
        "run": path.name,
        "setting": setting(config),
        "seed": config.seed,
        "device": folder.read_environment()["device"],
        "samples": int(known.sum()),
        "wrong": float(wrong.mean()),
        "estimated_wrong": estimate.rate,
        "transition_error": float(np.abs(estimate.transition - actual).sum(1).mean() / 2),
        "average_precision": {name: average_precision(score, wrong) for name, score in scores.items()},
        "auroc": {
            name: auroc(torch.from_numpy(score), torch.from_numpy(np.asarray(wrong))) for name, score in scores.items()
        },
        "rules": [rule(table, *each) for each in RULES],
    }


def setting(config: RunConfig) -> str:
    """Return what a run is of, whatever its seed."""
    return " ".join([config.method, str(config.data), *([f"{config.noise} {config.rate:g}"] if config.noise else [])])


def rule(table: pa.Table, by: str, trusted: float, sure: float, stands: bool) -> dict[str, Any]:
    """Return what the decisions come to when labels are trusted by a score from some value on, suggestions likewise."""
    observed, suggested, truth = (values(table, name) for name in ("observed", "suggested", "truth"))
    trust, confidence = 1 - rankings[by](table), values(table, "confidence")
    decision = decide(observed, suggested, trust, confidence, trust_label=trusted, trust_suggestion=sure)
    decided = decision.to_numpy(zero_copy_only=False)
    if stands:
        decided = np.where((trust >= trusted) & (confidence < sure), KEEP, decided)
    again = table.set_column(table.column_names.index("decision"), "decision", pa.array(decided))
    decided = decided[truth >= 0]
    found = detection(again)
    precision, recall = found["precision"], found["recall"]
    return {
        "by": by,
        "trusted": trusted,
        "sure": sure,
        "stands": stands,
        **found,
        "f1": 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0,
        "relabel": float((decided == "relabel").mean()),
        "review": float((decided == "review").mean()),
    }


def page(record: dict) -> str:
    """Return the figures as Markdown: average precision of each setting, mean over seeds, best ranking first; rules."""
    settings: dict[str, list[dict]] = {}
    for row in record["runs"]:
        settings.setdefault(row["setting"], []).append(row)
    mean = record["mean_average_precision"]
    names = sorted(mean, key=lambda name: -mean[name])
    lines = ["| average precision, % | n | wrong | estimated | " + " | ".join(names) + " |"]
    lines.append("|---" + "|--:" * (len(names) + 3) + "|")
    behind = dict.fromkeys(names, 0.0)
    for name, rows in settings.items():
        cells = {score: statistics.mean(row["average_precision"][score] for row in rows) for score in names}
        behind = {score: max(behind[score], max(cells.values()) - cells[score]) for score in names}
        about = [statistics.mean(row[key] for row in rows) for key in ("wrong", "estimated_wrong")]
        lines.append(f"| {name} | {len(rows)} | " + _percent([*about, *cells.values()]) + " |")
    lines.append("| mean of the runs | | | | " + _percent([mean[name] for name in names]) + " |")
    lines.append("| farthest behind the best | | | | " + _percent([behind[name] for name in names]) + " |")
    keys = ("precision", "recall", "f1", "relabel", "relabel_accuracy", "review", "right_after")
    lines += [
        "",
        "Rules, mean over the runs, %; the lowest recall of a run in brackets:",
        "",
        "| label trusted by | from | suggestion from | kept | found: precision | recall | F1 | relabelled | right | "
        "to review | labels right after relabelling |",
        "|---" + "|--:" * 10 + "|",
    ]
    for place, (by, trusted, sure, stands) in enumerate(RULES):
        each = [row["rules"][place] for row in record["runs"]]
        least = min(found["recall"] for found in each)
        cells = [np.nanmean([found[key] for found in each]) for key in keys]  # nothing relabelled has no accuracy
        first, second, *others = _percent(cells).split(" | ")
        kept = "yes" if stands else "no"
        shown = [by, f"{trusted:g}", f"{sure:g}", kept, first, f"{second} ({100 * least:.1f})", *others]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def _percent(shares: Iterable[float]) -> str:
    return " | ".join(f"{100 * share:.1f}" for share in shares)


if __name__ == "__main__":
    main()
