"""Where a measurement was made, written beside its figures."""

from __future__ import annotations

import json
import os
import platform
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from labeltrace import __version__
from labeltrace.engine.device import device_name
from labeltrace.engine.folder import code_revision, finite
from labeltrace.files import write_atomically


def environment() -> dict[str, Any]:
    """Return versions, processor, cores, GPU, code revision and date.

    >>> environment()["cores"] >= 1
    True
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "labeltrace": __version__,
        "revision": code_revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": device_name(device),
        "cores": os.cpu_count() or 1,
        "date": datetime.now(timezone.utc).date().isoformat(),
    }


def write_result(result: dict[str, Any], path: Path) -> None:
    """Write a measurement as JSON, whole or not at all."""
    text = json.dumps(finite(result), indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
