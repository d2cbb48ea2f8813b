"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), read from the official "python version" folders.

The files are Python-2 pickles. A pickle can run any code when it is read, so only what a numpy array needs is let
through. Pixels are kept in the official order, so that index i is image i of the archive.
"""

from __future__ import annotations

import codecs
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeltrace.data.dataset import Dataset, DatasetError, Split, datasets
from labeltrace.data.sets.layout import Finding, attempt, checks, found_in
from labeltrace.data.views import ImageViews

PIXELS = 3 * 32 * 32
URL = "https://www.cs.toronto.edu/~kriz/cifar.html"

_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"
_FINE_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""


@dataclass(frozen=True)
class _Official:
    """What the official archive of one dataset holds."""

    title: str
    archive: str
    folder: str
    train: dict[str, int]  # file → images in it
    test: dict[str, int]
    label_key: str
    meta: str
    names_key: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pair_map: tuple[int, ...] | None


_CIFAR10 = _Official(
    title="CIFAR-10",
    archive="cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    train={f"data_batch_{i}": 10_000 for i in range(1, 6)},
    test={"test_batch": 10_000},
    label_key="labels",
    meta="batches.meta",
    names_key="label_names",
    classes=tuple(_NAMES.split()),
    mean=(0.4914, 0.4822, 0.4465),  # DivideMix, RoLR and every code after them
    std=(0.2023, 0.1994, 0.2010),
    # truck → automobile, bird → airplane, cat ↔ dog, deer → horse; the other five never change (TRACE, "Pair")
    pair_map=(0, 1, 0, 5, 7, 3, 6, 7, 8, 1),
)

_CIFAR100 = _Official(
    title="CIFAR-100",
    archive="cifar-100-python.tar.gz",
    folder="cifar-100-python",
    train={"train": 50_000},
    test={"test": 10_000},
    label_key="fine_labels",
    meta="meta",
    names_key="fine_label_names",
    classes=tuple(_FINE_NAMES.split()),
    mean=(0.507, 0.487, 0.441),  # DivideMix and RoLR; CT and CIFAR-N differ in the fourth digit
    std=(0.267, 0.256, 0.276),
    pair_map=None,
)

# Members of the 20 superclasses of CIFAR-100, in the order of the official coarse labels.
_SUPERCLASSES = (
    (4, 30, 55, 72, 95), (1, 32, 67, 73, 91), (54, 62, 70, 82, 92), (9, 10, 16, 28, 61), (0, 51, 53, 57, 83),
    (22, 39, 40, 86, 87), (5, 20, 25, 84, 94), (6, 7, 14, 18, 24), (3, 42, 43, 88, 97), (12, 17, 37, 68, 76),
    (23, 33, 49, 60, 71), (15, 19, 21, 31, 38), (34, 63, 64, 66, 75), (26, 45, 77, 79, 99), (2, 11, 35, 46, 98),
    (27, 29, 44, 78, 93), (36, 50, 65, 74, 80), (47, 52, 56, 59, 96), (8, 13, 48, 58, 90), (41, 69, 81, 85, 89),
)  # fmt: skip


def cifar100_coarse(fine: Tensor) -> Tensor:
    """Return the superclass 0..19 of each CIFAR-100 class; int64, same shape as `fine`.

    >>> cifar100_coarse(torch.tensor([19, 29, 0, 11]))
    tensor([11, 15,  4, 14])
    """
    table = torch.empty(100, dtype=torch.int64)
    for coarse, members in enumerate(_SUPERCLASSES):
        table[list(members)] = coarse
    return table[fine]


def load_cifar10(root: str | Path | None = None, strict: bool = True) -> Dataset:
    """Return CIFAR-10 from `root`, which is `cifar-10-batches-py` or the folder that holds it.

    Args:
        root: the folder; `labeltrace data download` fills one where there is a network.
        strict: whether each file must hold its official number of images.

    Raises:
        DatasetError: for a missing folder or file, a pickle of more than arrays, a wrong shape, count or label.

    >>> load_cifar10("no-such-folder")
    Traceback (most recent call last):
    labeltrace.data.dataset.DatasetError: CIFAR-10 train and test: expected no-such-folder/cifar-10-batches-py, ...
    """
    return _load(_CIFAR10, root, strict)


def load_cifar100(root: str | Path | None = None, strict: bool = True) -> Dataset:
    """Return CIFAR-100 with its 100 fine classes from `root`; arguments and errors as for `load_cifar10`.

    >>> load_cifar100()
    Traceback (most recent call last):
    labeltrace.data.dataset.DatasetError: CIFAR-100 train and test: expected ROOT/cifar-100-python, found no root...
    """
    return _load(_CIFAR100, root, strict)


datasets.add(
    "cifar10",
    lambda root, seed, read: load_cifar10(root),
    "CIFAR-10, 50,000 images of 10 classes, python version under --root",
)
datasets.add(
    "cifar100",
    lambda root, seed, read: load_cifar100(root),
    "CIFAR-100, 50,000 images of 100 classes, python version under --root",
)


def check_cifar(official: _Official, root: Path | None, strict: bool = True) -> list[Finding]:
    """Return what is missing or wrong in a folder of CIFAR, file by file."""
    found: list[Finding] = []
    folder = attempt(found, root or Path("ROOT"), lambda: _folder(official, root))
    if folder is None:
        return found
    for part, files in (("train", official.train), ("test", official.test)):
        for file, count in files.items():
            attempt(found, folder / file, partial(_split, official, folder, part, {file: count}, strict))
    attempt(found, folder / official.meta, lambda: _classes(official, folder))
    return found


checks["cifar10"] = partial(check_cifar, _CIFAR10)
checks["cifar100"] = partial(check_cifar, _CIFAR100)


def _load(official: _Official, root: str | Path | None, strict: bool) -> Dataset:
    folder = _folder(official, None if root is None else Path(root))
    train = _split(official, folder, "train", official.train, strict)
    test = _split(official, folder, "test", official.test, strict)
    views = ImageViews(official.mean, official.std)
    name = official.title.lower().replace("-", "")
    return Dataset(name, train, test, _classes(official, folder), views, official.pair_map)


def _folder(official: _Official, root: Path | None) -> Path:
    if root is None:
        expected = Path("ROOT", official.folder)
        raise DatasetError(f"{official.title} train and test: expected {expected}, found no root. {_remedy(official)}")
    if (root / official.folder).is_dir():
        return root / official.folder
    is_inner = root.name == official.folder
    if root.is_dir() and (is_inner or any((root / file).is_file() for file in official.train | official.test)):
        return root
    raise _missing(official, "train and test", root if is_inner else root / official.folder, root)


def _remedy(official: _Official) -> str:
    return (
        f"Get {official.archive} from {URL}, unpack it, and pass as root the folder that holds {official.folder}/ "
        f"(or let `labeltrace data download {official.title.lower().replace('-', '')} DIR` do so)."
    )


def _missing(official: _Official, part: str, path: Path, folder: Path) -> DatasetError:
    return DatasetError(f"{official.title} {part}: expected {path}, found {found_in(folder)}. {_remedy(official)}")


def _split(official: _Official, folder: Path, part: str, files: dict[str, int], strict: bool) -> Split:
    for file in files:  # a missing file is reported before a second is spent on reading the others
        if not (folder / file).is_file():
            raise _missing(official, part, folder / file, folder)
    batches = [_batch(official, folder / file, part, count if strict else None) for file, count in files.items()]
    pixels = np.concatenate([data for data, _ in batches])
    labels = np.concatenate([labels for _, labels in batches])
    return Split(torch.from_numpy(pixels.reshape(-1, 3, 32, 32)), torch.from_numpy(labels))


def _batch(
    official: _Official, path: Path, part: str, count: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the pixels [n, 3072] and labels [n] of one file, checked."""
    where = f"{official.title} {part}: {path}"
    content = _unpickle(path, where)
    for key in ("data", official.label_key):
        if key not in content:
            raise DatasetError(f"{where}: key {key!r} expected, found {sorted(map(str, content))}. {_remedy(official)}")
    data, labels = content["data"], np.asarray(content[official.label_key])
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
        found = f"{data.dtype} {list(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DatasetError(f"{where}: data uint8 [n, {PIXELS}] expected, {found} found. {_remedy(official)}")
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(data):
        found = f"{labels.dtype} {list(labels.shape)}"
        raise DatasetError(f"{where}: {len(data)} integer labels expected, {found} found. {_remedy(official)}")
    if count is not None and len(data) != count:
        raise DatasetError(f"{where}: {count:,} images expected, {len(data):,} found. {_remedy(official)}")
    wrong = np.flatnonzero((labels < 0) | (labels >= len(official.classes)))
    if len(wrong):
        raise DatasetError(
            f"{where}: labels 0..{len(official.classes) - 1} expected, {labels[wrong[0]]} found at index {wrong[0]}. "
            f"{_remedy(official)}"
        )
    return data, labels.astype(np.int64)


