"""What relation drift adds to the loss: right labels at low and at high drift, among samples of like loss posterior."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labeltrace.diagnostics.reliability import Row, told
from labeltrace.diagnostics.values import mean
from labeltrace.engine.signals import auroc

ZERO = 1e-6  # below it a posterior counts as 0: they underflow
#: name, from, to (without): the paper's strata of c^loss
STRATA = (
    ("{0}", -math.inf, ZERO),
    ("(0, .2)", ZERO, 0.2),
    ("[.2, .5)", 0.2, 0.5),
    ("[.5, .8)", 0.5, 0.8),
    ("[.8, .98)", 0.8, 0.98),
    ("[.98, 1]", 0.98, math.inf),
)


def drift_strata(clean: Tensor, drift: Tensor, right: Tensor) -> list[Row]:
    """Return a row per stratum of the loss posterior: the share of right labels at low and at high drift.

    Inside a stratum samples are sorted by drift (stable) and cut at the median: the first ⌊n/2⌋ are low, the rest
    high. `auroc` is that of −drift for a right label, 0.5 where drift says nothing. Strata of fewer than two samples
    are blank.

    Args:
        clean: [N] loss posterior, from the same pass as the drift.
        drift: [N] relation drift of one network.
        right: [N] whether the observed label is the true one.

    >>> rows = drift_strata(torch.full((4,), 0.6), torch.tensor([4.0, 1.0, 3.0, 2.0]), torch.tensor([0, 1, 0, 1]) == 1)
    >>> rows[3]["low"], rows[3]["high"], rows[3]["auroc"], rows[3]["n"]
    (1.0, 0.0, 1.0, 4)
    """
    rows: list[Row] = []
    for name, start, end in STRATA:
        inside = (clean >= start) & (clean < end)
        order = right[inside][torch.argsort(drift[inside], stable=True)]
        half, blank = len(order) // 2, len(order) < 2
        rows.append(
            {
                "stratum": name,
                "n": len(order),
                "n_low": half,
                "low": math.nan if blank else mean(order[:half]),
                "high": math.nan if blank else mean(order[half:]),
                "auroc": auroc(-drift[inside], right[inside]),
            }
        )
    return told(rows, "stratum", "drift strata")
