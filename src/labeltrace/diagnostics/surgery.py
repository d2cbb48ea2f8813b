"""Checkpoint surgery (P11): stages of a clean network in a noisy one, with nothing trained again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from torch import nn

from labeltrace.diagnostics.stages import HEAD, stage_keys
from labeltrace.diagnostics.values import PERCENT
from labeltrace.errors import InputError, nearest

#: the paper's variants, by the parts that come from the clean network; the stem stays the noisy one's
VARIANTS: dict[str, tuple[str, ...]] = {
    "Layer1": ("layer1",),
    "Layer4": ("layer4",),
    "Prefix12": ("layer1", "layer2"),
    "Suffix34h": ("layer3", "layer4", HEAD),
}


def transplant(noisy: nn.Module, clean: nn.Module, parts: Iterable[str]) -> nn.Module:
    """Return a copy of `noisy` whose `parts` ("stem", "layer1", …, "head") come from `clean`, BatchNorm and all.

    Raises:
        InputError: an unknown part; networks that are not built alike.

    >>> from labeltrace.models import build_model
    >>> noisy, clean = (build_model("mlp", num_classes=3, input_shape=(5,)) for _ in range(2))
    >>> mixed = transplant(noisy, clean, ["head"])
    >>> bool((mixed.fc.weight == clean.fc.weight).all()), bool((mixed.layers[0][0].weight == noisy.layers[0][0].weight).all())
    (True, True)
    """  # noqa: E501
    keys, source, target = stage_keys(noisy), clean.state_dict(), noisy.state_dict()
    for key in chain(target, source):
        if key not in source or key not in target or source[key].shape != target[key].shape:
            found = ["nothing" if key not in state else str(list(state[key].shape)) for state in (target, source)]
            raise InputError(f"surgery: {key} is {found[0]} in the noisy network and {found[1]} in the clean one")
    chosen = dict(target)
    for part in parts:
        if part not in keys:
            raise InputError(f"unknown part {part!r}: {nearest(part, keys)}")
        chosen |= {key: source[key] for key in keys[part]}
    mixed = copy.deepcopy(noisy)
    mixed.load_state_dict(chosen)
    return mixed


@dataclass(frozen=True)
class Surgery:
    """Test accuracies, and what each variant gains over the noisy network, in percentage points."""

    noisy: float
    clean: float
    recover: dict[str, float]

    @property
    def repair(self) -> float:
        """ΔRepair = recover(Suffix34h) − recover(Prefix12), in points."""
        return self.recover["Suffix34h"] - self.recover["Prefix12"]


def surgery(noisy: nn.Module, clean: nn.Module, accuracy: Callable[[nn.Module], float]) -> Surgery:
    """Return how each of the paper's variants does; `accuracy` tests a network."""
    base = accuracy(noisy)
    recover = {name: PERCENT * (accuracy(transplant(noisy, clean, parts)) - base) for name, parts in VARIANTS.items()}
    return Surgery(base, accuracy(clean), recover)
