"""Checkpoints: the state at the end of an epoch, in memory at once, on disk atomically and not too often.

A copy of the state is taken at every epoch's end (cheap), and written when the last writing is `seconds` old, when the
run ends, on Ctrl-C and when a loss turns NaN. After a SIGKILL a run goes on from what is on disk: it repeats an epoch
or two and arrives at the same bits, because every draw belongs to (seed, epoch, sample).
"""

from __future__ import annotations

import functools
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labeltrace.errors import InputError
from labeltrace.files import write_atomically

FORMAT = 1


class Checkpointer:
    """Holds the newest last and best state, and writes them.

    Args:
        last: file of the newest state.
        best: file of the state with the best test accuracy.
        seconds: least time between two writings.
    """

    def __init__(self, last: Path, best: Path, seconds: float) -> None:
        self.last, self.best, self.seconds = last, best, seconds
        self.epoch = 0  # epochs that the newest state has behind it
        self._pending: dict[Path, dict[str, Any]] = {}
        self._written = time.monotonic()
        self._lock = threading.RLock()  # a run that has to be given up is saved by another thread

    def offer(self, state: dict[str, Any], *, is_best: bool) -> None:
        """Take a copy of the state; write it if it is time."""
        copy = copied(state)
        with self._lock:
            if is_best:
                self._pending[self.best] = copy
            self._pending[self.last] = copy
            self.epoch = state["epoch"]
        if time.monotonic() - self._written >= self.seconds:
            self.flush()

    def flush(self) -> None:
        """Write what is held. The best goes first: a kill in between makes the resumed run write it again."""
        with self._lock:
            for path in (self.best, self.last):
                if path in self._pending:
                    try:
                        write_atomically(path, functools.partial(torch.save, self._pending[path]))
                    except RuntimeError as error:  # what torch makes of a full disk
                        why = str(error).partition("\n")[0]
                        raise OSError(f"{path}: cannot be written ({why}); what was saved before is whole") from None
                    del self._pending[path]  # only now: an interrupted writing is done again
        self._written = time.monotonic()


def copied(value: Any) -> Any:
    """Return a deep copy of nested dicts and lists whose tensors are cloned."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value)
    return value


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return a saved state, on the CPU.

    Raises:
        InputError: the file cannot be read as a checkpoint of this format.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file; to a user they are one
        raise InputError(
            f"{path}: cannot be read as a checkpoint ({type(error).__name__}); delete it to start anew"
        ) from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InputError(f"{path}: not a labeltrace checkpoint of format {FORMAT}")
    return state
