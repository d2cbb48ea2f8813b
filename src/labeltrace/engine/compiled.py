"""Networks and views through torch's compiler, for long runs on a GPU: fewer and larger kernels.

Shapes of a run are fixed, so each is compiled for itself; the first epochs pay for it, about a minute in all, and what
is compiled is kept on disk for the next run. Where there is no Triton or no C compiler, nothing is compiled.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labeltrace.data import Views
from labeltrace.data.draws import Draws
from labeltrace.models.parts import norm_by_parts
from labeltrace.scoring.relations import grouped_drift

WORTH = 1_000_000  # samples a run looks at from which its compilation pays off (twenty epochs of CIFAR)
SHAPES = 64  # variants of a network that may be compiled: batch sizes × train or eval × with or without gradient


def can_compile(device: torch.device) -> bool:
    """Whether there is a compiler for this device; says why not, once."""
    if device.type != "cuda":
        return False
    from torch.utils._triton import has_triton

    missing = [] if has_triton() else ["Triton"]
    missing += [] if any(map(shutil.which, ("cc", "gcc", "clang"))) else ["a C compiler"]
    if missing:
        warnings.warn(f"networks are not compiled, which is slower: {' and '.join(missing)} not found", stacklevel=2)
    return not missing


def compile_network(network: nn.Module) -> None:
    """Compile a network in place; its parameters and their names stay."""
    from torch._dynamo import config

    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # torch < 2.7
    setattr(config, name, max(SHAPES, getattr(config, name)))
    norm_by_parts(network)
    config.suppress_errors = True  # what cannot be compiled runs as it is
    network.compile(dynamic=False)


def compiled_drift() -> Callable[..., Tensor]:
    """Return `grouped_drift`, compiled: a scoring pass launches a handful of kernels for it instead of hundreds."""
    return _compiled(grouped_drift)


class CompiledViews:
    """The same views, compiled; images come channels-last, as the networks hold them."""

    def __init__(self, views: Views) -> None:
        def plain(inputs: Tensor) -> Tensor:
            return _channels_last(views.plain(inputs))

        def weak(inputs: Tensor, keys: Tensor, reflect: bool) -> Tensor:
            return _channels_last(views.weak(inputs, Draws(keys), reflect=reflect))

        def strong(inputs: Tensor, keys: Tensor, policy: str | None) -> Tensor:
            return _channels_last(views.strong(inputs, Draws(keys), policy))

        self.plain: Callable[[Tensor], Tensor] = _compiled(plain)
        self._weak, self._strong = _compiled(weak), _compiled(strong)

    def weak(self, inputs: Tensor, draws: Draws, *, reflect: bool = False) -> Tensor:
        """See `labeltrace.data.Views`."""
        return self._weak(inputs, draws.keys, reflect)

    def strong(self, inputs: Tensor, draws: Draws, policy: str | None = None) -> Tensor:
        """See `labeltrace.data.Views`."""
        return self._strong(inputs, draws.keys, policy)


def _channels_last(inputs: Tensor) -> Tensor:
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs


def _compiled(function: Callable[..., Tensor]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)
