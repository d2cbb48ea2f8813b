"""What labeltrace audit prints: classes, the head of the queue, thresholds and their figures."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from labeltrace.commands.console import console
from labeltrace.commands.trust import as_flags

if TYPE_CHECKING:
    from labeltrace.audit.summary import ClassSummary
    from labeltrace.audit.thresholds import Chosen

MOST_CLASSES = 20  # that are printed, those with most wrong labels
WIDEST = 100_000  # columns of a terminal that has room for everything
LEAST = 60  # columns of a table; on a narrower terminal its lines are broken, where rich would leave out the names
NARROW = 16  # columns that the name of a class may take where there is no room


def class_table(classes: list[ClassSummary]) -> Table:
    """Return a row per class; of many the worst."""
    table = _plain_table()
    table.add_column("labelled", overflow="fold", min_width=len("labelled"))
    for heading in ("samples", "wrong (est.)", "relabel", "review"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("suggested instead")
    for row in sorted(classes, key=lambda row: -row.wrong)[:MOST_CLASSES] if len(classes) > MOST_CLASSES else classes:
        instead = "–" if row.replacement is None else f"{row.replacement} ({row.replaced:,})"
        table.add_row(row.name, f"{row.samples:,}", f"{row.wrong:,.0f}", f"{row.relabel:,}", f"{row.review:,}", instead)
    return table


def queue_table(head: Any) -> Table:
    """Return the head of the queue; where the terminal is narrow, with less of everything but the ids."""
    numbers = ["label trust", "score", "confidence"]  # the first is what is missed least
    table = _queue_columns(head, numbers, None)
    while console.is_terminal and _width(table) > console.width:
        table = _queue_columns(head, numbers, NARROW)
        if not numbers:
            break
        numbers = numbers[1:]
    return table


def _queue_columns(head: Any, shown: list[str], longest: int | None) -> Table:
    table = _plain_table()
    table.add_column("id", no_wrap=True, overflow="ignore")
    for heading in ("label", "suggested"):
        table.add_column(heading, no_wrap=True, overflow="ellipsis", max_width=longest)
    sources = {"label trust": "observed_reliability", "confidence": "confidence", "score": "score"}
    sources = {heading: name for heading, name in sources.items() if heading in shown}
    for heading in sources:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("decision", no_wrap=True)
    for row in head.to_pylist():
        numbers = (f"{row[name]:.3f}" for name in sources.values())
        table.add_row(row["id"], row["observed_class"], row["suggested_class"], *numbers, row["decision"])
    return table


def _plain_table() -> Table:
    return Table(box=None, padding=(0, 2), pad_edge=False, collapse_padding=True)


def _width(table: Table) -> int:
    """Return the columns that a table takes where there is room."""
    return console.measure(table, options=console.options.update(max_width=WIDEST)).maximum


def print_table(table: Table, whole: bool = False) -> None:
    """Print a table; in full width where it is to be whole, and where no terminal is there to be too narrow for it."""
    if whole or not console.is_terminal:
        table.width = _width(table)
    elif console.width < LEAST:
        table.width = min(_width(table), LEAST)
    console.print(table, soft_wrap=True)


def chosen_lines(chosen: Chosen) -> list[str]:
    """Return what was chosen from checked samples, and how good it is, in lines."""
    from labeltrace.audit.thresholds import needed

    wanted = f"{100 * chosen.wanted:g} %"
    lines = [f"chosen from the checked samples: {as_flags((chosen.trust_label, chosen.trust_suggestion))}"]
    for name, share in (("relabel", chosen.relabel), ("keep", chosen.keep)):
        low, high = share.interval
        right = f"{share.right:,} of {share.count:,} right ({figure(share.precision)})"
        lines.append(f"  {name:<7} {right}, 95 % interval {100 * low:.1f} to {100 * high:.1f} %")
    lines.append(f"  review  {chosen.review:,}")
    if not chosen.is_sure:
        more = f"; {needed(chosen.wanted):,} checked relabels, all right, would be" if chosen.wanted < 1 else ""
        lines.append(f"  the checked set is too small to be sure of {wanted}{more}")
    return lines


def chosen_json(chosen: Chosen) -> dict[str, Any]:
    """Return the same for programs."""
    shares = {
        name: {**asdict(share), "precision": share.precision, "interval": share.interval}
        for name, share in (("relabel", chosen.relabel), ("keep", chosen.keep))
    }
    return {**asdict(chosen), **shares, "sure": chosen.is_sure}


def figure(share: float) -> str:
    """Return a share in per cent; a dash for one of nothing.

    >>> figure(0.5), figure(math.nan)
    ('50.00 %', '–')
    """
    return "–" if math.isnan(share) else f"{100 * share:.2f} %"
