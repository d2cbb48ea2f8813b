"""A user's own network as a staged one: name the submodules whose outputs are the stages.

The outputs are read with forward hooks that live for one call only: nothing is left on the user's module between calls,
so copying, pickling and loading it work as before, and no activation outlives the forward that made it.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models.output import Output, check_pooling, pool


class Staged(nn.Module):
    """Adapt a classifier that returns logits to one that returns an `Output`.

    The features are `pool(output of stage l)`, l in the order of `stages`. They are pooled as soon as the stage has
    run, before an in-place operation after it can change them; of a stage that runs several times the last run counts.
    On several GPUs it is `DataParallel(Staged(…))`, whose replicas read their own stages, not the other way round.

    Args:
        module: returns logits [B, C], or a tuple whose first element is the logits.
        stages: names of submodules as in `module.named_modules()`, shallow to deep, at least two. Each returns
            [B, D], [B, D, ...] or [B, ..., D], or a tuple whose first element is such a tensor.
        pooling: "gap" or "flatten", see `pool`; "flatten" keeps the order of the axes.
        channels: the axis of the D channels, 1 (convolutions) or -1 (transformers, [B, tokens, D]), of all stages or of
            each. None means 1, with a warning where a stage has three axes and "gap" might average the wrong one.

    Raises:
        InputError: an unknown submodule, fewer than two stages, a stage named twice, an unknown pooling, channels that
            are neither 1 nor -1 or not as many as the stages.
        RuntimeError: in forward, when a stage did not run.
        TypeError: in forward, when the module or a stage returns something else than a tensor.
        ValueError: in forward, when the logits are not [B, C], or a stage does not begin with the batch.

    >>> import torch
    >>> network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(96, 10))
    >>> output = Staged(network, ["1", "2"])(torch.zeros(2, 1, 8, 8))
    >>> output.logits.shape, [feature.shape[1] for feature in output.features]
    (torch.Size([2, 10]), [4, 6])
    >>> tokens = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2), nn.Flatten(), nn.Linear(10, 3))
    >>> [feature.shape[1] for feature in Staged(tokens, ["0", "1"], channels=-1)(torch.zeros(7, 5, 6)).features]
    [4, 2]
    """

    def __init__(
        self,
        module: nn.Module,
        stages: Sequence[str],
        pooling: str = "gap",
        channels: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.stages = _checked_stages(module, stages)
        self.pooling = check_pooling(pooling)
        self.channels = _checked_channels(channels, len(self.stages))

    def forward(self, x: Tensor) -> Output:
        """Return logits [B, C] and one feature per stage for a batch the module takes."""
        recorded: dict[str, Tensor] = {}
        handles = []
        for stage, axis in zip(self.stages, self.channels, strict=True):
            own = self.module.get_submodule(stage)
            handles.append(own.register_forward_hook(_recorder(recorded, own, stage, self.pooling, axis)))
        try:
            logits = _first_tensor(self.module(x), "the module")
        finally:
            for handle in handles:
                handle.remove()
        if logits.ndim != 2:
            raise ValueError(f"the module returned logits of shape {tuple(logits.shape)}: expected [B, C]")
        idle = [stage for stage in self.stages if stage not in recorded]
        if idle:
            raise RuntimeError(f"stages {idle} did not run in the forward: name submodules that the forward calls")
        for stage, feature in recorded.items():
            if len(feature) != len(logits):
                raise ValueError(
                    f"stage {stage!r} returned {len(feature)} rows for {len(logits)} samples: the batch comes first, "
                    "[B, D], [B, D, ...] or [B, ..., D]"
                )
        return Output(logits, tuple(recorded[stage] for stage in self.stages))


def _recorder(
    recorded: dict[str, Tensor], own: nn.Module, stage: str, pooling: str, axis: int | None
) -> Callable[[nn.Module, object, object], None]:
    """Return a forward hook that stores the pooled output of `own`, a stage with its channels on `axis`."""

    def record(module: nn.Module, inputs: object, output: object) -> None:
        if module is not own:  # replicas of DataParallel share their hooks
            return
        values = _first_tensor(output, f"stage {stage!r}")
        if axis is None and values.ndim == 3 and pooling == "gap" and not torch.compiler.is_compiling():
            warnings.warn(
                f"stage {stage!r} returned [B, {values.shape[1]}, {values.shape[2]}], and the last axis is averaged; "
                "pass channels=-1 if that is [B, tokens, D], channels=1 if not",
                stacklevel=2,
            )
        feature = pool(values.movedim(-1, 1) if axis == -1 and pooling == "gap" else values, pooling)
        # a view of the output would change with an in-place operation after the stage; a mean is a new tensor already
        recorded[stage] = feature.clone() if pooling == "flatten" or values.ndim == 2 else feature

    return record


def _first_tensor(output: object, source: str) -> Tensor:
    first = output[0] if isinstance(output, tuple) and output else output
    if not isinstance(first, Tensor):
        kind = type(output).__name__
        raise TypeError(f"{source} returned {kind}: expected a tensor or a tuple that starts with one")
    return first


def _checked_stages(module: nn.Module, stages: Sequence[str]) -> tuple[str, ...]:
    if isinstance(stages, str):
        raise InputError(f"stages is the string {stages!r}: pass a list of submodule names")
    known = [name for name, _ in module.named_modules() if name]
    for stage in stages:
        if stage not in known:
            close = difflib.get_close_matches(stage, known, n=3, cutoff=0.4) or known[:8]
            raise InputError(f"no submodule {stage!r} in {type(module).__name__}: nearest are {', '.join(close)}")
    if len(stages) < 2:
        raise InputError(f"stages {list(stages)}: the drift between stages needs at least 2")
    if len(set(stages)) < len(stages):
        raise InputError(f"stages {list(stages)} names a submodule twice")
    return tuple(stages)


def _checked_channels(channels: int | Sequence[int] | None, stages: int) -> tuple[int | None, ...]:
    """Return the axis of the channels of each stage."""
    each = (channels,) * stages if channels is None or isinstance(channels, int) else tuple(channels)
    if len(each) != stages or any(axis not in (1, -1, None) for axis in each):
        raise InputError(f"channels {channels!r}: expected 1 or -1, or one of them for each of {stages} stages")
    return each
