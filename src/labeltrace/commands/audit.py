"""labeltrace audit."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeltrace.commands.audit_tables import (
    MOST_CLASSES,
    chosen_json,
    chosen_lines,
    class_table,
    figure,
    print_table,
    queue_table,
)
from labeltrace.commands.console import console, print_json, talk_console
from labeltrace.commands.labels import apply_command
from labeltrace.commands.trust import TrustLabel, TrustSuggestion, as_flags, thresholds
from labeltrace.errors import InputError, nearest

if TYPE_CHECKING:
    from labeltrace.audit.estimate import NoiseEstimate

SHOWN = 10  # rows of the queue that are printed
PRECISION = 0.95  # that --checked asks of relabels when nothing is said
SORTS = ("worst", "index")
MEASURES = {
    "precision": "wrong labels found: precision",
    "recall": "wrong labels found: recall",
    "auroc": "ranking: AUROC",
    "average_precision": "ranking: average precision",
    "suggestion_accuracy": "suggestions right",
    "relabel_accuracy": "suggestions right, of {relabels:,} relabels",
    "right_after": "labels right once relabelled",
    "ece_label": "ECE of the label's reliability",
    "ece_suggestion": "ECE of the suggestion's reliability",
}


def audit(
    run: Annotated[
        Path | None,
        typer.Argument(help="Folder of a finished run, or its samples.parquet; with --features where the run goes."),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Train on these features first: .npy [N, D], .npz, .csv, .tsv or .parquet.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="With --features: their labels, .npy, .txt, .csv, .tsv or .parquet.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="With --features: column of the labels in a table.")] = None,
    overwrite: Annotated[bool, typer.Option(help="With --features: replace an earlier run.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the queue: .csv, .parquet or .jsonl.")] = None,
    sort: Annotated[str, typer.Option(help="Order of the queue: worst (first) or index.")] = "worst",
    score: Annotated[
        str | None,
        typer.Option(
            help="Ranking that says what is worst: probability+transition (default), probability, transition, loss, "
            "margin, disagreement, posterior, reliability, posterior+margin, reliability+margin."
        ),
    ] = None,
    decision: Annotated[str | None, typer.Option(help="Only keep, relabel or review.")] = None,
    class_: Annotated[str | None, typer.Option("--class", help="Only samples labelled as this class.")] = None,
    limit: Annotated[int | None, typer.Option(help="Rows of the queue (default: all; 10 are printed).")] = None,
    trust_label: TrustLabel = None,
    trust_suggestion: TrustSuggestion = None,
    checked: Annotated[
        Path | None,
        typer.Option(
            help="Choose both thresholds from samples you have checked: a table with columns id and correct, the right "
            "class of the sample (not whether its label is right)."
        ),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(help="With --checked: share of relabels that must be right (default 0.95)."),
    ] = None,
    diff: Annotated[
        Path | None, typer.Option(help="Write the relabels of the queue as a label diff, .csv (id, from, to, why).")
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option(help="Write the estimated transition matrix (true → observed), .csv.")
    ] = None,
    cleanlab: Annotated[
        Path | None,
        typer.Option(
            help="Write all samples in their order under cleanlab's names of columns, classes by number as in --matrix."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary and the queue's head as JSON.")] = False,
) -> None:
    """Summarise what a run says of its labels: noise, classes, and a queue of samples with the worst first.

    Example: labeltrace audit runs/photos --decision review --out review.csv

    Example: labeltrace audit runs/photos --checked checked.csv --precision 0.98 --diff labels.diff.csv

    Example: labeltrace audit --features embeddings.npy --labels labels.csv --out queue.csv
    """
    from labeltrace.audit import cleanlab_view, measure, read_samples
    from labeltrace.audit.checked import thresholds_from
    from labeltrace.audit.decisions import DECISIONS
    from labeltrace.audit.diff import label_diff
    from labeltrace.audit.estimate import estimate_noise
    from labeltrace.audit.export import check_file, queue, write_table
    from labeltrace.audit.ranking import DEFAULT, rankings
    from labeltrace.audit.samples import decided_by
    from labeltrace.audit.summary import advice, class_summaries, confident, decision_counts, disagreement

    files = {"--out": out, "--cleanlab": cleanlab, "--diff": diff, "--matrix": matrix}
    for flag, path in files.items():
        if path is not None:
            check_file(path, flag, *([(".csv",)] if flag in ("--diff", "--matrix") else []))
    _check_apart(files, [features, labels, checked, *(() if run is None or features is not None else _read_from(run))])
    _check_choice("--sort", sort, SORTS)
    if decision is not None:
        _check_choice("--decision", decision, DECISIONS)
    if limit is not None and limit < 1:
        raise InputError(f"--limit {limit}: expected 1 or more")
    trust = thresholds(trust_label, trust_suggestion)
    _check_checked(trust_label, trust_suggestion, checked, precision)
    ranked_by = score or DEFAULT
    rank = rankings[ranked_by]

    run = _run_of(run, features, labels, label_column, overwrite, as_json)
    with talk_console(as_json).status(f"auditing {run}"):
        table = read_samples(run)
        chosen = None
        if checked is not None:
            chosen = thresholds_from(checked, table, PRECISION if precision is None else precision)
            trust = chosen.trust_label, chosen.trust_suggestion
        table = decided_by(table, trust)
        estimate, most, sure = estimate_noise(table), disagreement(table), confident(table)
        rows = _selected(queue(table, rank(table)), decision, class_, sort, limit)
        counts, classes = decision_counts(table), class_summaries(table, estimate)
        known = decision_counts(_with_truth(table))
        measures = measure(table, ranked_by) if any(known.values()) else None

    written = []
    with talk_console(as_json).status("writing"):
        if out is not None:
            write_table(rows, out)
            written.append(str(out))
        if cleanlab is not None:
            write_table(cleanlab_view(table), cleanlab)
            written.append(str(cleanlab))
        if diff is not None:
            changes = label_diff(rows)
            changes.write(diff)
            then = f"; {apply_command(_folder_of(run), diff)}" if len(changes) else ", so there is nothing to apply"
            written.append(f"{diff}  {len(changes):,} labels{then}")
        if matrix is not None:
            _write_matrix(matrix, estimate, [row.name for row in classes])
            written.append(str(matrix))
    head = rows.slice(0, SHOWN if limit is None else limit)
    if as_json:
        print_json(
            {
                "run": str(run),
                "samples": table.num_rows,
                "decisions": counts,
                "noise_rate": estimate.rate,
                "disagreement": most,
                "confident": sure,
                "ranking": ranked_by,
                "thresholds": trust,
                "checked": None if chosen is None else chosen_json(chosen),
                "known_truth": sum(known.values()),
                "measures": measures,
                "classes": [asdict(row) for row in classes],
                "selected": rows.num_rows,
                "queue": head.to_pylist(),
                "files": [str(path) for path in (out, cleanlab, diff, matrix) if path is not None],
            }
        )
        return
    shares = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    console.print(f"{table.num_rows:,} samples: {shares}", soft_wrap=True)
    console.print(
        f"wrong labels: {100 * estimate.rate:.1f} % (estimated noise rate, low where networks are unsure) or "
        f"{100 * most:.1f} % (suggestions that differ from the label); more where wrong labels were learnt by heart",
        soft_wrap=True,
    )
    if (told := advice(sure)) is not None:
        console.print(told, soft_wrap=True)
    if chosen is not None:
        for line in chosen_lines(chosen):
            console.print(line, soft_wrap=True)
    print_table(class_table(classes))
    if len(classes) > MOST_CLASSES:
        console.print(f"… {len(classes) - MOST_CLASSES:,} more classes (--json lists all)")
    if measures is not None:
        count = sum(known.values())
        part = "" if count == table.num_rows else f", over the {count:,} samples whose truth is known"
        console.print(f"against the known truth{part}", soft_wrap=True)
        words = {name: line.format(relabels=known["relabel"]) for name, line in MEASURES.items()}
        width = max(map(len, words.values()))
        for name, line in words.items():
            console.print(f"  {line:<{width}}  {figure(measures[name])}", soft_wrap=True)
    print_table(queue_table(head), whole=True)
    if rows.num_rows > head.num_rows:
        console.print(f"… {rows.num_rows - head.num_rows:,} more (--out FILE writes all)", soft_wrap=True)
    for line in written:
        console.print(line, soft_wrap=True)
    if (folder := _folder_of(run)) is not None:
        flags = "" if trust is None else f" {as_flags(trust)}"
        name = shlex.quote(str(folder))
        console.print(f"next: labeltrace review {name}{flags}, or labeltrace report {name}", soft_wrap=True)


def _run_of(
    run: Path | None, features: Path | None, labels: Path | None, label_column: str | None, overwrite: bool, quiet: bool
) -> Path:
    """Return the run to audit; of features it is trained now."""
    if features is None:
        if labels is not None or label_column is not None or overwrite:
            raise InputError("--labels, --label-column and --overwrite belong to --features, which is not given")
        if run is None:
            raise InputError("say which run: its folder, or --features FILE --labels FILE to train one on features")
        return run
    from labeltrace.commands.train import resumable
    from labeltrace.data.own.load import safe_name
    from labeltrace.engine import RunFolder
    from labeltrace.features import audit_features
    from labeltrace.progress import Bars

    folder = run or Path("runs") / f"{safe_name(features)}-audit"
    if RunFolder(folder).config.exists() and not overwrite:
        raise InputError(
            f"{folder} holds a run: labeltrace audit {shlex.quote(str(folder))} reads it, --overwrite replaces it, "
            f"labeltrace audit FOLDER --features {shlex.quote(str(features))} puts the new one into another folder"
        )
    with resumable(), Bars(talk_console(quiet)) as bars:
        audit_features(features, labels, folder, label_column=label_column, overwrite=overwrite, reporter=bars)
    return folder


def _read_from(run: Path) -> Iterator[Path]:
    """Yield the files that a run is read from: its table, and the user's own files that it was trained on."""
    from labeltrace.engine import RunFolder, load_config
    from labeltrace.files import expanded

    yield run / "samples.parquet" if run.is_dir() else run
    folder, own = _folder_of(run), list[Any]()
    if folder is not None:
        with suppress(InputError):  # a config that is damaged names no files; the table is all that is needed here
            config = load_config(RunFolder(folder).config, {})
            own = [config.own_files, *(config.read.get(name) for name in ("labels", "test"))]
    yield from (expanded(Path(str(path))) for path in own if path is not None)


