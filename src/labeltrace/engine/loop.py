"""The loop that runs a learner's epoch: batches of one size, views on the device, one scoring pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from labeltrace.data import Split, Views
from labeltrace.data.balanced import balanced_subset
from labeltrace.data.draws import Draws
from labeltrace.data.feed import Feed
from labeltrace.engine.reporter import Reporter
from labeltrace.learners.base import Batch, Step
from labeltrace.scoring import ScorePass, Scores, StructureSettings

# Numbers that no phase or pass of a learner has: of the scoring pass, of the choice of an epoch's samples, of the
# passes over a second list, of the draws of a step.
SCORING, CHOOSING, BESIDE, ONCE = 1_000_003, 1_000_033, 1_000_037, 1_000_039


class LossNotFinite(RuntimeError):
    """A loss, or the weights after a step, turned NaN or infinite."""

    def __init__(self, label: str, batch: int) -> None:
        super().__init__(f"{label}, batch {batch}")  # counted from 1
        self.label, self.batch = label, batch


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
    ) -> None:
        self.fabric, self.networks, self.optimizers = fabric, networks, optimizers
        self.feed = Feed(train.inputs, fabric.device, workers)
        self.test_feed = None if test is None else Feed(test.inputs, fabric.device, workers)
        self.test_count = 0 if test is None else len(test)
        self.labels, self.epoch_samples = fabric.to_device(train.labels), epoch_samples
        self.views, self.seed, self.structure, self.reporter = views, seed, structure, reporter
        self.pseudo, self.keeps, self.fresh = pseudo, keeps, fresh
        # 2048 CIFAR images on a GPU, 512 on a CPU; fewer of large ones, down to 64.
        pixels = math.prod(train.inputs.shape[1:])
        most = 2048 if fabric.device.type == "cuda" else 512
        self.forward_batch = min(most, max(64, most * 3072 // pixels))
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
        step: Step,
        *,
        members: Sequence[int],
        batch_size: int,
        passes: int = 1,
        drop_last: bool = False,
        label: str,
        index: Tensor | None = None,
        beside: Tensor | None = None,
    ) -> None:
        """See `labeltrace.learners.base.Loop`."""
        phase, self.phase = self.phase, self.phase + 1
        for number, network in enumerate(self.networks):
            network.train(number in members)
        losses: list[Tensor] = []
        sums: dict[str, Tensor] = {}
        for number in range(passes):
            words = self.seed, self.epoch, phase, number
            order = self._batches(words, batch_size, drop_last, index)
            for batch in self._read(order, words, beside, passes):
                for member in members:
                    self.optimizers[member].zero_grad(set_to_none=True)
                outcome = step(batch)
                loss = outcome.loss.detach()
                if loss.device.type == "cpu" and not math.isfinite(loss):  # before it reaches the weights
                    raise LossNotFinite(label, len(losses) + 1)
                self.fabric.backward(outcome.loss)
                for member in members:
                    self.optimizers[member].step()
                losses.append(loss)
                for name, value in outcome.logs.items():
                    sums[name] = sums[name] + value if name in sums else value
                self.reporter.step(label, len(losses) / (passes * len(order)), loss.item)
        if not losses:
            self.note(f"{label}: no sample to train on")
            return
        self._finish_phase(label, losses, sums)
        # The last step may have spoilt the weights while its loss was still a number.
        values = [v for m in members for v in self.networks[m].state_dict().values() if v.is_floating_point()]
        if not bool(torch.stack([torch.isfinite(v).all() for v in values]).all()):
            raise LossNotFinite(label, len(losses))

    def chosen(self) -> Tensor:
        """See `labeltrace.learners.base.Loop`."""
        return torch.arange(len(self.labels), device=self.labels.device) if self.some is None else self.some

    def restart(self, number: int) -> None:
        """See `labeltrace.learners.base.Loop`."""
        assert self.fresh is not None
        for member, (network, optimizer) in enumerate(zip(self.networks, self.optimizers, strict=True)):
            network.load_state_dict(self.fresh(member, number))
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
            places = torch.full_like(order, -1)
            places[self.some] = torch.arange(len(self.some), device=order.device)
            order = order[places[order] >= 0]
            place = places[order]
        scoring = ScorePass(self.structure, seed=self.seed, pseudo=self.pseudo, keeps=self.keeps)
        rows = order.split(self.forward_batch)
        for index, inputs, number in zip(rows, self.feed.batches(rows), place.split(self.forward_batch), strict=True):
            if view == "weak":
                inputs = self.views.weak(inputs, Draws.at(index, self.seed, self.epoch, SCORING, 0))
            else:
                inputs = self.views.plain(inputs)
            scoring.add(number, self.labels[index], [network(inputs) for network in self.networks])
        scores = scoring.finish()
        return scores if self.some is None else scores.spread(self.some, len(self.labels))

    @torch.no_grad()
    def test_logits(self) -> Tensor:
        """Return the networks' logits [M, N, C] on the test set, in eval mode, plain view."""
        assert self.test_feed is not None
        for network in self.networks:
            network.eval()
        parts = []
        rows = torch.arange(self.test_count, device=self.fabric.device).split(self.forward_batch)
        for batch in self.test_feed.batches(rows):
            inputs = self.views.plain(batch)
            parts.append(torch.stack([network(inputs).logits for network in self.networks]))
        return torch.cat(parts, 1)

    def _batches(
        self, words: tuple[int, int, int, int], batch_size: int, drop_last: bool, index: Tensor | None
    ) -> Tensor:
        """[steps, B] sample numbers of one pass, every row full."""
        samples = self.some if index is None else index
        count = len(self.labels) if samples is None else len(samples)
        size = min(batch_size, count) if index is None else batch_size
        if not count:
            return torch.empty((0, size), dtype=torch.int64, device=self.labels.device)
        generator = torch.Generator().manual_seed(run_seed(*words))
        order = torch.randperm(count, generator=generator)
        if drop_last and count >= size:
            order = order[: count // size * size]
        else:  # filled up with samples of the same pass, several times where there are few
            order = order.repeat(-(-size // count) + 1)[: -(-count // size) * size]
        order = self.fabric.to_device(order.reshape(-1, size))
        return order if samples is None else samples[order]

    def _read(
        self, order: Tensor, words: tuple[int, int, int, int], beside: Tensor | None, passes: int
    ) -> Iterator[Batch]:
        """Yield the batches of a pass: those of `order` [steps, B], each with one of the list `beside`."""
        steps, size = order.shape
        numbers = torch.arange(steps, device=order.device)
        done = (words[3] + numbers / max(steps, 1)) / passes
        second = None
        if beside is not None and len(beside) and steps:
            rounds: list[Tensor] = []
            while sum(map(len, rounds)) < steps:
                rounds.append(self._batches((*words[:3], BESIDE + len(rounds)), size, False, beside))
            second = torch.cat(rounds)[:steps]
        rows = order if second is None else torch.cat([order, second], 1)  # read together: workers serve one list
        for number, inputs in enumerate(self.feed.batches(rows)):
            once = Draws.at(numbers[number : number + 1], *words, ONCE)
            index, progress = order[number], done[number]
            draws, other = Draws.at(index, *words), None
            if second is not None:
                others = second[number]
                apart = Draws.at(others, *words, BESIDE, numbers[number])  # a list may name a sample twice
                other = Batch(others, inputs[size:], self.labels[others], apart, once, progress)
                inputs = inputs[:size]
            yield Batch(index, inputs, self.labels[index], draws, once, progress, other)

    def _finish_phase(self, label: str, losses: list[Tensor], sums: dict[str, Tensor]) -> None:
        """Read the phase's numbers, once."""
        every = torch.stack(losses).float().cpu()
        bad = (~torch.isfinite(every)).nonzero()
        if len(bad):
            raise LossNotFinite(label, int(bad[0, 0]) + 1)
        self.logs[label] = {"loss": float(every.mean()), "steps": len(losses)}
        self.logs[label] |= {name: float(value) / len(losses) for name, value in sums.items()}
