"""How time and memory grow with the training set: every part that holds or walks all samples, over synthetic ones.

A part has its inputs made first; time and memory are of the work alone. Each part and size runs in a process of its
own, so that one's memory is not another's. Networks are left out: their cost is that of the forwards, and linear.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from labeltrace.audit import read_samples, samples_table, write_samples
from labeltrace.bench.cpu import Note
from labeltrace.data import Split
from labeltrace.engine import Judgement, Trained, loop
from labeltrace.errors import InputError
from labeltrace.learners import learners
from labeltrace.learners.settings import resolve
from labeltrace.scoring import Field, SampleMemory, ScorePass, Scores, loss_posterior

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
FEWEST = 100  # samples; fewer than a scoring group would be another computation
CLASSES = 10
NETWORKS = 2
STAGES = (64, 128, 256, 512)  # widths of ResNet-18's pooled features
FORWARD = loop.FORWARD["cpu"]
READ = 64  # samples that a step reads from the memory
MOST_PASSES, ENOUGH = 5, 2.0  # passes over one size at most; none is begun after this many seconds

Work = Callable[[], int]  # does the work and returns the bytes of its result


@dataclass(frozen=True)
class Part:
    """Something that grows with N.

    Args:
        about: for tables.
        prepare: (N, an empty folder) → the work to be measured.
    """

    about: str
    prepare: Callable[[int, Path], Work]


def bench_growth(sizes: list[int], note: Note) -> dict[str, Any]:
    """Measure every part at every size.

    Args:
        sizes: numbers of samples.
        note: told what is measured.

    Returns:
        `records`: per part and size the median seconds, the seconds of each pass, the bytes of the result and the most
        that was held above the inputs (None where the system does not tell). `exponents`: per part, of seconds ∝ N^e.
        `memory`: per learner the bytes that it remembers of a sample, from its declared fields. `threads`: of torch.
    """
    todo = [(part, size) for size in sorted(sizes) for part in PARTS]  # small sizes first: a mistake shows early
    records, threads = [], 0
    for number, (part, size) in enumerate(todo):
        note(number, len(todo), f"{PARTS[part].about}, {size:,} samples")
        found = _measure(part, size)
        threads = found.pop("threads")
        records.append({"part": part, "samples": size, **found})
    note(len(todo), len(todo), "done")
    return {
        "records": records,
        "exponents": exponents(records),
        "memory": {name: SampleMemory(1, remembered(name)).bytes_per_sample for name in learners},
        "threads": threads,
    }


def exponents(records: list[dict[str, Any]]) -> dict[str, float | None]:
    """Return, per part, the e that fits seconds ∝ N^e best in logarithms: 1 is linear. None for a single size.

    >>> exponents([{"part": "fit", "samples": n, "seconds": 3e-6 * n} for n in (10, 100, 1000)])
    {'fit': 1.0}
    """
    found: dict[str, float | None] = {}
    for part in dict.fromkeys(record["part"] for record in records):
        of_part = [record for record in records if record["part"] == part]
        found[part] = None
        if len(of_part) > 1:
            samples, seconds = (np.log([record[key] for record in of_part]) for key in ("samples", "seconds"))
            found[part] = round(float(np.polyfit(samples, seconds, 1)[0]), 3)
    return found


def remembered(learner: str) -> dict[str, Field]:
    """Return the fields that a learner declares with its first recipe and ten classes."""
    kind = learners[learner]
    settings, _ = resolve(kind.settings_type, kind.presets["cifar"], {}, None)
    return kind.fields(settings, CLASSES)


def tables(result: dict[str, Any]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return title → head and rows of the figures, for the terminal and for docs/performance.md."""
    by_part: dict[str, list[dict[str, Any]]] = {}
    for record in result["records"]:
        by_part.setdefault(record["part"], []).append(record)
    sizes = [short(record["samples"]) for record in next(iter(by_part.values()))]
    times, memory = [], []
    for part, records in by_part.items():
        last, exponent = records[-1], result["exponents"][part]
        seconds = [f"{record['seconds']:.3g}" for record in records]
        each = f"{1e6 * last['seconds'] / last['samples']:.3g}"
        times.append([PARTS[part].about, *seconds, each, "–" if exponent is None else f"{exponent:.2f}"])
        held = [_per_sample(record["peak_bytes"], record["samples"]) for record in records]
        memory.append([PARTS[part].about, *held, _per_sample(last["result_bytes"], last["samples"])])
    learned = [[name, str(size)] for name, size in result["memory"].items()]
    return {
        "Seconds, by number of samples; µs per sample at the last": (["", *sizes, "µs", "exponent"], times),
        "Most memory held above the inputs, and result at the last, bytes per sample": (["", *sizes, "result"], memory),
        f"Sample memory, bytes per sample ({CLASSES} classes)": (["learner", "bytes"], learned),
    }


def short(count: int) -> str:
    """Return a count as a head of a column.

    >>> short(10_000), short(10_000_000), short(1234)
    ('10 k', '10 M', '1,234')
    """
    for unit, letter in ((10**6, " M"), (10**3, " k")):
        if count % unit == 0:
            return f"{count // unit:,}{letter}"
    return f"{count:,}"


def _per_sample(amount: int | None, size: int) -> str:
    return "–" if amount is None else f"{amount / size:,.0f}"


# the parts


def simulated_losses(count: int) -> Tensor:
    """Return float32 losses [N] as half-way through a training: 60 % near 0 with a tail, 40 % around 3."""
    rng = np.random.default_rng(0)
    losses = np.where(rng.random(count) < 0.4, rng.gamma(6, 0.5, count), rng.exponential(0.4, count))
    return torch.from_numpy(losses.astype(np.float32))


