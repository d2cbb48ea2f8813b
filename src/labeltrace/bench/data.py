"""Reading image files: this package beside the loop everybody writes, a Pillow DataLoader, in the same run.

Both end with what a network takes: float32 [64, 3, 224, 224], the shorter edge brought to 256 and the middle cut out.
Each way runs in a process of its own, so that one's memory is not another's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from labeltrace.bench.memory import PeakMemory
from labeltrace.data.cache import open_cache
from labeltrace.data.feed import Feed
from labeltrace.data.images import ImageFiles
from labeltrace.data.sizing import MEAN, STD
from labeltrace.data.views import ImageViews

BATCH, STORED, SEEN = 64, 256, 224
DISTINCT = 64  # pictures that are made; the rest are copies under other names

MEMORY = ("peak_bytes", "usual_bytes")
WAYS = {
    "pillow": "Pillow DataLoader",
    "decode": "labeltrace, decoding",
    "first": "labeltrace, filling the cache",
    "cached": "labeltrace, from the cache",
}


def bench_data(
    counts: list[int], width: int, height: int, workers: int, note: Callable[[str], None], repeats: int
) -> list[dict[str, Any]]:
    """Measure every way over folders of JPEG files; the ways take turns, the best of the repeats counts.

    Args:
        counts: how many files, one measurement each.
        width: of a file's picture.
        height: likewise.
        workers: processes that decode, for every way alike.
        note: told what is measured.
        repeats: passes of each way.

    Returns:
        One record per way and count: images per second of each pass and of the best, memory in bytes (most and usual).
    """
    records = []
    with tempfile.TemporaryDirectory(prefix="labeltrace-bench-") as temporary:
        folder = Path(temporary)
        for count in counts:
            note(f"writing {count:,} JPEG files of {width}×{height}")
            files = folder / str(count)
            write_files(files, count, width, height)
            passes: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for number in range(repeats):
                cache = folder / f"cache-{count}-{number}"
                for way in WAYS:  # "cached" comes after "first", with the same cache
                    note(f"{count:,} files, pass {number + 1} of {repeats}: {WAYS[way]}")
                    passes[way].append(_measure(way, files, workers, cache))
            for way, found in passes.items():
                speeds = [one["images_per_second"] for one in found]
                peaks, usual = ([one[key] for one in found if one[key] is not None] for key in MEMORY)
                records.append(
                    {
                        "way": way,
                        "files": count,
                        "images_per_second": max(speeds),
                        "passes": speeds,
                        "peak_bytes": max(peaks, default=None),
                        "usual_bytes": max(usual, default=None),
                    }
                )
    return records


def write_files(folder: Path, count: int, width: int, height: int) -> None:
    """Write JPEG files with structure at all scales, as photographs have it."""
    from PIL import Image

    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    encoded = []
    for _ in range(min(DISTINCT, count)):
        picture = np.zeros((height, width, 3))
        for cells in (3, 8, 21, 55, 144):
            coarse = rng.normal(0, 255, (cells, cells, 3)).clip(-255, 255)
            layer = Image.fromarray((coarse / 2 + 128).astype(np.uint8)).resize(
                (width, height), Image.Resampling.BICUBIC
            )
            picture += (np.asarray(layer, np.float64) - 128) / cells**0.4
        path = folder / "made.jpg"
        Image.fromarray((picture / 2 + 128).clip(0, 255).astype(np.uint8)).save(path, quality=90)
        encoded.append(path.read_bytes())
        path.unlink()
    for number in range(count):
        (folder / f"{number:06}.jpg").write_bytes(encoded[number % len(encoded)])


def _measure(way: str, files: Path, workers: int, cache: Path) -> dict[str, Any]:
    """Run one pass in a fresh process."""
    command = [sys.executable, "-m", "labeltrace.bench.data", way, str(files), str(workers)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "LABELTRACE_CACHE": str(cache)}, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{way}: {done.stderr.strip().splitlines()[-1]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _one_pass(way: str, folder: Path, workers: int) -> dict[str, Any]:
    """Read every file once in a random order; time starts with the first batch asked for."""
    paths = sorted(folder.glob("*.jpg"))
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(paths)))
    batches = _pillow(paths, order, workers) if way == "pillow" else _ours(way, paths, order, workers)
    with PeakMemory() as peak:
        started = time.perf_counter()
        seen = sum(len(batch) for batch in batches)
        seconds = time.perf_counter() - started
    assert seen == len(paths)
    return {"images_per_second": len(paths) / seconds, "peak_bytes": peak.bytes, "usual_bytes": peak.usual}


def _ours(way: str, paths: list[Path], order: Tensor, workers: int) -> Iterator[Tensor]:
    images = ImageFiles(map(str, paths), STORED)
    if way != "decode":
        images.use_cache(open_cache(images.key(), len(images), STORED, limit_gb=100))
    views = ImageViews(MEAN, STD, size=SEEN)
    for batch in Feed(images, torch.device("cpu"), workers).batches(order.split(BATCH)):
        yield views.plain(batch)


def _pillow(paths: list[Path], order: Tensor, workers: int) -> Iterator[Tensor]:
    ordered = [paths[i] for i in order.tolist()]
    return iter(DataLoader(_Plain(ordered), BATCH, num_workers=workers))


class _Plain(Dataset[Tensor]):
    """What everybody writes: open, resize, crop, to float, normalise."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Tensor:
        from PIL import Image

        with Image.open(self.paths[i]) as image:
            colour = image.convert("RGB")
        width, height = colour.size
        scale = STORED / min(width, height)
        colour = colour.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
        left, top = (colour.width - SEEN) // 2, (colour.height - SEEN) // 2
        cut = colour.crop((left, top, left + SEEN, top + SEEN))
        values = torch.from_numpy(np.array(cut)).permute(2, 0, 1).float() / 255
        mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
        return (values - mean) / std


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_one_pass(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
