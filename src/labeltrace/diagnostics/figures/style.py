"""How figures look, and how they are written: PNG, SVG and the numbers as CSV.

Colours are Okabe and Ito's, safe for colour-blind readers; a second sign (marker, line, hatch) tells the same in grey.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from labeltrace.diagnostics.reliability import Row
from labeltrace.diagnostics.values import PERCENT, shown
from labeltrace.errors import InputError
from labeltrace.files import write_atomically

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000",
)  # fmt: skip
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")
HATCHES = ("", "///", "...", "xx", "\\\\\\", "++", "oo")
ABREAST = 3  # bars of a group whose numbers have room beside each other; those of more stand upright
DPI = 200
RC: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "labeltrace",  # the same numbers give the same file
    "text.parse_math": False,  # names of classes and runs may hold dollars
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of this package.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise InputError("matplotlib is not installed: pip install 'labeltrace[plots]'") from None
    with matplotlib.rc_context(RC):
        yield


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def percent_axis(axis: Any, label: str) -> None:
    """Let the y axis run from 0 to 100 %, with room for what stands on top."""
    axis.set(ylim=(0, 114), yticks=range(0, 101, 20), ylabel=f"{label} (%)")


def bars(axis: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]], colours: Sequence[str]) -> None:
    """Draw grouped bars of shares as per cent, each with its number on top; a dash where there is none."""
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        heights = [0.0 if math.isnan(value) else PERCENT * value for value in values]
        axis.bar(
            places, heights, width * 0.94, label=name, color=colours[number], hatch=HATCHES[number],
            edgecolor="white", linewidth=0.6,
        )  # fmt: skip
        size, upright = 7 if len(groups) * len(series) <= 12 else 6, len(series) > ABREAST
        for place, height, value in zip(places, heights, values, strict=True):
            label, turn = shown(value, 1, PERCENT), 90 if upright and not math.isnan(value) else 0
            axis.text(place, height + 1, label, ha="center", va="bottom", fontsize=size, rotation=turn)
    axis.set_xticks(range(len(groups)), groups)


def per_cent(values: Iterable[str | int | float]) -> list[float]:
    """Return shares as per cent."""
    return [PERCENT * float(value) for value in values]


def short(name: str, most: int = 16) -> str:
    """Return a name that fits, cut in the middle: names often differ at their ends.

    >>> short("a very long name indeed")
    'a very l… indeed'
    """
    tail = (most - 1) // 2
    return name if len(name) <= most else f"{name[: most - 1 - tail]}…{name[len(name) - tail :]}"


def fitting(names: Sequence[str], most: int) -> list[str]:
    """Return names that fit and can still be told apart: without what all begin with, where cutting them is not enough.

    >>> fitting(["symmetric-noise-0.2-seed-1027", "symmetric-noise-0.5-seed-1027"], 14)
    ['…0.2-seed-1027', '…0.5-seed-1027']
    """
    same = "".join(signs[0] for signs in takewhile(lambda signs: len(set(signs)) == 1, zip(*names, strict=False)))
    start = 1 + max(same.rfind(sign) for sign in "-_ /")
    for cut in (list(names), [f"…{name[start:]}" for name in names]):
        found = [short(name, most) for name in cut]
        if len(set(found)) == len(names):
            return found
    return [f"{number}: {short(name, most - 3)}" for number, name in enumerate(names, 1)]


def span(values: Iterable[int]) -> str:
    """Return one number, or the smallest and the largest.

    >>> span([1070, 274, 657]), span([450, 450])
    ('274–1,070', '450')
    """
    ordered = sorted(values)
    return "–".join(f"{value:,}" for value in dict.fromkeys((ordered[0], ordered[-1])))


def count(value: object, what: str = "") -> str:
    """Return "n = 1,234 what".

    >>> count(1234, "samples")
    'n = 1,234 samples'
    """
    return f"n = {value:,}" + (f" {what}" if what else "")


def write_figure(figure: Any, rows: Sequence[Row], out: Path, name: str) -> list[Path]:
    """Write NAME.png, NAME.svg and NAME.csv, each whole or not at all; return their paths.

    Raises:
        InputError: the folder cannot be written.
    """
    paths = [out / f"{name}.{suffix}" for suffix in ("png", "svg", "csv")]
    try:
        write_atomically(paths[0], lambda path: figure.savefig(path, format="png", dpi=DPI))
        write_atomically(paths[1], lambda path: figure.savefig(path, format="svg", metadata={"Date": None}))
        write_atomically(paths[2], lambda path: _write_csv(rows, path))
    except OSError as error:
        raise InputError(f"{out}: {error.strerror or error}") from None
    return paths


def _write_csv(rows: Sequence[Row], path: Path) -> None:
    """A column for every name that a row has; a value that does not exist is an empty field."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in rows:
            writer.writerow({name: "" if value != value else value for name, value in row.items()})
