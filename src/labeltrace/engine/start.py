"""What a run writes before its first epoch, and whether its data is still what it began with."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import torch

from labeltrace import __version__
from labeltrace.data import Dataset, save_noise
from labeltrace.data.names import Names
from labeltrace.data.noise.record import label_hash
from labeltrace.data.prepare import write_skipped
from labeltrace.engine.config import dump_config
from labeltrace.engine.device import device_name
from labeltrace.engine.folder import RunFolder, code_revision
from labeltrace.engine.plan import Plan
from labeltrace.errors import InputError
from labeltrace.files import write_atomically


def machine(device: torch.device) -> dict[str, Any]:
    """Return versions, code revision, platform and the device's name.

    >>> machine(torch.device("cpu"))["torch"] == torch.__version__
    True
    """
    return {
        "labeltrace": __version__,
        "revision": code_revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": device_name(device),
    }


def write_start(folder: RunFolder, plan: Plan, device: torch.device, **more: Any) -> None:
    """Write everything that repeats the run; config.yaml comes last and makes it a run.

    `more` is said in the environment too.
    """
    train = plan.dataset.train
    if plan.noise is not None:
        save_noise(folder.noise, train.labels.numpy(), plan.noise)
    if plan.skipped:
        write_atomically(folder.bad_images, lambda path: write_skipped(plan.skipped, path))
    environment = {
        **machine(device),
        "threads": torch.get_num_threads(),
        "seed": plan.config.seed,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "train_samples": len(train),
        "labels_sha256": label_hash(train.labels),
        "ids_sha256": _ids_hash(plan.dataset),
        "bad_images": len(plan.skipped),
        "classes": list(plan.dataset.classes),
        "noise": None if plan.noise is None else plan.noise.to_dict(),
        **more,
    }
    text = json.dumps(environment, indent=2, ensure_ascii=False) + "\n"
    write_atomically(folder.environment, lambda path: path.write_text(text, encoding="utf-8"))
    config = dump_config(plan.config)
    write_atomically(folder.config, lambda path: path.write_text(config, encoding="utf-8"))


def check_data(folder: RunFolder, plan: Plan) -> None:
    """Refuse data that is not what the run began with.

    Raises:
        InputError: other labels, classes or samples.
    """
    environment = folder.read_environment()
    began, now = environment["labels_sha256"], label_hash(plan.dataset.train.labels)
    if began != now:
        was, count = environment.get("train_samples"), len(plan.dataset.train)
        what = f"labels {began[:12]}, now they are {now[:12]}"
        if was not in (None, count):
            what = f"{was:,} samples, now there are {count:,}{_gone(folder, plan.dataset)}"
        raise InputError(f"{folder.path}: it began with {what}; the dataset has changed since it began")
    classes, ids = list(plan.dataset.classes), _ids_hash(plan.dataset)
    if environment.get("classes", classes) != classes:
        raise InputError(f"{folder.path}: the names of the classes have changed since it began")
    if environment.get("ids_sha256", ids) != ids:
        raise InputError(f"{folder.path}: samples have been replaced, renamed or put in another order since it began")


def _ids(dataset: Dataset) -> Iterator[str]:
    return map(dataset.train.id_of, range(len(dataset.train)))


def _ids_hash(dataset: Dataset) -> str:
    return Names(_ids(dataset)).sha256()


def _gone(folder: RunFolder, dataset: Dataset) -> str:
    """Name samples of a finished run that are no longer there, in words."""
    if not folder.samples.exists():
        return ""
    import pyarrow.parquet as pq  # only who asks for it waits for it

    there = set(_ids(dataset))
    gone = [name for name in pq.read_table(folder.samples, columns=["id"])["id"].to_pylist() if name not in there]
    return f", without {', '.join(gone[:3])}{', …' if len(gone) > 3 else ''}" if gone else ""
