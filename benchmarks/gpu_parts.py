"""What each part of a fast epoch gives: `labeltrace bench gpu`, compiled, with one part switched off at a time.

Run: python benchmarks/gpu_parts.py [--part "two streams" …]   (a GPU with nothing else to do, some ten minutes)
Writes results/gpu_parts.json: seconds of an epoch and of a scoring pass, whole and without each part.
"""

from __future__ import annotations

import importlib
import shlex
from contextlib import ExitStack
from unittest.mock import patch

import torch
from shared import RESULTS, parser_of

from labeltrace.bench import gpu
from labeltrace.bench.environment import environment, write_result
from labeltrace.engine import compiled
from labeltrace.learners import dividemix, rolr
from labeltrace.scoring.relations import grouped_drift

train = importlib.import_module("labeltrace.engine.train")  # the package gives its function this name
LEARNERS = ("dividemix", "rolr")
REPEATS, SAMPLES = 3, 50_000


def main() -> None:
    """Measure, print and write."""
    parser = parser_of(__doc__)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only these (default: all)")
    asked = parser.parse_args().part
    parts = asked or list(PARTS)
    command = shlex.join(["python", "benchmarks/gpu_parts.py", *(f"--part={part}" for part in asked or ())])
    dataset = gpu.pictures(SAMPLES, gpu.TESTS)
    records: list[dict] = []
    for learner in LEARNERS:
        config, whole = gpu.config_of(learner, "coupled", "compiled"), {}
        for part in (None, *parts):
            torch._dynamo.reset()
            with without(part):
                record = gpu.bench_epoch(config, dataset, REPEATS)
            whole = record if part is None else whole
            records.append({"learner": learner, "without": part, **record})
            gives = [100 * (record[key] / whole[key] - 1) for key in ("seconds", "scoring_seconds")]
            print(
                f"{learner}, without {part or 'nothing'}: {record['seconds']:.2f} s ({gives[0]:+.1f} %), "
                f"scoring {record['scoring_seconds']:.3f} s ({gives[1]:+.1f} %)",
                flush=True,
            )
            result = {"command": command, "runs": records, "environment": environment()}
            write_result(result, RESULTS / "gpu_parts.json")


def without(part: str | None) -> ExitStack:
    """Return a context in which a part is switched off."""
    stack = ExitStack()
    for change in () if part is None else PARTS[part]:
        stack.enter_context(patch.object(*change))
    return stack


def one_after_the_other(device: torch.device, first, second):
    """As `together`, on one stream."""
    return first(), second()


def first_algorithm(config):
    """As `make_fabric`, and cuDNN takes the algorithm it thinks best."""
    fabric = make_fabric(config)
    torch.backends.cudnn.benchmark = False
    return fabric


make_fabric = gpu.make_fabric
PARTS: dict[str, list[tuple[object, str, object]]] = {  # what stands in for what, and where
    "two streams": [(module, "together", one_after_the_other) for module in (dividemix, rolr)],
    "cudnn.benchmark": [(gpu, "make_fabric", first_algorithm)],
    "compiled drift": [(train, "compiled_drift", lambda: grouped_drift)],
    "channels-last views": [(compiled, "_channels_last", lambda inputs: inputs)],
}

if __name__ == "__main__":
    main()
