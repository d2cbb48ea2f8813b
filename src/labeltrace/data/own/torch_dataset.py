"""A map-style torch Dataset of (image, label) or (vector, label) → a dataset."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from labeltrace.data.dataset import Dataset, DatasetError
from labeltrace.data.decode import BadImage, square
from labeltrace.data.images import Images
from labeltrace.data.names import Names
from labeltrace.data.options import ReadOptions

if TYPE_CHECKING:
    from labeltrace.data.own.part import Part  # pyarrow: only who asks for it waits for it


def from_torch(
    dataset: Any,
    *,
    test: Any = None,
    classes: Sequence[str] | None = None,
    image_size: int | None = None,
    flip: bool = True,
    name: str = "torch",
) -> Dataset:
    """Make a dataset of a map-style torch Dataset that yields (input, label) and changes nothing at random.

    Images (Pillow's, or uint8 arrays and tensors [H, W], [H, W, C], [C, H, W]) are read when they are needed, by worker
    processes in a run; float vectors [D] are read now. Labels are taken from `targets` or `labels` where the dataset
    has them, else by going through it once.

    Args:
        dataset: the training samples, without ToTensor or Normalize.
        test: the test samples, in the same form.
        classes: names of the classes 0..C-1 (default: `dataset.classes`, or the labels themselves).
        image_size: side in pixels of what the network sees (default: by the size of the images).
        flip: whether images keep their class when mirrored.
        name: of the dataset.

    Raises:
        DatasetError: for another kind of dataset, of sample or of label.

    >>> samples = [(torch.ones(2), "a"), (torch.zeros(2), "b")]
    >>> from_torch(samples).train
    Split(2 samples, float32 [2])
    """
    from labeltrace.data.own.part import assemble

    names = classes if classes is not None else _class_names(dataset)
    named = None if names is None else tuple(str(word) for word in names)
    train = _part(dataset, named, "the dataset")
    held_out = None if test is None else _part(test, train.classes, "the test dataset")
    return assemble(name, train, held_out, ReadOptions(image_size=image_size, flip=flip))


class TorchImages(Images):
    """The images of a torch Dataset."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(Names(f"sample {i}" for i in range(len(dataset))), side=0)
        self.dataset, self.rows = dataset, np.arange(len(dataset))
        self._salt = secrets.token_hex(8)  # what another dataset left in the cache must never pass for this one

    def decode(self, i: int) -> Tensor:
        """Ask the dataset for sample `i`."""
        try:
            return square(_pillow(self.dataset[int(self.rows[i])][0]), self.side, self.names[i])
        except BadImage:
            raise
        except Exception as error:  # the dataset is the user's: anything can be wrong in it
            raise BadImage(self.names[i], f"cannot be read ({type(error).__name__}: {error})") from error

    def stamp(self, i: int) -> bytes:
        """Return a hash that no other dataset has, nor this one in another run: whether it changed is not known."""
        return hashlib.blake2b(f"{self._salt} {self.rows[i]}".encode(), digest_size=16).digest()

    def key(self) -> str:
        """Return a name for a cache of this dataset in this run."""
        return self._key(self._salt)

    def size(self, i: int) -> tuple[int, int] | None:
        """Return (width, height) of sample `i`."""
        width, height = _pillow(self.dataset[int(self.rows[i])][0]).size
        return width, height

    def take(self, index: Tensor) -> Images:
        """Return the images at `index` [n]."""
        taken = super().take(index)
        assert isinstance(taken, TorchImages)
        taken.rows = self.rows[index.numpy()]
        return taken


def _part(dataset: Any, classes: tuple[str, ...] | None, what: str) -> Part:
    from labeltrace.data.own.part import Part, words

    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DatasetError(f"{what} is {type(dataset).__name__}; expected a map-style Dataset (len() and [i])")
    if not len(dataset):
        raise DatasetError(f"{what} is empty")
    first = dataset[0]
    if not isinstance(first, tuple | list) or len(first) < 2:
        raise DatasetError(f"{what} yields {type(first).__name__}; expected a pair (image, label)")
    labels = _listed(dataset, _number(first[1]))
    inputs: Tensor | Images
    if _is_vector(first[0]):
        samples = [dataset[i] for i in range(len(dataset))]
        inputs = _stacked([sample[0] for sample in samples], what)
        labels = np.array([_number(sample[1]) for sample in samples]) if labels is None else labels
    else:
        _pillow(first[0])  # complains about what is neither image nor vector
        inputs = TorchImages(dataset)
        labels = np.array([_number(dataset[i][1]) for i in range(len(dataset))]) if labels is None else labels
    if classes is None or labels.dtype.kind not in "iu":
        return Part(what, inputs, words(labels, f"{what}: labels"), unit="sample")
    return Part(what, inputs, _named(labels, classes, what), classes=classes, unit="sample")


def _stacked(vectors: list[Any], what: str) -> Tensor:
    for i, vector in enumerate(vectors):
        if not _is_vector(vector) or len(vector) != len(vectors[0]):
            found = f"{vector.dtype} {list(vector.shape)}" if hasattr(vector, "dtype") else type(vector).__name__
            raise DatasetError(f"{what}: sample {i} is {found}, the first is a vector [{len(vectors[0])}]")
    return torch.stack([torch.as_tensor(vector).float() for vector in vectors])


def _class_names(dataset: Any) -> Any:
    if isinstance(dataset, torch.utils.data.Subset):
        return _class_names(dataset.dataset)
    return getattr(dataset, "classes", None)


def _listed(dataset: Any, first: Any) -> Any:
    """Return the labels that a dataset keeps as a list, or None where it has none or changes them on the way."""
    if isinstance(dataset, torch.utils.data.Subset):
        inner = _listed(dataset.dataset, _number(dataset.dataset[0][1]))
        return None if inner is None else inner[np.asarray(dataset.indices)]
    for name in ("targets", "labels"):
        values = getattr(dataset, name, None)
        if values is None or getattr(dataset, "target_transform", None) is not None:
            continue
        labels = np.asarray(values)
        if labels.shape == (len(dataset),) and labels.dtype.kind in "iuU" and labels[0] == first:
            return labels
    return None


def _named(labels: Any, classes: tuple[str, ...], what: str) -> Any:
    import pyarrow as pa

    wrong = np.flatnonzero((labels < 0) | (labels >= len(classes)))
    if len(wrong):
        raise DatasetError(
            f"{what}, sample {wrong[0]}: label {labels[wrong[0]]}, but {len(classes)} classes are named (0 to "
            f"{len(classes) - 1})"
        )
    return pa.chunked_array([pa.array(classes, pa.string()).take(pa.array(labels))])


def _number(label: Any) -> Any:
    """Return a label as a Python value."""
    return label.item() if isinstance(label, Tensor | np.generic) and np.ndim(label) == 0 else label


def _is_vector(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray) and value.ndim == 1 and "float" in str(value.dtype)


def _pillow(value: Any) -> Any:
    """Return an image as Pillow's."""
    from PIL import Image

    if isinstance(value, Image.Image):
        return value
    if not isinstance(value, Tensor | np.ndarray):
        raise DatasetError(f"a sample is {type(value).__name__}; expected an image or a vector of floats")
    array = value.numpy() if isinstance(value, Tensor) else value
    shape = list(array.shape)
    if array.dtype != np.uint8:
        raise DatasetError(
            f"a sample is {array.dtype} {shape}; pass the dataset without ToTensor and Normalize (images as "
            "Pillow's or uint8), or vectors of floats [D]"
        )
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and not (array.ndim == 3 and array.shape[2] == 3):
        raise DatasetError(f"a sample is uint8 {shape}; expected [H, W], [H, W, C] or [C, H, W] with C = 1 or 3")
    return Image.fromarray(np.ascontiguousarray(array))
