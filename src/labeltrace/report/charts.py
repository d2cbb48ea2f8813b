"""Charts as SVG that a stylesheet colours: sharp in print, right in dark mode, no script, a few kilobytes each.

A series differs from the next in colour (Okabe and Ito's, in page.css) and in a second sign: marker, dashes or letter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labeltrace.diagnostics.values import PERCENT, shown
from labeltrace.report.markup import Html, join, tag

WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 14, 42  # margins of the plot
CHARACTER = 6.6  # width of a digit on an axis
MARKED = 60  # points up to which a line shows each
SERIES = 7  # colours; the next series begins again with other dashes
DASHES = (None, "7 4", "2 3", "8 3 2 3")
#: outlines around (0, 0): circle, square, triangle, diamond
MARKERS = (
    "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0",
    "M-3 -3H3V3H-3Z",
    "M0 -4L3.8 3H-3.8Z",
    "M0 -4.4L4.4 0L0 4.4L-4.4 0Z",
)


@dataclass(frozen=True)
class Line:
    """A named line; points with NaN are gaps.

    Args:
        name: for the legend.
        points: (x, y), y a share.
        sign: a letter under its bars, where several runs share a chart.
    """

    name: str
    points: Sequence[tuple[float, float]]
    sign: str = ""


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers from the first at or below `low` to the first at or above `high`.

    >>> nice_ticks(0.0, 1.0), nice_ticks(0.83, 0.97), nice_ticks(3, 3)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.8, 0.85, 0.9, 0.95, 1.0], [3.0, 3.2, 3.4, 3.6, 3.8, 4.0])
    """
    high = high if high > low else low + 1
    rough = (high - low) / about
    ten = 10.0 ** math.floor(math.log10(rough))
    step = next(ten * m for m in (1, 2, 2.5, 5, 10) if ten * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 10) for n in range(first, last + 1)]


def line_chart(
    lines: Sequence[Line],
    title: str,
    x_label: str,
    y_label: str,
    *,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    x_range: tuple[float, float] | None = None,
    y_scale: float = PERCENT,
    bars: Sequence[tuple[float, float]] = (),
    diagonal: bool = False,
) -> Html:
    """Return lines over an x axis.

    Args:
        lines: drawn in their order.
        title: what a screen reader says the picture is.
        x_label, y_label: of the axes.
        x_ticks, y_ticks: numbers on the axes, which end with them.
        x_range: where the x axis ends, if not with its numbers.
        y_scale: of the numbers on the y axis.
        bars: (x, height) of pale bars behind the lines, as wide as they are apart.
        diagonal: also draw y = x.
    """
    longest = max(len(_tick(y_scale * tick)) for tick in y_ticks)
    left = LEFT + CHARACTER * max(0, longest - 4)  # room for numbers of four characters is there
    plot = _Plot(x_range or (x_ticks[0], x_ticks[-1]), (y_ticks[0], y_ticks[-1]), left)
    parts = [plot.axes(x_ticks, y_ticks, x_label, y_label, y_scale)]
    wide = 0.86 * plot.span / max(len(bars), 1)
    for x, height in bars:
        top = plot.y(height)
        parts.append(
            tag(
                "rect", tag("title", f"{x:g}: {PERCENT * height:.1f} % of the samples"), class_="bar",
                x=plot.x(x) - wide / 2, y=top, width=wide, height=plot.y(y_ticks[0]) - top,
            )
        )  # fmt: skip
    if diagonal:
        parts.append(_path([(plot.x(t), plot.y(t)) for t in (0.0, 1.0)], class_="even"))
    for number, line in enumerate(lines):
        parts.append(_line(plot, number, line, y_scale))
    return _svg(title, WIDTH, HEIGHT, *parts)


