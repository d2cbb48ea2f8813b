"""The samples that a report shows: drawn by seed from each decision, images embedded, features summed up."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from labeltrace.audit import class_names
from labeltrace.audit.ranking import DEFAULT, rankings, worst_first
from labeltrace.data import BadImage, Split
from labeltrace.errors import InputError
from labeltrace.report.gallery import pick

SIDE = 160  # most pixels of an embedded image: twice what a card shows, for sharp screens
LOSSLESS = 64  # pixels up to which an image is PNG; photographs beyond are JPEG, a fifth of the size
QUALITY = 82
COLUMNS = 32  # of the strip that stands for a feature vector
UNUSUAL = 3  # features that are named
REFERENCE = 5000  # rows that mean and deviation of features are taken of


@dataclass(frozen=True)
class Card:
    """A sample as the report shows it: all names as text, `image` a data URI, `strip` standardised features."""

    id: str
    observed: str
    suggested: str
    truth: str | None
    a: float
    b: float
    reliability: float
    confidence: float
    decision: str
    image: str | None = None
    side: int = 0
    strip: tuple[float, ...] = ()
    words: str = ""


def draw_cards(table: pa.Table, split: Split | None, count: int) -> list[Card]:
    """Return up to `count` cards of each decision, the most suspicious labels first.

    Args:
        table: samples table of the run.
        split: its training data in the order of the table; None for cards without pictures.
        count: of each decision.

    Raises:
        InputError: the data holds other samples than the table.
    """
    rows = pick(table, count=count)
    part = table.take(rows)
    order = worst_first(rankings[DEFAULT](table)[rows])  # of the whole table: some rankings look at all samples
    names = class_names(table)
    features = _Features(split) if split is not None and split.inputs.ndim == 2 else None
    cards = []
    for place in order.tolist():
        row, sample = rows[place], part.slice(place, 1).to_pylist()[0]
        if split is not None and split.id_of(row) != sample["id"]:
            raise InputError(f"sample {row} is {split.id_of(row)!r} now, it was {sample['id']!r} when it was trained")
        truth = sample.get("truth")
        card = {
            "id": sample["id"],
            "observed": names[sample["observed"]],
            "suggested": names[sample["suggested"]],
            "truth": None if truth is None or truth < 0 else names[truth],
            "a": sample["a"],
            "b": sample["b"],
            "reliability": sample["observed_reliability"],
            "confidence": sample["confidence"],
            "decision": sample["decision"],
        }
        if features is not None:
            strip, words = features.summary(row)
            cards.append(Card(**card, strip=strip, words=words))
        elif split is not None:
            try:
                pixels = split.read([row])[0]
            except BadImage as error:
                cards.append(Card(**card, words=f"cannot be read: {error.reason}"))
                continue
            cards.append(Card(**card, image=data_uri(pixels), side=max(pixels.shape[1:])))
        else:
            cards.append(Card(**card))
    return cards


def data_uri(pixels: Tensor) -> str:
    """Return an image, uint8 [C, H, W], as a data URI: PNG up to 64 pixels, a JPEG of at most 160 beyond.

    >>> data_uri(torch.zeros(1, 8, 8, dtype=torch.uint8))[:22], data_uri(torch.zeros(3, 99, 99).byte())[:23]
    ('data:image/png;base64,', 'data:image/jpeg;base64,')
    """
    from PIL import Image

    values = pixels.permute(1, 2, 0).numpy()
    image = Image.fromarray(values.squeeze(-1) if values.shape[-1] == 1 else values)
    file = io.BytesIO()
    if max(image.size) <= LOSSLESS:
        kind = "png"
        image.save(file, "PNG", optimize=True)
    else:
        kind = "jpeg"
        image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
        image.save(file, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


class _Features:
    """Feature vectors beside what is usual in their set."""

    def __init__(self, split: Split) -> None:
        self.split = split
        rows = np.unique(np.linspace(0, len(split) - 1, min(len(split), REFERENCE)).astype(np.int64))
        reference = split.read(rows.tolist()).double()
        self.mean, deviation = reference.mean(0), reference.std(0, correction=0)
        self.deviation = torch.where(deviation > 0, deviation, 1.0)

    def summary(self, row: int) -> tuple[tuple[float, ...], str]:
        """Return a strip of deviations (neighbouring features as one, the one farthest out) and the most unusual."""
        values = (self.split.read([row])[0].double() - self.mean) / self.deviation
        pieces = values.tensor_split(min(COLUMNS, len(values)))
        strip = tuple(float(piece[piece.abs().argmax()]) for piece in pieces)
        unusual = values.abs().argsort(descending=True, stable=True)[:UNUSUAL].tolist()
        named = ", ".join(f"{i}: {values[i]:+.1f}" for i in unusual)
        return strip, f"{len(values):,} features; most unusual, in deviations, {named}"