def _classes(official: _Official, folder: Path) -> tuple[str, ...]:
    """Return the names in the meta file, or the built-in ones where there is no such file."""
    path = folder / official.meta
    if not path.is_file():
        return official.classes
    where = f"{official.title} class names: {path}"
    names = _unpickle(path, where).get(official.names_key)
    if not isinstance(names, list) or len(names) != len(official.classes) or not all(isinstance(n, str) for n in names):
        found = f"{len(names)} entries" if isinstance(names, list) else type(names).__name__
        raise DatasetError(
            f"{where}: {len(official.classes)} names under {official.names_key!r} expected, {found} found. "
            "Remove the file to use the built-in names."
        )
    return tuple(names)


# What a pickled array refers to, under the names of numpy 1 and numpy 2. The functions are taken from an array itself
# because importing numpy.core warns in numpy 2 and numpy._core does not exist in numpy 1.
_REBUILD: Any = np.empty(0).__reduce__()[0]
_FROM_BUFFER: Any = np.empty(0).__reduce_ex__(5)[0]
_ALLOWED: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray._reconstruct": _REBUILD,
    "numpy._core.multiarray._reconstruct": _REBUILD,
    "numpy.core.numeric._frombuffer": _FROM_BUFFER,
    "numpy._core.numeric._frombuffer": _FROM_BUFFER,
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    "_codecs.encode": codecs.encode,
}


class _ArraysOnly(pickle.Unpickler):
    """Reads numbers, strings, lists, dictionaries and numpy arrays, and refuses every other object."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        entry = _ALLOWED.get(f"{module}.{name}")
        if entry is None:
            raise DatasetError(f"refused to read {module}.{name}: CIFAR files hold only lists and numpy arrays")
        return entry


def _unpickle(path: Path, where: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="latin1").load()
    except DatasetError as error:
        raise DatasetError(f"{where}: {error}. Use the official file of {URL}, and do not trust this one.") from None
    except Exception as error:  # bytes that are no pickle can raise nearly anything
        raise DatasetError(f"{where}: not a readable pickle ({error!r}). Unpack the archive of {URL} again.") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{where}: a dictionary expected, {type(content).__name__} found. Get the file from {URL}.")
    return content
