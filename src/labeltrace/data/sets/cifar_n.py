"""CIFAR-10N and CIFAR-100N (Wei et al. 2022): the images of CIFAR with labels that people gave them.

The label files are published as PyTorch files of numpy arrays. They are read with PyTorch's safe loader and a short
list of what else is let through, never as free pickles. They are not for commercial use (CC BY-NC 4.0) and not part of
this package.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeltrace.data.dataset import Dataset, DatasetError, datasets
from labeltrace.data.sets.cifar import _CIFAR10, _CIFAR100, check_cifar, cifar100_coarse, load_cifar10, load_cifar100
from labeltrace.data.sets.layout import Finding, attempt, checks

REPOSITORY = "UCSC-REAL/cifar-10-100n"

_NAMES = """
aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices household_furniture
insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes large_omnivores_and_herbivores
medium_mammals non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
"""
COARSE_NAMES = tuple(_NAMES.split())
"""The 20 superclasses of CIFAR-100, in the order of the official coarse labels."""


@dataclass(frozen=True)
class _Release:
    """One published label file and what it holds."""

    title: str
    cifar: str
    file: str
    md5: str
    clean: str
    keys: dict[str, str]  # name of the labels in the dataset's name → key in the file


_CIFAR10N = _Release(
    title="CIFAR-10N",
    cifar="CIFAR-10",
    file="CIFAR-10_human.pt",
    md5="96644db5574813cae939af5f7f2a0aec",
    clean="clean_label",
    keys={
        "aggre": "aggre_label",
        "rand1": "random_label1",
        "rand2": "random_label2",
        "rand3": "random_label3",
        "worst": "worse_label",  # spelt so in the file
    },
)

_CIFAR100N = _Release(
    title="CIFAR-100N",
    cifar="CIFAR-100",
    file="CIFAR-100_human.pt",
    md5="a67b45c1d7992051865b5c755bd68bb1",
    clean="clean_label",
    keys={"fine": "noisy_label"},
)

_CIFAR100N_COARSE = replace(_CIFAR100N, clean="clean_coarse_label", keys={"coarse": "noisy_coarse_label"})


def load_cifar10n(kind: str, root: str | Path | None = None, strict: bool = True) -> Dataset:
    """Return CIFAR-10 with human labels to train on; the true labels are kept as truth, the test labels are clean.

    Args:
        kind: "aggre" (majority of three people), "rand1", "rand2", "rand3" (one person each), "worst" (a wrong label
            wherever one of the three is wrong).
        root: the folder of CIFAR-10, as for `load_cifar10`, with `CIFAR-10_human.pt` in it or beside it.
        strict: whether CIFAR's files must hold their official numbers of images.

    Raises:
        DatasetError: for a missing file, a label file with more than arrays, a missing key, labels of another number,
            range or order, and for what `load_cifar10` refuses.

    >>> load_cifar10n("worst", "no-such-folder")
    Traceback (most recent call last):
    labeltrace.data.dataset.DatasetError: CIFAR-10N: expected no-such-folder/CIFAR-10_human.pt (md5 96644db5…), ...
    """
    _check_kind(kind, _CIFAR10N.title, tuple(_CIFAR10N.keys))
    path = _find(_CIFAR10N, root)
    data = load_cifar10(root, strict)
    return _relabel(data, f"cifar10n-{kind}", _CIFAR10N, path, kind)


def load_cifar100n(kind: str, root: str | Path | None = None, strict: bool = True) -> Dataset:
    """Return CIFAR-100 with human labels: "fine", 100 classes, or "coarse", the 20 superclasses (in test labels too).

    The label file is `CIFAR-100_human.pt`; arguments and errors as for `load_cifar10n`.

    >>> load_cifar100n("coarse")
    Traceback (most recent call last):
    labeltrace.data.dataset.DatasetError: CIFAR-100N: expected ROOT/CIFAR-100_human.pt (md5 a67b45c1…), found no root...
    """
    _check_kind(kind, _CIFAR100N.title, ("fine", "coarse"))
    path = _find(_CIFAR100N, root)
    data = load_cifar100(root, strict)
    if kind == "fine":
        return _relabel(data, "cifar100n-fine", _CIFAR100N, path, kind)
    train = replace(data.train, labels=cifar100_coarse(data.train.labels))
    test = None if data.test is None else replace(data.test, labels=cifar100_coarse(data.test.labels))
    data = replace(data, train=train, test=test, classes=COARSE_NAMES)
    return _relabel(data, "cifar100n-coarse", _CIFAR100N_COARSE, path, kind)


def _register(name: str, about: str, load: Callable[..., Dataset], kind: str) -> None:
    datasets.add(name, lambda root, seed, read: load(kind, root), about)
    checks[name] = partial(check_cifar_n, load, kind)


def check_cifar_n(load: Callable[..., Dataset], kind: str, root: Path | None, strict: bool = True) -> list[Finding]:
    """Return what is missing or wrong in a folder of CIFAR-N: file by file of CIFAR, then the file of labels."""
    release, official = (_CIFAR10N, _CIFAR10) if load is load_cifar10n else (_CIFAR100N, _CIFAR100)
    found = check_cifar(official, root, strict)
    path = attempt(found, Path("ROOT" if root is None else root, release.file), lambda: _find(release, root))
    if path is not None:  # without the images the labels can be read but not compared
        read = partial(load, kind, root, strict) if not found else partial(read_human_labels, path)
        attempt(found, path, read)
    return found


_register("cifar10n-aggre", "CIFAR-10 with human labels, the majority of three (9 % wrong)", load_cifar10n, "aggre")
for _number, _percent in ((1, 17), (2, 18), (3, 18)):
    _about = f"CIFAR-10 with human labels, person {_number} of three ({_percent} % wrong)"
    _register(f"cifar10n-rand{_number}", _about, load_cifar10n, f"rand{_number}")
_register("cifar10n-worst", "CIFAR-10 with human labels, the worst of three (40 % wrong)", load_cifar10n, "worst")
_register("cifar100n-fine", "CIFAR-100 with human labels, 100 classes (40 % wrong)", load_cifar100n, "fine")
_register("cifar100n-coarse", "CIFAR-100 with human labels, 20 superclasses (26 % wrong)", load_cifar100n, "coarse")


def read_human_labels(path: str | Path) -> dict[str, Any]:
    """Return what a label file of CIFAR-N holds: its keys, and labels as arrays or lists, not checked further.

    Raises:
        DatasetError: when the file is absent, is no PyTorch file, or refers to more than numpy arrays.

    >>> read_human_labels("CIFAR-10_human.pt")
    Traceback (most recent call last):
    labeltrace.data.dataset.DatasetError: CIFAR-N: expected CIFAR-10_human.pt, found no such file. Get it from ...
    """
    path = Path(path)
    source = f"the repository {REPOSITORY}, folder data/"
    if not path.is_file():
        raise DatasetError(f"CIFAR-N: expected {path}, found no such file. Get it from {source}.")
    try:
        with torch.serialization.safe_globals(_ALLOWED):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no PyTorch file can raise nearly anything
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused:
            raise DatasetError(
                f"{path}: refused to read {refused[1]}: label files hold only lists and numpy arrays. "
                f"Use the file of {source}, and do not trust this one."
            ) from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DatasetError(f"{path}: not a readable PyTorch file ({reason}). Get it again from {source}.") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: a dictionary expected, {type(content).__name__} found. Get the file of {source}.")
    return content


# What the arrays in the files refer to. They were written by numpy 1, whose module names numpy 2 has changed; the
# functions are taken from an array and a number because importing numpy.core warns in numpy 2.
_REBUILD: Any = np.empty(0).__reduce__()[0]
_SCALAR: Any = np.int64(0).__reduce__()[0]
_ALLOWED: list[Any] = [
    (_REBUILD, "numpy.core.multiarray._reconstruct"),
    (_REBUILD, "numpy._core.multiarray._reconstruct"),
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
    (codecs.encode, "_codecs.encode"),
    np.ndarray,
    np.dtype,
    type(np.dtype(np.int64)),
]


def _check_kind(kind: str, title: str, known: tuple[str, ...]) -> None:
    if kind not in known:
        raise DatasetError(f"{title} has no labels {kind!r}; known: {', '.join(known)}")


def _find(release: _Release, root: str | Path | None) -> Path:
    """Return the label file in the root or in the folder above it."""
    what = f"{release.title}: expected {Path('ROOT' if root is None else root, release.file)} (md5 {release.md5[:8]}…)"
    remedy = (
        f"Put the file {release.file} of the repository {REPOSITORY}, folder data/, beside the folder of "
        f"{release.cifar} (its licence forbids commercial use, so it is yours to fetch)."
    )
    if root is None:
        raise DatasetError(f"{what}, found no root. {remedy}")
    above = Path(root).absolute().parent
    for folder in (Path(root), above):
        if (folder / release.file).is_file():
            return folder / release.file
    found = "found no such file" if Path(root).is_dir() else f"found no folder {root}"
    raise DatasetError(f"{what}, {found} and none in {above}. {remedy}")


def _relabel(data: Dataset, name: str, release: _Release, path: Path, kind: str) -> Dataset:
    """Return the dataset with the human labels of a file, after checking that both are about the same images."""
    content, where = read_human_labels(path), f"{release.title}: {path}"
    clean, human = (_column(content, key, data, where) for key in (release.clean, release.keys[kind]))
    differ = (clean != data.train.labels).nonzero()[:, 0]
    if len(differ):
        first = int(differ[0])
        raise DatasetError(
            f"{where}: {release.clean} differs from the labels of {release.cifar} for {len(differ):,} of "
            f"{len(clean):,} images, the first at index {first} ({int(clean[first])}, not "
            f"{int(data.train.labels[first])}): labels are in TensorFlow order or of another CIFAR build. Use "
            f"{release.file} of {REPOSITORY} and the python version of {release.cifar}."
        )
    return replace(data.with_labels(human, truth=clean), name=name)


def _column(content: dict[str, Any], key: str, data: Dataset, where: str) -> Tensor:
    """Return the labels under `key` as int64 [N], checked for number and range."""
    if key not in content:
        raise DatasetError(f"{where}: key {key!r} expected, found {sorted(map(str, content))}")
    try:
        labels = np.asarray(content[key])
    except ValueError:  # a list of lists of different lengths
        labels = np.empty(0, dtype=object)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DatasetError(f"{where}: {key} integers [N] expected, {labels.dtype} {list(labels.shape)} found")
    if len(labels) != len(data.train):
        raise DatasetError(f"{where}: {key} {len(data.train):,} labels expected, {len(labels):,} found")
    wrong = np.flatnonzero((labels < 0) | (labels >= data.num_classes))
    if len(wrong):
        raise DatasetError(
            f"{where}: {key} 0..{data.num_classes - 1} expected, {labels[wrong[0]]} found at index {wrong[0]}"
        )
    return torch.from_numpy(labels.astype(np.int64))
