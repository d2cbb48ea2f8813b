"""FINE's selector: how well a sample's features point the way of its class → probability that its label is clean.

From "FINE Samples for Learning with Noisy Labels" (Kim, Ko, Cho, Choi, Yun, NeurIPS 2021, arXiv 2102.11628; official
code Kthyeon/FINE_official). Used by f-DivideMix on raw features and by ANNE on normalised ones. The leading direction
of a class is that of its clean majority, and the mixture of two Gaussians is fitted class by class.

What the official code does that the paper does not say: the score is |cosine|, the paper's is the squared inner product
of the raw feature (`score="sq"`); the mixture has scikit-learn's reg_covar 1e-6 and ten steps in f-DivideMix.
Ours: the direction comes from the D × D Gram matrix in float64 and a symmetric eigen-solver, where the code takes the
full singular value decomposition; a class that is too small or whose scores are all equal counts as clean.
Features are not centred: that would remove the direction that carries the signal.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labeltrace.scoring.checks import check_finite, check_rows
from labeltrace.scoring.posterior import mixture_sklearn, mixture_torch

SCORES = ("abs", "sq")
_CHUNK = 2**22  # values that are held in float64 at a time: 32 MiB
_EQUAL = 1e-6  # scores that differ by less, relative to the largest, are one: the rounding of float32 features


def fine_posterior(
    embedding: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    score: str = "abs",
    max_iter: int = 10,
    tol: float = 1e-6,
    reg_covar: float = 1e-6,
    seed: int = 0,
    fewest: int = 2,
    method: str = "auto",
) -> Tensor:
    """Return the probability that each sample belongs to the well-aligned component of its class.

    Args:
        embedding: [N, D] features, finite; any floating type, any device. Not differentiated.
        labels: [N] class numbers below `num_classes`.
        num_classes: C; a class may have no sample.
        score: "abs" (|cosine|, default: official code) or "sq" (squared inner product, the paper).
        max_iter: EM steps at most. Default of f-DivideMix's code, as are the next two (FINE alone takes 100 steps).
        tol: EM stops when the mean log-likelihood changes by less.
        reg_covar: added to each variance. Scores lie in a narrow band, so this counts (5e-4 blurs it).
        seed: of scikit-learn's k-means start.
        fewest: a class with fewer samples counts as clean.
        method: "sklearn" (class after class, on the host), "torch" (all classes at once, on the device), "auto":
            "torch" on a device, "sklearn" on the CPU. They differ in the start, as in `loss_posterior`.

    Returns:
        [N] float32 in [0, 1], on the device of `embedding`.

    Raises:
        ValueError: shapes that do not fit, a non-finite feature (on the CPU), an unknown score or method.

    >>> towards = torch.tensor([[1.0, 0.02], [1.0, -0.01], [1.0, 0.0], [1.0, 0.01], [0.1, 1.0], [0.0, 1.0]])
    >>> fine_posterior(towards, torch.zeros(6, dtype=torch.int64), num_classes=1).round(decimals=3)
    tensor([1., 1., 1., 1., 0., 0.])
    """
    if method not in ("auto", "sklearn", "torch"):
        raise ValueError(f"unknown method {method!r}: known are auto, sklearn, torch")
    if fewest < 2:
        raise ValueError(f"fewest: {fewest}, expected ≥ 2 (one sample has no mixture)")
    if method == "auto":
        method = "sklearn" if embedding.device.type == "cpu" else "torch"
    directions = class_directions(embedding, labels, num_classes)
    aligned = alignment(embedding, labels, directions, score)
    if method == "sklearn":
        clean = _fit_classes_sklearn(aligned.cpu(), labels.cpu(), fewest, seed, max_iter, tol, reg_covar)
    else:
        clean = _fit_classes_torch(aligned, labels, num_classes, fewest, max_iter, tol, reg_covar)
    return clean.to(device=embedding.device, dtype=torch.float32)


def class_directions(embedding: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return each class's leading unit eigenvector u_k of Σ_{i: y_i = k} z_i z_iᵀ, [C, D] float64; its sign is free.

    It is the first right-singular vector of the class's features. A class without samples has a row of zeros.

    >>> z = torch.tensor([[2.0, 0.0], [3.0, 1.0], [4.0, 0.0], [0.0, 1.0]])
    >>> class_directions(z, torch.zeros(4, dtype=torch.int64), 1).abs()
    tensor([[0.9940, 0.1091]], dtype=torch.float64)
    """
    _check(embedding, labels)
    features = embedding.detach()
    width = features.shape[1]
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels, minlength=num_classes).tolist()
    directions = torch.zeros(num_classes, width, dtype=torch.float64, device=features.device)
    for number, members in enumerate(order.split(counts)):
        if len(members):
            gram = torch.zeros(width, width, dtype=torch.float64, device=features.device)
            for rows in members.split(max(1, _CHUNK // width)):
                part = features[rows].double()
                gram += part.T @ part
            directions[number] = torch.linalg.eigh(gram).eigenvectors[:, -1]  # ascending eigenvalues
    return directions


def alignment(embedding: Tensor, labels: Tensor, directions: Tensor, score: str = "abs") -> Tensor:
    """Return how far each feature points along its class's direction, [N] float64.

    "abs": `|⟨u, z/‖z‖⟩|` in [0, 1], 0 for a feature of length 0. "sq": `⟨u, z⟩²`.

    Args:
        embedding: [N, D].
        labels: [N].
        directions: [C, D] unit vectors.
        score: "abs" or "sq".

    >>> z, y = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([0, 0])
    >>> u = torch.tensor([[-1.0, 0.0]], dtype=torch.float64)
    >>> alignment(z, y, u).tolist(), alignment(z, y, u, "sq").tolist()
    ([0.6, 0.0], [9.0, 0.0])
    """
    if score not in SCORES:
        raise ValueError(f"unknown score {score!r}: known are {', '.join(SCORES)}")
    _check(embedding, labels)
    parts = []
    size = max(1, _CHUNK // embedding.shape[1])
    for z, y in zip(embedding.detach().split(size), labels.split(size), strict=True):
        z = z.double()
        if score == "abs":
            parts.append((F.normalize(z, dim=1, eps=1e-300) * directions[y]).sum(1).abs().clamp(max=1))
        else:
            parts.append((z * directions[y]).sum(1).square())
    return torch.cat(parts)


def _check(embedding: Tensor, labels: Tensor) -> None:
    if embedding.ndim != 2 or embedding.numel() == 0:
        raise ValueError(f"embedding: shape {tuple(embedding.shape)}, expected [N, D] with N, D > 0")
    check_rows("labels", labels, len(embedding), "embedding")
    check_finite("embedding", embedding)


def _same(low: Tensor, high: Tensor) -> Tensor:
    """Say whether the smallest and the largest score of a class are one number but for rounding."""
    return high - low <= _EQUAL * high


def _fit_classes_sklearn(
    aligned: Tensor, labels: Tensor, fewest: int, seed: int, max_iter: int, tol: float, reg_covar: float
) -> Tensor:
    """Fit scikit-learn's mixture to each class's scores [N] on the host; the high component's posterior [N]."""
    clean = torch.ones_like(aligned)
    for number in labels.unique():
        members = (labels == number).nonzero()[:, 0]
        # in ascending order, so that k-means starts alike whatever order the samples came in
        values, order = aligned[members].sort()
        if len(values) >= fewest and not bool(_same(values[0], values[-1])):
            clean[members[order]] = mixture_sklearn(values, seed, max_iter, tol, reg_covar)[1]
    return clean


def _fit_classes_torch(
    aligned: Tensor, labels: Tensor, num_classes: int, fewest: int, max_iter: int, tol: float, reg_covar: float
) -> Tensor:
    """Fit all classes' mixtures at once, a class a row of [C, most]; the high component's posterior [N]."""
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels, minlength=num_classes)
    row = labels[order]
    place = torch.arange(len(order), device=labels.device) - (counts.cumsum(0) - counts)[row]
    present = counts > 0
    shape = num_classes, int(counts.max())
    values = torch.zeros(shape, dtype=aligned.dtype, device=aligned.device)
    values[row, place] = aligned[order]
    valid = torch.arange(shape[1], device=labels.device) < counts.clamp(min=1)[:, None]
    high = mixture_torch(values, max_iter, tol, reg_covar, valid)[1]
    largest = values.masked_fill(~valid, -torch.inf).amax(1)
    smallest = values.masked_fill(~valid, torch.inf).amin(1)
    held_clean = (counts < fewest) | _same(smallest, largest) | ~present
    high = torch.where(held_clean[:, None], 1.0, high)
    clean = torch.empty_like(aligned)
    clean[order] = high[row, place]
    return clean
