"""Steps on a GPU without their launches: recorded once per phase as a CUDA graph, then replayed.

A phase's first steps run plainly, on the stream that records: they fill lazily made tensors and optimizer states. The
next one is recorded, which runs nothing, and replayed from then on. What changes from step to step (sample numbers,
keys of the random draws, progress) lies in tensors that the step reads; what changes from phase to phase (rates,
epochs, thresholds) may be plain numbers, because each phase is recorded anew, which costs as much as a plain step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

PLAIN = 3  # steps before the recording; a phase of no more than twice as many is not recorded


class Recorder:
    """Replays steps where that is possible, runs them plainly where not.

    Args:
        device: of the run.
        wanted: False never records.
    """

    def __init__(self, device: torch.device, wanted: bool = True) -> None:
        self.active = wanted and device.type == "cuda"
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def phase(self, body: Callable[[], None], steps: int) -> Iterator[Callable[[], None]]:
        """Give a function that runs `body` once per call, for a phase of so many steps."""
        if self.stream is None:
            yield body
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            yield self._replayed(body) if self.active and steps > 2 * PLAIN else body
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _replayed(self, body: Callable[[], None]) -> Callable[[], None]:
        done, graph = 0, None

        def run() -> None:
            nonlocal done, graph
            done += 1
            if done == PLAIN + 1 and self.active:
                graph = self._record(body)
            if graph is not None:
                graph.replay()
            else:
                body()

        return run

    def _record(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        """Record a step; None, with one warning, where it cannot be."""
        graph = torch.cuda.CUDAGraph()
        pool = None if self.graph is None else self.graph.pool()  # the last phase's memory, which nobody reads any more
        try:
            with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
                body()
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            self.active = False
            reason = str(error).strip().splitlines()[0]
            warnings.warn(f"steps run without CUDA graphs, which is slower: recording failed ({reason})", stacklevel=2)
            torch.cuda.synchronize(self.device)
            return None
        self.graph = graph
        return graph
