"""What was done to a set of labels, and the file that keeps the labels together with this record.

The file is an .npz: `labels` [N]; `transitions` [M, 3], see `Transitions`; `record`, the other fields as JSON; and for
open-set noise `positions` and `indices` [n], see `ForeignImages`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labeltrace.data.noise.foreign import ForeignImages
from labeltrace.data.noise.transitions import Transitions
from labeltrace.errors import InputError
from labeltrace.files import is_file, write_atomically

Labels = NDArray[np.int64]

FROM_FILE = "file"  # the kind of labels that others made


@dataclass(frozen=True)
class NoiseRecord:
    """What was done to a set of labels, enough to make it again and to recognise the result.

    Args:
        kind: the registered name, or "file".
        convention: the exact definition behind the name, as in the literature.
        nominal: the rate asked for; None where it is not known.
        actual: the share of samples whose label is not their true class.
        seed: of the generator; None where nothing was drawn or it is not known.
        sha256: of the noisy labels, see `label_hash`.
        count: N, the number of labels.
        num_classes: C.
        clean_sha256: of the clean labels.
        classes: the names of the classes.
        transitions: how often each clean class got each label; samples with a foreign image are not counted.
        foreign: the images of another dataset that replace some of the samples, in open-set noise.

    >>> clean, noisy = [0, 1, 2, 0], [1, 1, 2, 0]
    >>> record = NoiseRecord.of("pair", "pairflip", 0.4, 0, clean, noisy, ("ape", "bee", "cat"))
    >>> record.describe()
    'pair noise (pairflip), seed 0: nominal rate 0.4, actual 0.2500 (1 of 4 labels), sha256 a951c3761dfb'
    >>> record.transitions.entries.tolist()
    [[0, 0, 1], [0, 1, 1], [1, 1, 1], [2, 2, 1]]
    """

    kind: str
    convention: str
    nominal: float | None
    actual: float
    seed: int | None
    sha256: str
    count: int
    num_classes: int
    clean_sha256: str
    classes: tuple[str, ...]
    transitions: Transitions
    foreign: ForeignImages | None = None

    @classmethod
    def of(
        cls,
        kind: str,
        convention: str,
        nominal: float | None,
        seed: int | None,
        clean: ArrayLike,
        labels: ArrayLike,
        classes: Sequence[str],
        foreign: ForeignImages | None = None,
    ) -> NoiseRecord:
        """Return the record of labels [N] made from clean labels [N]: what was asked for, and what is measured."""
        before, after = np.asarray(clean), np.asarray(labels)
        own = np.ones(len(after), bool)
        if foreign is not None:
            own[foreign.positions] = False
        return cls(
            kind=kind,
            convention=convention,
            nominal=None if nominal is None else float(nominal),
            actual=float(((before != after) | ~own).mean()),
            seed=None if seed is None else int(seed),
            sha256=label_hash(after),
            count=len(after),
            num_classes=len(classes),
            clean_sha256=label_hash(before),
            classes=tuple(classes),
            transitions=Transitions.between(before[own], after[own], len(classes)),
            foreign=foreign,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON or YAML, without the transitions and the names of the classes."""
        left_out = ("classes", "transitions", "foreign")
        values = {name: value for name, value in vars(self).items() if name not in left_out}
        if self.foreign is not None:
            values |= {"foreign": self.foreign.dataset, "foreign_sha256": self.foreign.sha256}
        return values

    @property
    def flipped(self) -> int:
        """How many samples have a label that is not their true class."""
        return round(self.actual * self.count)

    def describe(self) -> str:
        """Return one line for people, with both rates."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        nominal = "" if self.nominal is None else f"nominal rate {self.nominal:g}, "
        foreign = "" if self.foreign is None else f", {len(self.foreign):,} of them on images of {self.foreign.dataset}"
        what = "noise from a file" if self.kind == FROM_FILE else f"{self.kind} noise"
        return (
            f"{what} ({self.convention}){seed}: {nominal}"
            f"actual {self.actual:.4f} ({self.flipped:,} of {self.count:,} labels{foreign}), sha256 {self.sha256[:12]}"
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
    >>> record = NoiseRecord.of("symmetric", "exclusive-iid", 0.5, 0, [0, 1], [1, 1], ("cat", "dog"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_noise(Path(folder, "noise.npz"), [1, 1], record)
    ...     load_noise(Path(folder, "noise.npz"))[0]
    array([1, 1])
    """
    values = np.asarray(labels).astype("<i8")
    _check(values, record, "labels to save")
    text = json.dumps(record.to_dict() | {"classes": record.classes})
    arrays: dict[str, NDArray[Any]] = {
        "labels": values,
        "record": np.array(text),
        "transitions": record.transitions.entries.astype("<i8"),
    }
    if record.foreign is not None:
        arrays["positions"] = record.foreign.positions.astype("<i8")
        arrays["indices"] = record.foreign.indices.astype("<i8")

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # a name without .npz, to which savez would append it
            np.savez(file, **arrays)  # type: ignore[arg-type]

    write_atomically(Path(path), write)


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
    if not is_file(path):
        raise InputError(f"no noise file {path}")
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        labels, record = arrays["labels"], _record(arrays)
    except Exception as error:  # damaged bytes can raise nearly anything
        missing = f"no {error} in it" if isinstance(error, KeyError) else ""
        reason = missing or (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"noise file {path} cannot be read ({reason}); delete it and make it again") from error
    _check(labels, record, f"noise file {path}")
    if count is not None and len(labels) != count:
        raise InputError(f"noise file {path} has {len(labels):,} labels but the dataset has {count:,} training samples")
    return labels.astype(np.int64), record


