"""Noisy labels as other codes save them, read without running anything that a file might hold.

| file | content | written by |
|---|---|---|
| .json | a list of N labels | DivideMix, RoLR |
| .npy | an array of N labels | |
| .npz | `label`, N labels | UNICON, CrossSplit |
| .pt, .pth | a tensor or list of N labels | ANNE |
| .csv | columns `label` (clean) and `label_noisy` | IDN of Chen et al. |

UNICON and CrossSplit save `index` beside `label`: the samples drawn for noise. It is not read, because it is only true
for some of their noises; for others the labels were made from a second draw.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labeltrace.data.noise.record import Labels
from labeltrace.errors import InputError
from labeltrace.files import is_file


@dataclass(frozen=True)
class ForeignLabels:
    """Labels [N] that others made, the name of their format, and the clean labels [N] where the file has them."""

    labels: Labels
    format: str
    clean: Labels | None = None


def read_labels(path: str | Path) -> ForeignLabels:
    """Return the labels of a file by its ending; see the table above.

    Raises:
        InputError: no such file, another ending, another content, anything but whole numbers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "0.5_sym.json").write_text("[3, 0, 7]")
    ...     read_labels(Path(folder, "0.5_sym.json"))
    ForeignLabels(labels=array([3, 0, 7]), format='JSON list', clean=None)
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _READERS:
        raise InputError(f"{path}: expected a noise file that ends in {', '.join(_READERS)}")
    if not is_file(path):
        raise InputError(f"no noise file {path}")
    name, read = _READERS[ending]
    try:
        columns = read(path)
    except InputError:
        raise
    except Exception as error:  # bytes of another format can raise nearly anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{path}: not a readable file of labels, {name} ({reason})") from error
    labels, *clean = (_integers(path, column) for column in columns)
    return ForeignLabels(labels, name, *clean)


def _json(path: Path) -> list[Any]:
    return [json.loads(path.read_text(encoding="utf-8"))]


def _npy(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return [np.lib.format.read_array(file, allow_pickle=False)]


def _npz(path: Path) -> list[Any]:
    with np.load(path, allow_pickle=False) as content:
        if "label" not in content.files:
            raise InputError(f"{path}: expected labels under 'label', found {', '.join(content.files) or 'nothing'}")
        return [content["label"]]


def _pt(path: Path) -> list[Any]:
    return [torch.load(path, map_location="cpu", weights_only=True)]


def _csv(path: Path) -> list[Any]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.DictReader(file, skipinitialspace=True)
        names = lines.fieldnames or []
        if not {"label", "label_noisy"} <= set(names):
            raise InputError(f"{path}: expected columns label and label_noisy, found {', '.join(names) or 'nothing'}")
        rows = [(_whole(path, lines, "label_noisy", row), _whole(path, lines, "label", row)) for row in lines]
    return list(zip(*rows, strict=True)) or [[], []]


def _whole(path: Path, lines: csv.DictReader[str], name: str, row: dict[str | Any, str | Any]) -> int:
    try:
        return int(row[name])
    except (TypeError, ValueError):
        raise InputError(f"{path}: line {lines.line_num}: {name} {row[name]!r} is no whole number") from None


_READERS = {
    ".json": ("JSON list", _json),
    ".npy": ("npy array", _npy),
    ".npz": ("npz label", _npz),
    ".pt": ("PyTorch tensor", _pt),
    ".pth": ("PyTorch tensor", _pt),
    ".csv": ("CSV label,label_noisy", _csv),
}


def _integers(path: Path, values: Any) -> Labels:
    found: NDArray[Any] | None = None
    if isinstance(values, list | tuple | np.ndarray | torch.Tensor):
        try:
            found = np.asarray(values.detach() if isinstance(values, torch.Tensor) else values)
        except ValueError:  # lists of different lengths
            raise InputError(f"{path}: expected a list of N labels, found lists of different lengths") from None
        except (TypeError, RuntimeError) as error:  # tensors that numpy has no form for: sparse, bfloat16
            raise InputError(f"{path}: expected whole numbers [N] ({error})") from None
    if found is None or found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)):
        what = type(values).__name__ if found is None else f"{found.dtype} {list(found.shape)}"
        raise InputError(f"{path}: expected whole numbers [N], found {what}")
    if len(found) and found.max() > np.iinfo(np.int64).max:
        raise InputError(f"{path}: {found.max()} is no label")
    return found.astype(np.int64)
