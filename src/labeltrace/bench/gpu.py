"""Seconds per epoch of a learner on a GPU, its steps plain, captured, and captured with compiled networks.

The data are synthetic and of CIFAR's shape: each class has its own pattern, half of the labels are wrong. After the
warm-up epoch a network knows the classes, so a mixture divides the set in halves, as at 50 % noise in the tables.
An epoch is everything a run does in one: scoring pass, mixture, steps of all networks, test.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from labeltrace.bench.cpu import Note
from labeltrace.data import Dataset, ImageViews, Split
from labeltrace.engine import Reporter, RunConfig, RunFolder, plan
from labeltrace.engine.device import make_fabric
from labeltrace.engine.train import Training
from labeltrace.errors import InputError
from labeltrace.learners import learners

WAYS = {  # how the steps run, the slowest first; of plain epochs only one counts
    "plain": {"capture": False, "compile": False},
    "captured": {"capture": True, "compile": False},
    "compiled": {"capture": True, "compile": True},
}
CLASSES, TESTS = 10, 10_000
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


def bench_gpu(names: Sequence[str], ways: Sequence[str], repeats: int, samples: int, note: Note) -> dict[str, Any]:
    """Measure an epoch of each learner as published, in every way, and with TRACE in the last of them.

    Args:
        names: of learners.
        ways: of `WAYS`.
        repeats: epochs that count; the median is taken.
        samples: of the training set.
        note: told what is measured.

    Returns:
        `epochs`: a record per run and way. `ceilings`: what the device reaches on one large matrix product and on one
        large copy. `threads`: of torch.
    """
    if not torch.cuda.is_available():
        raise InputError("bench gpu: torch finds no CUDA device here; see labeltrace bench cpu")
    dataset = pictures(samples, min(samples, TESTS))
    todo = [(run, way) for name in names for run in _runs(name) for way in (ways[-1:] if "trace" in run else ways)]
    records: list[dict[str, Any]] = []
    flops: dict[str, float] = {}  # they are those of the run, whatever the way
    for place, ((learner, controller), way) in enumerate(todo):
        about = learner + ("+trace" if controller == "trace" else "")
        note(place, len(todo), f"{about}, {way}")
        config = config_of(learner, controller, way)
        record = {"run": about, "way": way, **bench_epoch(config, dataset, repeats)}
        flops[about] = flops.get(about) or step_flops(config, dataset)
        records.append({**record, "step_flops": flops[about]})
    note(len(todo), len(todo), "done")
    return {"epochs": records, "ceilings": ceilings(), "threads": torch.get_num_threads()}


def config_of(
    learner: str, controller: str | None, way: str, model: str = "resnet18", device: str = "auto"
) -> RunConfig:
    """Return the config of a run that is past its warm-up after one epoch."""
    values: dict[str, Any] = {"learner": learner, "controller": controller, "model": model, "device": device}
    values |= {"settings": {} if learner == "cross_entropy" else {"warmup": 1}, **WAYS[way]}
    values |= {"trace": {"structure": True, "start": 0, "ramp": 1}} if controller == "trace" else {}
    return RunConfig.model_validate(values)


def bench_epoch(config: RunConfig, dataset: Dataset, repeats: int) -> dict[str, Any]:
    """Return what an epoch of one run takes, and what happens in it."""
    settling = int(config.capture)  # the first epoch after the warm-up records and compiles
    with _training(config, dataset) as run:
        cuda = run.fabric.device.type == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        for epoch in range(1 + settling):
            run.epoch(epoch)
        ready = time.perf_counter() - began
        epochs = [run.epoch(1 + settling + number) for number in range(repeats if config.capture else 1)]
        scoring = median(_scoring(run) for _ in range(repeats))
        networks = learners[config.learner].networks_needed
        seconds = [record["seconds"] for record in epochs]
        return {
            "batch_size": run.plan.settings.batch_size,
            "samples": len(dataset.train),
            "seconds": median(seconds),
            "all_seconds": seconds,
            "steps": median(sum(log["steps"] for log in record["phases"].values()) for record in epochs),
            "scoring_seconds": scoring,
            "scored_images_per_second": networks * len(dataset.train) / scoring,
            "captured": run.loop.recorder.active,
            "waits": host_waits(run, 1 + settling + len(epochs)) if cuda and config.capture else None,
            "seconds_before": round(ready, 1),
            "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        }


def host_waits(run: Training, epoch: int) -> int:
    """Return how often the host waited for the device between the replays that begin each phase, by profile."""
    found = 0
    train, reporter = run.loop.train, run.loop.reporter

    def watched(*arguments: Any, **options: Any) -> None:
        nonlocal found
        run.loop.reporter = watch = _Watch()
        train(*arguments, **options)
        found += watch.waits()

    run.loop.train = watched  # type: ignore[method-assign]
    try:
        run.epoch(epoch)
    finally:
        run.loop.train = train  # type: ignore[method-assign]
        run.loop.reporter = reporter
    return found


class _Watch(Reporter):
    """Profiles the first steps of a phase; all of them would be millions of kernels to go through."""

    STEPS = 10

    def __init__(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        self.profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        self.steps = 0
        self.profile.start()

    def step(self, label: str, fraction: float, loss: Callable[[], float]) -> None:
        self.steps += 1
        if self.steps == self.STEPS:
            self.profile.stop()

    def waits(self) -> int:
        if self.steps < self.STEPS:
            self.profile.stop()
        calls = [(event.time_range.start, event.name) for event in self.profile.events() or ()]
        replays = sorted(start for start, name in calls if name == "cudaGraphLaunch")
        return sum(name in WAITS and replays[0] < start < replays[-1] for start, name in calls) if replays else 0


def step_flops(config: RunConfig, dataset: Dataset) -> float:
    """Return the floating-point operations of convolutions and matrix products in a step, forwards and backwards."""
    from torch.utils.flop_counter import FlopCounterMode

    rows = torch.arange(min(len(dataset.train), 16 * 64))
    few = Dataset(dataset.name, dataset.train.take(rows), None, dataset.classes, dataset.views)
    config = config.model_copy(update={"capture": False, "compile": False})
    counted = steps = 0.0
    with _training(config, few) as run:
        run.epoch(0)
        train = run.loop.train

        def watched(*arguments: Any, **options: Any) -> None:
            nonlocal counted
            with FlopCounterMode(display=False) as counter:
                train(*arguments, **options)
            counted += counter.get_total_flops()

        run.loop.train = watched  # type: ignore[method-assign]
        steps = sum(log["steps"] for log in run.epoch(1)["phases"].values())
    return counted / steps if steps else 0.0


def ceilings() -> dict[str, float]:
    """Return what the device reaches: operations per second of a bf16 product, bytes per second of a copy."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    big = torch.empty(2**30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(big)
    return {
        "flops_per_second": 2 * 8192**3 / _seconds(lambda: a @ a),
        "bytes_per_second": 2 * big.nbytes / _seconds(lambda: target.copy_(big)),
    }


