"""The report: one HTML file about one run or several side by side, which opens without a network."""

from __future__ import annotations

import base64
import hashlib
import string
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from labeltrace import __version__
from labeltrace.audit.summary import advice
from labeltrace.diagnostics.runs import Run
from labeltrace.diagnostics.values import PERCENT, shown
from labeltrace.errors import InputError
from labeltrace.files import write_atomically
from labeltrace.report.compared import compared
from labeltrace.report.details import about, details
from labeltrace.report.findings import Findings, find, names_of
from labeltrace.report.markup import Html, join, tag

SAMPLES = 12  # cards of each decision
ESTIMATES = ("noise_rate", "disagreement")  # of the share of wrong labels: the one errs low, the other high
MOST_SAMPLES = 500  # beyond, the file would be slow to open


def write_report(
    runs: Sequence[Run],
    out: Path,
    *,
    samples: int = SAMPLES,
    progress: Callable[[int, int], None] | None = None,
) -> list[Findings]:
    """Write the report of finished runs to one HTML file, whole or not at all; return what it says.

    Args:
        runs: one or more; one that was trained on data in memory shows pictures when it is given that data.
        out: the file.
        samples: cards of each decision in a gallery.
        progress: told how many of the runs are done.

    Raises:
        InputError: a run that is not finished or given twice, a number of samples out of range, a file that cannot be
            written.
    """
    if not runs:
        raise InputError("no run given")
    if not 0 <= samples <= MOST_SAMPLES:
        raise InputError(f"samples: expected 0 to {MOST_SAMPLES} of each decision, got {samples}")
    if out.is_dir():
        raise InputError(f"{out} is a folder; expected the name of a file")
    found: list[Findings] = []
    for number, (run, name) in enumerate(zip(runs, names_of(runs), strict=True)):
        if progress is not None:
            progress(number, len(runs))
        found.append(find(run, name, _sign(number) if len(runs) > 1 else "", samples=samples))
    text = page(found)
    try:
        write_atomically(out, lambda path: path.write_bytes(text.encode("utf-8", "backslashreplace")))
    except OSError as error:
        raise InputError(f"{out}: {error.strerror or error}") from None
    if progress is not None:
        progress(len(runs), len(runs))
    return found


def page(found: Sequence[Findings]) -> str:
    """Return the whole file: nothing in it is fetched, and no script but its own may run."""
    style, script = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    title = found[0].name if len(found) == 1 else f"{len(found)} runs"
    sections = [*about(found), *compared(found), *details(found)]
    links = (tag("a", words, href=f"#{id_}") for id_, words, _ in sections)
    body = join(
        tag("a", "Skip to the figures", href="#figures", class_="skip"),
        tag(
            "header",
            tag("h1", "labeltrace report: ", tag("span", title)),
            _verdict(found[0]) if len(found) == 1 else None,
        ),
        tag("nav", *links, aria_label="Sections"),
        tag("main", *(_section(*section) for section in sections), class_="one" if len(found) == 1 else None),
        tag("footer", f"labeltrace {__version__}. Reliabilities, a and b are those of the run's last pass."),
        tag("script", Html(script)),
    )
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", f"labeltrace: {title}"),
        tag("style", Html(style)),
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _section(id_: str, heading: str, content: Html) -> Html:
    return tag("section", tag("h2", heading, id=f"{id_}-head"), content, id=id_, aria_labelledby=f"{id_}-head")


def _sign(number: int) -> str:
    return string.ascii_uppercase[number] if number < len(string.ascii_uppercase) else str(number + 1)


def _verdict(found: Findings) -> Html:
    counts = ", ".join(f"{name} {count:,}" for name, count in found.decisions.items())
    total = sum(found.decisions.values())
    words = advice(found.figures["confident"])
    fitted, counted = (f"{shown(found.figures[name], 1, PERCENT)}\N{NO-BREAK SPACE}%" for name in ESTIMATES)
    return join(
        tag("p", f"{total:,} samples: {counts}."),
        tag(
            "p", f"Wrong labels, estimated in two ways: {fitted} by the label noise that best explains the networks' "
            f"predictions, too few where they are unsure; {counted} by counting suggestions that differ from the "
            "label, too many where suggestions are wrong. Both are too few where wrong labels were learnt by heart."
        ),
        tag("p", words) if words else None,
    )  # fmt: skip
