"""Processes that read images. A mistake in one comes back as words, never as a silent end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from torch.utils.data import DataLoader, Dataset

T = TypeVar("T")

AHEAD = 2  # answers that each worker prepares ahead


class WorkerDied(RuntimeError):
    """A process that reads images was killed from outside, most often for lack of memory."""


class Workers(Generic[T]):
    """Calls a task on lists of sample numbers, in processes that stay for the next call.

    >>> list(Workers(sum, count=0).run([[1, 2], [3]]))
    [3, 3]

    Args:
        task: sample numbers → an answer; tensors in it travel through shared memory.
        count: of processes; 0 calls the task in this one.
    """

    def __init__(self, task: Callable[[list[int]], T], count: int) -> None:
        self.task, self.count = task, count
        self._plan: list[list[int]] = []  # the same list for every run: the loader holds on to it
        self._loader: DataLoader[T] | None = None

    def run(self, plan: Sequence[list[int]]) -> Iterator[T]:
        """Yield the answers to each list of `plan`, in its order.

        Raises:
            WorkerDied: a worker was killed.
        """
        if not self.count:
            yield from map(self.task, plan)
            return
        self._plan[:] = plan
        try:
            yield from self._started()
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise WorkerDied(
                "a process that reads images was killed, perhaps for lack of memory; try fewer --workers"
            ) from error

    def close(self) -> None:
        """End the processes; the next call of `run` starts new ones."""
        iterator = getattr(self._loader, "_iterator", None)
        self._loader = None
        if iterator is not None:
            iterator._shutdown_workers()

    def _started(self) -> DataLoader[T]:
        if self._loader is None:
            self._loader = DataLoader(
                _Task(self.task),
                sampler=self._plan,
                batch_size=None,
                num_workers=self.count,
                prefetch_factor=AHEAD,
                persistent_workers=True,
                worker_init_fn=_leave_signals,
            )
        return self._loader


class _Task(Dataset[T]):
    """The task as a loader sees it: its samples are answers to lists."""

    def __init__(self, task: Callable[[list[int]], T]) -> None:
        self.task = task

    def __getitem__(self, index: list[int]) -> T:
        return self.task(index)


def _leave_signals(_: int) -> None:
    """Ctrl-C is for the process that trains; it ends its workers itself."""
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
