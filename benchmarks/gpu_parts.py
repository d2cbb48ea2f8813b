"""What each part of a fast epoch gives: `labeltrace bench gpu`, compiled, with one part switched off at a time.

Run: python benchmarks/gpu_parts.py [--part "two streams" …] [--learner dividemix …]   (a GPU with nothing else to do)
Writes results/bench_parts.json: for each part and learner the seconds of an epoch and of a scoring pass, with and
without it, beside what was predicted; a part measured before and not asked for keeps its record.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from shared import RESULTS, parser_of

from labeltrace.bench import gpu
from labeltrace.bench.environment import environment, write_result
from labeltrace.engine import compiled
from labeltrace.learners import dividemix, rolr
from labeltrace.scoring.relations import grouped_drift

train = importlib.import_module("labeltrace.engine.train")  # the package gives its function this name
FILE = RESULTS / "bench_parts.json"
REPEATS, SAMPLES = 3, 50_000


def main() -> None:
    """Measure, print and write."""
    parser = parser_of(__doc__)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only these (default: all)")
    parser.add_argument("--learner", action="append", choices=["dividemix", "rolr"], help="only these (default: both)")
    asked = parser.parse_args()
    dataset = gpu.pictures(SAMPLES, gpu.TESTS)
    for learner in asked.learner or ("dividemix", "rolr"):
        config = gpu.config_of(learner, "coupled", "compiled")
        parts = [part for part in asked.part or PARTS if learner in PREDICTED[part]]
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
    for change in () if part is None else PARTS[part]:
        stack.enter_context(patch.object(*change))
    return stack


def keep(part: str, learner: str, whole: dict[str, Any], without: dict[str, Any]) -> None:
    """Put a measured part in the file, in place of an older record of it."""
    before = json.loads(FILE.read_text(encoding="utf-8"))["records"] if FILE.exists() else []
    where = environment()
    record = {
        "part": part,
        "learner": learner,
        "predicted": PREDICTED[part][learner],
        "of": "scoring pass" if part == "compiled drift" else "epoch",
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


def a_forward_each(network: torch.nn.Module, batches: Sequence[torch.Tensor]):
    """As `forward_parts` of a network that was not prepared for it."""
    return [network(batch) for batch in batches]


def first_algorithm(config):
    """As `make_fabric`, and cuDNN takes the algorithm it thinks best."""
    fabric = make_fabric(config)
    torch.backends.cudnn.benchmark = False
    return fabric


make_fabric = gpu.make_fabric
PARTS: dict[str, list[tuple[object, str, object]]] = {  # what stands in for what, and where
    "two streams": [(module, "together", one_after_the_other) for module in (dividemix, rolr)],
    "merged guesses": [(dividemix, "forward_parts", a_forward_each)],
    "cudnn.benchmark": [(gpu, "make_fabric", first_algorithm)],
    "compiled drift": [(train, "compiled_drift", lambda: grouped_drift)],
    "channels-last views": [(compiled, "_channels_last", lambda inputs: inputs)],
}
PREDICTED: dict[str, dict[str, float]] = {  # per cent that an epoch, or a scoring pass, takes longer without a part
    "two streams": {"dividemix": 8, "rolr": 3},
    "merged guesses": {"dividemix": 6},
    "cudnn.benchmark": {"dividemix": 4, "rolr": 4},
    "compiled drift": {"dividemix": 5, "rolr": 5},
    "channels-last views": {"dividemix": 3, "rolr": 3},
}

if __name__ == "__main__":
    main()