def pictures(samples: int, tests: int) -> Dataset:
    """Return synthetic CIFAR-shaped data without known truth, half of the labels wrong.

    >>> pictures(40, 8).train
    Split(40 samples, uint8 [3, 32, 32])
    """
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 256, (CLASSES, 3, 8, 8), generator=generator)
    patterns = patterns.repeat_interleave(4, 2).repeat_interleave(4, 3)

    def split(count: int, wrong: float) -> Split:
        truth = torch.randint(0, CLASSES, (count,), generator=generator)
        noise = torch.randint(-64, 65, (count, 3, 32, 32), generator=generator, dtype=torch.int16)
        images = (patterns[truth].short() + noise).clamp(0, 255).to(torch.uint8)
        flipped = torch.rand(count, generator=generator) < wrong
        shift = torch.randint(1, CLASSES, (count,), generator=generator)
        return Split(images, torch.where(flipped, (truth + shift) % CLASSES, truth))

    train = split(samples, 0.5)
    assert isinstance(train.inputs, torch.Tensor)
    names = tuple(map(str, range(CLASSES)))
    return Dataset("synthetic", train, split(tests, 0.0), names, ImageViews.from_images(train.inputs))


def tables(result: dict[str, Any]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return title → head and rows of the figures, for the terminal and for docs/performance.md."""
    records, most = result["epochs"], result["ceilings"]
    plain = {record["run"]: record["seconds"] for record in records if record["way"] == "plain"}
    base = {(r["run"], r["way"]): r["seconds"] for r in records if not r["run"].endswith("+trace")}
    epochs, floors = [], []
    for record in records:
        name, way, seconds = record["run"], record["way"], record["seconds"]
        without = base.get((name.removesuffix("+trace"), way)) if name.endswith("+trace") else None
        epochs.append(
            [
                name,
                way,
                str(record["batch_size"]),
                f"{record['steps']:,.0f}",
                f"{seconds:.2f}",
                f"{plain[name] / seconds:.1f}×" if name in plain else "–",
                "–" if without is None else f"{100 * (seconds / without - 1):+.1f} %",
                f"{record['scored_images_per_second']:,.0f}",
                "–" if record["waits"] is None else str(record["waits"]),
                f"{record['seconds_before']:.0f}",
            ]
        )
        work = record["step_flops"] * record["steps"]
        training = seconds - record["scoring_seconds"]
        floors.append(
            [
                name,
                way,
                f"{record['step_flops'] / 1e12:.2f}",
                f"{work / training / 1e12:,.0f}",
                f"{100 * work / training / most['flops_per_second']:.0f} %",
                f"{work / most['flops_per_second']:.2f}",
            ]
        )
    head = ["run", "steps are", "batch", "steps", "seconds", "against plain", "TRACE costs", "images/s scored", "waits"]
    reached = f"{most['flops_per_second'] / 1e12:,.0f} Tflop/s of a product, {most['bytes_per_second'] / 1e12:.1f} TB/s"
    floor = ["run", "steps are", "Tflop a step", "Tflop/s", "of a product's", "floor, seconds"]
    return {
        f"An epoch of {records[0]['samples']:,} images, ResNet-18, bf16": ([*head, "seconds before"], epochs),
        f"Against the floor: {reached} of a copy": (floor, floors),
    }


def part_tables(result: dict[str, Any]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return title → head and rows of what `benchmarks/gpu_parts.py` measured."""
    rows = []
    for record in result["records"]:
        key = "scoring_seconds" if record["of"] == "scoring pass" else "seconds"
        whole, without = record["with"][key], record["without"][key]
        figures = [f"{record['predicted']:+.0f} %", f"{100 * (without / whole - 1):+.1f} %"]
        seconds = [f"{whole:.3g}", f"{without:.3g}"]
        made = [record["date"], record["revision"] or "not recorded"]
        rows.append([record["part"], record["learner"], record["of"], *figures, *seconds, *made])
    head = ["without", "run", "takes longer", "predicted", "measured", "seconds with", "seconds without", "date"]
    return {"One part switched off": ([*head, "revision"], rows)}


@contextmanager
def _training(config: RunConfig, dataset: Dataset) -> Iterator[Training]:
    """A run in a folder that goes away again; the random state of the caller stays."""
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield Training(RunFolder(Path(folder)), plan(config, dataset), make_fabric(config), Reporter())


def _runs(name: str) -> list[tuple[str, str | None]]:
    return [(name, "coupled"), (name, "trace")] if learners[name].refurbishes else [(name, None)]


def _scoring(run: Training) -> float:
    """Seconds of a scoring pass with all networks, mixture and drift included."""
    wait = torch.cuda.synchronize if run.fabric.device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    run.loop.score_now(run.learner.score_view)
    wait()
    return time.perf_counter() - began


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of some work on the device, the mean of several runs after a first one."""
    times = 20
    work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000 / times