def _check_apart(files: Mapping[str, Path | None], sources: Iterable[Path | None]) -> None:
    """Refuse to write over a file that the audit itself reads, and to write two things into one file."""
    read = {path.resolve() for path in sources if path is not None}
    taken: dict[Path, str] = {}
    for flag, path in files.items():
        if path is None:
            continue
        place = path.resolve()
        if place in read:
            raise InputError(f"{flag} {path}: that file is read here and would be lost; choose another name")
        if place in taken:
            raise InputError(f"{flag} {path}: {taken[place]} writes that file; choose another name")
        taken[place] = flag


def _check_choice(flag: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{flag} {value!r}: {nearest(value, known)}")


def _check_checked(
    trust_label: float | None, trust_suggestion: float | None, checked: Path | None, precision: float | None
) -> None:
    for flag, value in (("--trust-label", trust_label), ("--trust-suggestion", trust_suggestion)):
        if value is not None and checked is not None:
            raise InputError(f"{flag} and --checked: the checked samples choose the thresholds; give one of the two")
    if precision is not None and checked is None:
        raise InputError("--precision is given without --checked, the samples that it is measured on")


def _selected(whole: Any, decision: str | None, class_: str | None, sort: str, limit: int | None) -> Any:
    """Return the rows of the queue that were asked for, in the order that was asked for."""
    import pyarrow.compute as pc

    from labeltrace.audit.checked import class_number
    from labeltrace.audit.ranking import worst_first
    from labeltrace.audit.samples import class_names

    rows = whole
    if decision is not None:
        rows = rows.filter(pc.equal(rows["decision"], decision))
    if class_ is not None:
        number = class_number(class_, class_names(whole), "--class")
        rows = rows.filter(pc.equal(rows["observed"], number))
    if sort == "worst":
        rows = rows.take(worst_first(rows["score"].to_numpy())[:limit])
    return rows if limit is None else rows.slice(0, limit)


def _with_truth(table: Any) -> Any:
    """Return the rows whose true class is known."""
    import pyarrow.compute as pc

    if "truth" not in table.column_names:
        return table.slice(0, 0)
    return table.filter(pc.greater_equal(table["truth"], 0))


def _folder_of(run: Path) -> Path | None:
    """Return the folder of the run, also where its table was named; None for a table on its own."""
    from labeltrace.engine import RunFolder

    folder = run if run.is_dir() else run.parent
    return folder if RunFolder(folder).config.exists() else None


def _write_matrix(path: Path, estimate: NoiseEstimate, names: list[str]) -> None:
    from labeltrace.files import write_atomically

    def write(temporary: Path) -> None:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["true", *names])
            for name, row in zip(names, estimate.transition, strict=True):
                writer.writerow([name, *(f"{share:.6f}" for share in row)])

    try:
        write_atomically(path, write)
    except OSError as error:
        raise InputError(f"--matrix {path}: {error.strerror or error}") from None
