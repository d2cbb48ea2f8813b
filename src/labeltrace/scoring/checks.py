"""Checks of tensor arguments: shapes always, values only where looking costs no synchronisation.

A value on a device cannot be looked at without stopping the host, so values are checked on eager CPU tensors and
skipped on CUDA and while torch.compile traces. `Evidence.check()` looks at the values on any device when asked.
"""

from __future__ import annotations

import torch
from torch import Tensor


def looks_free(values: Tensor) -> bool:
    """Whether the values can be looked at without a host synchronisation."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def work(values: Tensor) -> Tensor:
    """Return `values` in the precision the scores are computed in: float64 stays, everything else becomes float32."""
    return values if values.dtype == torch.float64 else values.to(torch.float32)


def first(bad: Tensor) -> int:
    """Index of the first row of `bad` [B] or [B, …] that holds a true value."""
    return int(bad.reshape(len(bad), -1).any(1).nonzero()[0, 0])


def check_rows(name: str, values: Tensor, rows: int, like: str) -> None:
    """Raise unless `values` has as many rows as the argument called `like`."""
    if values.ndim == 0 or values.shape[0] != rows:
        raise ValueError(f"{name}: shape {tuple(values.shape)} does not match {like}, which has {rows} samples")


def check_finite(name: str, values: Tensor, *, force: bool = False) -> None:
    """Raise where `values` holds NaN or infinity, naming the first such sample."""
    if not (force or looks_free(values)) or not values.is_floating_point():
        return
    bad = ~torch.isfinite(values)
    if bool(bad.any()):
        raise ValueError(f"{name}: NaN or infinite value at index {first(bad)}")


def check_unit(name: str, values: Tensor, *, force: bool = False) -> None:
    """Raise where `values` is not [B], or one leaves [0, 1] or is NaN, naming the first such sample."""
    if values.ndim != 1:
        raise ValueError(f"{name}: shape {tuple(values.shape)}, expected [B], one number per sample")
    if not (force or looks_free(values)):
        return
    bad = ~((values >= 0) & (values <= 1))
    if bool(bad.any()):
        index = first(bad)
        raise ValueError(f"{name}: {float(values[index]):g} at index {index} is outside [0, 1]")


def check_classes(name: str, values: Tensor, classes: int) -> None:
    """Raise where `values` [B] names no class 0 … C−1, naming the first such sample."""
    if not looks_free(values):
        return
    bad = (values < 0) | (values >= classes)
    if bool(bad.any()):
        index = first(bad)
        raise ValueError(f"{name}: {int(values[index])} at index {index}, expected a class from 0 to {classes - 1}")


def check_distribution(name: str, values: Tensor, *, tolerance: float = 1e-4, force: bool = False) -> None:
    """Raise unless every row of `values` [B, C] is a probability distribution, naming the first that is not.

    bfloat16 and float16 rows are allowed the rounding of their own precision.
    """
    if values.ndim != 2:
        raise ValueError(f"{name}: shape {tuple(values.shape)}, expected [B, C] with a probability per class")
    if not (force or looks_free(values)):
        return
    check_finite(name, values, force=force)
    if values.dtype in (torch.bfloat16, torch.float16):
        tolerance = max(tolerance, 4 * torch.finfo(values.dtype).eps)
    total = work(values).sum(1)
    bad = ((total - 1).abs() > tolerance) | (values < 0).any(1)
    if bool(bad.any()):
        index = first(bad)
        raise ValueError(
            f"{name}: row {index} sums to {float(total[index]):g} (smallest entry {float(values[index].min()):g}); "
            "expected probabilities, e.g. logits.softmax(1)"
        )
