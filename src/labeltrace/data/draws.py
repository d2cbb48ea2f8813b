"""Random numbers that belong to a (seed, epoch, sample), not to a moment.

A sample draws the same numbers in the same epoch whatever batch, process or device it is met in. So a resumed run
repeats an uninterrupted one, two processes repeat one, and a captured CUDA graph draws anew at each replay because the
key is an input tensor. The generator is counter-based: a 32-bit avalanche hash (Wellons' lowbias32 constants) of the
key and a counter, held in int64 because torch has no unsigned arithmetic on every device.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: spreads consecutive counters over the range


def _mix(x: Any) -> Any:
    """Avalanche a 32-bit number or a tensor of them in int64; a bijection, so distinct keys stay distinct."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


class Draws:
    """One stream of random numbers per sample of a batch.

    >>> draws = Draws.at(torch.tensor([7, 3]), 0, 1)
    >>> again = Draws.at(torch.tensor([3]), 0, 1)
    >>> bool((draws.uniform(4)[1] == again.uniform(4)[0]).all())
    True
    """

    def __init__(self, keys: Tensor) -> None:
        self.keys = keys

    @classmethod
    def at(cls, index: Tensor, *words: int | Tensor, key: int | Tensor = 0) -> Draws:
        """Return the streams of samples `index` [B] under `words` (seed, epoch, pass, …).

        Words that are known earlier may be given as the `key` that `key_of` makes of them.
        """
        return cls(_mix((index ^ key_of(*words, key=key)) & _MASK))

    def fork(self, tag: int) -> Draws:
        """Return an independent stream per sample, the same for the same `tag`."""
        return Draws(_mix((self.keys + _GOLDEN * (2 * tag + 1)) & _MASK))

    def uniform(self, count: int) -> Tensor:
        """Return [B, count] float32 numbers in [0, 1)."""
        # Mixed, not multiplied: the compiler reads a plain multiple of arange as a 32-bit index and overflows.
        counter = _mix(torch.arange(1, count + 1, device=self.keys.device))
        return (_mix(_mix(self.keys[:, None] ^ counter)) >> 8).to(torch.float32) * 2.0**-24

    def normal(self, count: int) -> Tensor:
        """Return [B, count] float32 standard normal numbers (Box and Muller)."""
        radius, angle = self.uniform(2 * count).chunk(2, dim=1)
        return torch.sqrt(-2 * torch.log1p(-radius)) * torch.cos(2 * math.pi * angle)


def key_of(*words: int | Tensor, key: int | Tensor = 0) -> int | Tensor:
    """Return the 32-bit key that words make, after those that `key` was made of; of plain numbers a plain number.

    >>> key_of(1, 2, 3) == key_of(3, key=key_of(1, 2)), key_of(1, 2) == key_of(2, 1)
    (True, False)
    """
    for word in words:
        key = _mix((key * 31 + word + _GOLDEN) & _MASK)
    return key
