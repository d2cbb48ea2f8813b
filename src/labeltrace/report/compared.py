"""What a report says of its runs side by side: figures, curves, reliabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from labeltrace.audit.decisions import KEEP, RELABEL, REVIEW
from labeltrace.diagnostics.reliability import HIGH_CONFIDENCE, LOW_CLEAN
from labeltrace.diagnostics.values import DASH, PERCENT, shown
from labeltrace.report.charts import Line, bar_chart, heat_grid, legend, line_chart, nice_ticks
from labeltrace.report.findings import Findings, accuracy_history
from labeltrace.report.markup import Child, Html, Section, join, table, tag

#: figures of a run: key → words, digits of a percentage (None: a plain number)
FIGURES: dict[str, tuple[str, int | None]] = {
    "best": ("test accuracy, best epoch", 2),
    "last": ("test accuracy, last epoch", 2),
    "mean_last_10": ("test accuracy, mean of the last 10", 2),
    "samples": ("training samples", None),
    KEEP: ("keep", 1),
    RELABEL: ("relabel", 1),
    REVIEW: ("review", 1),
    "noise_rate": ("wrong labels, estimated", 1),
    "disagreement": ("suggestion is not the label", 1),
    "wrong_rate": ("wrong labels, known", 1),
    "precision": ("wrong labels found: precision", 1),
    "recall": ("wrong labels found: recall", 1),
    "average_precision": ("ranking: average precision", 1),
    "auroc": ("ranking: AUROC", 1),
    "suggestion_accuracy": ("suggestions right", 1),
    "relabel_accuracy": ("suggestions right, of relabel", 1),
    "right_after": ("labels right once relabelled", 1),
    "hc_error": (f"suggestions wrong at confidence ≥ {HIGH_CONFIDENCE:g}", 2),
    "ece_label": ("calibration error, label", 2),
    "ece_suggestion": ("calibration error, suggestion", 2),
    "seconds": ("seconds of training", None),
}
HIGHER = {"best", "last", "mean_last_10", "precision", "recall", "average_precision", "auroc", "suggestion_accuracy",
          "relabel_accuracy", "right_after"}  # fmt: skip
LOWER = {"hc_error", "ece_label", "ece_suggestion"}

#: what a reader may not know of the figures
MEANING = {
    "noise_rate": "share of labels that are wrong if the label noise is what best explains the networks' predictions",
    "disagreement": "an upper estimate of the same: some of these suggestions are wrong themselves",
    "precision": "share of wrong labels among the samples that the run doubts, relabel and review together",
    "recall": "share of all wrong labels that the run doubts",
    "average_precision": "precision averaged down the list of samples, the most suspicious first",
    "auroc": "how often a wrong label stands before a right one in that list; by chance 50 %",
    "ece_label": "how far reliability and share of right labels are apart on average; 0 where 0.8 means right in 80 %",
    "ece_suggestion": "likewise for suggestions",
}

BINS = {"observed_correct": "label is right", "pseudo_accuracy": "suggestion is right",
        "follow_noisy": "suggestion repeats a wrong label"}  # fmt: skip
UNKNOWN_BINS = {"follows": "suggestion is the label", "confidence": "mean confidence of the suggestion"}
SUBSETS = ("all", "low-clean", "observed-noisy", "low-clean+noisy")
SUBSET_HEADS = {
    "subset": "samples", "n": "n", "n_noisy": "wrong labels", "pseudo_accuracy": "suggestion right",
    "follow_noisy": "repeats wrong label", "hc_error": "wrong when confident", "hc_wrong_joint": "confident and wrong",
    "ece": "calibration error", "follows": "suggestion is the label", "confidence": "mean confidence",
}  # fmt: skip


def compared(found: Sequence[Findings]) -> list[Section]:
    """Return the sections that runs share."""
    sections = [("figures", "Figures", _figures(found)), ("accuracy", _training(found), _accuracy(found))]
    sections.append(("reliability", "Reliability by bin", _each(found, _bins, _bins_words(found))))
    sections.append(("landscape", "Reliability landscape", _each(found, _landscape, _landscape_words(found))))
    sections.append(("targets", "Suggestions", _targets(found)))
    return sections


def _each(found: Sequence[Findings], chart: Callable[[Findings], Html], words: str) -> Html:
    figures = (tag("figure", tag("figcaption", f.title) if f.sign else None, chart(f)) for f in found)
    return join(tag("p", words), tag("div", *figures, class_="charts two" if len(found) in (2, 4) else "charts"))


def _figures(found: Sequence[Findings]) -> Html:
    rows: list[list[Child]] = []
    for key, (words, digits) in FIGURES.items():
        values = [f.figures.get(key, math.nan) for f in found]
        if all(map(math.isnan, values)):
            continue
        best = _best(key, values)
        cells = [
            DASH if math.isnan(v) else f"{v:,.0f}" if digits is None else shown(v, digits, PERCENT) for v in values
        ]
        row = [tag("td", tag("b", cell) if value == best else cell) for cell, value in zip(cells, values, strict=True)]
        rows.append([words + ("" if digits is None else ", %"), *row])
    caption = "What the run came to." if len(found) == 1 else "What the runs came to. The best of a row is bold."
    there = [key for key in MEANING if any(not math.isnan(f.figures.get(key, math.nan)) for f in found)]
    terms = (tag("div", tag("dt", FIGURES[key][0]), tag("dd", MEANING[key])) for key in there)
    meaning = tag("details", tag("summary", "What the figures mean"), tag("dl", *terms, class_="terms"))
    return join(table(caption, ["", *(f.title for f in found)], rows, class_="figures"), meaning)


def _best(key: str, values: list[float]) -> float:
    """The best of several different values; NaN, which equals nothing, where there is none."""
    there = [value for value in values if not math.isnan(value)]
    if len(set(there)) < 2 or key not in HIGHER | LOWER:
        return math.nan
    return max(there) if key in HIGHER else min(there)


def _training(found: Sequence[Findings]) -> str:
    return "Accuracy" if any(accuracy_history(f) for f in found) else "Training loss"


def _accuracy(found: Sequence[Findings]) -> Html:
    lines = [Line(f.title, accuracy_history(f), f.sign) for f in found]
    what, label, scale = "test accuracy by epoch", "test accuracy, %", PERCENT
    if not any(line.points for line in lines):
        lines = [Line(f.title, accuracy_history(f, "loss"), f.sign) for f in found]
        what, label, scale = "training loss by epoch; the runs have no test set", "training loss", 1.0
    elif len(found) == 1 and (inside := accuracy_history(found[0], "suggestion_accuracy")):
        lines = [Line("test accuracy", lines[0].points), Line("suggestions right, training set", inside)]
        label = "right, %"
    points = [point for line in lines for point in line.points]
    if not points:
        return tag("p", "The run left no metrics.")
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    x_ticks = [t for t in nice_ticks(first, last, 4 if last - first > 8 else 8) if t == int(t) and first <= t <= last]
    y_ticks = nice_ticks(min(y for _, y in points), max(y for _, y in points))
    chart = line_chart(
        lines, what, "epoch", label, x_ticks=x_ticks, y_ticks=y_ticks, x_range=(first, last), y_scale=scale
    )
    numbers = [[f"{x:g}", *(_at(line, x, scale) for line in lines)] for x in sorted({x for x, _ in points})]
    return tag(
        "figure",
        chart,
        legend(lines) if len(lines) > 1 else None,
        _numbers(what, ["epoch", *(line.name for line in lines)], numbers),
        class_="wide",
    )


def _at(line: Line, x: float, scale: float) -> str:
    return next((shown(y, 2 if scale == PERCENT else 4, scale) for place, y in line.points if place == x), DASH)


def _numbers(what: str, head: list[str], rows: Sequence[Sequence[Child]]) -> Html:
    return tag("details", tag("summary", "Numbers"), table(what, head, [list(row) for row in rows]))


def _bins_words(found: Sequence[Findings]) -> str:
    words = (
        "Samples sorted into ten bins by the reliability of their observed label: how far, from 0 to 1, the run trusts "
        "it. That comes from its loss beside the others' and, with TRACE, also from how steadily the layers of the "
        "network see the same samples around it and from whether predictions agree."
    )
    if not any(f.truth for f in found):
        return f"{words} No true label is known, so nothing is said about who is right."
    return f"{words} Where that trust is calibrated, the line of right labels lies on the dotted diagonal."


def _bins(found: Findings) -> Html:
    series = BINS if found.truth else UNKNOWN_BINS
    total = sum(int(row["n"]) for row in found.bins)
    lines = [Line(words, [(float(r["midpoint"]), float(r[key])) for r in found.bins]) for key, words in series.items()]
    bars = [(float(row["midpoint"]), int(row["n"]) / total) for row in found.bins]
    tenths = [round(n / 5, 1) for n in range(6)]
    chart = line_chart(
        lines, f"{', '.join(series.values())}, by reliability of the observed label",
        "reliability of the observed label", "%", x_ticks=tenths, y_ticks=tenths, bars=bars, diagonal=bool(found.truth),
    )  # fmt: skip
    rows = [
        [f"{float(r['midpoint']) - 0.05:.1f} to {float(r['midpoint']) + 0.05:.1f}", f"{r['n']:,}",
         *(shown(float(r[key]), 1, PERCENT) for key in series)]
        for r in found.bins
    ]  # fmt: skip
    numbers = _numbers("by bin, per cent", ["reliability", "n", *series.values()], rows)
    return join(chart, legend(lines, more=[("bar", "share of the samples")]), numbers)


def _landscape_words(found: Sequence[Findings]) -> str:
    right, share = "how often the suggestion is the true class", "the share of the samples"
    if not all(f.truth for f in found):
        right = f"{right} (where no truth is known, {share})" if any(f.truth for f in found) else share
    return (
        "Both reliabilities at once: that of the label across, that of the suggestion upwards, which is how sure the "
        f"networks are of the class that they suggest. A cell shows {right}, in per cent, and below it the number of "
        "samples; cells with next to none are blank. Top left is where a replacement is needed and offered."
    )


def _landscape(found: Findings) -> Html:
    shares, counts = found.cells.accuracy.tolist(), found.cells.counts.tolist()
    what = "right suggestions" if found.truth else "share of the samples"
    return heat_grid(
        shares, lambda y, x: (shown(shares[y][x], 1, PERCENT), f"{counts[y][x]:,}"),
        f"{what} by reliability of the observed label and {found.pseudo}", "reliability of the observed label",
        found.pseudo,
    )  # fmt: skip


def _targets(found: Sequence[Findings]) -> Html:
    noisy = "noisy those whose label is wrong, " if any(f.truth for f in found) else ""
    words = (
        f"Low-clean are samples whose label is trusted less than {LOW_CLEAN:g}, {noisy}"
        f"confident suggestions those of {HIGH_CONFIDENCE:g} and more."
    )
    charts = None
    if any(f.truth for f in found):
        right, wrong = (_subset_lines(found, key) for key in ("pseudo_accuracy", "hc_error"))
        most = max((y for line in wrong for _, y in line.points if not math.isnan(y)), default=0.0)
        full = [n / 5 for n in range(6)]
        errors = nice_ticks(0.0, max(most, 0.01))
        key = legend(right, filled=True) if len(found) > 1 else None
        charts = tag(
            "div",
            _bar_figure("Suggestion is right", "right, %", right, full, key),
            _bar_figure("Wrong among confident suggestions", "wrong, %", wrong, errors, key),
            class_="charts",
        )
    tables = []
    for f in found:
        keys = [key for key in SUBSET_HEADS if key in f.subsets[0]]
        rows: list[list[Child]] = [
            [
                str(r["subset"]),
                *(f"{r[k]:,}" if isinstance(r[k], int) else shown(float(r[k]), 1, PERCENT) for k in keys[1:]),
            ]
            for r in f.subsets
        ]
        caption = f"{f.title}: suggestions, per cent" + (f" of {f.truth:,} samples of known truth" if f.truth else "")
        tables.append(table(caption, [SUBSET_HEADS[key] for key in keys], rows))
    if charts is not None and len(found) > 1:  # the charts compare; the numbers are there for who asks
        tables = [tag("details", tag("summary", "Numbers"), *tables)]
    return join(tag("p", words), charts, *tables)


def _subset_lines(found: Sequence[Findings], key: str) -> list[Line]:
    lines = []
    for f in found:
        by_name = {row["subset"]: float(row.get(key, math.nan)) for row in f.subsets}
        lines.append(Line(f.title, [(n, by_name.get(name, math.nan)) for n, name in enumerate(SUBSETS)], f.sign))
    return lines


def _bar_figure(title: str, y_label: str, lines: list[Line], ticks: list[float], key: Html | None) -> Html:
    groups = [name.removeprefix("observed-") for name in SUBSETS]
    return tag("figure", tag("figcaption", title), bar_chart(groups, lines, title, y_label, y_ticks=ticks), key)
