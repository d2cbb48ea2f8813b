"""From samples to batches on the device: by indexing where they are in memory, through worker processes where not.

Workers decode to uint8 and hand over small pieces, whatever the batch: what is on its way takes a fixed amount of
memory, and the 64 MB of shared memory that a container often has are enough.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Iterator
from functools import partial

import torch
from torch import Tensor

from labeltrace.data.decode import BadImage
from labeltrace.data.images import Images
from labeltrace.data.workers import Workers

PIECE = 2 * 2**20  # bytes of pixels that a worker hands over at a time


class Feed:
    """Gives batches of inputs on the device, in any order that is asked for.

    >>> feed = Feed(torch.tensor([[0.0], [1.0], [2.0]]), torch.device("cpu"))
    >>> [batch.flatten().tolist() for batch in feed.batches(torch.tensor([[2, 0], [1, 2]]))]
    [[2.0, 0.0], [1.0, 2.0]]

    Args:
        inputs: a tensor [N, …], moved to the device once, or images to be read.
        device: where batches go.
        workers: processes that read images; 0 reads in this one.
    """

    def __init__(self, inputs: Tensor | Images, device: torch.device, workers: int = 0) -> None:
        self.device = device
        self.shape = inputs.shape[1:]
        self.resident: Tensor | None = None
        if isinstance(inputs, Images):
            self.piece = max(1, PIECE // (3 * inputs.side**2))
            self.workers = Workers(partial(_read, inputs, workers > 0), workers)
        else:
            self.resident = inputs.to(device)

    def batches(self, order: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the inputs of each row of sample numbers in `order`.

        Raises:
            BadImage: an image can no longer be used; the message names it.
            WorkerDied: a worker was killed.
        """
        if self.resident is not None:
            for index in order:
                yield self.resident[index]
            return
        rows = [row.tolist() for row in order]
        pieces = self._pieces([i for row in rows for i in row])
        piece = torch.empty((0, *self.shape), dtype=torch.uint8)
        for row in rows:
            batch = self._empty(len(row))
            filled = 0
            while filled < len(row):
                if not len(piece):
                    piece = next(pieces)
                part, piece = piece[: len(row) - filled], piece[len(row) - filled :]
                batch[filled : filled + len(part)] = part
                filled += len(part)
            yield batch.to(self.device, non_blocking=True)

    def _empty(self, rows: int) -> Tensor:
        """Return memory for a batch: pinned, so that the copy to a GPU runs beside its work, or from the system.

        Blocks of this size from the heap would leave holes in it that take as much again.
        """
        shape = (rows, *self.shape)
        if self.device.type == "cuda":
            return torch.empty(shape, dtype=torch.uint8, pin_memory=True)
        return torch.frombuffer(mmap.mmap(-1, math.prod(shape)), dtype=torch.uint8).view(shape)

    def close(self) -> None:
        """End the processes that read images."""
        if self.resident is None:
            self.workers.close()

    def _pieces(self, index: list[int]) -> Iterator[Tensor]:
        for found in self.workers.run([index[i : i + self.piece] for i in range(0, len(index), self.piece)]):
            if isinstance(found, BadImage):
                raise found
            yield found


def _read(images: Images, shared: bool, index: list[int]) -> Tensor | BadImage:
    """Return images, or what is wrong with one: an exception would lose its words on the way from a worker."""
    try:
        return images.read_all(index, shared=shared)  # what is shared travels without a copy
    except BadImage as error:
        return error
