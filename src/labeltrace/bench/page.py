"""The measured tables of docs/performance.md, from results/*.json: `python -m labeltrace.bench.page`.

A place for a table is a line `<!-- bench_NAME.json -->` and a line `<!-- end -->`; what stands between is replaced. So
no figure on the page was typed by hand, and a test says whether page and results agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labeltrace.bench import cpu, gpu, growth
from labeltrace.files import write_atomically

Tables = dict[str, tuple[list[str], list[list[str]]]]  # title → head and rows

#: measurement → its tables; the file is results/bench_<name>.json, the command labeltrace bench <name> or in the file
MEASUREMENTS: dict[str, Callable[[dict[str, Any]], Tables]] = {
    "gpu": gpu.tables,
    "parts": gpu.part_tables,
    "growth": growth.tables,
    "cpu": cpu.tables,
}
PLACE = re.compile(r"(<!-- bench_(\w+)\.json -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str, results: Path) -> str:
    """Return the page with every marked place filled from the folder `results`; the rest stays as it is."""
    return PLACE.sub(lambda place: f"{place[1]}\n{section(place[2], results)}\n{place[3]}", text)


def section(name: str, results: Path) -> str:
    """Return where a measurement was made and its tables as Markdown, or the command that makes it."""
    path = results / f"bench_{name}.json"
    command = f"labeltrace bench {name} --out results/{path.name}"
    if not path.exists():
        return f"Not measured yet: `{command}`.\n"
    result = json.loads(path.read_text(encoding="utf-8"))
    where = result["environment"]
    lines = [
        f"`{result.get('command', command)}` on {where['date']}: {where['device']}, {where['cores']} cores, "
        f"{result.get('threads', where.get('threads'))} threads, "
        f"torch {where['torch']}, revision {where['revision'] or 'not recorded'}.",
        "",
    ]
    for title, (head, rows) in MEASUREMENTS[name](result).items():
        lines += [f"**{title}**", "", markdown(head, rows)]
    return "\n".join(lines)


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table, numbers to the right.

    >>> print(markdown(["part", "seconds"], [["fit", "2.1"]]))
    | part | seconds |
    |---|--:|
    | fit | 2.1 |
    <BLANKLINE>
    """
    right = [all(re.match(r"[+−-]?\d|–|$", row[i]) for row in rows) for i in range(len(head))]
    ruler = "".join("|--:" if number else "|---" for number in right) + "|"
    return "\n".join([_line(head), ruler, *map(_line, rows), ""])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    docs = Path("docs/performance.md")
    filled = page(docs.read_text(encoding="utf-8"), Path("results"))
    write_atomically(docs, lambda temporary: temporary.write_text(filled, encoding="utf-8"))
