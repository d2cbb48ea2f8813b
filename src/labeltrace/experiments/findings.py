"""The measured tables of texts about the results: `python -m labeltrace.experiments.findings docs/findings*.md`.

A place for a table is a line `<!-- NAME -->` and a line `<!-- end -->`; what stands between is made from
`results/runs.jsonl`, so no figure in the text is typed by hand. The names:

| name | what it shows |
|---|---|
| `effects` | pairs of methods in test accuracy: the effect, the spread over seeds, the paper's own difference |
| `parts` | the same for the ablation: one part of TRACE at a time |
| `choices` | the same for our choices where the paper is open, but for pairs of the ablation |
| `signals` | how well each score tells right from wrong, by data, noise and method |
| `replacements` | accuracy of pseudo targets of untrusted samples: each method's own set, and one rule for all |
| `matched` | the same on one set of samples for both methods of a pair (`results/matched.jsonl`) |
| `lists` | how good the list of a run is: wrong labels found, relabels right; by method, and pairs with a test |
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import stdev
from typing import Any

from labeltrace.bench.page import markdown
from labeltrace.engine.config import method_of
from labeltrace.errors import InputError, nearest
from labeltrace.experiments.compare import Comparison, paired_t
from labeltrace.experiments.matched import MATCHED_FILE, Pair, read_pairs
from labeltrace.experiments.page import Difference, differences, in_words, placed, spread
from labeltrace.experiments.results import RUNS, Line, read_lines, value_of
from labeltrace.experiments.tables import TABLES, Table, load_table
from labeltrace.files import write_atomically

PLACE = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOTHING = "Not measured yet.\n"
ACCURACY = "mean_last_10"
LISTS = {
    "precision": "found: precision",
    "recall": "found: recall",
    "relabel_accuracy": "relabels right",
    "right_after": "labels right once relabelled",
}
SUBSETS = ("all", "low-clean+noisy", "matched low-clean+noisy", "observed-noisy")


def fill(text: str, lines: Sequence[Line], tables: Sequence[Table], pairs: Sequence[Pair] = ()) -> str:
    """Return a text with every marked place filled from the lines; the rest stays as it is.

    Raises:
        InputError: a place of an unknown name, or a line that does not fit its cells.
    """
    lines = placed(lines, tables)
    makers = {**MAKERS, "matched": lambda *_: matched(pairs)}

    def filled(place: re.Match[str]) -> str:
        if place[2] not in makers:
            raise InputError(f"unknown place {place[2]!r}: {nearest(place[2], makers)}")
        return f"{place[1]}\n{makers[place[2]](lines, tables)}\n{place[3]}"

    return PLACE.sub(filled, text)


def effects(lines: Sequence[Line], tables: Sequence[Table]) -> str:
    """Return every pair once, with p also corrected for the number of tests; results.md has the other measures."""
    return _effects(_pairs(lines, [table for table in tables if table.name not in ("ablation", "choices")]))


def parts(lines: Sequence[Line], tables: Sequence[Table]) -> str:
    """Return the pairs of the ablation."""
    return _effects(_pairs(lines, [table for table in tables if table.name == "ablation"]))


def choices(lines: Sequence[Line], tables: Sequence[Table]) -> str:
    """Return the pairs of our own choices that the ablation has not."""
    pairs = _pairs(lines, [table for table in tables if table.name in ("ablation", "choices")])
    return _effects([pair for pair in pairs if pair[0] == "choices"])


def _pairs(lines: Sequence[Line], tables: Sequence[Table]) -> list[tuple[str, Difference]]:
    """Table and difference of every two sets of runs, where the first table has them."""
    seen: dict[frozenset[tuple[str, ...]], tuple[str, Difference]] = {}
    for table in tables:
        for pair in table.pairs:
            for one in differences(*pair, lines):
                runs = frozenset(tuple(line["id"] for line in side.lines) for side in (one.first, one.second))
                if one.first.cell.measure == one.second.cell.measure == ACCURACY:
                    seen.setdefault(runs, (table.name, one))
    return list(seen.values())


def _effects(pairs: Sequence[tuple[str, Difference]]) -> str:
    if not pairs:
        return NOTHING
    raw = [one.found.p for _, one in pairs]
    rows = [
        [name, *_effect(one), "" if p is None else in_words(p)] for (name, one), p in zip(pairs, holm(raw), strict=True)
    ]
    head = ["table", "difference", "in", "epochs", "n", "ours", "spread", "published", "p", "claim", "p (Holm)"]
    tests = sum(p is not None for p in raw)
    return f"{tests} of {len(rows)} tested. {SPREAD}\n\n{markdown(head, rows)}"


SPREAD = (
    "In test accuracy, mean of the last ten epochs. *Spread* is the standard deviation over seeds of the second "
    "method, *published* the paper's difference of the same two cells, *p (Holm)* is corrected for all tests listed."
)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p values corrected by Holm's steps for as many tests as there are.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    tests = sorted((p, place) for place, p in enumerate(values) if p is not None)
    found: list[float | None] = [None] * len(values)
    largest = 0.0
    for step, (p, place) in enumerate(tests):
        largest = max(largest, min(1.0, p * (len(tests) - step)))
        found[place] = largest
    return found


def _effect(one: Difference) -> list[str]:
    first, second = one.first.cell.number, one.second.cell.number
    published = "" if first is None or second is None else f"{first - second:+.2f}"
    values = one.second.values
    over_seeds = f"{stdev(values):.2f}" if len(values) > 1 else ""
    size = [str(one.first.epochs), str(len(values)), f"{one.found.mean:+.2f}", over_seeds, published]
    return [*one.names, *size, in_words(one.found.p), one.found.claim]


def signals(lines: Sequence[Line], tables: Sequence[Table]) -> str:
    """Return the AUROC of every score at the end of training, in per cent: for labels, and for pseudo targets."""
    of_label, of_suggestion = ("clean", "structure", "observed"), ("pseudo", "confidence", "structure_suggestion")
    rows = _by_kind(lines, [f"auroc.{name}" for name in (*of_label, *of_suggestion)])
    right = [f"{name}: label" for name in of_label]
    right += [f"{name.removesuffix('_suggestion')}: suggestion" for name in of_suggestion]
    return markdown(["data", "noise", "method", "epochs", "n", *right], rows) if rows else NOTHING


def replacements(lines: Sequence[Line], tables: Sequence[Table]) -> str:
    """Return the accuracy of pseudo targets by subset, and how many samples each holds."""
    measures = [f"{subset}.{figure}" for subset in SUBSETS for figure in ("pseudo_accuracy", "n")]
    rows = _by_kind(lines, measures)
    head = [part for subset in SUBSETS for part in (subset.replace("matched low-clean", "clean < 0.3"), "samples")]
    return markdown(["data", "noise", "method", "epochs", "n", *head], rows) if rows else NOTHING


def lists(lines: Sequence[Line], tables: Sequence[Table]) -> str:
    """Return how well each method found wrong labels and replaced them, and what its pairs differ by."""
    rows = _by_kind(lines, list(LISTS))
    if not rows:
        return NOTHING
    pairs = [one for _, one in _pairs(lines, tables)]
    found = [[_of(one, measure) for measure in LISTS] for one in pairs]
    corrected = iter(holm([each.p for of_pair in found for each in of_pair]))
    tested = [
        [*one.names, str(one.first.epochs), str(len(one.first.lines))]
        + [_difference(each, next(corrected)) for each in of_pair]
        for one, of_pair in zip(pairs, found, strict=True)
    ]
    by_method = markdown(["data", "noise", "method", "epochs", "n", *LISTS.values()], rows)
    if not tested:
        return by_method
    head = ["difference", "in", "epochs", "n", *LISTS.values()]
    return f"{by_method}\nDifferences; in brackets p, by Holm for all tests of this table.\n\n{markdown(head, tested)}"


def _of(one: Difference, measure: str) -> Comparison:
    """The same pair of runs in another measure."""
    first, second = ([value_of(line, measure) for line in side.lines] for side in (one.first, one.second))
    both = [(x, y) for x, y in zip(first, second, strict=True) if x is not None and y is not None]
    return paired_t([x for x, _ in both], [y for _, y in both])


def _difference(found: Comparison, p: float | None) -> str:
    if not found.differences:
        return ""
    return f"{found.mean:+.2f}" if p is None else f"{found.mean:+.2f} ({in_words(p)})"


def matched(pairs: Sequence[Pair]) -> str:
    """Return the accuracy of pseudo targets of both methods on the same samples, and a test of the difference."""
    kinds: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        key = pair["data"], _noise(pair["noise"]), _method({**pair, "controller": "trace"}), str(pair["epochs"])
        kinds.setdefault(key, []).append(pair)
    rows = []
    for kind, group in kinds.items():
        for name in group[0]["sets"]:
            sets = [pair["sets"][name] for pair in group if pair["sets"][name]["n"]]
            if sets:
                base, other = ([100 * one[side] for one in sets] for side in ("base", "other"))
                found = paired_t(other, base)
                samples = spread([float(one["n"]) for one in sets], counts=True)
                shown = [str(len(sets)), samples, spread(base), spread(other), f"{found.mean:+.2f}"]
                rows.append([*kind, name, *shown, in_words(found.p), found.claim])
    head = [
        "data",
        "noise",
        "method",
        "epochs",
        "set",
        "n",
        "samples",
        "base",
        "with TRACE",
        "difference",
        "p",
        "claim",
    ]
    return markdown(head, rows) if rows else NOTHING


def _noise(made: dict[str, Any] | None) -> str:
    return "own" if made is None else f"{made['kind']} {made['nominal']:g}"


def _by_kind(lines: Sequence[Line], measures: Sequence[str]) -> list[list[str]]:
    """Mean ± standard deviation of measures over the seeds of one config and noise, those with any value at all."""
    kinds: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        noise = _noise(line["noise"])
        kinds.setdefault((line["data"], noise, _method(line), line["config_sha256"], str(line["epochs"])), []).append(
            line
        )
    rows = []
    for (data, noise, method, _, epochs), runs in kinds.items():
        found = [[v for run in runs if (v := value_of(run, measure)) is not None] for measure in measures]
        if any(found):
            shown = [spread(v, counts=measure.endswith(".n")) for v, measure in zip(found, measures, strict=True)]
            rows.append([data, noise, method, epochs, str(len(runs)), *shown])
    return rows


def _method(line: Line) -> str:
    """Learner, controller and plug-in, with the options of TRACE that are not its defaults but for epochs."""
    from labeltrace.control import TraceConfig
    from labeltrace.experiments.cells import EPOCHS_OF_TRACE

    standard, given = vars(TraceConfig()), line["trace"] or {}
    changed = [f"{k} {v}" for k, v in given.items() if k not in EPOCHS_OF_TRACE and standard.get(k) != v]
    return ", ".join([method_of(line["learner"], line["controller"], line.get("plugin")), *changed])


MAKERS: dict[str, Callable[[Sequence[Line], Sequence[Table]], str]] = {
    "effects": effects,
    "parts": parts,
    "choices": choices,
    "signals": signals,
    "replacements": replacements,
    "lists": lists,
}


if __name__ == "__main__":
    from labeltrace.commands.console import complaining

    with complaining():
        if len(sys.argv) < 2:
            raise InputError("usage: python -m labeltrace.experiments.findings TEXT.md…")
        tables, lines, pairs = [load_table(name) for name in TABLES], read_lines(RUNS), read_pairs(MATCHED_FILE)
        for path in map(Path, sys.argv[1:]):
            made = fill(path.read_text(encoding="utf-8"), lines, tables, pairs)
            write_atomically(path, partial(Path.write_text, data=made, encoding="utf-8"))
