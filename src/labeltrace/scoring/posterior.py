"""Loss → probability that the label is clean: a mixture of two Gaussians over the losses of the whole training set.

From DivideMix (Li, Socher, Hoi, ICLR 2020, arXiv 2002.07394), used unchanged by RoLR and by TRACE's c^loss. Two ways to
the same mixture: scikit-learn's, which the published codes call, and one in torch that never leaves the device. They
share every step except the start: scikit-learn's k-means draws its first centre and stops early (when the centres move
by less than 1 % of the standard deviation), the torch one takes the best split there is. Since the mixture stops early
too (tol 1e-2), a start leaves a trace in the result: see `loss_posterior`.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from labeltrace.scoring.checks import check_finite, looks_free

METHODS = ("auto", "sklearn", "torch")


def loss_posterior(
    losses: Tensor,
    *,
    seed: int = 0,
    max_iter: int = 10,
    tol: float = 1e-2,
    reg_covar: float = 5e-4,
    method: str = "auto",
) -> Tensor:
    """Return the probability that each sample belongs to the low-loss component of a two-Gaussian mixture.

    `x = (l − min l) / (max l − min l)`, then with the fitted weights π, means μ (μ_0 ≤ μ_1) and variances σ²
    `c_i = π_0 N(x_i; μ_0, σ_0²) / Σ_k π_k N(x_i; μ_k, σ_k²)`. It need not fall with the loss: a wide clean component
    takes back the highest losses.

    "sklearn" and "torch" agree to 1e-3 when the two components are apart. When they overlap (early training), the
    start decides: scikit-learn then differs from itself, from seed to seed, by 1e-2 at N = 50,000 and by up to 0.3 at
    N = 500 (simulated losses of tests/scoring/test_posterior.py), and "torch" lies among its seeds.

    Args:
        losses: [N], finite; any floating type, any device. Not differentiated.
        seed: of scikit-learn's k-means start; "torch" draws nothing.
        max_iter: EM steps at most. Default of DivideMix's and RoLR's codes, as are the next two.
        tol: EM stops when the mean log-likelihood changes by less.
        reg_covar: added to each variance.
        method: "sklearn" (copies a device tensor to the host), "torch" (stays on the device, no synchronisation,
            can be captured), "auto": "torch" on a device, "sklearn" on the CPU.

    Returns:
        [N] float32 in [0, 1], on the device of `losses`. Equal losses, and a single one, give ones. Non-finite losses
        give NaN for all samples where they cannot be checked without a synchronisation (on a device, or compiled).

    Raises:
        ValueError: not one-dimensional, empty, non-finite (on the CPU), unknown method, or a setting out of range.

    Warns:
        UserWarning: all losses are equal (on the CPU).

    >>> losses = torch.tensor([0.0, 0.02, 0.04, 0.05, 0.5, 0.7, 0.8, 1.0])
    >>> loss_posterior(losses).round(decimals=3)
    tensor([1., 1., 1., 1., 0., 0., 0., 0.])
    """
    if losses.ndim != 1 or losses.numel() == 0:
        raise ValueError(f"losses have shape {tuple(losses.shape)}: expected [N] with N > 0")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: known are {', '.join(METHODS)}")
    if max_iter < 1 or tol < 0 or reg_covar <= 0:
        raise ValueError(f"max_iter={max_iter}, tol={tol}, reg_covar={reg_covar}: expected ≥ 1, ≥ 0 and > 0")
    if method == "auto":
        method = "sklearn" if losses.device.type == "cpu" else "torch"
    values = losses.detach().to(torch.float64)
    if method == "sklearn":
        values = values.cpu()
    check_finite("losses", values)
    if looks_free(values) and _is_constant(values):
        return torch.ones_like(losses, dtype=torch.float32)
    low, high = torch.aminmax(values)
    extent = high - low  # NaN, not 0, when a loss is infinite or NaN
    x = (values - low) / extent
    if method == "sklearn":
        low_part, _ = mixture_sklearn(x, seed, max_iter, tol, reg_covar)
    else:
        low_part, _ = mixture_torch(x, max_iter, tol, reg_covar)
        low_part = torch.where(extent == 0, 1.0, low_part)
    return low_part.to(device=losses.device, dtype=torch.float32)


def _is_constant(values: Tensor) -> bool:
    """Say whether all host values [N] are equal, with a warning from N = 2 on."""
    constant = bool((values == values[0]).all())
    if constant and len(values) > 1:
        warnings.warn(f"all {len(values)} losses are equal, so every label counts as clean", stacklevel=3)
    return constant


def mixture_sklearn(x: Tensor, seed: int, max_iter: int, tol: float, reg_covar: float) -> tuple[Tensor, Tensor]:
    """Fit scikit-learn's mixture to host values [N], N ≥ 2, and return the low and the high component's posterior."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(n_components=2, max_iter=max_iter, tol=tol, reg_covar=reg_covar, random_state=seed)
    column = x.numpy()[:, None]
    with warnings.catch_warnings():
        # ten steps are the published setting, not a failure the user could mend
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(column)
    means, parts = mixture.means_[:, 0], torch.from_numpy(mixture.predict_proba(column))
    return parts[:, means.argmin()], parts[:, means.argmax()]


