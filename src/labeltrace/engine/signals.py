"""What the signals are worth: AUROC of each score against the truth, where the truth is known."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def auroc(score: Tensor, positive: Tensor) -> float:
    """Return the probability that a positive sample scores above a negative one (ties count half); NaN for one kind.

    >>> import torch
    >>> auroc(torch.tensor([0.9, 0.4, 0.4, 0.1]), torch.tensor([True, True, False, False]))
    0.875
    """
    positive = positive.bool()
    count = int(positive.sum())
    if count in (0, len(positive)):
        return math.nan
    values = score.detach().double().cpu().numpy()
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    wins = ranks[positive.cpu().numpy()].sum() - count * (count + 1) / 2
    return float(wins / (count * (len(values) - count)))


def signals(
    *,
    observed: Tensor,
    truth: Tensor,
    suggested: Tensor,
    clean: Tensor,
    structure: Tensor | None,
    observed_reliability: Tensor,
    pseudo_reliability: Tensor,
    confidence: Tensor,
) -> dict[str, float]:
    """Return the per-epoch figures of a scoring pass, all inputs [N].

    AUROCs of clean, structure and observed reliability are against "the observed label is right"; that of pseudo
    reliability (and of the bare confidence) against "the suggested label is right". Samples of unknown truth (−1) are
    left out.
    """
    known = truth >= 0
    label_right, suggestion_right = (observed == truth)[known], (suggested == truth)[known]
    found = {
        "auroc_clean": auroc(clean[known], label_right),
        "auroc_observed": auroc(observed_reliability[known], label_right),
        "auroc_pseudo": auroc(pseudo_reliability[known], suggestion_right),
        "auroc_confidence": auroc(confidence[known], suggestion_right),
        "label_accuracy": float(label_right.float().mean()),
        "suggestion_accuracy": float(suggestion_right.float().mean()),
    }
    if structure is not None:
        found["auroc_structure"] = auroc(structure[known], label_right)
        # torch.quantile refuses more than 2^24 values; numpy does not.
        for q, value in zip(QUANTILES, np.quantile(structure.cpu().numpy(), QUANTILES), strict=True):
            found[f"structure_q{round(100 * q):02d}"] = float(value)
    return found
