"""How files are read: which columns, what size, and what to do about an image that cannot be used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

BAD_IMAGES = ("stop", "skip")
LARGEST = 2048  # pixels; beyond it a batch of squares fits no memory


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading a user's files; each can be given as a flag or under `read:` in a YAML file.

    Attributes:
        labels: a file of labels (.npy, .csv, .parquet, .txt), for inputs that carry none.
        test: a folder or file with a test set, of the same kind as the training data.
        path_column: of a manifest (default: the first of path, file, filename, file_name, image, image_path).
        label_column: of a manifest (default: the first of label, class, target, category, y).
        split_column: of a manifest, with values train and test (default: `split`, where there is one).
        id_column: of a manifest: the name of a sample in every output (default: `id`, where there is one, or the path).
        truth_column: of a manifest: the true label where known, empty elsewhere (default: `truth`, where there is one).
        image_size: side in pixels of what the network sees (default: by the size of the images).
        flip: whether images keep their class when mirrored.
        bad_images: "stop" at an image that cannot be used, or "skip" it and list it in the run's folder.
        cache_gb: most space on disk for decoded images of all datasets together; 0 for none.
        memory_gb: decoded images that take no more stay in memory (on the device); more are streamed from disk.
        workers: processes that decode images (default: one per core, at most 8); 0 reads in the training process.
    """

    labels: Path | None = None
    test: Path | None = None
    path_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    id_column: str | None = None
    truth_column: str | None = None
    image_size: int | None = None
    flip: bool = True
    bad_images: str = "stop"
    cache_gb: float = 10.0
    memory_gb: float = 2.0
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.bad_images not in BAD_IMAGES:
            raise ValueError(f"bad_images: {self.bad_images!r}, expected 'stop' or 'skip'")
        if self.image_size is not None and self.image_size > LARGEST:
            raise ValueError(f"image_size: {self.image_size!r}, expected ≤ {LARGEST}")
        for name, least in (("image_size", 8), ("workers", 0), ("cache_gb", 0), ("memory_gb", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name}: {value!r}, expected ≥ {least}")

    @property
    def processes(self) -> int:
        """How many processes decode images."""
        return min(8, os.cpu_count() or 1) if self.workers is None else self.workers