def _score(count: int, folder: Path) -> Work:
    """Everything of a scoring pass but the networks and the mixture fit, in the engine's random order."""
    generator = torch.Generator().manual_seed(0)
    outputs = [
        (
            torch.randn(FORWARD, CLASSES, generator=generator),
            [torch.randn(FORWARD, width, generator=generator).relu() for width in STAGES],
        )
        for _ in range(NETWORKS)
    ]
    labels = torch.randint(CLASSES, (FORWARD,), generator=generator)
    order = torch.randperm(count, generator=generator)

    def work() -> int:
        scoring = ScorePass()
        for index in order.split(FORWARD):
            rows = len(index)
            batch = [(logits[:rows], [stage[:rows] for stage in stages]) for logits, stages in outputs]
            scoring.add(index, labels[:rows], batch)
        scores = scoring.finish(posterior=lambda losses, seed: losses)  # the fit is a part of its own
        return _bytes(*vars(scores).values())

    return work


def _fit(method: str) -> Callable[[int, Path], Work]:
    def prepare(count: int, folder: Path) -> Work:
        losses = simulated_losses(count)
        return lambda: _bytes(loss_posterior(losses, method=method))

    return prepare


def _memory(learner: str) -> Callable[[int, Path], Work]:
    """An epoch's use: every sample's fields are written once and read once, in random batches."""

    def prepare(count: int, folder: Path) -> Work:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        fields = remembered(learner)

        def work() -> int:
            memory = SampleMemory(count, fields)
            for start in range(0, count, READ):
                index = order[start : start + READ]
                for name in fields:
                    memory[name][index] = memory[name][index]
            return _bytes(*memory.state_dict().values())

        return work

    return prepare


def _finished(count: int) -> Trained:
    """Return as much of a finished run as a samples table is made of."""
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    def classes() -> Tensor:
        return torch.randint(CLASSES, (count,), generator=generator)

    per_network = numbers(NETWORKS, count)
    agree, suggested, share = classes() > 0, classes(), numbers(count)
    scores = Scores(per_network, per_network, per_network, per_network, suggested, share, agree)
    values: dict[str, Any] = {field.name: share for field in dataclasses.fields(Judgement)}
    judged = Judgement(**{**values, "scores": scores, "agree": agree, "suggested": suggested})
    train = Split(torch.zeros(count, 1), classes(), truth=classes())
    dataset = SimpleNamespace(train=train, classes=tuple(map(str, range(CLASSES))))
    return cast(Trained, SimpleNamespace(plan=SimpleNamespace(dataset=dataset), judgement=judged))


def _table(count: int, folder: Path) -> Work:
    finished = _finished(count)
    return lambda: int(samples_table(finished).nbytes)


def _write(count: int, folder: Path) -> Work:
    rows, path = samples_table(_finished(count)), folder / "samples.parquet"

    def work() -> int:
        write_samples(rows, path)
        return path.stat().st_size

    return work


def _read(count: int, folder: Path) -> Work:
    path = folder / "samples.parquet"
    write_samples(samples_table(_finished(count)), path)
    return lambda: int(read_samples(path).nbytes)


PARTS = {
    "score": Part("scoring pass", _score),
    "fit": Part("mixture fit, scikit-learn", _fit("sklearn")),
    "fit_torch": Part("mixture fit, torch", _fit("torch")),
    "memory_rolr": Part("memory of rolr", _memory("rolr")),
    "memory_disc": Part("memory of disc", _memory("disc")),
    "table": Part("table, made", _table),
    "write": Part("table, written", _write),
    "read": Part("table, read", _read),
}


# one measurement


def _measure(part: str, size: int) -> dict[str, Any]:
    """Run one part at one size in a fresh process."""
    command = [sys.executable, "-m", "labeltrace.bench.growth", part, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        reason = said[-1] if said else f"its process was ended (code {done.returncode}); is there memory for it?"
        raise InputError(f"{part} with {size:,} samples: {reason}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure_here(part: str, size: int) -> dict[str, Any]:
    """Measure one part at one size in this process: memory of the first pass, time of each."""
    with tempfile.TemporaryDirectory(prefix="labeltrace-bench-") as temporary:
        folder = Path(temporary)
        PARTS[part].prepare(FEWEST, folder)()  # what is loaded on first use is not the work's
        work = PARTS[part].prepare(size, folder)
        before = _held(reset=True)
        passes: list[float] = []
        peak = None
        while not passes or (len(passes) < MOST_PASSES and sum(passes) < ENOUGH):
            started = time.perf_counter()
            result = work()
            passes.append(time.perf_counter() - started)
            if len(passes) == 1 and before is not None:
                peak = _held(most=True)
    return {
        "seconds": median(passes),
        "passes": passes,
        "result_bytes": result,
        "peak_bytes": None if peak is None or before is None else max(0, peak - before),
        "threads": torch.get_num_threads(),
    }


def _held(most: bool = False, reset: bool = False) -> int | None:
    """Return the bytes that this process holds, or the most it held since the reset; None where nobody tells.

    The kernel's own mark, because a watcher that looks now and then misses what lasts for milliseconds.
    """
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        sizes = {name: value for name, _, value in (line.partition(":") for line in lines)}
        return int(sizes["VmHWM" if most else "VmRSS"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _bytes(*tensors: Tensor | None) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure_here(sys.argv[1], int(sys.argv[2]))))
