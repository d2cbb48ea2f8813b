"""Pseudo targets of two runs on the very same samples: `python -m labeltrace.experiments.matched runs/reproduce`.

A method's own low-clean set is chosen by the method, so the accuracies of two methods on theirs are of different
samples. Here a base run and a run with TRACE that share data, labels, recipe, length and seed are set side by side on
sets that both are measured on. One line per pair goes to `results/matched.jsonl`; samples.parquet of both is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from labeltrace.diagnostics.reliability import LOW_CLEAN
from labeltrace.diagnostics.runs import Run
from labeltrace.engine import RunFolder, load_config
from labeltrace.engine.folder import finite
from labeltrace.errors import InputError
from labeltrace.experiments.cells import config_hash
from labeltrace.experiments.results import line_id, run_folders
from labeltrace.files import write_atomically

MATCHED_FILE = Path("results/matched.jsonl")

Pair = dict[str, Any]


def pairs_in(folders: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return (base, with TRACE) of the finished runs that differ in nothing but the controller."""
    bases: dict[tuple[str, str, int], Path] = {}
    others: list[tuple[tuple[str, str, int], Path]] = []
    for folder in folders:
        run = RunFolder.open(folder)
        if run.samples.exists():
            config = load_config(run.config, {})
            alike = config_hash(config.model_copy(update={"controller": None, "trace": {}}))
            key = alike, _labels(folder), config.seed
            if config.controller == "coupled":
                bases[key] = folder
            elif config.controller == "trace":
                others.append((key, folder))
    return [(bases[key], folder) for key, folder in others if key in bases]


def compare(base: Path, other: Path) -> Pair:
    """Return the pseudo-target accuracy of two runs on the same samples: those the base trusts little, or both do.

    Raises:
        InputError: tables of different samples or labels, or without known truth.
    """
    one, two = Run(base), Run(other)
    for name in ("index", "observed", "truth"):
        if not torch.equal(one.column(name), two.column(name)):
            raise InputError(f"{base} and {other}: not the same samples in the same order ({name})")
    known = one.truth >= 0
    wrong = one.column("observed") != one.truth
    low = one.column("clean") < LOW_CLEAN
    both = low & (two.column("clean") < LOW_CLEAN)
    found = {}
    for name, mask in (
        ("base low-clean", low),
        ("base low-clean+noisy", low & wrong),
        ("both low-clean+noisy", both & wrong),
    ):
        chosen = mask & known
        right = [(run.column("suggested") == one.truth)[chosen].double().mean().item() for run in (one, two)]
        found[name] = {"n": int(chosen.sum()), "base": right[0], "other": right[1]}
    made = one.folder.read_environment()["noise"]
    where = {"data": two.config.data, "learner": two.config.learner, "trace": two.config.trace}
    noise = None if made is None else {"kind": made["kind"], "nominal": made["nominal"]}
    size = {"epochs": two.config.epochs, "seed": two.config.seed}
    return dict(finite({"base": _id(base), "other": _id(other), **where, "noise": noise, **size, "sets": found}))


def read_pairs(path: Path) -> list[Pair]:
    """Return the lines of a file of pairs, none where it does not exist."""
    if not path.exists():
        return []
    try:
        pairs = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
        return list({(pair["base"], pair["other"]): pair for pair in pairs if pair["sets"]}.values())
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a file of pairs ({error})") from None


def write_pairs(path: Path, pairs: Sequence[Pair]) -> int:
    """Add pairs to a file, in place of those of the same two runs; return how many it holds now."""
    found = {(pair["base"], pair["other"]): pair for pair in [*read_pairs(path), *pairs]}
    text = "".join(json.dumps(pair, ensure_ascii=False, allow_nan=False) + "\n" for pair in found.values())
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return len(found)


def _labels(folder: Path) -> str:
    return str(RunFolder(folder).read_environment()["labels_sha256"])


def _id(folder: Path) -> str:
    config = load_config(RunFolder(folder).config, {})
    return line_id(config_hash(config), _labels(folder), config.seed)


if __name__ == "__main__":
    from labeltrace.commands.console import complaining

    with complaining():
        if len(sys.argv) < 2:
            raise InputError("usage: python -m labeltrace.experiments.matched RUNS…")
        given = pairs_in(run_folders([Path(word) for word in sys.argv[1:]]))
        total = write_pairs(MATCHED_FILE, [compare(*pair) for pair in given])
        sys.stdout.write(f"{len(given)} pairs; {MATCHED_FILE} holds {total}\n")
