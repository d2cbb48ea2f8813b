"""What a figure is drawn from: runs, and the marks that its measurements use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeltrace.diagnostics.gradients import BATCHES
from labeltrace.diagnostics.reliability import HIGH_CONFIDENCE, LOW_CLEAN, Row
from labeltrace.diagnostics.runs import Progress, Run
from labeltrace.errors import InputError


@dataclass(frozen=True)
class Request:
    """Runs to draw and how to measure them.

    Args:
        runs: one or more.
        clean: a run on clean labels with the same network, for comparisons with it.
        labels: file of reference labels.
        score: column of the samples table that is s, "observed_reliability" or "clean".
        regime: where mid- and high-clean begin, "midpoint" or "score".
        tau: from where confidence is high.
        low: below which a score is low-clean.
        pooling: of the drift that is computed again; None takes it from the samples table.
        batches: that gradients are taken of.
        probe_labels: what a probe is fitted to, "true" or "observed".
        progress: told how far a measurement is.
    """

    runs: Sequence[Run]
    clean: Run | None = None
    labels: Path | None = None
    score: str = "observed_reliability"
    regime: str = "midpoint"
    tau: float = HIGH_CONFIDENCE
    low: float = LOW_CLEAN
    pooling: str | None = None
    batches: int = BATCHES
    probe_labels: str = "true"
    progress: Progress | None = None

    @property
    def score_label(self) -> str:
        """What the score is called on an axis."""
        return "loss posterior" if self.score == "clean" else "observed-label reliability"

    def names(self) -> list[str]:
        """Return what the runs are called beside each other: their methods where those differ, else their folders."""
        methods = [run.method for run in self.runs]
        return methods if len(set(methods)) == len(methods) else self.folders()

    def folders(self) -> list[str]:
        """Return the names of the runs' folders; their paths where two folders are called alike.

        Raises:
            InputError: a run is given twice.
        """
        names = [run.name for run in self.runs]
        if len(set(names)) < len(names):
            names = [str(run.folder.path) for run in self.runs]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise InputError(f"{name}: given twice")
        return names

    def at_most(self, count: int, figure: str) -> None:
        """Refuse more runs than a figure has room for."""
        if len(self.runs) > count:
            raise InputError(f"figure {figure} has room for {count} runs, got {len(self.runs)}")


@dataclass(frozen=True)
class Drawn:
    """A figure and the numbers in it."""

    figure: Any
    rows: list[Row]
