"""The loop that runs a learner's epoch: batches of one size, views on the device, one scoring pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from labeltrace.data import Split, Views
from labeltrace.data.balanced import balanced_subset
from labeltrace.data.draws import Draws
from labeltrace.data.feed import Feed
from labeltrace.engine.capture import Recorder
from labeltrace.engine.course import LISTS, Course
from labeltrace.engine.history import History, LossNotFinite
from labeltrace.engine.parallel import Ranks, World
from labeltrace.engine.reporter import Reporter
from labeltrace.engine.update import Update, present, suit
from labeltrace.learners.base import Step
from labeltrace.models.output import Output
from labeltrace.scoring import SampleMemory, ScorePass, Scores, StructureSettings
from labeltrace.scoring.relations import grouped_drift

# Numbers that no phase or pass of a learner has: of the scoring pass, of the choice of an epoch's samples.
SCORING, CHOOSING = 1_000_003, 1_000_033
FORWARD = {"cuda": 2048, "cpu": 512}  # samples in a forward without gradient; fewer large ones, down to 64
CACHED = 128  # CIFAR images whose feature maps stay in a CPU's cache from layer to layer


def run_seed(*words: int) -> int:
    """Return a 63-bit seed that belongs to these words alone.

    >>> run_seed(0, 1) == run_seed(0, 1), run_seed(0, 1) == run_seed(1, 0)
    (True, False)
    """
    # Their number comes first: a seed sequence takes no notice of zeros at its end.
    return int(np.random.SeedSequence((len(words), *words)).generate_state(1, np.uint64)[0] >> 1)


class EngineLoop:
    """The `Loop` of learners: over data that lives on the device, or that workers read.

    Args:
        fabric: device and precision.
        networks: set up by Fabric.
        optimizers: one per network.
        train: the training data.
        test: the test data, where there is some.
        views: of their inputs.
        seed: of the run.
        structure: settings of structure confidence.
        pseudo: how a learner combines predictions.
        reporter: told after each step.
        workers: processes that read images which are not in memory.
        epoch_samples: train and score each epoch on this many samples, drawn anew and alike from all classes; None
            for all.
        keeps: what a scoring pass keeps of every sample, see `Learner`.
        fresh: (network, number of the restart) → its weights before training.
        capture: on a GPU, record the steps of a phase as a graph; several ranks never do.
        drift: of a scoring pass, see `ScorePass`.
        ranks: among which batches and passes are shared out; None for this process alone.
        memory: of the learner, which the ranks bring together after each pass.
        companions: of the learner, likewise after each phase.
        sides: one per network, see `Learner.side_optimizer`; none where it is empty.
    """

    def __init__(
        self,
        fabric: Fabric,
        networks: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        train: Split,
        test: Split | None,
        views: Views,
        seed: int,
        structure: StructureSettings,
        pseudo: Callable[[Tensor], Tensor],
        reporter: Reporter,
        *,
        workers: int = 0,
        epoch_samples: int | None = None,
        keeps: Sequence[str] = (),
        fresh: Callable[[int, int], dict[str, Any]] | None = None,
        capture: bool = True,
        drift: Callable[..., Tensor] = grouped_drift,
        ranks: Ranks | None = None,
        memory: SampleMemory | None = None,
        companions: Callable[[], dict[str, nn.Module]] = dict,
        sides: Sequence[torch.optim.Optimizer | None] = (),
    ) -> None:
        self.fabric, self.networks, self.optimizers = fabric, networks, optimizers
        self.sides = sides or [None] * len(networks)
        self.feed = Feed(train.inputs, fabric.device, workers)
        self.test_feed = None if test is None else Feed(test.inputs, fabric.device, workers)
        self.test_count = 0 if test is None else len(test)
        self.labels, self.epoch_samples = fabric.to_device(train.labels), epoch_samples
        self.views, self.seed, self.structure, self.reporter = views, seed, structure, reporter
        self.pseudo, self.keeps, self.fresh, self.drift = pseudo, keeps, fresh, drift
        self.ranks = ranks or Ranks(World(), fabric.device)
        self.memory, self.companions = memory, companions
        self.recorder = Recorder(fabric.device, capture and self.ranks.alone)
        for optimizer in present(optimizers, self.sides):
            suit(optimizer.param_groups, fabric.device)
        shape, kind = train.inputs.shape[1:], "cuda" if fabric.device.type == "cuda" else "cpu"
        held = CACHED if kind == "cpu" and len(shape) == 3 else FORWARD[kind]
        self.forward_batch = min(FORWARD[kind], max(64, held * 3072 // math.prod(shape)))
        permutation = np.random.default_rng(run_seed(seed, SCORING)).permutation(len(train))
        self.score_order = fabric.to_device(torch.from_numpy(permutation))
        self.begin(0)

    def begin(self, epoch: int) -> None:
        """Start an epoch: phases are counted anew, scores of the last one are forgotten."""
        self.epoch, self.phase = epoch, 0
        self.scores: Scores | None = None
        self.logs: dict[str, dict[str, float]] = {}
        self.notes: list[str] = []
        self.some: Tensor | None = None  # ascending numbers of the epoch's samples
        if self.epoch_samples is not None and self.epoch_samples < len(self.labels):
            seed = run_seed(self.seed, epoch, CHOOSING)
            self.some = self.fabric.to_device(balanced_subset(self.labels.cpu(), self.epoch_samples, seed))

    def close(self) -> None:
        """End the processes that read images."""
        self.feed.close()
        if self.test_feed is not None:
            self.test_feed.close()

    def train(
        self,
        step: Step | Sequence[Step],
        *,
        members: Sequence[int],
        batch_size: int,
        passes: int = 1,
        drop_last: bool = False,
        label: str,
        index: Tensor | None = None,
        beside: Tensor | None = None,
        meta: Tensor | None = None,
        before: Step | None = None,
    ) -> None:
        """See `labeltrace.learners.base.Loop`."""
        phase, self.phase = self.phase, self.phase + 1
        for number, network in enumerate(self.networks):
            network.train(number in members)
        course, optimizers = Course(self.labels, self.feed.resident, passes), [self.optimizers[m] for m in members]
        parameters = [p for m in members for p in self.networks[m].parameters()]
        updates = [Update(one, optimizers, parameters) for one in ([step] if callable(step) else step)]
        if before is not None:
            sides = present([self.sides[m] for m in members])
            if not sides:
                raise ValueError("before: a step was given, but no network in members has a side optimizer")
            moved = [p for side in sides for group in side.param_groups for p in group["params"]]
            updates.insert(0, Update(before, sides, moved, only=True))
        index = self.ranks.same(index)
        given = {"beside": self.ranks.same(beside), "meta": self.ranks.same(meta)}
        order = self._batches((self.seed, self.epoch, phase, 0), batch_size, drop_last, index)
        steps = len(order)
        if not steps:
            self.note(f"{label}: no sample to train on")
            return
        history = History(passes * steps, label)

        def body() -> None:
            batch = course.batch()
            losses: list[Tensor] = []
            logs: dict[str, Tensor] = {}
            for update in updates:
                for optimizer in optimizers:
                    optimizer.zero_grad(set_to_none=True)
                outcome = update.step(batch)
                self.fabric.backward(outcome.loss, inputs=update.parameters if update.only else None)
                losses.append(self.ranks.average(update.parameters, outcome.loss.detach()))
                if outcome.clip is not None:
                    nn.utils.clip_grad_norm_(update.parameters, outcome.clip)
                logs |= outcome.logs
                history.check(course.total, losses[-1])
                for optimizer in update.optimizers:
                    optimizer.step()
            history.put(course.total, sum(losses[1:], losses[0]), logs)  # of one update its loss as it is
            course.advance()

        with self.recorder.phase(body, passes * steps) as run:
            for number in range(passes):
                words = self.seed, self.epoch, phase, number
                if number:
                    order = self._batches(words, batch_size, drop_last, index)
                lists = {
                    name: self._beside((*words[:3], LISTS[name]), order, samples, number)
                    for name, samples in given.items()
                    if samples is not None and len(samples)
                }
                begin, end = self.ranks.cut(order.shape[1])[self.ranks.rank :][:2]
                course.begin(words, order[:, begin:end], {name: rows[:, begin:end] for name, rows in lists.items()})
                for place, inputs in enumerate(self._inputs(course), number * steps):
                    if inputs is not None:
                        course.take(inputs)
                    run()
                    self.reporter.step(label, (place + 1) / (passes * steps), partial(history.loss, place))
                self._meet([order, *lists.values()])
        self._settle(members)
        self.logs[label] = history.summary(self.ranks)
        # The last step may have spoilt the weights while its loss was still a number.
        values = [v for m in members for v in self.networks[m].state_dict().values() if v.is_floating_point()]
        if not bool(torch.stack([torch.isfinite(v).all() for v in values]).all()):
            raise LossNotFinite(label, passes * steps)

    def gradient(self, loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
        """See `labeltrace.learners.base.Loop`."""
        held = [p.grad for p in parameters]
        for parameter in parameters:
            parameter.grad = None
        self.fabric.backward(loss, inputs=[p for p in parameters if p.requires_grad])
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        for parameter, gradient in zip(parameters, held, strict=True):
            parameter.grad = gradient
        return found

    def chosen(self) -> Tensor:
        """See `labeltrace.learners.base.Loop`."""
        return torch.arange(len(self.labels), device=self.labels.device) if self.some is None else self.some

    def restart(self, number: int) -> None:
        """See `labeltrace.learners.base.Loop`."""
        assert self.fresh is not None
        for member, network in enumerate(self.networks):
            network.load_state_dict(self.fresh(member, number))
            self.ranks.copy_(network.state_dict().values())
        for optimizer in present(self.optimizers, self.sides):
            optimizer.state.clear()

    def note(self, message: str) -> None:
        """See `labeltrace.learners.base.Loop`."""
        self.notes.append(message)
        self.reporter.note(f"epoch {self.epoch + 1}: {message}")

    def score(self, view: str = "plain") -> Scores:
        """See `labeltrace.learners.base.Loop`."""
        if self.scores is None:
            self.scores = self.score_now(view)
        return self.scores

    @torch.no_grad()
    def score_now(self, view: str = "plain") -> Scores:
        """Walk the epoch's samples once, in eval mode, in the run's fixed random order."""
        for network in self.networks:
            network.eval()
        order, place = self.score_order, self.score_order
        if self.some is not None:  # a pass numbers its samples 0 … n−1
            number = torch.full_like(order, -1)
            number[self.some] = torch.arange(len(self.some), device=order.device)
            order = order[number[order] >= 0]
            place = number[order]
        scoring = ScorePass(self.structure, seed=self.seed, pseudo=self.pseudo, keeps=self.keeps, drift=self.drift)

        def look(inputs: Tensor, index: Tensor) -> list[Output]:
            if view == "weak":
                inputs = self.views.weak(inputs, Draws.at(index, self.seed, self.epoch, SCORING, 0))
            else:
                inputs = self.views.plain(inputs)
            return [network(inputs) for network in self.networks]

        group = self.structure.score_batch
        places = self.ranks.cut(len(order), group)  # in whole groups, so that they are those of one process
        begin, end = places[self.ranks.rank :][:2]
        if begin and (end - begin) % group:  # the last group is filled up with samples of the first
            (inputs,) = self.feed.batches(order[None, :group])
            scoring.fill(look(inputs, order[:group]))
        for rows, inputs, index in self._forwards(self.feed, order, places):
            count = rows.stop - rows.start
            outputs = [_first(output, count) for output in look(inputs, index)]
            scoring.add(place[rows], self.labels[index[:count]], outputs)
        scores = scoring.finish(gather=lambda column: self.ranks.columns(column, places))
        posterior, stability = self.ranks.same(scores.posterior), self.ranks.same(scores.stability)
        assert posterior is not None
        scores = replace(scores, posterior=posterior, stability=stability)
        return scores if self.some is None else scores.spread(self.some, len(self.labels))

    @torch.no_grad()
    def test_logits(self) -> Tensor:
        """Return the networks' logits [M, N, C] on the test set, in eval mode, plain view."""
        assert self.test_feed is not None
        for network in self.networks:
            network.eval()
        parts = []
        everyone = torch.arange(self.test_count, device=self.fabric.device)
        places = self.ranks.cut(self.test_count)
        for rows, inputs, _ in self._forwards(self.test_feed, everyone, places):
            inputs = self.views.plain(inputs)
            logits = torch.stack([network(inputs).logits for network in self.networks])
            parts.append(logits[:, : rows.stop - rows.start])
        return self.ranks.columns({"logits": torch.cat(parts, 1)} if parts else {}, places)["logits"]

    def _forwards(self, feed: Feed, order: Tensor, places: Sequence[int]) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Walk this rank's part of `order` in forward batches of one size: (places in `order`, inputs, sample numbers).

        The last batch is filled up from the beginning, so inputs and numbers may be more than the places.

        Args:
            feed: of the inputs.
            order: sample numbers.
            places: where the ranks' parts begin and end.
        """
        begin, end = places[self.ranks.rank :][:2]
        counts = [stop - start for start, stop in pairwise(places)]
        count, number = end - begin, -(-(end - begin) // self.forward_batch)
        if count:
            size = -(-count // number)
            rows = order[begin:end].repeat(2)[: number * size].view(number, size)
            for start, (index, inputs) in enumerate(zip(rows, feed.batches(rows), strict=True)):
                yield slice(begin + start * size, min(begin + (start + 1) * size, end)), inputs, index
                self.ranks.check()
        for _ in range(-(-max(counts) // self.forward_batch) - number):  # others have more to do: stop where they stop
            self.ranks.check()

    def _batches(
        self, words: tuple[int, int, int, int], batch_size: int, drop_last: bool, index: Tensor | None
    ) -> Tensor:
        """[steps, B] sample numbers of one pass, every row full."""
        samples = self.some if index is None else index
        count = len(self.labels) if samples is None else len(samples)
        size = min(batch_size, count) if index is None else batch_size
        size = -(-size // self.ranks.size) * self.ranks.size  # a set smaller than a batch is filled up
        if not count:
            return torch.empty((0, size), dtype=torch.int64, device=self.labels.device)
        generator = torch.Generator().manual_seed(run_seed(*words))
        order = torch.randperm(count, generator=generator)
        if drop_last and count >= size:
            order = order[: count // size * size]
        else:  # filled up with samples of the same pass, several times where there are few
            order = order.repeat(-(-size // count) + 1)[: -(-count // size) * size]
        order = self._to_device(order.reshape(-1, size))
        return order if samples is None else samples[order]

    def _meet(self, lists: Sequence[Tensor]) -> None:
        """Bring the sample memory of all ranks together after a pass over these batches."""
        if self.ranks.alone or self.memory is None:
            return
        order, size = torch.cat(list(lists), 1), lists[0].shape[1]
        owners = torch.arange(size, device=order.device) // (size // self.ranks.size)
        self.ranks.exchange(self.memory, order, owners.repeat(len(lists)))

    def _settle(self, members: Sequence[int]) -> None:
        """After a phase: running statistics, of which every rank has seen its part, become their mean."""
        modules = [self.networks[m] for m in members] + list(self.companions().values())
        self.ranks.mean_([b for module in modules for b in module.buffers() if b.is_floating_point()])

    def _to_device(self, values: Tensor) -> Tensor:
        """A copy that the host does not wait for."""
        device = self.labels.device
        return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values

    def _beside(self, words: tuple[int, int, int, int], order: Tensor, samples: Tensor, number: int) -> Tensor:
        """[steps, B] numbers of a list beside the first, in pass `number`: where the pass before left off.

        The list starts anew, shuffled anew, when it is used up.
        """
        steps, size = order.shape
        rounds: list[Tensor] = []
        while sum(map(len, rounds)) < (number + 1) * steps:
            rounds.append(self._batches((*words[:3], words[3] + len(rounds)), size, False, samples))
        return torch.cat(rounds)[number * steps : (number + 1) * steps]

    def _inputs(self, course: Course) -> Iterable[Tensor | None]:
        """The inputs of each step of a pass where they are not on the device; None where the step takes them itself."""
        assert course.rows is not None
        return [None] * course.steps if self.feed.resident is not None else self.feed.batches(course.rows)


def _first(output: Output, count: int) -> Output:
    """The first rows of an output, whose others fill a batch up."""
    return Output(output.logits[:count], tuple(feature[:count] for feature in output.features))
