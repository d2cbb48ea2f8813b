"""Where wrong labels enter a network, and what relation drift knows of them: the paper's measurements on real runs.

Run: python benchmarks/diagnostics.py depth cifar10 --root DATA --model resnet18 --epochs 40
     python benchmarks/diagnostics.py strata cifar100 --root DATA --model resnet18 --epochs 60
`depth` trains cross-entropy at several rates of symmetric noise and measures every stage at several epochs, because
gradient sensitivity means something only while the network does not know the wrong labels by heart. `strata` trains
RoLR and asks whether, at equal loss posterior, labels of little drift are more often right. Both write
results/diagnostics_<what>_<data>.json with a picture of each epoch or pooling, and results/diagnostics.md from all.

A second call goes on where the first was stopped. What was measured lies beside each run as <run>.json; with those
files alone, without runs or data, a call writes the results again. So rates may be trained side by side:
     for rate in 0.2 0.5 0.8; do python benchmarks/diagnostics.py depth cifar10 … --rates $rate --part & done; wait
     python benchmarks/diagnostics.py depth cifar10 …
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from shared import RESULTS, command_of, parser_of

from labeltrace.audit import read_samples
from labeltrace.audit.samples import values
from labeltrace.bench.environment import environment, write_result
from labeltrace.diagnostics.figures import Drawn
from labeltrace.diagnostics.figures.depth import depth_panels
from labeltrace.diagnostics.figures.strata import strata_panels
from labeltrace.diagnostics.figures.style import styled, write_figure
from labeltrace.diagnostics.reliability import Row
from labeltrace.diagnostics.runs import Run, depth_figures, strata_figures
from labeltrace.engine import RunConfig, RunFolder
from labeltrace.engine.checkpoint import read_checkpoint
from labeltrace.files import write_atomically
from labeltrace.progress import Bars
from labeltrace.runs import figures, run

STAGES = ("layer1", "layer2", "layer3", "layer4")
POOLINGS = ("gap", "flatten")
RATES = {"depth": [0.2, 0.5, 0.8], "strata": [0.5]}
DEPTH = {
    "gradient_sensitivity": "gradient sensitivity",
    "gradient_projection": "projection ratio P9",
    "flip_rate": "flip rate, %",
    "prototype_gap": "prototype gap",
    "probe_accuracy": "probe, %",
    "fisher_ratio": "Fisher ratio",
}
FLAGS = ("model", "epochs", "rates", "at", "seed")  # that repeat a measurement
AFTER = {"test_accuracy": "test accuracy", "learned_wrong": "wrong labels that the network gives back"}
#: what the paper prints for ResNet-18
PAPER = {
    "cifar10": "gradient sensitivity of layer1 1.57 (20 %) → 2.05 (80 %), of layer4 1.83 → 3.83; flip rate at 50 % "
    "29.0 → 99.7 % from layer1 to layer4; probe, mean of the stages, 72.4 (20 %) → 60.0 (80 %); Fisher ratio, mean, "
    "0.578 / 0.434 / 0.288",
    "cifar100": "right labels are more frequent at low drift in every stratum of the loss posterior between 0 and 1",
}


class Snapshots(Bars):
    """Also keeps a copy of the checkpoint after some epochs."""

    def __init__(self, console: Console, folder: Path, epochs: list[int]) -> None:
        super().__init__(console)
        self.folder, self.epochs = folder, epochs

    def start(self, name: str, epochs: int, done: int) -> None:
        """Copy what a run that was stopped has left, where there was no time for it."""
        super().start(name, epochs, done)
        self._keep(done)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Copy what has just been written."""
        super().epoch(record)
        self._keep(record["epoch"] + 1)

    def _keep(self, epoch: int) -> None:
        if epoch in self.epochs:
            last = RunFolder(self.folder).last
            write_atomically(_snapshot(self.folder, epoch), lambda path: shutil.copyfile(last, path))


