"""What there is to see of a sample: its pixels as PNG, or the features that stand out.

A sample is asked for by its row and by nothing else: no path, no name comes in from outside, and what goes out are the
pixels that the run trains on, encoded anew, never the bytes of a file. So a file that a manifest names outside its
folder, or a link out of the data, is shown exactly where the run itself has trained on it, and a file that is no image
is never shown.
"""

from __future__ import annotations

import io
import threading
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from labeltrace.data import Split

KEPT = 256  # PNG files kept in memory
STANDING_OUT = 8  # features that are named
TYPICAL = 20_000  # samples, spread over the set, that say what is usual of a feature


class Pictures:
    """Shows the samples of a training set.

    Args:
        split: the samples in the order of the samples table.
    """

    def __init__(self, split: Split) -> None:
        self.split = split
        self._reading = threading.Lock()  # one file at a time: the cache of decoded images is not made for threads
        self._encoded = lru_cache(KEPT)(self._encode)

    @property
    def are_images(self) -> bool:
        """Whether the samples are images, not features."""
        return self.split.inputs.ndim == 4

    def read(self, rows: list[int]) -> Tensor:
        """Return the inputs of samples [n, …]; raises BadImage for a file that has gone."""
        with self._reading:
            return self.split.read(rows)

    def png(self, row: int) -> bytes:
        """Return an image as the network sees it before any augmentation, as a PNG file."""
        return self._encoded(row)

    def _encode(self, row: int) -> bytes:
        from PIL import Image

        pixels = self.read([row])[0].permute(1, 2, 0).numpy()
        file = io.BytesIO()
        Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(file, "PNG", compress_level=1)
        return file.getvalue()

    def features(self, row: int) -> list[dict[str, float]]:
        """Return the features in which a sample is least usual: number, value, standard deviations from the mean."""
        mean, deviation = self._usual
        values = self.read([row])[0].double()
        scores = (values - mean) / deviation
        order = scores.abs().argsort(descending=True, stable=True)[:STANDING_OUT].tolist()
        return [{"number": i, "value": float(values[i]), "score": float(scores[i])} for i in order]

    @cached_property
    def _usual(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation [D] of the features; a constant one deviates by 1."""
        step = -(-len(self.split) // TYPICAL)
        some = self.read(list(range(0, len(self.split), step))).double()
        deviation = some.std(0, correction=0)
        return some.mean(0), torch.where(deviation > 0, deviation, torch.ones_like(deviation))
