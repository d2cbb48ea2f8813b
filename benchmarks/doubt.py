"""How far finished runs doubt labels that are right and labels that are wrong, and what structure has to do with it.

Run: python benchmarks/doubt.py cifar_n --runs runs/cifar-n
Looks at runs whose truth is known and trains nothing. Writes results/doubt_<name>.json and .md: the mean reliability of
right and of wrong labels, the mean structure confidence, how many of the wrong labels have a posterior above 0.9, how
many the networks suggest themselves, and how many samples differ from the suggestion.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared import RESULTS, parser_of, write_page

from labeltrace.audit import read_samples
from labeltrace.audit.samples import values
from labeltrace.bench.environment import environment
from labeltrace.engine import RunFolder

COLUMNS = {
    "wrong": "wrong",
    "reliability_right": "reliability of right labels",
    "reliability_wrong": "of wrong ones",
    "structure": "structure confidence",
    "passed": "wrong ones of posterior > 0.9",
    "repeated": "wrong ones suggested",
    "differ": "suggestion differs",
}


def main() -> None:
    """Look at the runs and write what they doubt."""
    parser = parser_of(__doc__)
    parser.add_argument("name", help="of the result")
    parser.add_argument("--runs", type=Path, required=True, help="folder of finished runs")
    asked = parser.parse_args()
    rows = [row(path.parent) for path in sorted(asked.runs.rglob("samples.parquet"))]
    command = f"python benchmarks/doubt.py {asked.name} --runs {asked.runs.as_posix()}"
    record = {"command": command, "runs": rows, "environment": environment()}
    write_page(record, page(record), RESULTS / f"doubt_{asked.name}")
    print(page(record))


def row(path: Path) -> dict[str, Any]:
    """Return what one run doubts, as shares and means over samples of known truth."""
    table, where = read_samples(path), RunFolder(path).read_environment()
    truth = values(table, "truth")
    known = truth >= 0
    observed, suggested, clean, structure, reliability = (
        values(table, name)[known] for name in ("observed", "suggested", "clean", "structure", "observed_reliability")
    )
    wrong = observed != truth[known]
    found = {
        "wrong": wrong,
        "reliability_right": reliability[~wrong],
        "reliability_wrong": reliability[wrong],
        "structure": structure,
        "passed": clean[wrong] > 0.9,
        "repeated": suggested[wrong] == observed[wrong],
        "differ": suggested != observed,
    }
    about = {name: where[name] for name in ("seed", "device", "revision")}
    return {"run": path.name, **about, **{name: float(each.mean()) for name, each in found.items()}}


def page(record: dict[str, Any]) -> str:
    """Return the results as Markdown, per cent."""
    runs = record["runs"]
    lines = [
        f"# What runs doubt: {record['command'].split()[2]}",
        "",
        f"`{record['command']}` on {record['environment']['date']}, runs made on {runs[0]['device']}; per cent of the "
        "samples or of the wrong labels, and means of scores in per cent.",
        "",
        "| run | " + " | ".join(COLUMNS.values()) + " |",
        "|---" + "|--:" * len(COLUMNS) + "|",
        *(f"| {' | '.join([run['run'], *(f'{100 * run[key]:.1f}' for key in COLUMNS)])} |" for run in runs),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
