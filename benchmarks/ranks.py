"""How far a run on two ranks is from the same run in one process, beside how far another seed takes it.

Run: python benchmarks/ranks.py
Writes results/ranks.json. Every learner, with TRACE where it takes it, on digits with 40 % symmetric noise: once in one
process, once under torchrun with two ranks (gloo), once in one process with another seed on the same labels.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from shared import RESULTS, parser_of

from labeltrace.audit import read_samples
from labeltrace.bench.environment import environment, write_result
from labeltrace.data import add_noise, load_dataset
from labeltrace.learners import learners
from labeltrace.progress import Bars
from labeltrace.runs import figures

WORDS = ["--no-flip", "--epochs", "10", "--device", "cpu"]
WAYS = {
    "one process": (["-m"], 0),
    "two ranks": (["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"], 0),
    "another seed": (["-m"], 1),
}


def main() -> None:
    """Train every learner in every way and write how the samples tables differ."""
    parser_of(__doc__).parse_args()
    records = []
    with tempfile.TemporaryDirectory() as temporary, Bars(Console(stderr=True)) as bars:
        data = noisy_digits(Path(temporary) / "digits.npz")
        for number, name in enumerate(learners):
            bars.show("learners", len(learners), number, name, unit="learners")
            folders = {way: Path(temporary) / f"{name} {way}" for way in WAYS}
            for way, folder in folders.items():
                words, seed = WAYS[way]
                structure = ["--set", "trace.structure=true"] if learners[name].refurbishes else []
                asked = ["--data", data, "--learner", name, *WORDS, *structure, "--seed", str(seed)]
                command = [sys.executable, *words, "labeltrace", "train", *asked, "--out", str(folder)]
                ended = subprocess.run(command, capture_output=True, text=True, check=False)
                if ended.returncode:
                    sys.exit(f"{way}, {name}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
            whole = folders.pop("one process")
            for way, folder in folders.items():
                records.append({"learner": name, "way": way, **differences(whole, folder)})
        bars.show("learners", len(learners), len(learners), "done", unit="learners")
    result = {"command": "python benchmarks/ranks.py", "runs": records, "environment": environment()}
    write_result(result, RESULTS / "ranks.json")
    print(page(records))


def noisy_digits(path: Path) -> str:
    """Write digits with wrong labels to a file, so that a run's seed changes nothing about them."""
    data, _ = add_noise(load_dataset("digits"), "symmetric", 0.4, 0)
    assert data.test is not None
    arrays = {"x": data.train.inputs, "y": data.train.labels, "x_test": data.test.inputs, "y_test": data.test.labels}
    np.savez(path, **{name: np.asarray(values) for name, values in arrays.items()})
    return str(path)


def differences(whole: Path, other: Path) -> dict[str, float]:
    """Return how far the tables of two runs agree, and what the second's test accuracy gained."""
    one, two = read_samples(whole), read_samples(other)
    same = {
        name: float(np.mean(one[name].to_numpy() == two[name].to_numpy(zero_copy_only=False)))
        for name in ("suggested", "decision")
    }
    clean = float(np.mean(np.abs(one["clean"].to_numpy() - two["clean"].to_numpy())))
    return {**same, "clean": clean, "accuracy": figures(other)["last"] - figures(whole)["last"]}


def page(records: list[dict]) -> str:
    """Return the table of docs/parallel.md: two ranks against one process, another seed in brackets."""
    lines = [
        "| learner | same suggestion | same decision | mean difference of `clean` | test accuracy |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in dict.fromkeys(record["learner"] for record in records):
        ranks, seed = (next(r for r in records if (r["learner"], r["way"]) == (name, w)) for w in list(WAYS)[1:])
        cells = [f"{100 * ranks[key]:.1f} % ({100 * seed[key]:.1f})" for key in ("suggested", "decision")]
        cells.append(f"{ranks['clean']:.3f} ({seed['clean']:.3f})")
        cells.append(f"{100 * ranks['accuracy']:+.1f} ({100 * seed['accuracy']:+.1f})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