def mixture_torch(
    x: Tensor, max_iter: int, tol: float, reg_covar: float, valid: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Fit a mixture to each row of values on their device, step by step as scikit-learn does.

    The number of steps is fixed, so the host never asks whether EM has converged: parameters that have are frozen.

    Args:
        x: [N], or [G, N] for G mixtures at once; float64.
        max_iter: EM steps at most.
        tol: a mixture's parameters are frozen when its mean log-likelihood changes by less.
        reg_covar: added to each variance.
        valid: [G, N] bool, at least one of each row, where the rows have different lengths; None for all. What stands
            in the other places is finite and takes no part.

    Returns:
        The posteriors of the component with the smaller and with the larger mean, each shaped as `x`. A row of equal
        values, or of one, gives numbers without meaning; a row with NaN gives NaN.
    """
    if x.shape[-1] == 1:
        return x, x  # nothing to split
    resp = _best_split(_unit(x, valid), valid)
    parameters = _m_step(x, resp if valid is None else resp * valid[..., None, :], reg_covar)
    previous = torch.full((), -math.inf, dtype=x.dtype, device=x.device)
    converged = torch.zeros((), dtype=torch.bool, device=x.device)
    for _ in range(max_iter):
        likelihood, resp = _e_step(x, parameters, valid)
        parameters = torch.where(converged[..., None, None], parameters, _m_step(x, resp, reg_covar))
        converged = converged | ((likelihood - previous).abs() < tol)
        previous = likelihood
    first, second = _e_step(x, parameters, valid)[1].unbind(-2)
    means = parameters[1]
    ascending = means[..., 0, :] <= means[..., 1, :]
    return torch.where(ascending, first, second), torch.where(ascending, second, first)


def _unit(x: Tensor, valid: Tensor | None) -> Tensor:
    """Return rows of x [..., N] brought to [0, 1]; values without a part in their row become 1, its largest."""
    if valid is None:
        low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        return (x - low) / (high - low)
    low = x.masked_fill(~valid, math.inf).amin(-1, keepdim=True)
    high = x.masked_fill(~valid, -math.inf).amax(-1, keepdim=True)
    extent = torch.where(high > low, high - low, 1.0)
    return ((x - low) / extent).masked_fill(~valid, 1.0)


def _best_split(x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the two-means clustering of [..., N] values in [0, 1] with the least inertia: 0 and 1 as [..., 2, N].

    In one dimension a cluster is an interval, so the best of all N − 1 cuts of the sorted values is found at once: the
    one with the largest `S_k²/k + (S_n − S_k)²/(n − k)`, S_k being the sum of the k smallest of n.
    """
    ordered = x.sort(-1).values
    count = x.shape[-1]
    # Fixed point: prefix sums of integers are exact, so neither sample order nor device changes the cut (and torch's
    # deterministic mode allows them on CUDA, which it does not for floating point).
    scale = 2.0 ** (62 - math.ceil(math.log2(count)))
    sums = (ordered * scale).to(torch.int64).cumsum(-1).to(x.dtype) / scale
    below = torch.arange(1, count, dtype=x.dtype, device=x.device)
    members: int | Tensor = count
    total = sums[..., -1:]
    if valid is not None:  # the others have the largest value, so they stand last and no cut lies among them
        members = valid.sum(-1, keepdim=True)
        total = sums.gather(-1, members - 1)
    gain = sums[..., :-1] ** 2 / below + (total - sums[..., :-1]) ** 2 / (members - below)
    gain = torch.where(ordered[..., 1:] > ordered[..., :-1], gain, -math.inf)  # equal values stay together
    # gather, because indexing with a device scalar would copy it to the host
    cut = ordered.gather(-1, gain.argmax(-1, keepdim=True))
    low = x <= cut
    return torch.stack((low, ~low), -2).to(x.dtype)


def _m_step(x: Tensor, resp: Tensor, reg_covar: float) -> Tensor:
    """Return weights, means and variances [3, ..., 2, 1] from values [..., N] and responsibilities [..., 2, N]."""
    x = x[..., None, :]
    size = resp.sum(-1, keepdim=True) + 10 * torch.finfo(x.dtype).eps  # scikit-learn's guard: an empty component
    mean = (resp * x).sum(-1, keepdim=True) / size
    variance = (resp * (x - mean) ** 2).sum(-1, keepdim=True) / size + reg_covar
    return torch.stack((size / size.sum(-2, keepdim=True), mean, variance))


def _e_step(x: Tensor, parameters: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the mean log-likelihood of each row [...] and the responsibilities [..., 2, N]."""
    weight, mean, variance = parameters
    joint = weight.log() - 0.5 * ((x[..., None, :] - mean) ** 2 / variance + (2 * math.pi * variance).log())
    evidence = torch.logsumexp(joint, dim=-2)
    resp = (joint - evidence[..., None, :]).exp()
    if valid is None:
        return evidence.mean(-1), resp
    return (evidence * valid).sum(-1) / valid.sum(-1), resp * valid[..., None, :]
