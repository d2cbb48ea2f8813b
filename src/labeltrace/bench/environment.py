"""Where a measurement was made, written beside its figures."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from labeltrace.engine.folder import finite
from labeltrace.engine.start import machine
from labeltrace.files import write_atomically


def environment() -> dict[str, Any]:
    """Return versions, device, cores, threads, code revision and date.

    >>> environment()["cores"] >= 1
    True
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    today = datetime.now(timezone.utc).date().isoformat()
    return {**machine(device), "cores": os.cpu_count() or 1, "threads": torch.get_num_threads(), "date": today}


def write_result(result: dict[str, Any], path: Path) -> None:
    """Write a measurement as JSON, whole or not at all."""
    text = json.dumps(finite(result), indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
