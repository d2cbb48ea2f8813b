"""What a report says of one run: its figures, curves and tables as numbers, ready to be shown."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeltrace.audit import measure
from labeltrace.audit.estimate import estimate_noise
from labeltrace.audit.samples import values
from labeltrace.audit.summary import ClassSummary, class_summaries, confident, decision_counts, disagreement
from labeltrace.data import Split
from labeltrace.data.noise.transitions import Transitions
from labeltrace.diagnostics.landscape import LEAST, Landscape, landscape
from labeltrace.diagnostics.reliability import (
    BINS,
    HIGH_CONFIDENCE,
    LOW_CLEAN,
    Row,
    bin_of,
    mismatch_curve,
    reliability_table,
)
from labeltrace.diagnostics.runs import Run
from labeltrace.diagnostics.values import mean
from labeltrace.engine import summarise
from labeltrace.errors import InputError
from labeltrace.report.pictures import Card, draw_cards


@dataclass(frozen=True, eq=False)
class Findings:
    """A run in numbers.

    Attributes:
        name: of the run, different from those beside it.
        sign: a letter for charts that several runs share; "" for a single run.
        path: of its folder.
        facts: what was run, in words.
        config: its config.yaml.
        history: lines of metrics.jsonl.
        figures: what it came to; see `FIGURES` in compared.py. Those that need the truth are there where it is known.
        decisions: how many samples of each.
        truth: number of samples whose true class is known.
        bins: a row per bin of the observed reliability.
        cells: the reliability landscape: accuracy of suggestions, or share of the samples where no truth is known.
        pseudo: name of its y axis.
        subsets: a row per subset of the samples.
        classes: a row per class, and what is known of it: [C] wrong labels and share of right suggestions.
        confusion: counts of (observed, suggested).
        cards: samples of each decision.
        no_pictures: why they have no pictures; None where they do.
    """

    name: str
    sign: str
    path: Path
    facts: dict[str, str]
    config: str
    history: list[dict[str, Any]]
    figures: dict[str, float]
    decisions: dict[str, int]
    truth: int
    bins: list[Row]
    cells: Landscape
    pseudo: str
    subsets: list[Row]
    classes: list[ClassSummary]
    known_wrong: list[int]
    known_right: list[float]
    confusion: Transitions
    cards: list[Card] = field(repr=False)
    no_pictures: str | None = None

    @property
    def title(self) -> str:
        """Its name after its letter."""
        return f"{self.sign}  {self.name}" if self.sign else self.name


def find(run: Run, name: str, sign: str = "", *, samples: int) -> Findings:
    """Return what is to be said of a finished run.

    Args:
        run: its folder is read; its data only for the pictures.
        name: of the run in the report.
        sign: its letter.
        samples: cards of each decision.

    Raises:
        InputError: no samples table, or one that does not say enough.
    """
    table = run.samples
    if not table.num_rows:
        raise InputError(f"{run.folder.samples}: no samples in it")
    estimate = estimate_noise(table)
    history = run.folder.read_metrics()
    decisions = decision_counts(table)
    observed, suggested = run.column("observed"), run.column("suggested")
    truth = run.truth if _has_truth(run) else torch.full_like(observed, -1)
    known = truth >= 0
    figures: dict[str, float] = {"samples": table.num_rows, **summarise(history)}
    figures |= {decision: count / table.num_rows for decision, count in decisions.items()}
    figures |= {"noise_rate": estimate.rate, "disagreement": disagreement(table), "confident": confident(table)}
    pseudo, reliability = _pseudo(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of bins without samples, which the page shows as dashes
        if bool(known.any()):
            v = run.verdicts()
            figures |= {"wrong_rate": mean(v.noisy), **measure(table)}
            bins, subsets = mismatch_curve(v), reliability_table(v)
            cells = landscape(v.score, reliability[known], v.ok)
            figures |= {"hc_error": float(subsets[0]["hc_error"])}
        else:
            bins, subsets, cells = _unknown(run, reliability)
    figures["seconds"] = sum(record.get("seconds") or 0.0 for record in history)
    count = len(run.classes)
    cards, no_pictures = _cards(run, samples)
    return Findings(
        name, sign, run.folder.path, _facts(run, history), run.folder.config.read_text(encoding="utf-8"), history,
        figures, decisions, int(known.sum()), bins, cells, pseudo, subsets,
        class_summaries(table, estimate),
        torch.bincount(observed[known & (observed != truth)], minlength=count).tolist(),
        _shares(observed[known], (suggested == truth)[known], count),
        Transitions.between(values(table, "observed"), values(table, "suggested"), count),
        cards, no_pictures,
    )  # fmt: skip


def names_of(runs: Sequence[Run]) -> list[str]:
    """Return the shortest ends of the runs' paths that tell them apart: the names of their folders, as a rule.

    Raises:
        InputError: a run is given twice.
    """
    parts = [run.folder.path.resolve().parts for run in runs]
    if len(set(parts)) < len(parts):
        twice = next(path for path in parts if parts.count(path) > 1)
        raise InputError(f"{Path(*twice)}: given twice; a report has a run once")
    length = 1
    while len({path[-length:] for path in parts}) < len(parts):
        length += 1
    return [Path(*path[-length:]).as_posix() for path in parts]


def training_data(run: Run) -> Split:
    """Return the training data of a run, where it still is as it was; no network is built or asked for.

    Raises:
        InputError: it is not there, or has changed.
    """
    here = copy.copy(run)
    here.config = run.config.model_copy(update={"model": None, "weights": None})
    return here.train


def _has_truth(run: Run) -> bool:
    return "truth" in run.samples.column_names and bool((run.column("truth") >= 0).any())


def _pseudo(run: Run) -> tuple[str, Tensor]:
    """The pseudo reliability of TRACE; of a base method, which has none, the bare confidence."""
    if run.config.controller == "trace":
        return "suggestion reliability", run.column("pseudo_reliability")
    return "confidence of the suggestion", run.column("confidence")


def _unknown(run: Run, reliability: Tensor) -> tuple[list[Row], list[Row], Landscape]:
    """What can be said by bin, by subset and by cell where no truth is known."""
    score, confidence = run.column("observed_reliability"), run.column("confidence")
    follows = run.column("suggested") == run.column("observed")
    place = bin_of(score)

    def row(mask: Tensor, **head: str | float) -> Row:
        return {
            **head,
            "n": int(mask.sum()),
            "follows": mean(follows[mask]),
            "confidence": mean(confidence[mask]),
        }

    bins = [row(place == number, midpoint=round((number + 0.5) / BINS, 6)) for number in range(BINS)]
    subsets = {
        "all": torch.ones_like(follows),
        "low-clean": score < LOW_CLEAN,
        "high-confidence": confidence >= HIGH_CONFIDENCE,
        "suggestion differs": ~follows,
    }
    counts = landscape(score, reliability, follows).counts
    shares = counts / len(score)
    blank = (counts == 0) | (shares < LEAST)
    cells = Landscape(shares.masked_fill(blank, torch.nan), counts)
    return bins, [row(mask, subset=name) for name, mask in subsets.items()], cells


def _shares(groups: Tensor, flags: Tensor, count: int) -> list[float]:
    """Share of flags in each of `count` groups, NaN of an empty one."""
    sizes = torch.bincount(groups, minlength=count).double()
    return (torch.bincount(groups, weights=flags.double(), minlength=count) / sizes).tolist()


def _cards(run: Run, samples: int) -> tuple[list[Card], str | None]:
    if not samples:
        return [], None
    try:
        return draw_cards(run.samples, training_data(run), samples), None
    except InputError as error:
        why = str(error)
    except (OSError, KeyError, ValueError) as error:  # the run's own files, or the data's, were tampered with
        why = f"its data cannot be read ({' '.join(str(error).split())})"
    return draw_cards(run.samples, None, samples), why


def _facts(run: Run, history: list[dict[str, Any]]) -> dict[str, str]:
    """What was run, as people ask for it; what is not known is left out."""
    config = run.config
    try:
        environment = run.folder.read_environment()
    except (OSError, ValueError):
        environment = {}
    classes = len(run.classes)
    subset = "" if config.subset is None else f", a subset of {config.subset:,}"
    network = None if config.model is None else f"{config.model}, recipe {config.preset}"
    versions = [f"{word} {environment[word]}" for word in ("labeltrace", "torch", "python") if environment.get(word)]
    if environment.get("revision"):
        versions.insert(1, f"({environment['revision']})")
    facts = {
        "Data": f"{config.data}{subset}: {run.samples.num_rows:,} training samples, {classes:,} classes",
        "Noise": _noise(environment.get("noise")),
        "Method": run.method,
        "Network": network,
        "Epochs": f"{len(history):,}" + (f" of {config.epochs:,}" if config.epochs not in (None, len(history)) else ""),
        "Seed": str(config.seed),
        "Device": ", ".join(str(environment[word]) for word in ("device", "precision") if environment.get(word)),
        "Versions": " ".join(versions).replace(" torch", ", torch").replace(" python", ", Python"),
        "Platform": environment.get("platform"),
        "Started": str(environment.get("started") or "").replace("T", " ").replace("+00:00", " UTC"),
        "Folder": str(run.folder.path),
    }
    if environment.get("bad_images"):
        facts["Left out"] = f"{environment['bad_images']:,} images that cannot be used (bad_images.csv)"
    return {name: str(words) for name, words in facts.items() if words}


def _noise(record: dict[str, Any] | None) -> str:
    if record is None:
        return "none added; the labels are used as they are"
    nominal = "" if record.get("nominal") is None else f", nominal rate {record['nominal']:g}"
    actual = record.get("actual")
    rate = "" if actual is None else f", {100 * actual:.2f} % of the labels are wrong"
    seed = "" if record.get("seed") is None else f", seed {record['seed']}"
    return f"{record.get('kind')} ({record.get('convention')}){nominal}{rate}{seed}"


def accuracy_history(found: Findings, key: str = "test_accuracy") -> list[tuple[float, float]]:
    """Return (epoch, share) of every epoch that has one; `suggestion_accuracy` is among the signals of an epoch."""
    points = []
    for record in found.history:
        value = record.get(key, (record.get("signals") or {}).get(key))
        if value is not None and np.isfinite(value):
            points.append((float(record["epoch"]) + 1, float(value)))
    return points
