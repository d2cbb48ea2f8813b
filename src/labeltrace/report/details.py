"""What a report says of each run by itself: what was run, its classes, its samples."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from labeltrace.audit.decisions import KEEP, RELABEL, REVIEW
from labeltrace.diagnostics.values import DASH, PERCENT, shown
from labeltrace.report.findings import Findings
from labeltrace.report.markup import Child, Html, Section, join, table, tag
from labeltrace.report.pictures import LOSSLESS, Card

MOST_CLASSES = 100  # rows of the class table, those with most wrong labels
MATRIX = 20  # classes up to which the confusion is a matrix; beyond, its largest entries
PAIRS = 30
MEANING = {
    RELABEL: "The model suggests another class and is sure, and the label is not trusted: take the suggestion.",
    REVIEW: "The model suggests another class, but is not sure or the label is trusted: a person should look.",
    KEEP: "The model suggests the label itself: it holds.",
}


def about(found: Sequence[Findings]) -> list[Section]:
    """Return what was run, of one run; of several that stands with each."""
    return [("run", "What was run", _facts(found[0]))] if len(found) == 1 else []


def _facts(found: Findings) -> Html:
    rows = (tag("div", tag("dt", name), tag("dd", words)) for name, words in found.facts.items())
    config = tag("details", tag("summary", "config.yaml, resolved"), tag("pre", found.config, tabindex="0"))
    return join(tag("dl", *rows), config)


def details(found: Sequence[Findings]) -> list[Section]:
    """Return the sections of one run, or one section in which tabs lead to each of several."""
    if len(found) == 1:
        (f,) = found
        return [
            ("classes", "Classes", _classes(f)),
            ("confusion", "Observed against suggested", _confusion(f)),
            ("gallery", "Samples", _gallery(f)),
        ]
    tabs = (
        tag("button", f.title, role="tab", type="button", id=f"tab-{f.sign}", aria_controls=f"run-{f.sign}")
        for f in found
    )
    bar = tag("div", *tabs, role="tablist", aria_label="Runs", hidden="")
    panels = (
        tag(
            "div", tag("h3", f.title), _facts(f), tag("h4", "Classes"), _classes(f),
            tag("h4", "Observed against suggested"), _confusion(f), tag("h4", "Samples"), _gallery(f),
            role="tabpanel", id=f"run-{f.sign}", aria_labelledby=f"tab-{f.sign}", class_="panel",
        )
        for f in found
    )  # fmt: skip
    return [("runs", "Run by run", join(bar, *panels))]


def _classes(found: Findings) -> Html:
    head = ["labelled", "samples", "wrong (est.)", "relabel", "review", "usual suggestion instead"]
    if found.truth:
        head[3:3] = ["wrong (known)", "suggestion right, %"]
    order = list(range(len(found.classes)))
    words = "What became of the samples of each class."
    if len(order) > MOST_CLASSES:
        order = sorted(order, key=lambda c: -found.classes[c].wrong)[:MOST_CLASSES]
        words += f" The {MOST_CLASSES} of {len(found.classes):,} classes with most wrong labels."
    rows: list[list[Child]] = []
    for c in order:
        row = found.classes[c]
        instead = DASH if row.replacement is None else f"{row.replacement} ({row.replaced:,})"
        cells: list[Child] = [row.name, f"{row.samples:,}", f"{row.wrong:,.0f}", f"{row.relabel:,}", f"{row.review:,}",
                              tag("td", instead, class_="words")]  # fmt: skip
        if found.truth:
            cells[3:3] = [f"{found.known_wrong[c]:,}", shown(found.known_right[c], 1, PERCENT)]
        rows.append(cells)
    return table(words, head, rows, class_="classes")


def _confusion(found: Findings) -> Html:
    names, entries = [row.name for row in found.classes], found.confusion.entries
    if len(names) > MATRIX:
        other = entries[entries[:, 0] != entries[:, 1]]
        largest = other[(-other[:, 2]).argsort(kind="stable")][:PAIRS]
        pairs: list[list[Child]] = [[names[i], tag("td", names[j], class_="words"), f"{n:,}"] for i, j, n in largest]
        caption = f"The {len(pairs)} most frequent suggestions that differ from the label."
        return table(caption, ["labelled", "suggested", "samples"], pairs, class_="pairs")
    shares, counts = found.confusion.matrix(), dict[tuple[int, int], int]()
    for i, j, n in entries.tolist():
        counts[i, j] = n
    largest_other = max((shares[i, j] for i, j in counts if i != j), default=1.0)

    def cell(i: int, j: int) -> Html:
        n, share = counts.get((i, j), 0), shares[i, j] / (1.0 if i == j else largest_other)
        kind = "same" if i == j else "other" if n else "none"
        return tag("td", f"{n:,}", style=f"--v:{share:.3f}", class_=kind)

    rows: list[list[Child]] = [[name, *(cell(i, j) for j in range(len(names)))] for i, name in enumerate(names)]
    caption = "Rows are observed labels, columns what the model suggests; the darker, the larger its share of the row."
    return table(caption, ["", *names], rows, class_="matrix tall" if max(map(len, names)) > 3 else "matrix")


def _gallery(found: Findings) -> Html:
    parts: list[Html] = []
    if found.no_pictures is not None and found.cards:
        parts.append(tag("p", f"No pictures: {found.no_pictures}", class_="note", role="note"))
    if not found.cards:
        return tag("p", "No samples were asked for.")
    parts.append(
        tag(
            "p", "Drawn at random from each decision, the most suspicious labels first. ", tag("b", "a"),
            " is the weight of the label and ", tag("b", "b"), " that of the suggestion in the training target, by ",
            "their reliabilities: 0 is none, 1 is all. To decide: ",
            tag("code", f"labeltrace review {quote(str(found.path))}"),
        )
    )  # fmt: skip
    for decision, meaning in MEANING.items():
        cards = [card for card in found.cards if card.decision == decision]
        total = found.decisions[decision]
        share = f"{len(cards):,} of {total:,}" if len(cards) < total else f"{total:,}"
        parts.append(tag("h5" if found.sign else "h3", tag("span", decision, class_=f"badge {decision}"), f" {share}"))
        parts.append(tag("p", meaning, class_="meaning"))
        if cards:
            parts.append(tag("ul", *map(_card, cards), class_="cards"))
    return join(*parts)


def _card(card: Card) -> Html:
    lines: list[Html | None] = [
        tag("div", tag("dt", "label"), tag("dd", card.observed)),
        tag("div", tag("dt", "suggested"), tag("dd", card.suggested)),
        None if card.truth is None else tag("div", tag("dt", "true"), tag("dd", card.truth)),
        _weight("a", card.a, "weight of the label"),
        _weight("b", card.b, "weight of the suggestion"),
    ]
    about = f"label {card.observed}, suggested {card.suggested}"
    if card.image is not None:
        small = "pixels" if card.side <= LOSSLESS else None
        picture = tag("img", src=card.image, alt=f"sample {card.id}: {about}", width="96", height="96", class_=small)
    elif card.strip:
        picture = join(_strip(card, about), tag("p", card.words, class_="tiny"))
    else:
        picture = tag("p", card.words or "no picture", class_="tiny empty")
    return tag("li", picture, tag("dl", *lines), tag("p", f"#{card.id}", class_="id"), class_=card.decision)


def _weight(name: str, value: float, words: str) -> Html:
    bar = tag("i", style=f"width:{PERCENT * min(max(value, 0), 1):.0f}%")
    number = tag("dd", f"{value:.2f}", tag("span", bar, class_="meter", aria_hidden="true"))
    return tag("div", tag("dt", name), number, class_="weight", title=words)


def _strip(card: Card, about: str) -> Html:
    """Deviations of the features, up and down from the middle, cut at three."""
    wide = 96 / len(card.strip)
    bars = (
        tag(
            "rect",
            x=n * wide,
            y=20 - max(v, 0) * 6,
            width=max(wide - 0.6, 0.4),
            height=abs(v) * 6 + 0.3,
            class_="fill s0",
        )
        for n, v in enumerate(max(-3.0, min(3.0, v)) for v in card.strip)
    )
    return tag(
        "svg",
        *bars,
        viewBox="0 0 96 40",
        role="img",
        aria_label=f"features of sample {card.id}: {about}",
        class_="strip",
    )
