"""HTML and SVG from Python: every text is escaped unless it came from here, so no name of a class can be a tag."""

from __future__ import annotations

from html import escape
from typing import TypeAlias

VOID = {"br", "img", "meta"}


class Html(str):
    """Markup that is right as it stands; any other string is text."""


Child: TypeAlias = "str | int | None"  # None is nothing; a str that is no Html is escaped
Section: TypeAlias = "tuple[str, str, Html]"  # id, heading, content


def join(*children: Child) -> Html:
    """Return children one after another.

    >>> join("a < b ", Html("<br>"), None)
    'a &lt; b <br>'
    """
    return Html("".join(c if isinstance(c, Html) else escape(str(c)) for c in children if c is not None))


def tag(name: str, *children: Child, **attributes: str | float | None) -> Html:
    """Return an element.

    Args:
        name: of the element.
        children: what is inside.
        attributes: `class_` is class, `aria_label` aria-label; None leaves one out, "" is a bare one.

    >>> tag("th", "<script>", scope="col", class_=None)
    '<th scope="col">&lt;script&gt;</th>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            key = key.rstrip("_").replace("_", "-")
            words.append(key if value == "" and key != "alt" else f'{key}="{_attribute(value)}"')
    start = f"<{' '.join(words)}>"
    return Html(start if name in VOID else f"{start}{join(*children)}</{name}>")


def table(caption: str, head: list[str], rows: list[list[Child]], *, class_: str = "") -> Html:
    """Return a table in a box that scrolls by itself (also by keys) where the page is too narrow.

    Args:
        caption: what it shows; it also names the box.
        head: headings of the columns.
        rows: cells; the first of a row is its heading.
        class_: of the table.
    """
    headings = tag("tr", *(tag("th", word, scope="col") for word in head))
    body = (
        tag("tr", tag("th", row[0], scope="row"), *(c if _is_cell(c) else tag("td", c) for c in row[1:]))
        for row in rows
    )
    whole = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", headings),
        tag("tbody", *body),
        class_=class_ or None,
    )
    return tag("div", whole, class_="scroll", role="region", aria_label=caption, tabindex="0")


def _is_cell(child: Child) -> bool:
    return isinstance(child, Html) and child.startswith("<td")


def _attribute(value: str | float) -> str:
    return escape(f"{value:.5g}" if isinstance(value, float) else str(value))