def main() -> None:
    """Train what is missing, measure, write."""
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["depth", "strata"])
    parser.add_argument("data", help="dataset by name")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--rates", type=float, nargs="+", help="default: 0.2 0.5 0.8 (depth), 0.5 (strata)")
    parser.add_argument("--at", type=int, nargs="+", help="epochs to measure (default: 5, 10, 25, 50, 100 %% of them)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/diagnostics"), help="folder of the runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of JSON, pictures and page")
    parser.add_argument("--part", action="store_true", help="train and measure only; a later call writes the results")
    asked = parser.parse_args()
    if asked.at and not all(1 <= epoch <= asked.epochs for epoch in asked.at):
        parser.error(f"--at: expected epochs from 1 to {asked.epochs}")
    rates = asked.rates or RATES[asked.what]
    measured = {rate: (depth if asked.what == "depth" else strata)(asked, rate) for rate in rates}
    if asked.part:
        return
    first = next(iter(measured.values()))
    result = {
        "what": asked.what,
        "data": asked.data,
        "command": command_of("diagnostics.py", f"{asked.what} {asked.data}", asked, FLAGS),
        "epochs": asked.epochs,
        "seed": asked.seed,
        "rows": [row for notes in measured.values() for rows in notes["rows"].values() for row in rows],
        "after": {f"{rate:g}": {name: notes[name] for name in AFTER} for rate, notes in measured.items()},
        "environment": first["environment"],
    }
    draw(result, asked.results / "diagnostics")
    write_result(result, asked.results / f"diagnostics_{asked.what}_{asked.data}.json")
    text = page(asked.results)
    write_atomically(asked.results / "diagnostics.md", lambda path: path.write_text(text, encoding="utf-8"))
    print(text)


def depth(asked: argparse.Namespace, rate: float) -> dict[str, Any]:
    """Cross-entropy at a rate, every stage at each epoch."""
    at = asked.at or sorted({max(1, round(asked.epochs * share)) for share in (0.05, 0.1, 0.25, 0.5, 1)})

    def measure(folder: Path, epoch: str) -> list[Row]:
        found = depth_figures(Run(folder, checkpoint=str(_snapshot(folder, int(epoch))), root=asked.root))
        return [{"run": f"{rate:g}", "rate": rate, "epoch": int(epoch), **row} for row in found]

    config = {"learner": "cross_entropy", "checkpoint_seconds": 0}
    return measured_run(asked, rate, config, at, [str(epoch) for epoch in at], measure)


def strata(asked: argparse.Namespace, rate: float) -> dict[str, Any]:
    """RoLR at a rate, its drift strata for both poolings."""

    def measure(folder: Path, pooling: str) -> list[Row]:
        return [
            {"rate": rate, "pooling": pooling, **row} for row in strata_figures(Run(folder, root=asked.root), pooling)
        ]

    return measured_run(asked, rate, {"learner": "rolr", "controller": "coupled"}, [], POOLINGS, measure)


def measured_run(
    asked: argparse.Namespace,
    rate: float,
    config: dict[str, Any],
    at: list[int],
    wanted: list[str] | tuple[str, ...],
    measure: Callable[[Path, str], list[Row]],
) -> dict[str, Any]:
    """Return test accuracy and what is wanted of a run, from its notes or else measured; each is noted at once."""
    words = (asked.data, asked.model, config["learner"], f"{rate:g}", f"{asked.epochs}epochs", f"seed{asked.seed}")
    folder = asked.out / "-".join(word for word in words if word)
    path = asked.out / f"{folder.name}.json"
    notes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": {}}
    missing = [name for name in wanted if name not in notes["rows"]]
    if missing or "learned_wrong" not in notes:
        shared = {"data": asked.data, "root": asked.root, "model": asked.model, "epochs": asked.epochs}
        trained({**shared, "seed": asked.seed, "noise": "symmetric", "rate": rate, **config}, folder, at)
        notes |= {"test_accuracy": figures(folder)["last"], "learned_wrong": learned_wrong(folder)}
        notes.setdefault("environment", environment())
        write_result(notes, path)
        for name in missing:
            notes["rows"][name] = measure(folder, name)
            write_result(notes, path)
            print(f"{folder.name}: {name} measured", flush=True)
    return {**notes, "rows": {name: notes["rows"][name] for name in wanted}}


def trained(config: dict[str, Any], folder: Path, at: list[int]) -> None:
    """Train a run, from where it was stopped; from the beginning where a snapshot is missing that cannot be made."""
    files = RunFolder(folder)
    if files.samples.exists() and all(_snapshot(folder, epoch).exists() for epoch in at):
        return
    saved = read_checkpoint(files.last)["epoch"] if files.last.exists() else 0
    resume = saved > 0 and all(_snapshot(folder, epoch).exists() for epoch in at if epoch < saved)
    with Snapshots(Console(stderr=True), folder, at) as bars:
        run(RunConfig.model_validate(config), folder, resume=resume, overwrite=not resume, reporter=bars)


def learned_wrong(folder: Path) -> float:
    """Return the share of wrong labels that the network gives back after the last epoch."""
    table = read_samples(folder)
    observed = values(table, "observed")
    wrong = observed != values(table, "truth")
    return float((values(table, "suggested") == observed)[wrong].mean())


def draw(result: dict[str, Any], out: Path) -> None:
    """Write the picture of each epoch (depth) or pooling and rate (strata)."""
    for name, part in parts(result).items():
        rows: list[Row] = [{k: math.nan if v is None else v for k, v in row.items()} for row in part]
        with styled():
            drawn = _drawn(result, rows)
            write_figure(drawn.figure, drawn.rows, out, name)


