"""Seconds per epoch of a learner on a GPU, its steps plain, captured, and captured with compiled networks.

The data are synthetic and of CIFAR's shape: each class has its own pattern, half of the labels are wrong. After the
warm-up epoch a network knows the classes, so a mixture divides the set in halves, as at 50 % noise in the tables.
An epoch is everything a run does in one: scoring pass, mixture, steps of all networks, test.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from labeltrace.data import Dataset, ImageViews, Split
from labeltrace.engine import Reporter, RunConfig, RunFolder, plan
from labeltrace.engine.device import make_fabric
from labeltrace.engine.train import Training
from labeltrace.learners import learners

#: way → how the steps run
WAYS = {
    "plain": {"capture": False, "compile": False},
    "captured": {"capture": True, "compile": False},
    "compiled": {"capture": True, "compile": True},
}


def pictures(samples: int, tests: int, classes: int = 10, seed: int = 0) -> Dataset:
    """Return synthetic CIFAR-shaped data without known truth, half of the labels wrong.

    >>> pictures(40, 8).train
    Split(40 samples, uint8 [3, 32, 32])
    """
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randint(0, 256, (classes, 3, 8, 8), generator=generator).repeat_interleave(4, 2)
    patterns = patterns.repeat_interleave(4, 3)

    def split(count: int, wrong: float) -> Split:
        truth = torch.randint(0, classes, (count,), generator=generator)
        noise = torch.randint(-64, 65, (count, 3, 32, 32), generator=generator, dtype=torch.int16)
        images = (patterns[truth].short() + noise).clamp(0, 255).to(torch.uint8)
        flipped = torch.rand(count, generator=generator) < wrong
        shift = torch.randint(1, classes, (count,), generator=generator)
        return Split(images, torch.where(flipped, (truth + shift) % classes, truth))

    train = split(samples, 0.5)
    assert isinstance(train.inputs, torch.Tensor)
    names = tuple(map(str, range(classes)))
    return Dataset("synthetic", train, split(tests, 0.0), names, ImageViews.from_images(train.inputs))


def bench_epochs(
    runs: Sequence[tuple[str, str | None]],
    ways: Sequence[str] = tuple(WAYS),
    *,
    samples: int = 50_000,
    tests: int = 10_000,
    model: str = "resnet18",
    device: str = "auto",
    precision: str = "auto",
    repeats: int = 3,
    settings: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Measure every (learner, controller) in every way; return a record each.

    `seconds` is the median of `repeats` epochs after the warm-up epoch and one more, in which the compiler works.
    """
    dataset = pictures(samples, tests)
    records = []
    for learner, controller in runs:
        for way in ways:
            values: dict[str, Any] = {"learner": learner, "controller": controller, "model": model, **WAYS[way]}
            values |= {"device": device, "precision": precision, "settings": {"warmup": 1, **(settings or {})}}
            if controller == "trace":
                values["trace"] = {"start": 0, "ramp": 1}
            records.append(_bench(RunConfig.model_validate(values), dataset, repeats) | {"way": way})
            say(f"{learner} {controller or ''} {way}: {records[-1]['seconds']:.2f} s per epoch")
    return records


def _bench(config: RunConfig, dataset: Dataset, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        began = time.perf_counter()
        run = Training(RunFolder(Path(folder)), plan(config, dataset), make_fabric(config), Reporter())
        for epoch in range(2):
            run.epoch(epoch)
        ready = time.perf_counter() - began
        epochs = [run.epoch(2 + number) for number in range(repeats)]
        scoring = [_scoring(run) for _ in range(repeats)]
        networks = learners[config.learner].networks_needed
        steps = [sum(log["steps"] for log in record["phases"].values()) for record in epochs]
        return {
            "learner": config.learner,
            "controller": config.controller,
            "model": config.model,
            "batch_size": run.plan.settings.batch_size,
            "samples": len(dataset.train),
            "seconds": statistics.median(record["seconds"] for record in epochs),
            "all_seconds": [record["seconds"] for record in epochs],
            "steps": statistics.median(steps),
            "phases": epochs[-1]["phases"],
            "captured": run.loop.recorder.active,
            "scoring_seconds": statistics.median(scoring),
            "scored_images_per_second": networks * len(dataset.train) / statistics.median(scoring),
            "seconds_before": round(ready, 1),
            "peak_bytes": torch.cuda.max_memory_allocated() if run.fabric.device.type == "cuda" else None,
        }


def _scoring(run: Training) -> float:
    """Seconds of a scoring pass with all networks, mixture and drift included."""
    wait = torch.cuda.synchronize if run.fabric.device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    run.loop.score_now(run.learner.score_view)
    wait()
    return time.perf_counter() - began
