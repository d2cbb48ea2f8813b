"""What was done to a set of labels, and the file that keeps the labels together with this record."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labeltrace.errors import InputError
from labeltrace.files import write_atomically

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class NoiseRecord:
    """What was done to a set of labels, enough to make it again and to recognise the result.

    Args:
        kind: the registered name.
        convention: the exact definition behind the name, as in the literature.
        nominal: the rate asked for.
        actual: the share of labels that differ from the clean ones.
        seed: of the generator.
        sha256: of the noisy labels, see `label_hash`.
        count: N, the number of labels.
        num_classes: C.

    >>> NoiseRecord("pair", "pairflip", 0.4, 0.25, 0, label_hash([1, 1, 2, 0]), 4, 3).describe()
    'pair noise (pairflip), seed 0: nominal rate 0.4, actual 0.2500 (1 of 4 labels), sha256 a951c3761dfb'
    """

    kind: str
    convention: str
    nominal: float
    actual: float
    seed: int
    sha256: str
    count: int
    num_classes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON or YAML."""
        return asdict(self)

    @property
    def flipped(self) -> int:
        """How many labels differ from the clean ones."""
        return round(self.actual * self.count)

    def describe(self) -> str:
        """Return one line for people, with both rates."""
        return (
            f"{self.kind} noise ({self.convention}), seed {self.seed}: nominal rate {self.nominal:g}, "
            f"actual {self.actual:.4f} ({self.flipped:,} of {self.count:,} labels), sha256 {self.sha256[:12]}"
        )


def label_hash(labels: ArrayLike) -> str:
    """Return the SHA-256 of labels [N] as little-endian int64 bytes, in hexadecimal.

    >>> label_hash([0, 1, 2])[:12]
    'ab25350e3e65'
    """
    return hashlib.sha256(np.asarray(labels).astype("<i8").tobytes()).hexdigest()


def save_noise(path: str | Path, labels: ArrayLike, record: NoiseRecord) -> None:
    """Write noisy labels [N] and their record to one .npz file, which is whole or absent, never half written.

    Raises:
        InputError: when the labels are not those of the record.

    >>> import tempfile
    >>> record = NoiseRecord("symmetric", "exclusive-iid", 0.5, 0.5, 0, label_hash([1, 1]), 2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_noise(Path(folder, "noise.npz"), [1, 1], record)
    ...     load_noise(Path(folder, "noise.npz"))[0]
    array([1, 1])
    """
    path = Path(path)
    values = np.asarray(labels).astype("<i8")
    _check(values, record, "labels to save")
    text = np.array(json.dumps(record.to_dict()))

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # a name without .npz, to which savez would append it
            np.savez(file, labels=values, record=text)

    write_atomically(path, write)


def load_noise(path: str | Path, count: int | None = None) -> tuple[Labels, NoiseRecord]:
    """Return the noisy labels [N] of a file and their record; labels are never made anew in place of damaged ones.

    Args:
        path: a file that `save_noise` wrote.
        count: the number of samples of the dataset the labels are for, where known.

    Raises:
        InputError: when there is no such file, its labels are not those of its record, or N is not `count`.

    >>> load_noise("absent.npz")
    Traceback (most recent call last):
    labeltrace.errors.InputError: no noise file absent.npz
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no noise file {path}")
    try:
        with np.load(path, allow_pickle=False) as content:
            labels, text = content["labels"], content["record"].item()
        saved = json.loads(text)
        record = NoiseRecord(**{field.name: saved[field.name] for field in fields(NoiseRecord)})
    except (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(f"noise file {path} cannot be read ({error!r}); delete it and make it again") from error
    _check(labels, record, f"noise file {path}")
    if count is not None and len(labels) != count:
        raise InputError(f"noise file {path} has {len(labels):,} labels but the dataset has {count:,} training samples")
    return labels.astype(np.int64), record


def _check(labels: NDArray[Any], record: NoiseRecord, what: str) -> None:
    if labels.ndim != 1 or len(labels) != record.count:
        raise InputError(f"{what}: {record.count:,} labels in the record, shape {list(labels.shape)} found")
    found = label_hash(labels)
    if found != record.sha256:
        raise InputError(f"{what}: sha256 {record.sha256[:12]} in the record, {found[:12]} found; labels were changed")
