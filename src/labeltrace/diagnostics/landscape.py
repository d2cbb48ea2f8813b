"""The reliability landscape: accuracy of pseudo targets over both reliabilities at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labeltrace.diagnostics.reliability import HIGH_CONFIDENCE, Row, Verdicts, bin_of, hc_error, pseudo_accuracy

BINS = 5
LEAST = 1e-4  # share of the samples below which a cell stays blank


@dataclass(frozen=True)
class Landscape:
    """Accuracy [BINS, BINS] (NaN where blank) and counts; rows are pseudo, columns observed reliability, from low."""

    accuracy: Tensor
    counts: Tensor


def landscape(observed: Tensor, pseudo: Tensor, ok: Tensor) -> Landscape:
    """Return the share of right pseudo targets in each cell of equal width.

    Args:
        observed: [N] reliability of the observed label, in [0, 1].
        pseudo: [N] reliability (or bare confidence) of the pseudo target, in [0, 1].
        ok: [N] whether the pseudo target is right.

    >>> here = landscape(torch.tensor([0.1, 0.1]), torch.tensor([0.9, 0.9]), torch.tensor([True, False]))
    >>> float(here.accuracy[4, 0]), int(here.counts[4, 0]), bool(here.accuracy[0, 0].isnan())
    (0.5, 2, True)
    """
    cell = bin_of(pseudo, BINS) * BINS + bin_of(observed, BINS)
    counts = torch.bincount(cell, minlength=BINS**2).reshape(BINS, BINS)
    right = torch.bincount(cell, weights=ok.double(), minlength=BINS**2).reshape(BINS, BINS)
    blank = (counts == 0) | (counts < LEAST * len(ok))
    return Landscape((right / counts).masked_fill(blank, torch.nan), counts)


def low_observed_high_pseudo(v: Verdicts, pseudo: Tensor, tau: float = HIGH_CONFIDENCE) -> Row:
    """Return size, accuracy and high-confidence error of the corner where a replacement is needed and offered.

    Ours, as the paper gives no bounds: the lowest bin of the observed and the highest of the pseudo reliability [n].
    """
    corner = v.at((bin_of(v.score, BINS) == 0) & (bin_of(pseudo, BINS) == BINS - 1))
    return {"n": len(corner), "pseudo_accuracy": pseudo_accuracy(corner), "hc_error": hc_error(corner, tau)}
