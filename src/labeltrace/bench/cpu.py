"""Training on the cores at hand: seconds per epoch of every learner on digits, and our loop beside a plain one.

The plain loop is that of examples/own_loop.py, cut to cross-entropy: DataLoader, forward, loss, backward, step. It gets
the same network, batch, images, threads and float32 arithmetic, and is spared what ours does besides: random crops and
flips, a loss that is looked at after each step, a check of the weights, logs. Ways take turns, medians count.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch.utils.data import DataLoader, TensorDataset

from labeltrace.data import from_arrays
from labeltrace.engine import RunConfig, train
from labeltrace.learners import learners
from labeltrace.models import build_model

BATCH, CLASSES = 64, 10
LR, MOMENTUM, DECAY = 0.02, 0.9, 5e-4

Note = Callable[[int, int, str], None]  # (done, of how many, what comes next)


@dataclass(frozen=True)
class Problem:
    """What both loops train.

    Args:
        about: for tables.
        model: by name.
        shape: of an image.
        batches: of an epoch, in multiples of what the caller asks for.
    """

    about: str
    model: str
    shape: tuple[int, int, int]
    batches: int


PROBLEMS = {
    "resnet18": Problem("ResNet-18, 3×32×32", "resnet18", (3, 32, 32), 1),
    "small_cnn": Problem("small CNN, 1×8×8 (digits)", "small_cnn", (1, 8, 8), 50),
}
WAYS = {"plain": "plain loop", "engine": "labeltrace, cross_entropy"}


def bench_cpu(names: list[str], epochs: int, repeats: int, batches: int, note: Note) -> dict[str, Any]:
    """Measure digits for each learner, as published and with TRACE, then both loops.

    Args:
        names: of learners.
        epochs: of a run on digits; its second half counts.
        repeats: runs of each, taking turns.
        batches: of an epoch of ResNet-18 (the small network gets fifty times as many); each run has a first epoch that
            does not count and one that does.
        note: told what is measured.

    Returns:
        `digits`: per run the median seconds of an epoch and all that counted. `loops`: per problem and way the median
        images per second and those of each run. `threads`: of torch.
    """
    runs = digits_runs(names)
    todo = [("digits", name) for name in runs] + [(problem, way) for problem in PROBLEMS for way in WAYS]
    found: dict[tuple[str, str], list[float]] = {key: [] for key in todo}
    for number in range(repeats):
        for place, key in enumerate(todo if number % 2 == 0 else todo[::-1]):  # nobody is always first
            what, name = key
            about = f"digits, {name}" if what == "digits" else f"{PROBLEMS[what].about}, {WAYS[name]}"
            note(number * len(todo) + place, repeats * len(todo), f"{about}, round {number + 1} of {repeats}")
            if what == "digits":
                found[key] += digits_epochs(runs[name], epochs)
            else:
                found[key].append(images_per_second(PROBLEMS[what], name, batches))
    note(repeats * len(todo), repeats * len(todo), "done")
    digits = [{"run": name, "seconds": median(found["digits", name]), "epochs": found["digits", name]} for name in runs]
    loops = [
        {"problem": what, "way": name, "images_per_second": median(found[what, name]), "passes": found[what, name]}
        for what, name in todo
        if what != "digits"
    ]
    return {"digits": digits, "loops": loops, "batch": BATCH, "threads": torch.get_num_threads()}


def digits_runs(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return name of the run → what it changes: each learner as published and, where it takes it, with TRACE at once.

    >>> list(digits_runs(["cross_entropy", "rolr"]))
    ['cross_entropy', 'rolr', 'rolr+trace']
    """
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        found[name] = {"learner": name}
        if learners[name].refurbishes:
            found[name] |= {"controller": "coupled"}
            now = {"structure": True, "start": 0, "ramp": 1}
            found[f"{name}+trace"] = {"learner": name, "controller": "trace", "trace": now}
    return found


def digits_epochs(change: dict[str, Any], epochs: int) -> list[float]:
    """Return the seconds of the second half of the epochs of a run on digits with 40 % wrong labels."""
    shared = {"data": "digits", "noise": "symmetric", "rate": 0.4, "preset": "small", "epochs": epochs}
    return _train({**shared, **change})[epochs // 2 :]


def images_per_second(problem: Problem, way: str, batches: int) -> float:
    """Return the speed of one way's second epoch; the first one loads what is loaded once."""
    rng = np.random.default_rng(0)
    count = BATCH * batches * problem.batches
    images = rng.integers(0, 256, (count, *problem.shape), dtype=np.uint8)
    labels = rng.permutation(np.arange(count) % CLASSES)
    loop = _engine if way == "engine" else _plain
    return count / loop(problem, images, labels)[1]


def _engine(problem: Problem, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> list[float]:
    settings = {"batch_size": BATCH, "passes": 1, "lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY}
    config = {"learner": "cross_entropy", "model": problem.model, "epochs": 2, "settings": settings}
    return _train(config, images, labels)


def _train(config: dict[str, Any], *arrays: Any) -> list[float]:
    """Train a run in a folder that goes away again; the seconds of each epoch, as its metrics say."""
    data = from_arrays(*arrays, layout="NCHW") if arrays else None
    whole = RunConfig.model_validate({**config, "device": "cpu", "precision": "fp32", "checkpoint_seconds": 1e6})
    with tempfile.TemporaryDirectory(prefix="labeltrace-bench-") as folder:
        return [record["seconds"] for record in train(whole, Path(folder) / "run", dataset=data).metrics]


def _plain(problem: Problem, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> list[float]:
    """What everybody writes; the seconds of each of two epochs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inputs = torch.from_numpy(images).float() / 255
        data = TensorDataset(inputs, torch.from_numpy(labels))
        loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)
        network = build_model(problem.model, CLASSES, problem.shape)
        optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            for batch, targets in loader:
                loss = F.cross_entropy(network(batch).logits, targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            seconds.append(time.perf_counter() - started)
    return seconds


def tables(result: dict[str, Any]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return title → head and rows of the figures, for the terminal and for docs/performance.md."""
    seconds = {record["run"]: record["seconds"] for record in result["digits"]}
    epochs = []
    for name, base in seconds.items():
        if not name.endswith("+trace"):
            traced = seconds.get(f"{name}+trace")
            more = "–" if traced is None else f"{100 * (traced / base - 1):+.0f} %"
            epochs.append([name, f"{base:.3f}", "–" if traced is None else f"{traced:.3f}", more])
    plain = {r["problem"]: r["images_per_second"] for r in result["loops"] if r["way"] == "plain"}
    loops = []
    for record in result["loops"]:
        problem, speed = record["problem"], record["images_per_second"]
        spread = f"{min(record['passes']):,.0f} to {max(record['passes']):,.0f}"
        factor = f"{speed / plain[problem]:.2f}×"
        loops.append([PROBLEMS[problem].about, WAYS[record["way"]], f"{speed:,.0f}", spread, factor])
    return {
        "An epoch of digits (1,347 images), seconds": (
            ["learner", "as published", "with TRACE", "TRACE costs"],
            epochs,
        ),
        f"Training in batches of {result['batch']}": (
            ["network", "loop", "images/s", "from round to round", "against the plain loop"],
            loops,
        ),
    }
