"""The sample memory: the only place that indexes by sample. A few declared numbers each, saved with the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Field:
    """One declared quantity per sample.

    Args:
        shape: of one sample's value; () for a number.
        dtype: of the value.
        fill: what a sample holds before anything is known.
    """

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    fill: float = 0.0


class SampleMemory:
    """Named tensors [N, …], one row per training sample.

    >>> memory = SampleMemory(3, {"clean": Field(fill=1.0)})
    >>> memory["clean"] = torch.tensor([0.1, 0.2, 0.3])
    >>> memory["clean"][torch.tensor([2, 0])]
    tensor([0.3000, 0.1000])
    >>> memory.bytes_per_sample
    4
    """

    def __init__(self, size: int, fields: Mapping[str, Field], device: torch.device | str = "cpu") -> None:
        self.size = size
        self.fields = dict(fields)
        self._values = {
            name: torch.full((size, *field.shape), field.fill, dtype=field.dtype, device=device)
            for name, field in self.fields.items()
        }

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name]

    def __setitem__(self, name: str, values: Tensor) -> None:
        """Write in place, so that a captured step that reads the field sees the new values."""
        self._values[name].copy_(values)

    @property
    def bytes_per_sample(self) -> int:
        """Bytes that one training sample costs."""
        return sum(v[0].numel() * v.element_size() if self.size else 0 for v in self._values.values())

    def pack(self, index: Tensor) -> Tensor:
        """Return the rows of samples `index` [n] as bytes [n, `bytes_per_sample`], to be sent to another process."""
        rows = len(index)
        parts = [v[index].reshape(rows, math.prod(v.shape[1:])).view(torch.uint8) for v in self._values.values()]
        return torch.cat(parts, 1)

    def unpack(self, index: Tensor, packed: Tensor) -> None:
        """Write rows that `pack` made into the samples `index`."""
        values = self._values.values()
        widths = [math.prod(v.shape[1:]) * v.element_size() for v in values]
        for value, part in zip(values, packed.split(widths, 1), strict=True):
            value[index] = part.contiguous().view(value.dtype).reshape(len(index), *value.shape[1:])

    def state_dict(self) -> dict[str, Tensor]:
        """Return the fields for a checkpoint."""
        return dict(self._values)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take the fields back from a checkpoint; another set of fields or another N is an error."""
        if set(state) != set(self._values):
            raise ValueError(
                f"memory: checkpoint has fields {sorted(state)}, this learner declares {sorted(self._values)}"
            )
        for name, values in state.items():
            if values.shape != self._values[name].shape:
                raise ValueError(
                    f"memory[{name!r}]: shape {tuple(values.shape)}, expected {tuple(self._values[name].shape)}"
                )
            self[name] = values
