"""Loss terms and target steps that several learners share."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from labeltrace.scoring import loss_posterior

REG_COVAR = 5e-4  # added to each variance of a mixture over losses in [0, 1]: DivideMix's and RoLR's codes


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


def warmup_loss(logits: Tensor, observed: Tensor, entropy: float) -> Tensor:
    """Return the mean cross-entropy with observed classes [B], plus `entropy` times the negative entropy; a scalar.

    >>> round(float(warmup_loss(torch.zeros(1, 4), torch.tensor([2]), entropy=1.0)), 6)
    0.0
    """
    loss = F.cross_entropy(logits.float(), observed)
    return loss + entropy * negative_entropy(logits) if entropy else loss


def squared_error(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the mean over rows and classes of w_i · (softmax(logits)_ic − target_ic)², a scalar.

    Args:
        logits: [B, C].
        target: [B, C].
        weight: [B], or None for 1.

    >>> round(float(squared_error(torch.tensor([[0.7, 0.1, 0.1, 0.1]]).log(), torch.eye(4)[:1])), 6)
    0.03
    """
    error = (logits.float().softmax(1) - target).square()
    return error.mean() if weight is None else (weight[:, None] * error).mean()


def weighted_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return mean_i w_i/w̄ · (−Σ_c t_ic log p_ic) of rows [B, C] with weights [B], a scalar.

    >>> logits = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    >>> round(float(weighted_cross_entropy(logits, torch.eye(2), torch.tensor([3.0, 1.0]))), 6)
    0.591781
    """
    cross_entropy = -(target * F.log_softmax(logits.float(), dim=1)).sum(1)
    return (weight / weight.mean() * cross_entropy).mean()


def generalised_cross_entropy(logits: Tensor, labels: Tensor, q: float) -> Tensor:
    """Return (1 − p_y^q)/q of each row [B], p_y clamped to [1e-7, 1] (Zhang and Sabuncu, NeurIPS 2018).

    >>> generalised_cross_entropy(torch.tensor([[0.6, 0.4]]).log(), torch.tensor([0]), 0.7)
    tensor([0.4295])
    """
    p = logits.float().softmax(1).gather(1, labels[:, None])[:, 0].clamp(1e-7, 1)
    return (1 - p**q) / q


def reverse_cross_entropy(logits: Tensor, labels: Tensor, zero: float = 1e-4) -> Tensor:
    """Return −Σ_c p_c log ē_c of each row [B], ē the one-hot label with `zero` for its zeros (Wang et al., ICCV 2019).

    As log ē_y = 0 that is −A·(1 − p_y) with A = log `zero`: the mean absolute error times −A/2.

    Args:
        logits: [B, C].
        labels: [B].
        zero: what a zero of the one-hot label is replaced by; it multiplies the weight of this term.

    >>> reverse_cross_entropy(torch.tensor([[0.6, 0.4]]).log(), torch.tensor([0]))
    tensor([3.6841])
    """
    p = logits.float().softmax(1).gather(1, labels[:, None])[:, 0]
    return -math.log(zero) * (1 - p)


def clamped_softmax(logits: Tensor, least: float = 1e-4) -> Tensor:
    """Return softmax(logits) [B, C] clamped to [least, 1 − least]; no gradient passes where it is clamped.

    >>> clamped_softmax(torch.tensor([[0.0, 20.0]]))
    tensor([[1.0000e-04, 9.9990e-01]])
    """
    return logits.float().softmax(1).clamp(least, 1 - least)


def temporal_target(target: Tensor, probabilities: Tensor, beta: float) -> Tensor:
    """Return β·T + (1 − β)·p/Σ_c p_c of rows [B, C] (Liu et al., NeurIPS 2020); from T = 0, n of them sum to 1 − β^n.

    >>> temporal_target(torch.zeros(1, 2), torch.tensor([[0.6, 0.4]]), 0.7)
    tensor([[0.1800, 0.1200]])
    """
    return beta * target + (1 - beta) * probabilities / probabilities.sum(1, keepdim=True)


def early_learning_penalty(target: Tensor, probabilities: Tensor) -> Tensor:
    """Return mean_i log(1 − ⟨T_i, p_i⟩), a scalar ≤ 0 that falls as p moves towards T (Liu et al., NeurIPS 2020).

    Its gradient with respect to logits is p_k (s − T_k)/(1 − s) with s = ⟨T, p⟩.

    Args:
        target: [B, C] without gradient.
        probabilities: [B, C], clamped below 1: the logarithm of 0 is near where T and p are certain of one class.

    >>> early_learning_penalty(torch.tensor([[0.18, 0.12]]), torch.tensor([[0.6, 0.4]]))
    tensor(-0.1696)
    """
    return (1 - (target * probabilities).sum(1)).log().mean()


def loss_window(history: Tensor, loss: Tensor) -> tuple[Tensor, Tensor]:
    """Push an epoch's losses, each network's brought to [0, 1], into a window and return it with its mean [M, N].

    Args:
        history: [N, M, W] the last W epochs, newest last, NaN where there was none.
        loss: [M, N] of this epoch.

    >>> empty = torch.full((2, 1, 3), torch.nan)
    >>> first, _ = loss_window(empty, torch.tensor([[1.0, 3.0]]))
    >>> loss_window(first, torch.tensor([[8.0, 4.0]]))[1]
    tensor([[0.5000, 0.5000]])
    """
    low, high = loss.amin(1, keepdim=True), loss.amax(1, keepdim=True)
    newest = ((loss - low) / (high - low).clamp_min(1e-12)).T[:, :, None]
    history = torch.cat([history[:, :, 1:], newest], 2)
    return history, history.nanmean(2).T


def window_posterior(history: Tensor, loss: Tensor) -> tuple[Tensor, Tensor]:
    """Push an epoch's losses into a window and return it with the clean posteriors [M, N] of its mean.

    The published codes fit the mean as it is. `loss_posterior` stretches it to [0, 1] first, so the constant that is
    added to the variances is stretched with it; nothing else of a mixture depends on the scale.

    Args:
        history: [N, M, W] as in `loss_window`.
        loss: [M, N] of this epoch.
    """
    history, means = loss_window(history, loss)
    extents = (means.amax(1) - means.amin(1)).tolist()
    posteriors = [
        loss_posterior(mean, reg_covar=REG_COVAR / extent**2 if extent else REG_COVAR)
        for mean, extent in zip(means, extents, strict=True)
    ]
    return history, torch.stack(posteriors)