def bar_chart(
    groups: Sequence[str], series: Sequence[Line], title: str, y_label: str, *, y_ticks: Sequence[float]
) -> Html:
    """Return grouped bars of shares, each with its number on top (a dash for NaN) and its series' sign below.

    Args:
        groups: names under the groups.
        series: a bar in every group: the y of its points, in the order of the groups.
        title: what a screen reader says the picture is.
        y_label: of the axis.
        y_ticks: numbers on it.
    """
    plot = _Plot((0, len(groups)), (y_ticks[0], y_ticks[-1]))
    parts = [plot.axes((), y_ticks, "", y_label, PERCENT)]
    wide = 0.84 * plot.span / max(len(groups), 1) / max(len(series), 1)
    small = "tiny" if wide < 30 else ""
    for g, group in enumerate(groups):
        parts.append(tag("text", group, x=plot.x(g + 0.5), y=HEIGHT - 8.0, text_anchor="middle", class_="small"))
        for number, one in enumerate(series):
            value = one.points[g][1]
            middle = plot.x(g + 0.5) + (number - (len(series) - 1) / 2) * wide
            top = plot.y(y_ticks[0] if math.isnan(value) else value)
            words = shown(value, 1 if wide >= 22 else 0, PERCENT)
            about = f"{one.name}, {group}: {shown(value, 2, PERCENT)} %"
            parts.append(
                tag(
                    "rect", tag("title", about), class_=f"fill s{number % SERIES}", x=middle - 0.46 * wide, y=top,
                    width=0.92 * wide, height=plot.y(y_ticks[0]) - top,
                )
            )  # fmt: skip
            if wide >= 13:
                parts.append(tag("text", words, x=middle, y=top - 3, text_anchor="middle", class_=f"halo {small}"))
            if one.sign and wide >= 9:
                below = HEIGHT - BOTTOM + 13.0
                parts.append(tag("text", one.sign, x=middle, y=below, text_anchor="middle", class_="small"))
    return _svg(title, WIDTH, HEIGHT, *parts)


def heat_grid(
    shares: Sequence[Sequence[float]],
    words: Callable[[int, int], tuple[str, str]],
    title: str,
    x_label: str,
    y_label: str,
) -> Html:
    """Return a square of cells [row][column] over [0, 1]², rows from the bottom, the darker the larger the share.

    Args:
        shares: of each cell in [0, 1], NaN for a blank one.
        words: (row, column) → the two lines in a cell.
        title: what a screen reader says the picture is.
        x_label, y_label: of the axes.
    """
    count, wide, high = len(shares), 70, 44
    left, top = 46, 8
    bottom = top + count * high
    parts: list[Html] = []
    for row, values in enumerate(shares):
        for column, share in enumerate(values):
            x, y = left + column * wide, bottom - (row + 1) * high
            blank = math.isnan(share)
            cell = {"x": x, "y": y, "width": wide, "height": high}
            parts.append(
                tag("rect", **cell, class_="blank" if blank else "heat", fill_opacity=None if blank else share)
            )
            if not blank:
                one, two = words(row, column)
                middle = x + wide / 2
                parts.append(tag("text", one, x=middle, y=y + 19.0, text_anchor="middle"))
                parts.append(tag("text", two, x=middle, y=y + 34.0, text_anchor="middle", class_="tiny soft"))
    for n in range(count + 1):
        at = f"{n / count:.1f}"
        parts.append(tag("text", at, x=left + n * wide, y=bottom + 15, text_anchor="middle", class_="small soft"))
        parts.append(tag("text", at, x=left - 6, y=bottom - n * high + 4, text_anchor="end", class_="small soft"))
    right = left + count * wide
    parts.append(tag("text", x_label, x=(left + right) / 2, y=bottom + 34.0, text_anchor="middle", class_="small"))
    parts.append(_sideways(y_label, (top + bottom) / 2))
    return _svg(title, right + 14, bottom + 42, *parts)


