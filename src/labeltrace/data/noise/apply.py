"""A noise file and a dataset → the dataset with these labels, after checking that both are about the same samples."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from labeltrace.data.dataset import Dataset
from labeltrace.data.noise.foreign import replace_images
from labeltrace.data.noise.formats import read_labels
from labeltrace.data.noise.kinds import Labels, clean_labels
from labeltrace.data.noise.record import FROM_FILE, NoiseRecord, label_hash, load_noise
from labeltrace.errors import InputError


def apply_noise_file(
    dataset: Dataset, path: str | Path, foreign: Callable[[str], Dataset] | None = None
) -> tuple[Dataset, NoiseRecord]:
    """Return the dataset with the labels of a file, its own kept as truth, and the record of what was done.

    Args:
        dataset: with clean training labels.
        path: a file of `labeltrace noise` or `save_noise`, or one of another code, see `labeltrace.data.noise.formats`.
        foreign: name → dataset, called where the file replaces images by those of another dataset.

    Raises:
        InputError: no such file, a damaged one, one made for another number of samples, other classes, other clean
            labels or another order; an open-set file whose images cannot be had.

    >>> import tempfile
    >>> from labeltrace.data import from_arrays
    >>> data = from_arrays(np.zeros((4, 8, 8), np.uint8), [0, 1, 0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "0.5_sym.json").write_text("[1, 1, 0, 1]")
    ...     noisy, record = apply_noise_file(data, Path(folder, "0.5_sym.json"))
    >>> noisy.train.labels.tolist(), noisy.train.truth.tolist()
    ([1, 1, 0, 1], [0, 1, 0, 1])
    >>> record.describe()
    'noise from a file (JSON list 0.5_sym.json): actual 0.2500 (1 of 4 labels), sha256 ...'
    """
    path = Path(path)
    clean = clean_labels(dataset)
    if not _is_ours(path):
        labels, record = _of_others(dataset, path, clean)
        return dataset.with_labels(labels, truth=clean), record
    labels, record = load_noise(path, len(clean))
    if record.classes != dataset.classes:
        raise InputError(
            f"{path}: made for the classes {_some(record.classes)}, but {dataset.name} has {_some(dataset.classes)}"
        )
    if record.clean_sha256 != label_hash(clean):
        raise InputError(
            f"{path}: made for other labels or another order: clean labels have sha256 {record.clean_sha256[:12]}, "
            f"those of {dataset.name} {label_hash(clean)[:12]}; take the data, subset and seed it was made with"
        )
    noisy = dataset.with_labels(labels, truth=clean)
    if record.foreign is None:
        return noisy, record
    if foreign is None:
        raise InputError(
            f"{path}: {len(record.foreign):,} samples are images of {record.foreign.dataset!r}; say how to load it "
            "(foreign=)"
        )
    return replace_images(noisy, foreign(record.foreign.dataset), record.foreign), record


def _is_ours(path: Path) -> bool:
    """Whether to read the file with `load_noise`: an .npz file that is not of another code, damaged ones included."""
    if path.suffix.lower() != ".npz":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return "label.npy" not in archive.namelist()
    except Exception:  # whatever damaged bytes raise here, `load_noise` puts into words
        return True


def _of_others(dataset: Dataset, path: Path, clean: Labels) -> tuple[Labels, NoiseRecord]:
    found = read_labels(path)
    if len(found.labels) != len(clean):
        raise InputError(
            f"{path} has {len(found.labels):,} labels but {dataset.name} has {len(clean):,} training samples"
        )
    outside = np.flatnonzero((found.labels < 0) | (found.labels >= dataset.num_classes))
    if len(outside):
        first = outside[0]
        raise InputError(
            f"{path}: label {found.labels[first]} at index {first} is not one of the {dataset.num_classes} classes "
            f"0..{dataset.num_classes - 1} of {dataset.name}"
        )
    if found.clean is not None and (found.clean != clean).any():
        row = int((found.clean != clean).argmax())
        raise InputError(
            f"{path}: row {row} has the clean label {found.clean[row]}, but sample {row} of {dataset.name} has "
            f"{clean[row]}: made for other labels or another order"
        )
    convention = f"{found.format} {path.name}"
    return found.labels, NoiseRecord.of(FROM_FILE, convention, None, None, clean, found.labels, dataset.classes)


def _some(names: tuple[str, ...]) -> str:
    return f"{len(names)}: {', '.join(names[:5])}" + (", …" if len(names) > 5 else "")
