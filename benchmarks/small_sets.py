"""What small sets need: TRACE with structure or without, and a label that stands against another suggestion or not.

Run: python benchmarks/small_sets.py                (scikit-learn's features, minutes on two cores)
     python benchmarks/small_sets.py --root DATA    (2,000 images with labels of people too, most of an hour more)
Writes results/small_sets.json and .md. Features have labels made wrong at several rates, eight seeds, by the recipe for
features; the images are trained as the README advises for photos without a GPU, seed 0, in runs/small_sets, where
finished runs stay. Every run is judged by two rules: as it is now (only what the model agrees with is kept), and as it
was before (a label of reliability 0.9 or more also stands against a suggestion that is not sure).
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from features import quiet, sets
from ranking import rule
from shared import RESULTS, parser_of, side_by_side, write_page

from labeltrace.audit import measure, read_samples
from labeltrace.audit.decisions import TRUST_LABEL, TRUST_SUGGESTION
from labeltrace.audit.samples import decided
from labeltrace.bench.environment import environment
from labeltrace.data import add_noise, from_arrays
from labeltrace.engine import RunConfig, RunFolder
from labeltrace.experiments.compare import paired_t
from labeltrace.experiments.page import in_words
from labeltrace.features import feature_recipe
from labeltrace.runs import run

SETS, RATES, SEEDS = ("iris", "wine", "breast_cancer", "digits"), (0.05, 0.1, 0.2, 0.4), range(8)
PHOTOS, PHOTO_SEEDS = ("cifar10n-aggre", "cifar10n-worst"), (0,)
PHOTO_RECIPE = {"subset": 2000, "model": "small_cnn", "preset": "small"}
WAYS: dict[str, dict[str, Any]] = {
    "rolr": {"controller": "coupled"},
    "rolr+trace": {"trace": {"structure": True}},
    "rolr+trace without structure": {"trace": {"structure": False}},
}
PHOTO_WAYS = list(WAYS)[1:]
COLUMNS = {
    "average_precision": "average precision",
    "right_after": "labels right once relabelled",
    "precision": "found: precision",
    "recall": "recall",
    "before_precision": "by the rule before: precision",
    "before_recall": "recall",
}
Asked = tuple[str, "float | None", int, str, "Path | None"]  # set, rate, seed, way, root


def main() -> None:
    """Run every way on every set, rate and seed and write what came out."""
    parser = parser_of(__doc__)
    parser.add_argument("--root", type=Path, help="folder of CIFAR-10 with CIFAR-10_human.pt; without it features only")
    root = parser.parse_args().root
    todo: list[Asked] = [(s, rate, seed, way, None) for s in SETS for rate in RATES for seed in SEEDS for way in WAYS]
    if root is not None:
        todo += [(name, None, seed, way, root) for name in PHOTOS for seed in PHOTO_SEEDS for way in PHOTO_WAYS]
    records = list(side_by_side(one, todo, None, "runs", lambda r: str(r["set"]), quiet))
    command = "python benchmarks/small_sets.py" + ("" if root is None else " --root DATA")
    record = {"command": command, "runs": records, "environment": environment()}
    write_page(record, page(record), RESULTS / "small_sets")
    print(page(record))


def one(asked: Asked) -> dict[str, object]:
    """Return what one run finds, by the rule as it is and as it was."""
    name, rate, seed, way, root = asked
    changes = {"seed": seed, "device": "cpu", **WAYS[way]}
    if rate is None:
        table = photos_run(Path(f"runs/small_sets/{name}-{way}-{seed}"), {"data": name, "root": root, **changes})
    else:
        table = features_run(name, rate, changes)
    found = rule(table, "reliability", TRUST_LABEL, TRUST_SUGGESTION, stands=True)
    before = {"before_precision": found["precision"], "before_recall": found["recall"]}
    return {"set": name, "rate": rate, "seed": seed, "way": way, **measure(table), **before}


def features_run(name: str, rate: float, changes: dict[str, Any]) -> pa.Table:
    """Return the samples of a run over the features of a set, with labels made wrong by the run's seed."""
    x, y = sets()[name]
    data, _ = add_noise(from_arrays(x, y, name="features"), "symmetric", rate, changes["seed"])
    recipe = feature_recipe(len(x), changes.get("learner", "rolr"))
    with tempfile.TemporaryDirectory() as folder:
        return run(RunConfig.model_validate({**recipe, **changes}), Path(folder) / "run", dataset=data)[1]


def photos_run(folder: Path, changes: dict[str, Any]) -> pa.Table:
    """Return the samples of a run, decided by the rule as it is; one that is finished is not trained again."""
    if RunFolder(folder).samples.exists():
        return decided(read_samples(folder))
    return run(RunConfig.model_validate({**PHOTO_RECIPE, **changes}), folder, overwrite=True)[1]


def page(record: dict[str, Any]) -> str:
    """Return the results as Markdown: means over the seeds, and in how many runs recall was under a half."""
    where = record["environment"]
    lines = [
        "# Small sets",
        "",
        f"`{record['command']}` on {where['date']}, {where['device']}, torch {where['torch']}: features of "
        f"scikit-learn's sets with symmetric noise, seeds {SEEDS[0]} to {SEEDS[-1]}, and 2,000 images with labels "
        f"of people (CIFAR-10N, small_cnn, recipe `small`, seed {', '.join(map(str, PHOTO_SEEDS))}). Means over the "
        "seeds in per cent. *Missed* counts the runs that found less than half of the wrong labels. The rule before "
        f"also kept a label of reliability {TRUST_LABEL} or more where the model suggests another and is not sure.",
        "",
        "| set | wrong | method | " + " | ".join([*COLUMNS.values()][:4]) + " | missed | "
        + " | ".join([*COLUMNS.values()][4:]) + " | missed |",
        "|---|--:|---" + "|--:" * (len(COLUMNS) + 2) + "|",
    ]  # fmt: skip
    kinds = dict.fromkeys((run["set"], run["rate"]) for run in record["runs"])
    for name, rate in kinds:
        for way in WAYS:
            of = {"set": name, "rate": rate, "way": way}.items()
            mine = [run for run in record["runs"] if of <= run.items()]
            if not mine:
                continue
            means = [f"{100 * statistics.mean(run[key] for run in mine):.1f}" for key in COLUMNS]
            now, before = (
                f"{sum(run[key] < 1 / 2 for run in mine)} of {len(mine)}" for key in ("recall", "before_recall")
            )
            wrong = "by people" if rate is None else f"{rate:.0%}"
            lines.append(f"| {' | '.join([name, wrong, way, *means[:4], now, *means[4:], before])} |")
    lines += [
        "",
        "TRACE without structure − with it, same labels and seeds; p is of a two-sided paired t test, uncorrected.",
        "",
        "| set | wrong | labels right once relabelled | p | average precision | p |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, rate in kinds:
        if rate is not None:
            sides = [
                [r for r in record["runs"] if (r["set"], r["rate"], r["way"]) == (name, rate, way)]
                for way in PHOTO_WAYS[::-1]
            ]
            cells = []
            for key in ("right_after", "average_precision"):
                found = paired_t(*([100 * each[key] for each in side] for side in sides))
                cells += [f"{found.mean:+.2f}", in_words(found.p)]
            lines.append(f"| {' | '.join([name, f'{rate:.0%}', *cells])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