def _drawn(result: dict[str, Any], rows: list[Row]) -> Drawn:
    if result["what"] == "depth":
        return depth_panels(rows)
    return strata_panels([f"RoLR on {result['data']}, {100 * rows[0]['rate']:g} % wrong"], [rows], rows[0]["pooling"])


def parts(result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each picture, by the name of its file."""
    keys = ("epoch",) if result["what"] == "depth" else ("pooling", "rate")
    found: dict[str, list[dict[str, Any]]] = {}
    for row in result["rows"]:
        words = "_".join(f"{key}{row[key]}" if key != "pooling" else row[key] for key in keys)
        found.setdefault(f"{result['what']}_{result['data']}_{words}", []).append(row)
    return found


def page(results: Path) -> str:
    """Return what was measured so far as Markdown."""
    lines = ["# Diagnostics on real runs", ""]
    for path in sorted(results.glob("diagnostics_*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        where = result["environment"]
        lines += [
            f"## {result['what']}: {result['data']}",
            "",
            f"`{result['command']}` on {where['date']}: {result['epochs']} epochs, seed {result['seed']}, "
            f"{where['device']}, torch {where['torch']}.",
            "",
            *([f"The paper: {PAPER[result['data']]}.", ""] if result["data"] in PAPER else []),
            *(depth_lines(result) if result["what"] == "depth" else strata_lines(result)),
        ]
        lines += ["After the last epoch:", ""]
        for name, words in AFTER.items():
            shares = (
                f"{100 * after[name]:.1f} % ({100 * float(rate):g} % wrong)" for rate, after in result["after"].items()
            )
            lines.append(f"- {words}: {', '.join(shares)}")
        lines += ["", *(f"![{name}](diagnostics/{name}.png)" for name in parts(result)), ""]
    return "\n".join(lines).rstrip() + "\n"


def depth_lines(result: dict[str, Any]) -> list[str]:
    """One table per measure, rate and epoch by stage; then whether the paper's order of the stages holds."""
    lines = []
    for key, name in DEPTH.items():
        scale, digits = (100, 1) if name.endswith("%") else (1, 2)
        lines += [
            f"**{name}**",
            "",
            "| wrong | epoch | " + " | ".join(STAGES) + " | mean | layer4 − layer1 |",
            "|--:" * (len(STAGES) + 4) + "|",
        ]
        for rate, epoch in dict.fromkeys((row["rate"], row["epoch"]) for row in result["rows"]):
            values = [row[key] for row in result["rows"] if (row["rate"], row["epoch"]) == (rate, epoch)]
            known = [value for value in values if value is not None]
            mean = sum(known) / len(known) if known else None
            change = None if None in (values[0], values[-1]) else values[-1] - values[0]
            cells = ["–" if value is None else f"{scale * value:.{digits}f}" for value in (*values, mean, change)]
            lines.append(f"| {100 * rate:g} % | {epoch} | " + " | ".join(cells) + " |")
        lines.append("")
    for key, name in (("gradient_sensitivity", "Gradient sensitivity"), ("flip_rate", "The flip rate")):
        rises = {}
        for row in result["rows"]:
            rises.setdefault((row["rate"], row["epoch"]), []).append(row[key])
        known = [values for values in rises.values() if None not in values]
        deeper = sum(values[-1] > values[0] for values in known)
        steady = sum(values == sorted(values) for values in known)
        lines.append(
            f"{name} is higher in layer4 than in layer1 in {deeper} of {len(known)} measurements, "
            f"and rises from stage to stage in {steady}."
        )
    return [*lines, ""]


def strata_lines(result: dict[str, Any]) -> list[str]:
    """Right labels at low and high drift within each stratum, and the AUROC."""
    lines = [
        "| wrong | features | stratum of the loss posterior | n | right at low drift, % | at high drift, % | AUROC |",
        "|--:|---|---|--:|--:|--:|--:|",
    ]
    for row in result["rows"]:
        low, high = (f"{100 * row[kind]:.1f}" if row[kind] is not None else "–" for kind in ("low", "high"))
        area = f"{row['auroc']:.3f}" if row["auroc"] is not None else "–"
        where = f"| {100 * row['rate']:g} % | {row['pooling']} | {row['stratum']} | {row['n']:,} "
        lines.append(f"{where}| {low} | {high} | {area} |")
    return [*lines, ""]


def _snapshot(folder: Path, epoch: int) -> Path:
    return folder.parent / f"{folder.name}-e{epoch}.ckpt"


if __name__ == "__main__":
    main()
