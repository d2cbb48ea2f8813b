"""results/runs.jsonl: one line per finished run, with the cells it fills and everything that identifies it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from labeltrace.engine import RunFolder, load_config, summarise
from labeltrace.engine.folder import finite
from labeltrace.errors import InputError
from labeltrace.experiments.cells import config_hash, recipe_epochs, serves
from labeltrace.experiments.tables import TABLES, Cell, data_name, is_own
from labeltrace.files import write_atomically

RUNS = Path("results/runs.jsonl")  # lines of the paper's tables; those of one's own lie beside it
MATCHED = "matched "  # before the subsets that are chosen by the loss posterior instead of the method's own score

DIGITS = 6  # of the accuracies of all epochs

Line = dict[str, Any]


def results_file(tables: Sequence[str]) -> Path:
    """Return where the lines of some tables are kept: those of one's own table lie beside it.

    >>> results_file(["ablation"]).as_posix(), results_file(["mine/digits.yaml"]).as_posix()
    ('results/runs.jsonl', 'mine/digits.jsonl')
    """
    own = [name for name in tables if is_own(name)]
    if own and list(tables) != own[:1]:
        raise InputError(f"{own[0]}: a table of your own goes alone, for its results lie beside it")
    return Path(own[0]).with_suffix(".jsonl") if own else RUNS


def line_of(folder: Path, cells: Sequence[Cell]) -> Line:
    """Return the line of a finished run; its checkpoints are not needed.

    Args:
        folder: of the run.
        cells: that it may fill.

    Raises:
        InputError: no finished run there, or one that fills none of the cells.
    """
    run = RunFolder.open(folder)
    if not run.samples.exists():
        raise InputError(f"{folder}: the run has not finished (no samples.parquet)")
    config = load_config(run.config, {})
    metrics, where = run.read_metrics(), run.read_environment()
    made = where["noise"]
    filled = serves(config, noise_made(made), cells)
    if not filled:
        raise InputError(f"{folder}: fills no cell: no table has a run with these settings, labels and epochs")
    identity, labels, first = config_hash(config), where["labels_sha256"], filled[0]
    table = first.table if first.table in TABLES else f"{first.table}.yaml"
    words = ["--only", first.row, "--only", first.column, "--epochs", str(config.epochs), "--seeds", str(config.seed)]
    line = {
        "id": line_id(identity, labels, config.seed),
        "cells": [cell.id for cell in filled],
        "config_sha256": identity,
        "noise_sha256": labels,
        "seed": config.seed,
        "data": data_name(config.data),
        "noise": None
        if made is None
        else {key: made[key] for key in ("kind", "convention", "nominal", "actual", "seed")},
        "learner": config.learner,
        "preset": config.preset,
        "controller": config.controller,
        "plugin": config.plugin,
        "plugin_settings": config.plugin_settings,
        "trace": config.trace,
        "model": config.model,
        "epochs": config.epochs,
        "recipe_epochs": recipe_epochs(config),
        "device": where["device"],
        "precision": where["precision"],
        "versions": {name: where[name] for name in ("labeltrace", "torch", "python")},
        "revision": where["revision"],
        "started": where["started"],
        "seconds": round(sum(record["seconds"] for record in metrics), 1),
        "command": shlex.join(["labeltrace", "reproduce", table, *words]),
        **_figures(folder),
        "test_accuracy": [round(r["test_accuracy"], DIGITS) for r in metrics if r.get("test_accuracy") is not None],
    }
    return dict(finite(line))


def noise_made(made: dict[str, Any] | None) -> tuple[str, float] | None:
    """Return kind and rate of the noise that a run says its labels were made with; None for labels as they came."""
    return None if made is None or made["nominal"] is None else (made["kind"], made["nominal"])


def line_id(config_sha256: str, noise_sha256: str, seed: int) -> str:
    """Return the name of a run: one for each config, labels and seed."""
    return hashlib.sha256(f"{config_sha256} {noise_sha256} {seed}".encode()).hexdigest()[:12]


def _figures(folder: Path) -> dict[str, Any]:
    """Accuracy and detection; where the truth is known also AUROCs and the reliability of pseudo targets."""
    from labeltrace.diagnostics.reliability import reliability_table
    from labeltrace.diagnostics.runs import Run
    from labeltrace.engine.signals import auroc
    from labeltrace.runs import figures

    found: dict[str, Any] = {"figures": figures(folder), "auroc": None, "reliability": None}
    run = Run(folder)
    if "truth" not in run.samples.column_names:
        return found
    truth = run.truth
    known = truth >= 0
    label_right = (run.column("observed") == truth)[known]
    suggestion_right = (run.column("suggested") == truth)[known]
    found["auroc"] = {}
    for name, column, right in (
        ("clean", "clean", label_right),
        ("structure", "structure", label_right),
        ("observed", "observed_reliability", label_right),
        ("pseudo", "pseudo_reliability", suggestion_right),
        ("confidence", "confidence", suggestion_right),
        ("structure_suggestion", "structure", suggestion_right),
    ):
        values = run.column(column).double()[known]
        found["auroc"][name] = None if bool(torch.isnan(values).all()) else auroc(values, right)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty subset is null in the line
        own, matched = (reliability_table(run.verdicts(score)) for score in ("observed_reliability", "clean"))
    subsets = {str(row.pop("subset")): row for row in own}
    subsets |= {MATCHED + str(row.pop("subset")): row for row in matched if str(row["subset"]).startswith("low-clean")}
    return {**found, "reliability": subsets}


def value_of(line: Line, measure: str) -> float | None:
    """Return a figure of a line as tables show it: shares in per cent, counts as they are; None where it has none.

    >>> value_of({"figures": {"best": 0.5}, "reliability": {"all": {"n": 7, "pseudo_accuracy": 0.25}}}, "all.n")
    7.0
    """
    name, _, figure = measure.rpartition(".")
    source = line["figures"] if not name else (line["reliability"] or {}).get(name, {})
    if name == "auroc":
        source = line["auroc"] or {}
    value = source.get(figure)
    if value is None:
        return None
    return float(value) if figure in ("n", "n_noisy") else 100.0 * float(value)


def read_lines(path: Path) -> list[Line]:
    """Return the lines of a results file, none where it does not exist.

    Raises:
        InputError: a line that is no record of a run, contradicts itself, or is there twice.
    """
    if not path.exists():
        return []
    lines: dict[str, Line] = {}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            problem = _contradiction(line)
        except (ValueError, KeyError, TypeError, AttributeError):
            problem = "is no record of a run"
        else:
            problem = problem or ("is there already" if line["id"] in lines else None)
        if problem is not None:
            raise InputError(f"{path}: line {number} {problem}; take it out, or put the file back as it was")
        lines[line["id"]] = line
    return list(lines.values())


def _contradiction(line: Line) -> str | None:
    """What in a line does not fit the rest of it: its name, or figures that are not those of its epochs."""
    line["cells"], line["reliability"]
    if line["id"] != line_id(line["config_sha256"], line["noise_sha256"], line["seed"]):
        return "has an id that is not that of its config, labels and seed"
    for name, value in summarise([{"test_accuracy": value} for value in line["test_accuracy"]]).items():
        if abs(line["figures"][name] - value) > 10**-DIGITS:
            return f"says {name} {line['figures'][name]}, but its epochs give {value}"
    return None


def add_line(path: Path, line: Line, *, again: bool = False) -> bool:
    """Add a run to the results file; return whether it is in now.

    A run that is there already (same config, labels and seed) stays, unless `again`: then the new line takes its place.
    Several processes may add at once; a kill leaves the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent):
        lines = read_lines(path)
        places = [place for place, old in enumerate(lines) if old["id"] == line["id"]]
        if places and not again:
            return False
        if places:
            lines[places[0]] = line
        else:
            lines.append(line)
        text = "".join(json.dumps(one, ensure_ascii=False, allow_nan=False) + "\n" for one in lines)
        write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return True


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the run folders among the paths and, where a path is none, those directly in it.

    Raises:
        InputError: a path without any.
    """
    found = []
    for path in paths:
        inside = [path] if (path / "config.yaml").is_file() else sorted(p.parent for p in path.glob("*/config.yaml"))
        if not inside:
            raise InputError(f"{path}: no run here, nor in the folders in it (no config.yaml)")
        found += inside
    return found


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder against other processes that hold it too."""
    try:
        import fcntl
    except ImportError:  # Windows: one process at a time is then the user's to see to
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
