"""What each choice inside TRACE does: the paper's ablations and our readings of what it leaves open, one at a time.

Run: python benchmarks/choices.py digits [--noise instance --rate 0.4]     (twenty minutes on two cores)
Writes results/choices_<name>.json (every run) and .md (the table): test accuracy beside RoLR without TRACE by seed, and
how well structure and observed reliability tell right labels from wrong ones in the last epoch. Within a seed all runs
train on the same labels. A second call goes on where the first was stopped.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from shared import RESULTS, add_grid_flags, parser_of, run_grid, write_page

from labeltrace.experiments.compare import paired_t

BASE, PAPER = "rolr", "the paper's TRACE"
CHOICES: dict[str, dict[str, Any] | None] = {
    BASE: None,
    PAPER: {},
    "without structure": {"structure": False},
    "without agreement": {"agreement": False},
    "without structure and agreement": {"structure": False, "agreement": False},
    "without the gate of the replacement": {"pseudo_gate": False},
    "without weights": {"reweight": False},
    "without gate and weights": {"pseudo_gate": False, "reweight": False},
    "flattened features": {"pooling": "flatten"},
    "drift of the training batch": {"scope": "batch"},
    "groups of 16": {"score_batch": 16, "k": 12},
    "groups of 448": {"score_batch": 448, "k": 350},
    "ranks instead of min-max": {"drift_norm": "rank"},
    "last transition only": {"transitions": "last"},
    "structure emptied: γ = 1000": {"gamma": 1000.0},  # a constant 0 for every sample but the least drifting
}
SIGNALS = {"auroc_structure": "AUROC of structure", "auroc_observed": "of observed reliability"}


def main() -> None:
    """Run the grid and write the results."""
    parser = parser_of(__doc__)
    add_grid_flags(parser)
    asked = parser.parse_args()
    name = asked.name or f"{Path(asked.data).stem}_{asked.noise}"
    record = run_grid(
        "choices.py", asked, {choice: changed(choice) for choice in CHOICES}, Path(f"runs/choices-{name}")
    )
    write_page(record, page(record), RESULTS / f"choices_{name}")
    print(page(record))


def changed(choice: str) -> dict[str, Any]:
    """Return what a choice changes in a run's config."""
    settings = CHOICES[choice]
    if settings is None:
        return {"learner": "rolr", "controller": "coupled"}
    return {"learner": "rolr", "controller": "trace", "trace": {"structure": True, **settings}}


def page(record: dict[str, Any]) -> str:
    """Return the results as Markdown: accuracy in per cent, differences by seed, AUROC as mean over seeds."""
    where = record["environment"]
    by_choice = {choice: [run for run in record["runs"] if run["run"] == choice] for choice in CHOICES}
    lines = [
        f"# Choices inside TRACE: {record['command'].split()[2]}, {record['noise']}",
        "",
        f"`{record['command']}` on {where['date']}: seeds {', '.join(map(str, record['seeds']))}, {where['device']}, "
        f"torch {where['torch']}, {record['runs'][0]['epochs']} epochs. p is of a two-sided paired t test over the "
        "seeds; many rows were tested, and a single small p says little.",
        "",
        "| RoLR with | test, mean of last 10 | − RoLR, by seed | p | − the paper's, by seed | p | "
        + " | ".join(SIGNALS.values())
        + " |",
        "|---" + "|--:" * (5 + len(SIGNALS)) + "|",
    ]
    for choice, runs in by_choice.items():
        values = [100 * run["mean_last_10"] for run in runs]
        cells = [f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"]
        for other in (BASE, PAPER):
            cells += ["–", "–"] if choice in (other, BASE) else against(runs, by_choice[other])
        for key in SIGNALS:
            found = [run[key] for run in runs if run[key] is not None]
            cells.append(f"{statistics.mean(found):.3f}" if found else "–")
        lines.append(f"| {'nothing' if choice == BASE else choice} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def against(runs: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[str]:
    """Return the differences by seed, and p."""
    found = paired_t(*([100 * run["mean_last_10"] for run in each] for each in (runs, others)))
    return [", ".join(f"{gain:+.1f}" for gain in found.differences), "–" if found.p is None else f"{found.p:.2f}"]


if __name__ == "__main__":
    main()
