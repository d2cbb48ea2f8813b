"""Where wrong labels enter a network, and what relation drift knows of them: the paper's measurements on real runs.

Run: python benchmarks/diagnostics.py depth cifar10 --root DATA --model resnet18 --epochs 40
     python benchmarks/diagnostics.py strata cifar100 --root DATA --model resnet18 --epochs 60
`depth` trains cross-entropy at several rates of symmetric noise and measures every stage at several epochs, because
gradient sensitivity means something only while the network does not know the wrong labels by heart. `strata` trains
RoLR and asks whether, at equal loss posterior, labels of little drift are more often right. Both write
results/diagnostics_<what>_<data>.json with the pictures beside it, and results/diagnostics.md from all of them.
A second call goes on where the first was stopped.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from labeltrace.bench.environment import environment, write_result
from labeltrace.diagnostics.figures import Request, draw
from labeltrace.diagnostics.runs import Run, depth_figures
from labeltrace.engine import RunConfig, RunFolder
from labeltrace.progress import Bars
from labeltrace.runs import figures, run

RESULTS = Path(__file__).resolve().parent.parent / "results"
STAGES = ("layer1", "layer2", "layer3", "layer4")
DEPTH = {
    "gradient_sensitivity": "gradient sensitivity",
    "flip_rate": "flip rate, %",
    "probe_accuracy": "probe, %",
    "fisher_ratio": "Fisher ratio",
}
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

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Copy what has just been written."""
        super().epoch(record)
        number = record["epoch"] + 1
        if number in self.epochs:
            shutil.copy(RunFolder(self.folder).last, self.folder.parent / f"{self.folder.name}-e{number}.ckpt")


