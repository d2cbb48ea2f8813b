"""From a cell to its run: every value resolved, so that equal runs are recognised before they are trained."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labeltrace.control import TraceConfig
from labeltrace.control.schedule import shrink
from labeltrace.data import ReadOptions
from labeltrace.engine.config import RunConfig
from labeltrace.engine.plan import attached
from labeltrace.errors import InputError
from labeltrace.experiments.tables import TABLES, Cell, data_name, load_table
from labeltrace.learners import learners
from labeltrace.learners.settings import resolve
from labeltrace.validation import build

#: what makes one run differ from another, besides its labels and its seed; no path, nothing about where it computes
IDENTITY = ("data", "subset", "learner", "controller", "model", "epochs", "epoch_samples", "settings", "trace")
EPOCHS_OF_TRACE = ("start", "ramp", "pseudo_start")
HOW = ("cache_gb", "memory_gb", "workers")  # of the options of reading: where pixels are changes no bit of a run


def config_of(
    cell: Cell,
    epochs: int | None,
    seed: int,
    *,
    root: Path | None = None,
    device: str = "auto",
    weights: Path | None = None,
) -> RunConfig:
    """Return the run of a cell with every setting stated; a shorter one than its recipe shrinks as any run does.

    Args:
        cell: with a run.
        epochs: length of the run; None means the recipe's.
        seed: of the run and its noise.
        root: folder that holds the dataset.
        device: where it computes.
        weights: what the networks of a pre-trained column start from.

    Raises:
        InputError: no network is named, the learner has none of the recipes, or a setting that does not exist.
    """
    run = cell.run
    if "model" not in run:  # what a run would choose by the kind of its data is not known before they are read
        raise InputError(f"{cell.id}: names no network; add one to the table's run, e.g. model: mlp")
    learner = learners[run["learner"]]
    known = [name for name in cell.recipes if name in learner.presets]
    if not known:
        raise InputError(f"{cell.id}: {learner.name} has no recipe {' or '.join(cell.recipes) or 'named'}")
    preset = learner.presets[known[0]]
    settings, recipe_epochs = resolve(learner.settings_type, preset, run.get("settings", {}), epochs)
    controller = run.get("controller")
    if (controller is not None) != learner.refurbishes:
        raise InputError(f"{cell.id}: {learner.name} {'needs a' if learner.refurbishes else 'takes no'} controller")
    trace: dict[str, Any] = {}
    if controller == "trace":
        asked = {"start": TraceConfig.start, "ramp": TraceConfig.ramp}
        asked |= {name: value for name, (value, _) in preset.trace.items()} | run.get("trace", {})
        for name in EPOCHS_OF_TRACE:
            if asked.get(name) is not None:
                asked[name] = shrink(asked[name], settings.epochs, recipe_epochs)
        trace = dataclasses.asdict(build(TraceConfig, asked, cell.id))
    resolved = {"preset": known[0], "epochs": settings.epochs, "seed": seed, "trace": trace}
    where = {"root": root, "device": device, "weights": weights if cell.pretrained else None}
    config = build(RunConfig, {**run, **resolved, "settings": dataclasses.asdict(settings), **where}, cell.id)
    return config.model_copy(update={"plugin_settings": attached(config)[1]})


def config_hash(config: RunConfig) -> str:
    """Return the SHA-256 of a resolved run without its paths, labels and seed.

    >>> from labeltrace.experiments import load_table
    >>> null, only = (load_table("ablation").cell(row, "Best") for row in
    ...               ("Coupled null (b = 1 − s_obs)", "Refined s_obs only"))
    >>> config_hash(config_of(null, 100, seed=0)) == config_hash(config_of(only, 100, seed=42))
    True
    """
    named = () if config.plugin is None else ("plugin", "plugin_settings")
    values = config.model_dump(mode="json", include={*IDENTITY, *named})
    values |= {"data": data_name(config.data), "pretrained": config.weights is not None}
    values |= {"read": read} if (read := reading(config)) else {}
    return digest(values)


def digest(values: dict[str, Any]) -> str:
    """Return the SHA-256 of keys and values, whatever their order."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def reading(config: RunConfig) -> dict[str, Any]:
    """Return the options of reading that change what a run is trained on; of files the last part of their path.

    >>> reading(RunConfig(read={"labels": "/photos/labels.csv", "label_column": "y", "workers": 2}))
    {'labels': 'labels.csv', 'label_column': 'y'}
    """
    options = build(ReadOptions, config.read, "read")
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(options) if f.name not in HOW}
    return {
        name: value.name if isinstance(value, Path) else value
        for name, value in given.items()
        if value != getattr(ReadOptions, name)
    }


def recipe_epochs(config: RunConfig) -> int:
    """Return how long the recipe of a resolved run is."""
    learner = learners[config.learner]
    if config.preset is None or config.preset not in learner.presets:
        raise InputError(f"{config.learner} has no recipe {config.preset!r}")
    return resolve(learner.settings_type, learner.presets[config.preset], {}, None)[1]


def serves(config: RunConfig, noise: tuple[str, float] | None, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells that a resolved run fills: those whose own run of this length is the same.

    Args:
        config: the run.
        noise: kind and rate that its labels were made with.
        cells: to look through.
    """
    near = [
        c
        for c in cells
        if c.run.get("learner") == config.learner and data_name(c.run["data"]) == data_name(config.data)
    ]
    return places(near, config.epochs).get((config_hash(config), noise), [])


def places(cells: Sequence[Cell], epochs: int | None) -> dict[tuple[str, tuple[str, float] | None], list[Cell]]:
    """Return config hash and noise of a run of this length → the cells that it fills."""
    found: dict[tuple[str, tuple[str, float] | None], list[Cell]] = {}
    hashes: dict[str, str] = {}
    for cell in cells:
        if cell.run and not cell.refused:
            if run_key(cell) not in hashes:
                hashes[run_key(cell)] = config_hash(config_of(cell, epochs, seed=0, weights=Path("given")))
            found.setdefault((hashes[run_key(cell)], noise_of(cell)), []).append(cell)
    return found


def run_key(cell: Cell) -> str:
    """Return what `config_of` reads of a cell: many cells of a table are one run."""
    return json.dumps([cell.run, cell.recipes, cell.pretrained], sort_keys=True)


def noise_of(cell: Cell) -> tuple[str, float] | None:
    """Return kind and rate of the noise that a cell's labels are made with; None where the data has its own."""
    return (cell.run["noise"], float(cell.run["rate"])) if "noise" in cell.run else None


def all_cells(others: Sequence[str] = ()) -> list[Cell]:
    """Return the cells of all tables of the paper, and of others."""
    return [cell for name in dict.fromkeys((*TABLES, *others)) for cell in load_table(name).cells]