def legend(lines: Sequence[Line], *, filled: bool = False, more: Sequence[tuple[str, str]] = ()) -> Html:
    """Return the names of the series beside their signs; `more` are (class of a swatch, words) after them."""
    items = []
    for number, line in enumerate(lines):
        swatch = (
            tag("rect", class_=f"fill s{number % SERIES}", x="3", y="1", width="20", height="10")
            if filled
            else join(
                _path([(1, 6), (25, 6)], class_=f"line s{number % SERIES}", dash=_dash(number)),
                _marker(number, 13, 6) if len(line.points) <= MARKED else None,
            )
        )
        items.append((swatch, line.name))
    items += [(tag("rect", class_=class_, x="3", y="1", width="20", height="10"), words) for class_, words in more]
    entries = (
        tag("li", tag("svg", swatch, viewBox="0 0 26 12", width="26", height="12", aria_hidden="true"), words)
        for swatch, words in items
    )
    return tag("ul", *entries, class_="legend")


@dataclass(frozen=True)
class _Plot:
    """Where the numbers of two ranges lie in the picture."""

    across: tuple[float, float]
    up: tuple[float, float]
    left: float = LEFT

    @property
    def span(self) -> float:
        return WIDTH - self.left - RIGHT

    def x(self, value: float) -> float:
        low, high = self.across
        return self.left + (value - low) / ((high - low) or 1) * self.span

    def y(self, value: float) -> float:
        low, high = self.up
        return HEIGHT - BOTTOM - (value - low) / ((high - low) or 1) * (HEIGHT - TOP - BOTTOM)

    def axes(
        self, x_ticks: Sequence[float], y_ticks: Sequence[float], x_label: str, y_label: str, y_scale: float
    ) -> Html:
        parts = []
        for tick in y_ticks:
            y = self.y(tick)
            parts.append(_path([(self.left, y), (WIDTH - RIGHT, y)], class_="grid"))
            words = _tick(y_scale * tick)
            parts.append(tag("text", words, x=self.left - 6, y=y + 4, text_anchor="end", class_="small soft"))
        for tick in x_ticks:
            words = f"{tick:g}"
            parts.append(
                tag("text", words, x=self.x(tick), y=HEIGHT - BOTTOM + 15.0, text_anchor="middle", class_="small soft")
            )
        middle = self.left + self.span / 2
        parts.append(tag("text", x_label, x=middle, y=HEIGHT - 8.0, text_anchor="middle", class_="small"))
        return join(*parts, _sideways(y_label, (TOP + HEIGHT - BOTTOM) / 2))


def _line(plot: _Plot, number: int, line: Line, scale: float) -> Html:
    parts, piece = [], list[tuple[float, float]]()
    for x, y in [*line.points, (math.nan, math.nan)]:
        if math.isnan(y):
            if len(piece) > 1:
                parts.append(_path(piece, class_=f"line s{number % SERIES}", dash=_dash(number)))
            piece = []
        else:
            piece.append((plot.x(x), plot.y(y)))
    if len(line.points) <= MARKED:
        for x, y in (point for point in line.points if not math.isnan(point[1])):
            parts.append(_marker(number, plot.x(x), plot.y(y), f"{line.name}, {x:g}: {scale * y:.4g}"))
    return join(*parts)


def _marker(number: int, x: float, y: float, words: str | None = None) -> Html:
    return tag(
        "path", None if words is None else tag("title", words), d=MARKERS[number % len(MARKERS)],
        class_=f"fill s{number % SERIES}", transform=f"translate({x:.1f} {y:.1f})",
    )  # fmt: skip


def _path(points: Sequence[tuple[float, float]], *, class_: str, dash: str | None = None) -> Html:
    return tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_=class_, stroke_dasharray=dash)


def _tick(value: float) -> str:
    """A number on an axis, with digits enough to differ from the next.

    >>> _tick(2.3025), _tick(0.30000000000000004), _tick(100.0)
    ('2.3025', '0.3', '100')
    """
    return f"{value:.6g}"


def _dash(number: int) -> str | None:
    return DASHES[number % len(DASHES)]


def _sideways(words: str, y: float) -> Html:
    return tag("text", words, transform=f"translate(11 {y:.1f}) rotate(-90)", text_anchor="middle", class_="small")


def _svg(title: str, width: float, height: float, *parts: Html) -> Html:
    return tag("svg", *parts, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=title, class_="chart")