def _record(arrays: dict[str, NDArray[Any]]) -> NoiseRecord:
    values = json.loads(arrays["record"].item())
    classes = tuple(values.pop("classes"))
    foreign = None
    if "foreign" in values:
        positions, indices = (arrays[name].astype(np.int64) for name in ("positions", "indices"))
        foreign = ForeignImages(values.pop("foreign"), positions, indices, values.pop("foreign_sha256"))
    transitions = Transitions(arrays["transitions"].astype(np.int64), len(classes))
    record = NoiseRecord(**values, classes=classes, transitions=transitions, foreign=foreign)
    for name, kinds in _KINDS.items():
        if not isinstance(getattr(record, name), kinds):
            raise InputError(f"{name} in its record is {getattr(record, name)!r}")
    if not all(isinstance(name, str) for name in classes):
        raise InputError("the names of its classes are no words")
    return record


_KINDS: dict[str, Any] = {
    "kind": str,
    "convention": str,
    "nominal": int | float | None,
    "actual": int | float,
    "seed": int | None,
    "sha256": str,
    "count": int,
    "num_classes": int,
    "clean_sha256": str,
}


def _check(labels: NDArray[Any], record: NoiseRecord, what: str) -> None:
    """Refuse labels that are not those of the record, and a record whose parts do not fit together."""
    if labels.dtype.kind not in "iu":
        raise InputError(f"{what}: expected whole numbers as labels, found {labels.dtype}")
    if labels.ndim != 1 or len(labels) != record.count:
        raise InputError(f"{what}: {record.count:,} labels in the record, shape {list(labels.shape)} found")
    found = label_hash(labels)
    if found != record.sha256:
        raise InputError(f"{what}: sha256 {record.sha256[:12]} in the record, {found[:12]} found; labels were changed")
    outside = np.flatnonzero((labels < 0) | (labels >= record.num_classes))
    if len(outside) or len(record.classes) != record.num_classes:
        first = f", label {labels[outside[0]]} at index {outside[0]}" if len(outside) else ""
        raise InputError(f"{what}: {record.num_classes} classes in the record, {len(record.classes)} names{first}")
    own = np.ones(record.count, bool)
    if record.foreign is not None:
        if not record.foreign.fits(record.count):
            raise InputError(f"{what}: the samples replaced are not distinct ones of the {record.count:,}")
        own[record.foreign.positions] = False
    counts = np.bincount(labels[own], minlength=record.num_classes)
    if not np.array_equal(record.transitions.label_counts(), counts):
        raise InputError(f"{what}: the transition counts are not those of the labels")
