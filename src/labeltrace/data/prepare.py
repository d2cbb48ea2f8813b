"""Before a run starts: every image is decoded once, so that a broken one shows now and not in the night.

What is decoded stays: in memory where the set fits, in the cache on disk where not.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from labeltrace.data.cache import GIGABYTE, open_cache
from labeltrace.data.dataset import Dataset, DatasetError, Split
from labeltrace.data.decode import BadImage
from labeltrace.data.images import Images
from labeltrace.data.options import ReadOptions
from labeltrace.data.workers import Workers

CHUNK = 8  # images that a worker answers for at a time

Progress = Callable[[int, int], None]
"""Told how many of how many images have been read."""


@dataclass(frozen=True)
class Skipped:
    """An image that was left out: the part of the dataset it was in, its name, what is wrong with it."""

    part: str
    name: str
    reason: str


def write_skipped(skipped: list[Skipped], path: Path) -> None:
    """Write the images that were left out as CSV: part, name, reason."""
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(["part", "name", "reason"])
        writer.writerows((image.part, image.name, image.reason) for image in skipped)


def prepare(dataset: Dataset, read: ReadOptions, progress: Progress | None = None) -> tuple[Dataset, list[Skipped]]:
    """Return the dataset ready to be trained on, and the images that were left out.

    Args:
        dataset: whose images may still be files.
        read: how to read them.
        progress: told how many of how many images have been read.

    Raises:
        BadImage: the first image that cannot be used, unless these are skipped.
        DatasetError: nothing is left.
        WorkerDied: a process that reads images was killed.
    """
    parts = {"train": dataset.train, "test": dataset.test}
    skipped: list[Skipped] = []
    for part, split, images, tell in unread(dataset, progress):
        pixels, bad = read_images(images, read, tell)
        if len(bad) == len(split):
            first = next(iter(bad.values()))
            raise DatasetError(
                f"{dataset.name}: no {part} image can be used; the first of {len(split)}: {first.name}: {first.reason}"
            )
        if pixels is not None:
            split = replace(split, inputs=pixels)
        parts[part] = split.take(_others(len(split), list(bad))) if bad else split
        skipped += [Skipped(part, error.name, error.reason) for error in bad.values()]
    assert parts["train"] is not None
    return replace(dataset, train=parts["train"], test=parts["test"]), skipped


def unread(dataset: Dataset, progress: Progress | None) -> Iterator[tuple[str, Split, Images, Callable[[int], None]]]:
    """Yield each part whose images are still to be read, them, and whom to tell how many of the part have been."""
    parts = [
        (part, split, split.inputs)
        for part, split in (("train", dataset.train), ("test", dataset.test))
        if split is not None and isinstance(split.inputs, Images)
    ]
    total, done = sum(len(images) for _, _, images in parts), 0
    for part, split, images in parts:

        def tell(count: int, before: int = done) -> None:
            if progress is not None:
                progress(before + count, total)

        yield part, split, images, tell
        done += len(images)


def read_images(
    images: Images, read: ReadOptions, tell: Callable[[int], None]
) -> tuple[Tensor | None, dict[int, BadImage]]:
    """Decode all images through the cache, in worker processes.

    Args:
        images: to be decoded; they read through the cache from now on.
        read: how.
        tell: told how many have been read.

    Returns:
        The pixels [N, 3, side, side] if they fit in memory, and by its number each image that cannot be used.

    Raises:
        BadImage: the first of these, where reading stops at it.
    """
    images.use_cache(open_cache(images.key(), len(images), images.side, read.cache_gb))
    fits = 3 * images.side**2 * len(images) <= read.memory_gb * GIGABYTE
    pixels = torch.empty(images.shape, dtype=torch.uint8) if fits else None
    bad: dict[int, BadImage] = {}
    plan = [list(range(start, min(start + CHUNK, len(images)))) for start in range(0, len(images), CHUNK)]
    workers = Workers(partial(_decode, images, fits), min(read.processes, len(plan)))
    try:
        for chunk, (found, wrong) in zip(plan, workers.run(plan), strict=True):
            if wrong and read.bad_images == "stop":
                raise next(iter(wrong.values()))
            if pixels is not None:
                pixels[[i for i in chunk if i not in wrong]] = found
            bad |= wrong
            tell(chunk[-1] + 1)
    finally:
        workers.close()
    return pixels, bad


def _decode(images: Images, keep: bool, index: list[int]) -> tuple[Tensor, dict[int, BadImage]]:
    """Decode a chunk in a worker; pixels come back only if they are to be kept."""
    found, wrong = [], {}
    for i in index:
        try:
            if keep:
                found.append(images.read(i))
            else:
                images.check(i)
        except BadImage as error:
            wrong[i] = error
    return torch.stack(found) if found else torch.empty((0, *images.shape[1:]), dtype=torch.uint8), wrong


def _others(count: int, left_out: list[int]) -> Tensor:
    keep = torch.ones(count, dtype=torch.bool)
    keep[left_out] = False
    return keep.nonzero()[:, 0]