def main() -> None:
    """Train what is missing, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["depth", "strata"])
    parser.add_argument("data", help="dataset by name")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--rates", type=float, nargs="+", help="default: 0.2 0.5 0.8 (depth), 0.5 (strata)")
    parser.add_argument("--at", type=int, nargs="+", help="epochs to measure (default: 5, 10, 25, 50, 100 %% of them)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/diagnostics"))
    asked = parser.parse_args()
    shared = {"data": asked.data, "root": asked.root, "model": asked.model, "epochs": asked.epochs, "seed": asked.seed}
    found = (depth if asked.what == "depth" else strata)(asked, shared)
    words = " ".join(f"--{name} {value}" for name in ("model", "epochs") if (value := getattr(asked, name)))
    command = f"python benchmarks/diagnostics.py {asked.what} {asked.data} {words}"
    result = {"what": asked.what, "data": asked.data, "command": command, **found, "environment": environment()}
    write_result(result, RESULTS / f"diagnostics_{asked.what}_{asked.data}.json")
    (RESULTS / "diagnostics.md").write_text(page(), encoding="utf-8")
    print(page())


def depth(asked: argparse.Namespace, shared: dict[str, Any]) -> dict[str, Any]:
    """Cross-entropy at each rate, every stage at each epoch."""
    at = asked.at or sorted({max(1, round(asked.epochs * share)) for share in (0.05, 0.1, 0.25, 0.5, 1)})
    rows, folders = [], {}
    for rate in asked.rates or [0.2, 0.5, 0.8]:
        config = {**shared, "learner": "cross_entropy", "noise": "symmetric", "rate": rate, "checkpoint_seconds": 0}
        folder = asked.out / f"{asked.data}-ce-{rate:g}"
        folders[rate] = folder
        trained(config, folder, at)
        for epoch in at:
            measured = depth_figures(Run(folder, checkpoint=str(_snapshot(folder, epoch))))
            rows += [{"rate": rate, "epoch": epoch, **row} for row in measured]
    for name, epoch in (("early", at[min(1, len(at) - 1)]), ("last", at[-1])):
        runs = [Run(folder, checkpoint=str(_snapshot(folder, epoch))) for folder in folders.values()]
        paths, _ = draw("depth", Request(runs), RESULTS / "diagnostics")
        for path in paths:
            path.replace(path.with_name(f"depth_{asked.data}_{name}{path.suffix}"))
    accuracy = {str(rate): figures(folder)["last"] for rate, folder in folders.items()}
    return {"epochs": asked.epochs, "at": at, "rows": rows, "test_accuracy": accuracy, "seed": asked.seed}


def strata(asked: argparse.Namespace, shared: dict[str, Any]) -> dict[str, Any]:
    """RoLR, its drift strata for both poolings."""
    rows = []
    for rate in asked.rates or [0.5]:
        config = {**shared, "learner": "rolr", "controller": "coupled", "noise": "symmetric", "rate": rate}
        folder = asked.out / f"{asked.data}-rolr-{rate:g}"
        trained(config, folder, [])
        for pooling in ("gap", "flatten"):
            paths, drawn = draw("drift-strata", Request([Run(folder)], pooling=pooling), RESULTS / "diagnostics")
            for path in paths:
                path.replace(path.with_name(f"strata_{asked.data}_{pooling}{path.suffix}"))
            rows += [{**row, "rate": rate, "pooling": pooling} for row in drawn.rows]
        accuracy = figures(folder)["last"]
    return {"epochs": asked.epochs, "rows": rows, "test_accuracy": accuracy, "seed": asked.seed}


def trained(config: dict[str, Any], folder: Path, at: list[int]) -> None:
    """Train a run unless it is there with all its snapshots."""
    if RunFolder(folder).samples.exists() and all(_snapshot(folder, epoch).exists() for epoch in at):
        return
    with Snapshots(Console(stderr=True), folder, at) as bars:
        run(RunConfig.model_validate(config), folder, overwrite=True, reporter=bars)


def page() -> str:
    """Return what was measured so far as Markdown."""
    lines = ["# Diagnostics on real runs", ""]
    for path in sorted(RESULTS.glob("diagnostics_*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        where = result["environment"]
        lines += [
            f"## {result['what']}: {result['data']}",
            "",
            f"`{result['command']}` on {where['date']}: {result['epochs']} epochs, seed {result['seed']}, "
            f"{where['device']}, torch {where['torch']}, revision {where['revision']}.",
            "",
            f"The paper: {PAPER.get(result['data'], '–')}.",
            "",
        ]
        lines += depth_lines(result) if result["what"] == "depth" else strata_lines(result)
    return "\n".join(lines) + "\n"


def depth_lines(result: dict[str, Any]) -> list[str]:
    """One table per measure: rate and epoch by stage."""
    lines = []
    for key, name in DEPTH.items():
        scale, digits = (100, 1) if name.endswith("%") else (1, 2)
        lines += [
            f"**{name}**",
            "",
            "| wrong | epoch | " + " | ".join(STAGES) + " | mean |",
            "|--:" * (len(STAGES) + 3) + "|",
        ]
        for rate, epoch in dict.fromkeys((row["rate"], row["epoch"]) for row in result["rows"]):
            mine = [row for row in result["rows"] if (row["rate"], row["epoch"]) == (rate, epoch)]
            values = [row[key] for row in mine]
            cells = ["–" if value is None else f"{scale * value:.{digits}f}" for value in values]
            known = [value for value in values if value is not None]
            mean = f"{scale * sum(known) / len(known):.{digits}f}" if known else "–"
            lines.append(f"| {100 * rate:g} % | {epoch} | " + " | ".join([*cells, mean]) + " |")
        lines.append("")
    last = ", ".join(
        f"{100 * value:.1f} % at {100 * float(rate):g} %" for rate, value in result["test_accuracy"].items()
    )
    pictures = " ".join(f"![{when}](diagnostics/depth_{result['data']}_{when}.png)" for when in ("early", "last"))
    return [*lines, f"Test accuracy after the last epoch: {last}.", "", pictures, ""]


def strata_lines(result: dict[str, Any]) -> list[str]:
    """Right labels at low and high drift within each stratum, and the AUROC."""
    lines = [
        "| features | stratum of the loss posterior | n | right at low drift, % | at high drift, % | AUROC |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in result["rows"]:
        low, high = (f"{100 * row[kind]:.1f}" if row[kind] is not None else "–" for kind in ("low", "high"))
        area = f"{row['auroc']:.3f}" if row["auroc"] is not None else "–"
        lines.append(f"| {row['pooling']} | {row['stratum']} | {row['n']:,} | {low} | {high} | {area} |")
    pictures = " ".join(f"![{p}](diagnostics/strata_{result['data']}_{p}.png)" for p in ("gap", "flatten"))
    return [*lines, "", f"Test accuracy after the last epoch: {100 * result['test_accuracy']:.1f} %.", "", pictures, ""]


def _snapshot(folder: Path, epoch: int) -> Path:
    return folder.parent / f"{folder.name}-e{epoch}.ckpt"


if __name__ == "__main__":
    main()
