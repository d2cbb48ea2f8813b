"""What is to be run for some cells: each computation once, with its state on disk and an estimate of its time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from labeltrace.engine import RunFolder
from labeltrace.engine.config import RunConfig
from labeltrace.experiments.cells import config_hash, config_of, noise_of, run_key
from labeltrace.experiments.results import Line, noise_made
from labeltrace.experiments.tables import Cell, data_name

DONE, HALF, FRESH = "done", "half done", "to do"
WAYS = ("compiled", "captured", "plain")  # of bench_gpu.json, as long runs prefer them


@dataclass(frozen=True)
class Planned:
    """A run of the plan.

    Args:
        name: of its folder.
        config: every value stated; `noise` and `rate` still stand for the file that they are made into.
        cells: that it fills.
        state: DONE (has a line), HALF (has a folder) or FRESH.
        seconds: what it takes alone on the device, as far as that is known.
    """

    name: str
    config: RunConfig
    cells: tuple[Cell, ...]
    state: str
    seconds: float | None


def plan_runs(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    out: Path,
    lines: Sequence[Line],
    *,
    epochs: int | None = None,
    bench: Path | None = None,
    root: Path | None = None,
    device: str = "auto",
    weights: Path | None = None,
) -> list[Planned]:
    """Return the runs of some cells: all of the first seed, then of the next, column by column.

    Args:
        cells: with a run; those that are refused are left out.
        seeds: of run and noise.
        out: folder of the runs.
        lines: finished ones.
        epochs: length; None means each recipe's.
        bench: bench_gpu.json, for runs on a GPU.
        root, device, weights: as for `config_of`.
    """
    order = {cell.column: place for place, cell in reversed(list(enumerate(cells)))}
    todo = sorted((c for c in cells if not c.refused), key=lambda cell: (cell.table, order[cell.column]))
    finished = {(line["config_sha256"], noise_made(line["noise"]), line["seed"]) for line in lines}
    on_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    alike = [line for line in lines if line["device"].startswith("CPU") == on_cpu]
    known = seconds_per_epoch(alike, None if on_cpu else bench)
    grouped: dict[tuple[Any, ...], list[tuple[Cell, RunConfig]]] = {}
    configs: dict[str, RunConfig] = {}
    for seed in seeds:
        for cell in todo:
            if run_key(cell) not in configs:
                configs[run_key(cell)] = config_of(cell, epochs, seed, root=root, device=device, weights=weights)
            config = configs[run_key(cell)].model_copy(update={"seed": seed})
            grouped.setdefault((config_hash(config), noise_of(cell), seed), []).append((cell, config))
    planned = []
    for key, group in grouped.items():
        config = group[0][1]
        name = run_name(config, key[0])
        state = DONE if key in finished else HALF if RunFolder(out / name).config.exists() else FRESH
        each = known.get(_kind(config.data, str(config.model), config.learner, config.controller, config.plugin))
        seconds = None if each is None else each * (config.epochs or 0)
        planned.append(Planned(name, config, tuple(cell for cell, _ in group), state, seconds))
    return planned


def never_starts(config: RunConfig) -> bool:
    """Whether a resolved run with TRACE ends before TRACE begins, and so equals its base."""
    starts = [config.trace[name] for name in ("start", "pseudo_start") if config.trace.get(name) is not None]
    return config.controller == "trace" and (config.epochs or 0) <= config.settings["warmup"] + min(starts)


def run_name(config: RunConfig, config_sha256: str) -> str:
    """Return the folder's name: what people look for, and enough of the hash to tell variants apart."""
    noise = [f"{config.noise}{config.rate:g}"] if config.noise else []
    method = "+".join(filter(None, (config.learner, config.controller, config.plugin)))
    return "-".join([data_name(config.data), *noise, method, f"e{config.epochs}", f"s{config.seed}", config_sha256[:8]])


def seconds_per_epoch(lines: Sequence[Line], bench: Path | None) -> dict[tuple[str, ...], float]:
    """Return kind of run → seconds of an epoch: as benchmarked on a GPU, else as finished runs took them."""
    seen: dict[tuple[str, ...], list[float]] = {}
    for line in lines:
        kind = _kind(line["data"], line["model"], line["learner"], line["controller"], line.get("plugin"))
        seen.setdefault(kind, []).append(line["seconds"] / line["epochs"])
    found = {kind: median(values) for kind, values in seen.items()}
    if bench is not None and bench.exists():
        records = json.loads(bench.read_text(encoding="utf-8"))["epochs"]
        for way in reversed(WAYS):  # the preferred one last, over the others
            for record in records:
                if record["way"] == way:
                    learner, _, trace = record["run"].partition("+")
                    found[_kind("cifar", "resnet18", learner, trace or None)] = record["seconds"]
    return found


def _kind(data: str, model: str, learner: str, controller: str | None, plugin: str | None = None) -> tuple[str, ...]:
    """Runs of one kind take the same time; all CIFARs have 50,000 images."""
    added = "+".join(filter(None, ("trace" if controller == "trace" else None, plugin)))
    return ("cifar" if data.startswith("cifar") else data, model, learner, added)
