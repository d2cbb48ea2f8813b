"""What each part of a fast epoch gives: `labeltrace bench gpu`, compiled, with one part switched off at a time.

Run: python benchmarks/gpu_parts.py [--part "two streams" …] [--learner dividemix …]   (a GPU with nothing else to do)
Writes results/bench_parts.json: for each part and learner the seconds of an epoch and of a scoring pass, with and
without it, beside what was predicted; a part measured before and not asked for keeps its record.
"""

from __future__ import annotations

import importlib
import json
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from shared import RESULTS, parser_of

from labeltrace.bench import gpu
from labeltrace.bench.environment import environment, write_result
from labeltrace.engine import compiled, loop
from labeltrace.learners import dividemix, rolr
from labeltrace.models.parts import forward_parts
from labeltrace.scoring.relations import grouped_drift

train = importlib.import_module("labeltrace.engine.train")  # the package gives its function this name
FILE = RESULTS / "bench_parts.json"
REPEATS, SAMPLES = 3, 50_000


class Part(NamedTuple):
    """Something that makes an epoch fast, and how to do without it.

    Args:
        predicted: learner → per cent that it takes longer without the part, written before it was measured.
        changes: (module, name, what stands in for it) each.
        of: what takes longer.
    """

    predicted: dict[str, float]
    changes: list[tuple[object, str, object]]
    of: str = "epoch"


def main() -> None:
    """Measure, print and write."""
    parser = parser_of(__doc__)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only these (default: all)")
    parser.add_argument("--learner", action="append", choices=["dividemix", "rolr"], help="only these (default: both)")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here")
    dataset = gpu.pictures(SAMPLES, gpu.TESTS)
    for learner in asked.learner or ("dividemix", "rolr"):
        config = gpu.config_of(learner, "coupled", "compiled")
        parts = [part for part in asked.part or PARTS if learner in PARTS[part].predicted]
        whole: dict[str, Any] = {}
        for part in (None, *parts):
            torch._dynamo.reset()
            with without(part):
                measured = gpu.bench_epoch(config, dataset, REPEATS)
            print(f"{learner}, without {part or 'nothing'}: {measured['seconds']:.2f} s", flush=True)
            if part is None:
                whole = measured
            else:
                keep(part, learner, whole, measured)


def without(part: str | None) -> ExitStack:
    """Return a context in which a part is switched off."""
    stack = ExitStack()
    for change in () if part is None else PARTS[part].changes:
        stack.enter_context(patch.object(*change))
    return stack


def keep(part: str, learner: str, whole: dict[str, Any], without: dict[str, Any]) -> None:
    """Put a measured part in the file, in place of an older record of it."""
    before = json.loads(FILE.read_text(encoding="utf-8"))["records"] if FILE.exists() else []
    where = environment()
    record = {
        "part": part,
        "learner": learner,
        "predicted": PARTS[part].predicted[learner],
        "of": PARTS[part].of,
        "with": whole,
        "without": without,
        "date": where["date"],
        "revision": where["revision"],
    }
    records = [kept for kept in before if (kept["part"], kept["learner"]) != (part, learner)]
    records.append(record)
    records.sort(key=lambda kept: (list(PARTS).index(kept["part"]), kept["learner"]))
    write_result({"command": "python benchmarks/gpu_parts.py", "records": records, "environment": where}, FILE)


def one_after_the_other(device: torch.device, first, second):
    """As `together`, on one stream."""
    return first(), second()


def two_by_two(network, inputs, parts):
    """As `forward_parts`, with two views in a forward and no more."""
    return [output for pair in inputs.chunk(parts // 2) for output in forward_parts(network, pair, 2)]


def first_algorithm(config):
    """As `make_fabric`, and cuDNN takes the algorithm it thinks best."""
    fabric = make_fabric(config)
    torch.backends.cudnn.benchmark = False
    return fabric


make_fabric = gpu.make_fabric
PARTS = {
    "two streams": Part(
        {"dividemix": 8, "rolr": 3}, [(module, "together", one_after_the_other) for module in (dividemix, rolr)]
    ),
    "merged guesses": Part({"dividemix": 6}, [(compiled, "norm_by_parts", lambda network: None)]),
    "guesses by four": Part({"dividemix": 5}, [(dividemix, "forward_parts", two_by_two)]),
    "cudnn.benchmark": Part({"dividemix": 4, "rolr": 4}, [(gpu, "make_fabric", first_algorithm)]),
    "compiled drift": Part(
        {"dividemix": 5, "rolr": 5}, [(train, "compiled_drift", lambda: grouped_drift)], of="scoring pass"
    ),
    "forwards of 2,048": Part(  # in forwards of 512 what lies between two layers stays in the GPU's own cache
        {"dividemix": -6, "rolr": -6}, [(loop, "FORWARD", {"cuda": 512})], of="scoring pass"
    ),
    "channels-last views": Part({"dividemix": 3, "rolr": 3}, [(compiled, "_channels_last", lambda inputs: inputs)]),
}

if __name__ == "__main__":
    main()
