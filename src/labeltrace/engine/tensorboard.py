"""Metrics for TensorBoard, an extra that is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labeltrace.errors import InputError


class TensorBoard:
    """Writes every number of an epoch's record as a scalar."""

    def __init__(self, folder: Path) -> None:
        self._writer = writer_type()(str(folder))

    def log(self, record: Mapping[str, Any]) -> None:
        """Write one epoch's record; nested names are joined by a slash."""
        self._walk("", record, record["epoch"])
        self._writer.flush()

    def close(self) -> None:
        """Finish the files."""
        self._writer.close()

    def _walk(self, prefix: str, value: Any, epoch: int) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                self._walk(f"{prefix}/{key}" if prefix else key, item, epoch)
        elif isinstance(value, (int, float)) and prefix != "epoch":
            self._writer.add_scalar(prefix, value, epoch)


def writer_type() -> Any:
    """Return TensorBoard's writer.

    Raises:
        InputError: it is not installed; the message names the extra.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("tensorboard is not installed: pip install 'labeltrace[tensorboard]'") from None
    return SummaryWriter
