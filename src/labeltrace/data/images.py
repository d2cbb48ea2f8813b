"""Images that are read when they are needed: a set too large for memory, seen as N squares of one size."""

from __future__ import annotations

import copy
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeltrace.data.cache import DiskCache
from labeltrace.data.decode import BadImage, decode, image_size
from labeltrace.data.names import Names, printable


class Images(ABC):
    """N images of one size, read one by one. What a dataset keeps in place of a tensor [N, 3, side, side].

    Args:
        names: of the images, in order; a name appears in messages.
        side: pixels of the square an image is brought to.
    """

    def __init__(self, names: Iterable[str], side: int) -> None:
        self.names = names if isinstance(names, Names) else Names(names)
        self.side = side
        self._cache: DiskCache | None = None
        self._places: NDArray[np.int64] | None = None  # of these images in the cache, where it was made for more

    @abstractmethod
    def decode(self, i: int) -> Tensor:
        """Read image `i` from where it is kept, uint8 [3, side, side]; raises BadImage."""

    def stamp(self, i: int) -> bytes:
        """Return 16 bytes that change when image `i` changes; by default it never does."""
        return hashlib.blake2b(self.names[i].encode("utf-8", "surrogateescape"), digest_size=16).digest()

    def key(self) -> str:
        """Return a name for a cache of these images, which no other list of images has."""
        return self._key("")

    def _key(self, source: str) -> str:
        text = f"{source}\0{self.names.sha256()}"
        return f"{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}-{self.side}"

    def size(self, i: int) -> tuple[int, int] | None:
        """Return (width, height) of image `i` as it is kept, without decoding it; None where that is not known."""
        return None

    def at_side(self, side: int) -> Images:
        """Return these images, brought to squares of another side."""
        other = copy.copy(self)
        other.side, other._cache, other._places = side, None, None
        return other

    def take(self, index: Tensor) -> Images:
        """Return the images at `index` [n]; they keep their places in the cache."""
        taken = copy.copy(self)
        taken.names = self.names.take(index.numpy())
        taken._places = index.numpy() if self._places is None else self._places[index.numpy()]
        return taken

    def use_cache(self, cache: DiskCache | None) -> None:
        """Read through a cache that was made for these images in this order."""
        self._cache, self._places = cache, None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, 3, side, side), the shape of the tensor this stands for."""
        return (len(self), 3, self.side, self.side)

    @property
    def ndim(self) -> int:
        """4, as of a tensor of images."""
        return len(self.shape)

    def read(self, i: int) -> Tensor:
        """Return image `i`, uint8 [3, side, side], from the cache where it is there.

        Raises:
            BadImage: it cannot be used.
        """
        if self._cache is None:
            return self.decode(i)
        stamp, place = self.stamp(i), self._place(i)
        pixels = self._cache.get(place, stamp)
        if pixels is None:
            pixels = self.decode(i)
            self._cache.put(place, stamp, pixels)
        return pixels

    def check(self, i: int) -> None:
        """Decode image `i` unless the cache knows that this was done before; raises BadImage."""
        if self._cache is None or not self._cache.seen(self._place(i), self.stamp(i)):
            self.read(i)

    def _place(self, i: int) -> int:
        return i if self._places is None else int(self._places[i])

    def read_all(self, index: Sequence[int], *, shared: bool = False) -> Tensor:
        """Return the images at `index` as one tensor [n, 3, side, side], where asked for in shared memory."""
        shape = (len(index), *self.shape[1:])
        if shared:  # born shared, as torch's own collation does: other ways keep a copy or a reference alive
            memory = torch.UntypedStorage._new_shared(math.prod(shape))
            found = torch.empty(0, dtype=torch.uint8).set_(memory, 0, shape)  # type: ignore[call-overload]
        else:
            found = torch.empty(shape, dtype=torch.uint8)
        for row, i in enumerate(index):
            found[row] = self.read(i)
        return found


class ImageFiles(Images):
    """Image files by their paths.

    >>> ImageFiles(["a.jpg", "b.jpg"], side=32).shape
    (2, 3, 32, 32)

    Args:
        paths: of the files, absolute or below `root`.
        side: pixels of the square an image is brought to.
        root: folder that relative paths start from.
    """

    def __init__(self, paths: Iterable[str], side: int, root: Path | None = None) -> None:
        super().__init__(paths, side)
        self.root = Path() if root is None else root

    def path(self, i: int) -> Path:
        """Return the path of image `i`."""
        return self.root / self.names[i]

    def decode(self, i: int) -> Tensor:
        """Read the file of image `i`."""
        return decode(self.path(i), self.side)

    def key(self) -> str:
        """Return a name for a cache of these files of this folder."""
        return self._key(str(self.root))

    def size(self, i: int) -> tuple[int, int] | None:
        """Return (width, height) from the head of the file of image `i`."""
        return image_size(self.path(i))

    def stamp(self, i: int) -> bytes:
        """Return a hash of the path, size and time of change of the file."""
        path = self.path(i)
        try:
            state = path.stat()
        except OSError as error:
            raise BadImage(printable(str(path)), (error.strerror or "no such file").lower()) from None
        except ValueError as error:  # a NUL in the name
            raise BadImage(printable(str(path)), str(error)) from None
        text = f"{path}\0{state.st_size}\0{state.st_mtime_ns}\0{self.side}"
        return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()
