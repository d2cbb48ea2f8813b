"""All that is wrong with a dataset on disk, found before a run starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from labeltrace.data.dataset import Dataset, datasets
from labeltrace.data.options import ReadOptions
from labeltrace.data.prepare import Progress, read_images, unread
from labeltrace.data.sets.layout import Finding, attempt, checks

__all__ = ["Finding", "check_dataset", "check_images"]

_REMEDY = "Repair or remove it, or pass --bad-images skip."


def check_dataset(name: str, root: str | Path | None) -> list[Finding]:
    """Return everything that is missing or wrong in the folder of a dataset; the loader raises the first of it.

    Lists, counts, labels, every listed image that is not there; of the others three in each split are opened. To open
    all, use `check_images`. A dataset that has no check of its own is loaded, which finds one thing.

    Args:
        name: of a registered dataset.
        root: its folder.

    >>> check_dataset("digits", "anywhere")
    []
    >>> print(check_dataset("cifar10", "no-such-folder")[0])
    CIFAR-10 train and test: expected no-such-folder/cifar-10-batches-py, found no folder no-such-folder. Get ...
    """
    load, folder = datasets[name], None if root is None else Path(root).expanduser()
    if name in checks:
        return checks[name](folder)
    findings: list[Finding] = []
    attempt(findings, folder or Path("ROOT"), lambda: load(folder, 0, ReadOptions()))
    return findings


def check_images(dataset: Dataset, read: ReadOptions | None = None, progress: Progress | None = None) -> list[Finding]:
    """Open every image of a dataset that is read from files, and return those that cannot be used.

    What is decoded goes to the cache on disk, so that a run that follows need not do it again.

    Args:
        dataset: of which images may be files.
        read: how they are read.
        progress: told how many of how many images have been read.

    >>> from labeltrace.data import load_dataset
    >>> check_images(load_dataset("digits"))
    []
    """
    read = replace(read or ReadOptions(), bad_images="skip", memory_gb=0)
    found: list[Finding] = []
    for part, _, images, tell in unread(dataset, progress):
        _, bad = read_images(images, read, tell)
        found += [Finding(f"{dataset.name} {part}", Path(e.name), e.reason, _REMEDY) for e in bad.values()]
    return found
