"""Which samples look like one to the run's network: nearest by the angle between features of its last stage.

Features are computed once, in a thread beside the server, when they are first asked for. Where the checkpoint has gone
the inputs themselves are compared, if they are small enough for that to mean anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from labeltrace.data import Split
from labeltrace.diagnostics.runs import Run
from labeltrace.diagnostics.stages import pooled
from labeltrace.errors import InputError
from labeltrace.models import pool
from labeltrace.review.pictures import Pictures

SHOWN = 8  # neighbours of a sample
MOST = 20_000  # samples that are compared with; of a larger set as many drawn at random
FORWARD = 64  # samples of a forward: few, so that pictures asked for meanwhile do not wait
SMALL = 4096  # numbers of an input up to which it is compared as it is: 32 × 32 colour images, 4,096 features

Embed = Callable[[Tensor], Tensor]
"""Inputs [n, …] → features [n, D]."""


@dataclass(frozen=True)
class Neighbours:
    """What is known of the samples like one.

    Attributes:
        by: what they are compared by, in words.
        done: samples whose features are computed.
        total: samples to compare with.
        rows: of the nearest, the nearest first; None until all features are there.
        cosine: of each with the sample.
        problem: why there are none.
    """

    by: str
    done: int
    total: int
    rows: list[int] | None = None
    cosine: list[float] | None = None
    problem: str | None = None


class Similar:
    """Finds the samples that look like one.

    Args:
        run: whose network looks.
        pictures: of its training set.
    """

    def __init__(self, run: Run, pictures: Pictures) -> None:
        self._run, self._pictures = run, pictures
        self._candidates = some_rows(len(pictures.split))
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._embed: Embed | None = None
        self._features: Tensor | None = None  # [M, D] of the candidates, of length 1
        self._by, self._done = "", 0
        self._problem: str | None = None

    def nearest(self, row: int) -> Neighbours:
        """Return the samples like one, or how far the features are that it takes to say; the first call starts them."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._compute, daemon=True)
                self._thread.start()
        total = len(self._candidates)
        if self._features is None or self._embed is None:
            return Neighbours(self._by, self._done, total, problem=self._problem)
        own = normalize(self._embed(self._pictures.read([row])), dim=1)[0]
        cosine = self._features @ own
        cosine[torch.from_numpy(self._candidates == row)] = -2.0
        values, places = cosine.topk(min(SHOWN, total - int((self._candidates == row).sum())))
        rows = self._candidates[places.numpy()].tolist()
        return Neighbours(self._by, total, total, rows, [round(value, 4) for value in values.tolist()])

    def wait(self) -> None:
        """Wait until the features are there."""
        if self._thread is not None:
            self._thread.join()

    def _compute(self) -> None:
        try:
            self._by, embed = embedding(self._run, self._pictures.split)
            parts = []
            for start in range(0, len(self._candidates), FORWARD):
                rows = self._candidates[start : start + FORWARD].tolist()
                parts.append(normalize(embed(self._pictures.read(rows)), dim=1))
                self._done = start + len(rows)
            self._embed, self._features = embed, torch.cat(parts)
        except (InputError, RuntimeError, OSError) as error:  # the page goes on without; memory may have run out
            self._problem = " ".join(str(error).split())


def embedding(run: Run, split: Split) -> tuple[str, Embed]:
    """Return what samples are compared by, in words, and the function that computes it.

    Raises:
        InputError: there is neither a checkpoint nor an input small enough to be compared as it is.
    """
    if not run.checkpoint.exists():
        size = int(np.prod(split.inputs.shape[1:]))
        if size > SMALL:
            raise InputError(f"{run.checkpoint} has gone, and inputs of {size:,} numbers say little as they are")
        what = "pixels" if split.inputs.ndim == 4 else "features"
        return f"{what} (the run's checkpoint has gone)", lambda inputs: run.plan.dataset.views.plain(inputs).flatten(1)
    network, device, alone = run.network(), run.device, threading.Lock()  # `pooled` changes the network meanwhile

    @torch.no_grad()
    def embed(inputs: Tensor) -> Tensor:
        with alone, pooled(network, "gap"):
            return pool(network(run.plan.dataset.views.plain(inputs.to(device))).features[-1], "gap").float().cpu()

    return "the network's last stage", embed


def some_rows(count: int) -> np.ndarray:
    """Return the rows that are compared with, ascending: all, or 20,000 drawn at random.

    >>> some_rows(3).tolist(), len(some_rows(30_000))
    ([0, 1, 2], 20000)
    """
    if count <= MOST:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, MOST, replace=False))
