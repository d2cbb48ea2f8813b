"""Loss terms and target steps that several learners share."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def sharpen(probabilities: Tensor, exponent: float) -> Tensor:
    """Return p^e / Σ_c p_c^e of rows [B, C]; 1 leaves them as they are. (A temperature T is the exponent 1/T.)

    >>> sharpen(torch.tensor([[0.55, 0.35, 0.10]]), 2.0)
    tensor([[0.6954, 0.2816, 0.0230]])
    """
    if exponent == 1:
        return probabilities
    powered = probabilities**exponent
    return powered / powered.sum(1, keepdim=True)


def prior_penalty(logits: Tensor) -> Tensor:
    """Return KL(uniform ‖ mean prediction of the batch) = −log C − mean_c log p̄_c, a scalar ≥ 0.

    In log space throughout, so that a class no sample predicts costs a large number, not infinity.

    >>> round(float(prior_penalty(torch.tensor([[0.5, 0.3, 0.2]]).log())), 7)
    0.0702404
    """
    rows, classes = logits.shape
    mean_log = torch.logsumexp(F.log_softmax(logits.float(), dim=1), dim=0) - math.log(rows)
    return -math.log(classes) - mean_log.mean()


def negative_entropy(logits: Tensor) -> Tensor:
    """Return mean_i Σ_c p_ic log p_ic, a scalar ≤ 0; added to a loss it keeps predictions from becoming certain."""
    log_p = F.log_softmax(logits.float(), dim=1)
    return (log_p.exp() * log_p).sum(1).mean()
