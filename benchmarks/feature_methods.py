"""Which method for features: the default beside simpler ones, over scikit-learn's sets with labels made wrong.

Run: python benchmarks/feature_methods.py    (a quarter of an hour on two cores)
Writes results/feature_methods.json and .md. Sets, rates, seeds and labels are those of small_sets.py, the recipe that
for features. Labels of people over features are in human_labels.py.
"""

from __future__ import annotations

import statistics
from typing import Any

from features import quiet
from shared import RESULTS, parser_of, side_by_side, write_page
from small_sets import RATES, SEEDS, SETS, features_run

from labeltrace.audit import measure
from labeltrace.bench.environment import environment
from labeltrace.experiments.compare import paired_t
from labeltrace.experiments.page import in_words

DEFAULT = "rolr+trace without structure"
WAYS: dict[str, dict[str, Any]] = {
    DEFAULT: {"learner": "rolr", "trace": {"structure": False}},
    **{name: {"learner": name} for name in ("cross_entropy", "elr", "gce", "selc")},
}
COLUMNS = {
    "average_precision": "average precision",
    "right_after": "labels right once relabelled",
    "precision": "found: precision",
    "recall": "recall",
}
Asked = tuple[str, float, int, str]  # set, rate, seed, way


def main() -> None:
    """Run every way on every set, rate and seed and write what came out."""
    parser_of(__doc__).parse_args()
    todo: list[Asked] = [(s, rate, seed, way) for s in SETS for rate in RATES for seed in SEEDS for way in WAYS]
    records = list(side_by_side(one, todo, None, "runs", lambda r: f"{r['set']} {r['way']}", quiet))
    record = {"command": "python benchmarks/feature_methods.py", "runs": records, "environment": environment()}
    write_page(record, page(record), RESULTS / "feature_methods")
    print(page(record))


def one(asked: Asked) -> dict[str, object]:
    """Return what one run finds."""
    name, rate, seed, way = asked
    found = measure(features_run(name, rate, {"seed": seed, "device": "cpu", **WAYS[way]}))
    return {"set": name, "rate": rate, "seed": seed, "way": way, **found}


def page(record: dict[str, Any]) -> str:
    """Return the results as Markdown: means over the seeds, and each method against the default with a test."""
    where = record["environment"]
    lines = [
        "# Methods for features",
        "",
        f"`{record['command']}` on {where['date']}, {where['device']}, torch {where['torch']}: features of "
        f"scikit-learn's sets with symmetric noise, seeds {SEEDS[0]} to {SEEDS[-1]}, recipe for features. Means over "
        "the seeds, per cent. *Missed* counts the runs that found less than half of the wrong labels.",
        "",
        "| set | wrong | method | " + " | ".join(COLUMNS.values()) + " | missed |",
        "|---|--:|---" + "|--:" * (len(COLUMNS) + 1) + "|",
    ]
    kinds = [(name, rate) for name in SETS for rate in RATES]
    of = {
        (name, rate, way): [r for r in record["runs"] if (r["set"], r["rate"], r["way"]) == (name, rate, way)]
        for name, rate in kinds
        for way in WAYS
    }
    for (name, rate, way), mine in of.items():
        cells = [_mean(mine, key) for key in COLUMNS]
        missed = f"{sum(run['recall'] < 1 / 2 for run in mine)} of {len(mine)}"
        lines.append(f"| {' | '.join([name, f'{rate:.0%}', way, *cells, missed])} |")
    lines += [
        "",
        f"Method − {DEFAULT}, same labels and seeds; p is of a two-sided paired t test, uncorrected.",
        "",
        "| set | wrong | method | labels right once relabelled | p | average precision | p |",
        "|---|--:|---" + "|--:" * 4 + "|",
    ]
    for name, rate in kinds:
        for way in list(WAYS)[1:]:
            cells = []
            for key in ("right_after", "average_precision"):
                found = paired_t(*([100 * run[key] for run in of[name, rate, each]] for each in (way, DEFAULT)))
                cells += [f"{found.mean:+.2f}", in_words(found.p)]
            lines.append(f"| {' | '.join([name, f'{rate:.0%}', way, *cells])} |")
    return "\n".join(lines) + "\n"


def _mean(runs: list[dict[str, Any]], key: str) -> str:
    """The mean over the runs that have a figure: where nothing is doubted, precision has none."""
    found = [100 * run[key] for run in runs if run[key] is not None and run[key] == run[key]]
    return f"{statistics.mean(found):.1f}" if found else "–"


if __name__ == "__main__":
    main()
