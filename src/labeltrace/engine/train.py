"""A run from beginning to end: build, train, test, log, checkpoint, resume."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from labeltrace.control import Controller
from labeltrace.data import BadImage, Dataset
from labeltrace.data.workers import WorkerDied
from labeltrace.engine.checkpoint import FORMAT, Checkpointer, read_checkpoint
from labeltrace.engine.compiled import WORTH, CompiledViews, can_compile, compile_network, compiled_drift
from labeltrace.engine.config import WHERE, RunConfig, dump_config, load_config
from labeltrace.engine.device import device_name, make_fabric
from labeltrace.engine.ending import Diverged, Interrupted, Judgement, RankDied, Trained, are_saved
from labeltrace.engine.folder import RunFolder, finite
from labeltrace.engine.history import LossNotFinite
from labeltrace.engine.loop import EngineLoop, run_seed
from labeltrace.engine.parallel import STOPPED, RankGone, Ranks, World, check_batches, check_plugin, join, world
from labeltrace.engine.plan import OWN, Plan, plan
from labeltrace.engine.reporter import Reporter
from labeltrace.engine.signals import signals
from labeltrace.engine.start import check_data, write_start
from labeltrace.engine.tensorboard import TensorBoard, writer_type
from labeltrace.engine.update import present, suit
from labeltrace.errors import InputError
from labeltrace.learners import Learner
from labeltrace.scoring import SampleMemory, Scores
from labeltrace.scoring.relations import grouped_drift

WRITING = 10.0  # seconds for the last checkpoint of a run that is given up; torchrun waits no longer


def train(
    config: RunConfig,
    out: Path,
    *,
    dataset: Dataset | None = None,
    make_network: Callable[[], nn.Module] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> Trained:
    """Train a run in the folder `out`.

    Args:
        config: the run; when `resume`, the folder's own config.yaml counts, but for a device or precision set here.
        out: folder of the run.
        dataset: data in memory, in place of the named dataset.
        make_network: a user's network, in place of the named model.
        resume: go on with the run in `out`.
        overwrite: delete a run in `out` first.
        reporter: hears of the progress.

    Raises:
        InputError: something asked for does not exist or does not fit; nothing was written.
        Interrupted: on Ctrl-C; the run can be resumed.
        Diverged: a loss turned NaN.
        RankDied: under torchrun, a process of the run died; the run can be resumed.
    """
    place, folder = world(), RunFolder(out)
    if resume:
        RunFolder.open(out)
        config = load_config(folder.config, config.model_dump(include=WHERE, exclude_unset=True))
    fabric = make_fabric(config, place)  # a device that is not there shows now
    ranks = join(place, fabric.device)
    said = reporter if reporter is not None and ranks.first else Reporter()

    def prepared() -> Plan:
        if not resume and ranks.first:
            folder.is_taken(overwrite=overwrite)  # known before many images are read
        planned = plan(config, dataset, make_network, said)
        check_batches(planned.settings, ranks.size)
        check_plugin(planned.config.plugin, ranks.size)
        if resume:
            check_data(folder, planned)
        elif planned.config.tensorboard:
            writer_type()
        return planned

    def taken() -> None:
        if not resume:
            RunFolder.create(out, overwrite=overwrite)
        stack.enter_context(folder.locked())
        folder.clear_leftovers()

    # The caller's random state is not ours to change.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), ranks.speaking(), ExitStack() as stack:
        try:
            planned = ranks.together(prepared)
            assert planned is not None
            ranks.together(taken, first_only=True)
            return Training(folder, planned, fabric, said, ranks).train(resume)
        except RankGone as gone:  # before the first epoch
            if gone.words == STOPPED:
                raise KeyboardInterrupt from None
            raise RankDied(out, _saved_epochs(folder), gone, ranks.size) from None


class Training:
    """The moving parts of one run."""

    def __init__(
        self, folder: RunFolder, planned: Plan, fabric: Fabric, reporter: Reporter, ranks: Ranks | None = None
    ) -> None:
        config, settings, dataset = planned.config, planned.settings, planned.dataset
        self.ranks = ranks or Ranks(World(), fabric.device)
        self.folder, self.plan, self.fabric, self.reporter = folder, planned, fabric, reporter
        self.networks: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.sides: list[torch.optim.Optimizer | None] = []
        looks = settings.epochs * (config.epoch_samples or len(dataset.train))
        compiled = config.compile if config.compile is not None else looks >= WORTH
        compiled = compiled and can_compile(fabric.device)
        views = CompiledViews(dataset.views) if compiled else dataset.views
        for member in range(planned.learner.networks_needed):
            network = planned.network(member, reporter)
            if len(dataset.input_shape) == 3:
                network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            if compiled:
                compile_network(network)
            optimizer = planned.learner.optimizer(settings, network.parameters())
            side = planned.learner.side_optimizer(settings, network)
            network, optimizer, *others = self.fabric.setup(network, *present([optimizer, side]))
            self.ranks.copy_(network.state_dict().values())  # a user's network may not be drawn from our seed
            self.networks.append(network)
            self.optimizers.append(optimizer)
            self.sides.append(others[0] if others else None)
        torch.manual_seed(run_seed(config.seed, len(self.networks)))
        fields = planned.learner.fields(settings, dataset.num_classes)
        self.memory = SampleMemory(len(dataset.train), fields, self.fabric.device)
        self.learner: Learner = planned.learner(
            settings, self.networks, views, dataset.num_classes, self.memory, planned.controller
        )
        self.loop = EngineLoop(
            self.fabric,
            self.networks,
            self.optimizers,
            dataset.train,
            dataset.test,
            views,
            config.seed,
            planned.trace,
            self.learner.pseudo,
            reporter,
            workers=planned.read.processes,
            epoch_samples=config.epoch_samples,
            keeps=self.learner.keeps,
            # without self: a run that holds itself keeps its data until Python happens to look for such
            fresh=lambda member, number: planned.network(member, reporter, number).state_dict(),
            capture=config.capture,
            drift=compiled_drift() if compiled else grouped_drift,
            ranks=self.ranks,
            memory=self.memory,
            companions=self.learner.companions,
            sides=self.sides,
        )
        self.checkpoints = Checkpointer(folder.last, folder.best, config.checkpoint_seconds)
        self.metrics: list[dict[str, Any]] = []
        self.best = -1.0

    def train(self, resume: bool) -> Trained:
        """Train to the end, from the beginning or from the state on disk."""
        epochs = self.plan.settings.epochs
        done = self._restore() if resume else 0
        if not resume and self.ranks.first:
            write_start(
                self.folder,
                self.plan,
                self.fabric.device,
                precision=self.fabric._precision.precision,
                ranks=self.ranks.size,
                bytes_per_sample=self.memory.bytes_per_sample,
            )
        self.reporter.note(self._headline(done))
        self.reporter.start(self.folder.path.name, epochs, done)
        writes = self.ranks.first
        board = TensorBoard(self.folder.tensorboard) if self.plan.config.tensorboard and writes else None
        try:
            with self.ranks.listening(self._give_up):
                for epoch in range(done, epochs):
                    record = self.epoch(epoch)
                    self.metrics.append(record)
                    accuracy = record.get("test_accuracy", -1.0)
                    is_best, self.best = accuracy > self.best, max(accuracy, self.best)
                    if not writes:
                        self.checkpoints.epoch = epoch + 1
                        continue
                    self.folder.append_metrics(record)
                    if board is not None:
                        board.log(record)
                    self.checkpoints.offer(self._state(epoch + 1), is_best=is_best)
                    self.reporter.epoch(record)
                    if epoch == done and self.fabric.device.type == "cpu":
                        self._warn_of_hours(record["seconds"], epochs - done - 1)
                self.checkpoints.flush()
                self.loop.begin(epochs)
                self.loop.some = None  # every sample gets its row
                judgement = self._judge(self.loop.score_now("plain"), epochs - 1)
        except KeyboardInterrupt:
            self.ranks.tell(STOPPED)
            self.checkpoints.flush()
            raise Interrupted(self.folder.path, self.checkpoints.epoch) from None
        except RankGone as gone:
            self.checkpoints.flush()
            if gone.words == STOPPED:
                raise Interrupted(self.folder.path, self.checkpoints.epoch) from None
            saved = _saved_epochs(self.folder) if gone.rank == 0 else self.checkpoints.epoch
            raise RankDied(self.folder.path, saved, gone, self.ranks.size) from None
        except (BadImage, WorkerDied) as error:
            self.checkpoints.flush()
            kept = f"{are_saved(self.checkpoints.epoch)} in {self.folder.path}; go on with --resume"
            raise InputError(f"{error}. {kept}") from None
        except LossNotFinite as error:  # on all ranks at once: they share losses and weights
            self.ranks.known = True
            self.checkpoints.flush()
            saved = self.checkpoints.epoch
            good = (
                f"last good checkpoint: {self.folder.last} (epoch {saved})" if saved else "no epoch was finished before"
            )
            raise Diverged(f"loss or weights are not finite in epoch {saved + 1}, {error}; {good}") from None
        finally:
            self.loop.close()
            self.reporter.end()
            if board is not None:
                board.close()
        return Trained(self.folder, self.plan, self.metrics, judgement, self.networks, writes)

    def _warn_of_hours(self, seconds: float, left: int) -> None:
        """Say after the first epoch on a CPU that the others take hours, and what is quicker."""
        hours = seconds * left / 3600
        if hours < 1:
            return
        way = "fewer --epochs"
        if self.plan.config.model not in ("small_cnn", "mlp", OWN):
            way = "--model small_cnn --preset small --image-size 32, or embeddings and labeltrace audit --features"
        took = f"an epoch took {seconds:.0f} s, so the run takes {hours:.0f} hours or more without a GPU"
        self.reporter.note(f"{took}; quicker: {way}")

    def _give_up(self) -> None:
        """A rank is gone and this one still waits for it, in a place that no error reaches: save and end it."""
        writing = threading.Thread(target=self.checkpoints.flush, daemon=True)
        writing.start()
        writing.join(WRITING)
        watch = self.ranks.watch
        reason = RankGone(*watch.gone) if watch is not None and watch.gone is not None else RankGone(None, "")
        died = RankDied(self.folder.path, _saved_epochs(self.folder), reason, self.ranks.size)
        sys.stderr.write(f"labeltrace: {died}; go on with --resume\n")
        sys.stderr.flush()
        os._exit(1)

    def _headline(self, done: int) -> str:
        """One line that says what is about to run, and where."""
        config = self.plan.config
        method = " + ".join(filter(None, (config.learner, config.controller, config.plugin)))
        size = f"{len(self.plan.dataset.train):,} samples, {self.plan.dataset.num_classes} classes"
        if self.plan.skipped:
            left_out = f"{len(self.plan.skipped)} bad image{'s' if len(self.plan.skipped) > 1 else ''} left out"
            size += f", {left_out} ({self.folder.bad_images.name})"
        many = "" if self.ranks.alone else f"{self.ranks.size} × "
        where = f"{many}{device_name(self.fabric.device)}, {self.fabric._precision.precision}"
        left = f"{config.epochs} epochs" + (f", {done} done" if done else "")
        return f"{self.folder.path}: {method}, {config.model}, {size}, {left} on {where}"

    def epoch(self, epoch: int) -> dict[str, Any]:
        """Train and test one epoch; return its record."""
        started = time.perf_counter()
        loop, train, test = self.loop, self.plan.dataset.train, self.plan.dataset.test
        for optimizer in present(self.optimizers, self.sides):
            self.learner.tune(optimizer, epoch)
        loop.begin(epoch)
        record: dict[str, Any] = {"epoch": epoch, "lr": self.learner.learning_rate(epoch)}
        if train.truth is not None:  # the signals are those of the epoch's start, for every learner alike
            loop.score(self.learner.score_view)
        self.learner.epoch(loop, epoch)
        phases = loop.logs
        steps = sum(log["steps"] for log in phases.values())
        record["loss"] = sum(log["loss"] * log["steps"] for log in phases.values()) / max(steps, 1)
        record["phases"] = phases
        if loop.notes:
            record["notes"] = loop.notes
        if test is not None:
            record["test_accuracy"] = self._test_accuracy(test.labels)
        if loop.scores is not None and train.truth is not None:
            record["signals"] = self._signals(self._judge(loop.scores, epoch))
        record["seconds"] = round(time.perf_counter() - started, 4)
        return dict(finite(record))

    def _test_accuracy(self, labels: Tensor) -> float:
        predicted = self.learner.predict(self.loop.test_logits()).argmax(1)
        return float((predicted == labels.to(predicted.device)).float().mean())

    def _judge(self, scores: Scores, epoch: int) -> Judgement:
        """Let the controller judge every sample by the numbers of a pass."""
        controller: Controller | None = self.plan.controller
        clean, agree = self.learner.cleanliness(scores), self.learner.agreement(scores)
        suggested, confidence = self.learner.suggestion(scores)
        structure = scores.structure
        if self.loop.some is not None:  # what an epoch did not see has no numbers; nobody looks at what is made of them
            clean, confidence = clean.nan_to_num(0.0), confidence.nan_to_num(0.0)
            structure = None if structure is None else structure.nan_to_num(0.0)
        ones = torch.ones_like(clean)
        observed, pseudo, a, b, weight = clean, confidence, ones, 1 - ones, ones
        if controller is not None:
            counted = self.learner.controller_epoch(epoch)
            observed, pseudo = controller.reliabilities(clean, structure, agree, confidence, counted)
            a, b = observed, (1 - observed) * pseudo
            weight = controller.weigh(a, b)
        return Judgement(scores, clean, agree, suggested, confidence, observed, pseudo, a, b, weight)

    def _signals(self, judged: Judgement) -> dict[str, float]:
        train, structure = self.plan.dataset.train, judged.scores.structure
        assert train.truth is not None
        seen = slice(None) if self.loop.some is None else self.loop.some.cpu()
        return signals(
            observed=train.labels[seen],
            truth=train.truth[seen],
            suggested=judged.suggested.cpu()[seen],
            clean=judged.clean.cpu()[seen],
            structure=None if structure is None else structure.cpu()[seen],
            observed_reliability=judged.observed_reliability.cpu()[seen],
            pseudo_reliability=judged.pseudo_reliability.cpu()[seen],
            confidence=judged.confidence.cpu()[seen],
        )

    def _state(self, epochs_done: int) -> dict[str, Any]:
        cuda = torch.cuda.get_rng_state(self.fabric.device) if self.fabric.device.type == "cuda" else None
        sides = [optimizer.state_dict() for optimizer in present(self.sides)]
        return {
            "format": FORMAT,
            "epoch": epochs_done,
            "networks": [network.state_dict() for network in self.networks],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            **({"sides": sides} if sides else {}),
            "memory": self.memory.state_dict(),
            "companions": {name: module.state_dict() for name, module in self.learner.companions().items()},
            "generators": {"cpu": torch.get_rng_state(), "cuda": cuda},
            "best": self.best,
            "config": dump_config(self.plan.config),
        }

    def _restore(self) -> int:
        """Take up the state on disk; without one the run starts at its beginning."""
        keep = self.folder.keep_metrics if self.ranks.first else self.folder.read_metrics_of
        if not self.folder.last.exists():
            keep(0)
            return 0
        state = read_checkpoint(self.folder.last)
        try:
            for network, saved in zip(self.networks, state["networks"], strict=True):
                network.load_state_dict(saved)
            for optimizers, name in ((self.optimizers, "optimizers"), (present(self.sides), "sides")):
                for optimizer, saved in zip(optimizers, state.get(name, []), strict=True):
                    suit(saved["param_groups"], self.fabric.device)  # the run may have begun on another
                    optimizer.load_state_dict(saved)
            self.memory.load_state_dict(state["memory"])
            for name, module in self.learner.companions().items():
                module.load_state_dict(state["companions"][name])
        except (ValueError, KeyError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{self.folder.last}: not a checkpoint of this run ({reason})") from None
        torch.set_rng_state(state["generators"]["cpu"])
        if state["generators"]["cuda"] is not None and self.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(state["generators"]["cuda"], self.fabric.device)
        self.best = state["best"]
        self.metrics = keep(state["epoch"])
        self.checkpoints.epoch = int(state["epoch"])
        return self.checkpoints.epoch


def _saved_epochs(folder: RunFolder) -> int | None:
    """How many epochs the checkpoint on disk has behind it; None where there is no run."""
    if not folder.config.exists():
        return None
    try:
        return int(read_checkpoint(folder.last)["epoch"]) if folder.last.exists() else 0
    except InputError:
        return 0
