"""Which replacements may be taken without a look: by confidence, as the rule has it, or by all that a table tells.

Run: python benchmarks/relabels.py human_labels --runs runs/human_labels
     python benchmarks/relabels.py digits --runs runs/learners-digits
Looks at finished runs whose truth is known and trains nothing. The rule replaces a label of reliability below 0.9 by a
suggestion of confidence 0.9 or more. The others replace it where the suggestion is right with a probability of 0.5, 0.8
or 0.9 given the networks, the label and the noise that the audit estimates. Writes results/relabels_<name>.json and
.md: how many labels each replaces, how many of these rightly, and how many labels of the set are right afterwards.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from shared import RESULTS, parser_of, write_page

from labeltrace.audit import read_samples
from labeltrace.audit.decisions import RELABEL
from labeltrace.audit.estimate import estimate_noise, replacement_probability
from labeltrace.audit.samples import values
from labeltrace.bench.environment import environment
from labeltrace.engine import RunFolder

FROM = (0.5, 0.8, 0.9)
RULES = ("the rule", *(f"probability ≥ {least:g}" for least in FROM))


def main() -> None:
    """Look at the runs and write what the rules come to."""
    parser = parser_of(__doc__)
    parser.add_argument("name", help="of the result")
    parser.add_argument("--runs", type=Path, required=True, help="folder of finished runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result")
    asked = parser.parse_args()
    rows = [row(path.parent) for path in sorted(asked.runs.rglob("samples.parquet"))]
    rows = [found for found in rows if found["wrong"] > 0]
    if not rows:
        raise SystemExit(f"--runs {asked.runs}: no finished run in it that has labels known to be wrong")
    command = f"python benchmarks/relabels.py {asked.name} --runs {asked.runs.as_posix()}"
    record = {"command": command, "runs": rows, "environment": environment()}
    write_page(record, page(record), asked.results / f"relabels_{asked.name}")
    print(page(record))


def row(path: Path) -> dict[str, Any]:
    """Return what each rule comes to on one run."""
    table, folder = read_samples(path), RunFolder(path)
    observed, suggested, truth = (values(table, name) for name in ("observed", "suggested", "truth"))
    known = truth >= 0
    estimate = estimate_noise(table)
    probability = replacement_probability(table, estimate)
    decided = np.asarray(table["decision"].to_pylist()) == RELABEL
    taken = [decided, *((observed != suggested) & (probability >= least) for least in FROM)]
    found = {}
    for name, mask in zip(RULES, taken, strict=True):
        right = (suggested == truth)[known & mask]
        after = np.where(mask, suggested, observed) == truth
        found[name] = {
            "replaced": len(right),
            "right": float(right.mean()) if len(right) else None,
            "right_after": float(after[known].mean()),
        }
    return {
        "run": path.name,
        "setting": re.sub(r"[- ]s?\d+$", "", path.name),  # its name without the seed
        "samples": int(known.sum()),
        **{name: folder.read_environment()[name] for name in ("seed", "device", "revision")},
        "wrong": float((truth != observed)[known].mean()),
        "estimated_wrong": estimate.rate,
        "rules": found,
    }


def page(record: dict[str, Any]) -> str:
    """Return the results as Markdown: means over the runs of a setting, in per cent."""
    first = record["runs"][0]
    lines = [
        f"# Which replacements to take: {record['command'].split()[2]}",
        "",
        f"`{record['command']}` on {record['environment']['date']}, {first['device']}; means over *n* runs, per cent. "
        "*Replaced* is of all samples, *right* of those replaced, *after* the labels of the set that are right then.",
        "",
        "| runs | n | wrong | estimated | " + " | ".join(f"{name}: replaced | right | after" for name in RULES) + " |",
        "|---|--:|--:|--:|" + "--:|" * (3 * len(RULES)),
    ]
    by_setting: dict[str, list[dict[str, Any]]] = {}
    for run in record["runs"]:
        by_setting.setdefault(run["setting"], []).append(run)
    for name, runs in by_setting.items():
        cells = [name, str(len(runs)), _mean(runs, "wrong"), _mean(runs, "estimated_wrong")]
        for rule in RULES:
            found = [{**run["rules"][rule], "samples": run["samples"]} for run in runs]
            replaced = [{"share": one["replaced"] / one["samples"]} for one in found]
            cells += [_mean(replaced, "share"), _mean(found, "right"), _mean(found, "right_after")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(rows: Sequence[dict[str, Any]], key: str) -> str:
    """The mean of a share over the runs that have it."""
    found = [100 * row[key] for row in rows if row[key] is not None]
    return f"{statistics.mean(found):.1f}" if found else "–"


if __name__ == "__main__":
    main()
