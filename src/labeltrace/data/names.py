"""Many names in one piece of memory: a million paths as Python strings cost ten times their text."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

_BAD_BYTES = "surrogateescape"  # a file name need not be UTF-8


class Names(Sequence[str]):
    """An immutable sequence of strings that takes their UTF-8 bytes and 8 more for each.

    Processes that are forked share it: reading a name changes nothing in memory, while reading a list of strings counts
    references in every page of it.

    >>> names = Names(["a.jpg", "b/ä.jpg", ""])
    >>> len(names), names[1], names[-1], list(names[:2])
    (3, 'b/ä.jpg', '', ['a.jpg', 'b/ä.jpg'])
    >>> names.nbytes
    45
    """

    def __init__(self, names: Iterable[str]) -> None:
        text, ends = bytearray(), array("q", [0])  # grown in place: a list of a million pieces would cost more
        for name in names:
            text += name.encode("utf-8", _BAD_BYTES)
            ends.append(len(text))
        self._text = np.frombuffer(bytes(text), np.uint8)
        self._ends = np.array(ends, np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        text = self._text.tobytes()
        for start, end in pairwise(self._ends):
            yield text[start:end].decode("utf-8", _BAD_BYTES)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> Names: ...

    def __getitem__(self, place: int | slice) -> str | Names:
        if isinstance(place, slice):
            return Names(self[i] for i in range(*place.indices(len(self))))
        number = range(len(self))[place]  # negative numbers, and an IndexError beyond the end
        return self._text[self._ends[number] : self._ends[number + 1]].tobytes().decode("utf-8", _BAD_BYTES)

    def take(self, index: NDArray[np.int64]) -> Names:
        """Return the names at `index`."""
        text, starts, ends = self._text.tobytes(), self._ends[:-1][index], self._ends[1:][index]
        taken = Names(())
        taken._text = np.frombuffer(b"".join(map(text.__getitem__, map(slice, starts, ends))), np.uint8)
        taken._ends = np.concatenate([[0], np.cumsum(ends - starts)])
        return taken

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the names take."""
        return self._text.nbytes + self._ends.nbytes

    def sha256(self) -> str:
        """Return a hash of all names in their order."""
        return hashlib.sha256(self._ends.tobytes() + self._text.tobytes()).hexdigest()


def printable(name: str) -> str:
    r"""Return a name that any file of text can hold: bytes that are not UTF-8 are spelt out.

    >>> printable(b"caf\xe9.jpg".decode("utf-8", "surrogateescape"))
    'caf\\xe9.jpg'
    """
    return name.encode("utf-8", _BAD_BYTES).decode("utf-8", "backslashreplace")
