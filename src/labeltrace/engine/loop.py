"""The loop that runs a learner's epoch: batches of one size, views on the device, one scoring pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from labeltrace.data import Split, Views
from labeltrace.data.draws import Draws
from labeltrace.engine.reporter import Reporter
from labeltrace.learners.base import Batch, Step
from labeltrace.scoring import ScorePass, Scores, StructureSettings

SCORING = 1_000_003  # the phase number of the scoring pass: no learner has that many phases


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
    """The `Loop` of learners, over data that lives on the device.

    Args:
        fabric: device and precision.
        networks: set up by Fabric.
        optimizers: one per network.
        split: the training data.
        views: of its inputs.
        seed: of the run.
        structure: settings of structure confidence.
        pseudo: how a learner combines predictions.
        reporter: told after each step.
    """

    def __init__(
        self,
        fabric: Fabric,
        networks: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        split: Split,
        views: Views,
        seed: int,
        structure: StructureSettings,
        pseudo: Callable[[Tensor], Tensor],
        reporter: Reporter,
    ) -> None:
        self.fabric, self.networks, self.optimizers = fabric, networks, optimizers
        self.inputs, self.labels = fabric.to_device(split.inputs), fabric.to_device(split.labels)
        self.views, self.seed, self.structure, self.reporter = views, seed, structure, reporter
        self.pseudo = pseudo
        self.forward_batch = 2048 if fabric.device.type == "cuda" else 512
        permutation = np.random.default_rng(run_seed(seed, SCORING)).permutation(len(split))
        self.score_order = fabric.to_device(torch.from_numpy(permutation))
        self.begin(0)

    def begin(self, epoch: int) -> None:
        """Start an epoch: phases are counted anew, scores of the last one are forgotten."""
        self.epoch, self.phase = epoch, 0
        self.scores: Scores | None = None
        self.logs: dict[str, dict[str, float]] = {}

    def train(
        self,
        step: Step,
        *,
        members: Sequence[int],
        batch_size: int,
        passes: int = 1,
        drop_last: bool = False,
        label: str,
    ) -> None:
        """See `labeltrace.learners.base.Loop`."""
        phase, self.phase = self.phase, self.phase + 1
        for number, network in enumerate(self.networks):
            network.train(number in members)
        losses: list[Tensor] = []
        sums: dict[str, Tensor] = {}
        for number in range(passes):
            order = self._batches(phase, number, batch_size, drop_last)
            for index in order:
                draws = Draws.at(index, self.seed, self.epoch, phase, number)
                for member in members:
                    self.optimizers[member].zero_grad(set_to_none=True)
                outcome = step(Batch(index, self.inputs[index], self.labels[index], draws))
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
        self._finish_phase(label, losses, sums)
        # The last step may have spoilt the weights while its loss was still a number.
        values = [v for m in members for v in self.networks[m].state_dict().values() if v.is_floating_point()]
        if not bool(torch.stack([torch.isfinite(v).all() for v in values]).all()):
            raise LossNotFinite(label, len(losses))

    def score(self, view: str = "plain") -> Scores:
        """See `labeltrace.learners.base.Loop`."""
        if self.scores is None:
            self.scores = self.score_now(view)
        return self.scores

    @torch.no_grad()
    def score_now(self, view: str = "plain") -> Scores:
        """Walk the training set once, in eval mode, in the run's fixed random order."""
        for network in self.networks:
            network.eval()
        scoring = ScorePass(self.structure, seed=self.seed, pseudo=self.pseudo)
        for index in self.score_order.split(self.forward_batch):
            inputs = self.inputs[index]
            if view == "weak":
                inputs = self.views.weak(inputs, Draws.at(index, self.seed, self.epoch, SCORING, 0))
            else:
                inputs = self.views.plain(inputs)
            scoring.add(index, self.labels[index], [network(inputs) for network in self.networks])
        return scoring.finish()

    @torch.no_grad()
    def logits(self, split_inputs: Tensor) -> Tensor:
        """Return the networks' logits [M, N, C] on inputs, in eval mode, plain view."""
        for network in self.networks:
            network.eval()
        parts = []
        for chunk in split_inputs.split(self.forward_batch):
            inputs = self.views.plain(self.fabric.to_device(chunk))
            parts.append(torch.stack([network(inputs).logits for network in self.networks]))
        return torch.cat(parts, 1)

    def _batches(self, phase: int, number: int, batch_size: int, drop_last: bool) -> Tensor:
        """[steps, B] sample numbers of one pass, every row full."""
        count = len(self.labels)
        size = min(batch_size, count)
        generator = torch.Generator().manual_seed(run_seed(self.seed, self.epoch, phase, number))
        order = torch.randperm(count, generator=generator)
        order = order[: count // size * size] if drop_last else torch.cat([order, order[: -count % size]])
        return self.fabric.to_device(order.reshape(-1, size))

    def _finish_phase(self, label: str, losses: list[Tensor], sums: dict[str, Tensor]) -> None:
        """Read the phase's numbers, once."""
        every = torch.stack(losses).float().cpu()
        bad = (~torch.isfinite(every)).nonzero()
        if len(bad):
            raise LossNotFinite(label, int(bad[0, 0]) + 1)
        self.logs[label] = {"loss": float(every.mean()), "steps": len(losses)}
        self.logs[label] |= {name: float(value) / len(losses) for name, value in sums.items()}
