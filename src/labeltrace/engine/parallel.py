"""More than one device: the ranks that torchrun starts, and everything they tell each other.

Networks are not wrapped in DistributedDataParallel: learners call a network several times before a backward, some of
these times without gradient, through other branches, or as a copy. So every rank runs its plain network on its part of
the batch, and after the backward one flat tensor with all gradients is averaged, for all learners alike.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from labeltrace.engine.watch import Watch, open_watch
from labeltrace.errors import InputError
from labeltrace.plugins import plugins
from labeltrace.scoring import SampleMemory

T = TypeVar("T")
CHUNK = 2**26  # bytes that travel at a time
LOOK = 16  # steps on a GPU between two looks at whether someone asked to stop: a look waits for the device
AGAIN = 3.0  # seconds after which a second signal ends this rank at once; a terminal and torchrun may both send one
STOPPED = "stopped"


@dataclass(frozen=True)
class World:
    """The place of this process among those of a run: its number, on its machine too, and how many there are."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def world() -> World:
    """Return the place that torchrun gave this process; without torchrun it is alone."""
    if not (dist.is_available() and dist.is_torchelastic_launched()):
        return World()
    return World(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")))


class RankGone(RuntimeError):
    """A rank ended before its time. `rank` is None where nobody knows which one."""

    def __init__(self, rank: int | None, words: str) -> None:
        super().__init__(words)
        self.rank, self.words = rank, words

    def __str__(self) -> str:
        who = "a rank" if self.rank is None else f"rank {self.rank}"
        return f"{who} died" + (f" ({self.words})" if self.words else "")


class Ranks:
    """The ranks of a run, seen from one of them. A single rank talks to nobody, and nothing is copied.

    Args:
        place: of this rank.
        device: of its tensors.
        watch: says who is gone.
    """

    def __init__(self, place: World, device: torch.device, watch: Watch | None = None) -> None:
        self.rank, self.size, self.device, self.watch = place.rank, place.size, device, watch
        self.first, self.alone = place.rank == 0, place.size == 1
        self._asked, self._looks, self._since = False, 0, 0.0
        self._asked_of_anyone: Tensor | None = None
        self.known = False  # whether the others know why this rank ends

    # Of numbers

    def cut(self, count: int, unit: int = 1) -> list[int]:
        """Return where the parts of `count` things begin and end, R + 1 places, in whole units but for the last one.

        >>> Ranks(World(size=2), torch.device("cpu")).cut(150, unit=64)
        [0, 128, 150]
        """
        units = -(-count // unit)
        return [min(count, unit * -(-units * rank // self.size)) for rank in range(self.size + 1)]

    def average(self, parameters: Iterable[Tensor], loss: Tensor) -> Tensor:
        """Average the gradients in place and return the mean loss, on all ranks the same.

        Every rank's step must have reached the same parameters.

        Raises:
            KeyboardInterrupt: on all ranks, when one of them was asked to stop.
        """
        if self.alone:
            return loss
        gradients = [p.grad for p in parameters if p.grad is not None]
        asked = torch.full((1,), float(self._asked), device=loss.device)
        flat = torch.cat([*(g.flatten() for g in gradients), loss[None].to(asked.dtype), asked])
        self._call(dist.all_reduce, flat)
        flat /= self.size
        parts = flat.split([*(g.numel() for g in gradients), 1, 1])
        for gradient, part in zip(gradients, parts, strict=False):
            gradient.copy_(part.view(gradient.shape))
        self._look(parts[-1])
        return parts[-2][0]

    def check(self) -> None:
        """Stop on all ranks, when one of them was asked to."""
        if not self.alone:
            asked = torch.tensor([float(self._asked)], device=self.device)
            self._call(dist.all_reduce, asked)
            self._looks = -1  # look now
            self._look(asked)

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        """Put the mean over the ranks in place of floating point tensors."""
        if self.alone or not tensors:
            return
        flat = torch.cat([t.detach().double().flatten() for t in tensors])
        self._call(dist.all_reduce, flat)
        flat /= self.size
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))

    def copy_(self, tensors: Iterable[Tensor]) -> None:
        """Put rank 0's values in place of tensors of the same shapes."""
        if not self.alone:
            for tensor in tensors:
                tensor.copy_(self._broadcast(tensor.detach().clone(memory_format=torch.contiguous_format), 0))

    def same(self, values: Tensor | None) -> Tensor | None:
        """Return rank 0's tensor, whose length may be another than here; None stays None."""
        if self.alone or values is None:
            return values
        shape = self.same_object(tuple(values.shape))
        return self._broadcast(values if values.shape == shape else values.new_empty(shape), 0)

    def same_object(self, value: T) -> T:
        """Return rank 0's object."""
        if self.alone:
            return value
        box = [value]
        self._call(dist.broadcast_object_list, box, src=0)
        return box[0]

    def columns(self, named: Mapping[str, Tensor], places: Sequence[int]) -> dict[str, Tensor]:
        """Join the ranks' parts [A, n_r, …] of tensors along axis 1.

        Args:
            named: the part of this rank; rank 0's has a row or more, others may be empty dicts.
            places: where the parts begin and end, as `cut` gives them.
        """
        if self.alone:
            return dict(named)
        forms = self.same_object({name: (v.shape[0], v.shape[2:], v.dtype) for name, v in named.items()})
        whole: dict[str, Tensor] = {}
        for name, (rows, rest, dtype) in forms.items():
            whole[name] = torch.empty((rows, places[-1], *rest), dtype=dtype, device=self.device)
            for rank, (begin, end) in enumerate(pairwise(places)):
                step = _rows(rows * math.prod(rest) * dtype.itemsize)
                for start in range(begin, end, step):
                    stop = min(start + step, end)
                    if rank == self.rank:
                        part = named[name][:, start - begin : stop - begin].contiguous()
                    else:
                        part = torch.empty((rows, stop - start, *rest), dtype=dtype, device=self.device)
                    whole[name][:, start:stop] = self._broadcast(part, rank)
        return whole

    def exchange(self, memory: SampleMemory, rows: Tensor, owners: Tensor) -> None:
        """Bring the memory together after a pass: each sample's row is that of the rank that met it last.

        Args:
            memory: of the run; every rank has written the rows of its own samples.
            rows: [S, W] sample numbers of all ranks, step by step.
            owners: [W] the rank of each column.
        """
        if self.alone or not memory.fields:
            return
        met = torch.arange(rows.numel(), device=rows.device)
        last = torch.full((memory.size,), -1, device=rows.device).scatter_reduce_(0, rows.flatten(), met, "amax")
        visited = (last >= 0).nonzero()[:, 0]
        owner = owners[last[visited] % rows.shape[1]]
        for rank in range(self.size):
            for index in visited[owner == rank].split(_rows(memory.bytes_per_sample)):
                packed = self._broadcast(memory.pack(index), rank)
                if rank != self.rank:
                    memory.unpack(index, packed)

    # Of words

    def together(self, work: Callable[[], T], *, first_only: bool = False) -> T | None:
        """Do something on every rank, or on rank 0 alone; where it fails on one, it fails on all with the same words.

        Returns:
            What `work` returned; None on a rank that did not do it.
        """
        if self.alone:
            return work()
        result, error = None, None
        try:
            if self.first or not first_only:
                result = work()
        except Exception as caught:
            error = caught
        said: list[Any] = [None] * self.size
        self._call(dist.all_gather_object, said, None if error is None else (isinstance(error, InputError), str(error)))
        failed = next((rank for rank, words in enumerate(said) if words is not None), None)
        if failed is not None:
            is_input, words = said[failed]
            self.known = True
            raise error or (InputError(words) if is_input else RankGone(failed, words))
        return result

    def tell(self, words: str) -> None:
        """Tell the others why this rank ends, if they do not know."""
        if self.alone or self.known:
            return
        self.known = True
        if self.watch is not None:
            self.watch.tell(words[:500])
        if self.device.type == "cpu":  # whoever waits for this rank now gets an error, although its process may live on
            dist.destroy_process_group()

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Tell the others why, when this rank ends inside."""
        try:
            yield
        except BaseException as error:
            kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
            self.tell(STOPPED if isinstance(error, KeyboardInterrupt) else f"{kind}{error}")
            raise

    @contextmanager
    def listening(self, alarm: Callable[[], None]) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM are a wish that all ranks follow at the same step.

        Args:
            alarm: called when a rank is gone and this one still waits for it.
        """
        if self.alone:
            yield
            return
        if self.watch is not None:
            self.watch.alarm = alarm
        in_main = threading.current_thread() is threading.main_thread()
        before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM) if in_main}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self.watch is not None:
                self.watch.alarm = None

    def _ask(self, *_: object) -> None:
        now = time.monotonic()
        if self._asked and now - self._since > AGAIN:
            raise KeyboardInterrupt
        self._asked, self._since = True, self._since if self._asked else now

    def _look(self, asked: Tensor) -> None:
        """Read whether anyone was asked to stop: at each step where that is free, now and then where it is not."""
        self._looks += 1
        if asked.device.type != "cpu":
            earlier = self._asked_of_anyone
            asked = asked.clone() if earlier is None else torch.maximum(asked.to(earlier.dtype), earlier)
            self._asked_of_anyone = asked
            if self._looks % LOOK:
                return
        if float(asked) > 0:
            self.known = True
            raise KeyboardInterrupt

    def _broadcast(self, values: Tensor, source: int) -> Tensor:
        """Any type travels as bytes: a backend need not know it."""
        values = values.contiguous()
        if values.numel():
            self._call(dist.broadcast, values.reshape(-1).view(torch.uint8), src=source)
        return values

    def _call(self, collective: Callable[..., Any], *values: Any, **options: Any) -> None:
        try:
            collective(*values, **options)
        except RuntimeError as error:
            self.known = True
            found = None if self.watch is None else self.watch.wait(5.0)
            raise RankGone(*(found or (None, str(error).strip().partition("\n")[0]))) from None


def join(place: World, device: torch.device) -> Ranks:
    """Return the ranks of a run whose process group exists."""
    return Ranks(place, device, None if place.size == 1 else _watch(place))


@cache
def _watch(place: World) -> Watch | None:
    """One for all runs of a process, like the process group."""
    address = "127.0.0.1" if place.local_size == place.size else os.environ["MASTER_ADDR"]
    return open_watch(place.rank, place.size, address, Ranks(place, torch.device("cpu")).same_object)


def _rows(width: int) -> int:
    """How many rows of so many bytes travel at a time."""
    return max(1, CHUNK // max(1, width))


def check_plugin(name: str | None, ranks: int) -> None:
    """Refuse a plug-in that keeps what several ranks do not share."""
    if name is not None and plugins[name].alone and ranks > 1:
        raise InputError(f"plugin: {name} keeps what ranks do not share; run it in one process, not in {ranks}")


def check_batches(settings: Any, ranks: int) -> None:
    """Refuse batch sizes of a learner's settings that do not divide by the number of ranks.

    Raises:
        InputError: names the setting and the next size that does.
    """
    for field in fields(settings):
        size = getattr(settings, field.name)
        if field.name.endswith("batch_size") and size % ranks:
            good = -(-size // ranks) * ranks
            raise InputError(
                f"settings.{field.name}: {size} samples do not divide by {ranks} ranks; "
                f"say --set settings.{field.name}={good}"
            )
