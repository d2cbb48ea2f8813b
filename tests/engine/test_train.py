"""A run from beginning to end: what it leaves, how it stops, how it goes on."""

import json
import math
import random
import sys

import numpy as np
import pytest
import torch

import saved
import toy
from labeltrace.audit import read_samples
from labeltrace.data import load_noise
from labeltrace.engine import Diverged, Interrupted, Reporter, RunConfig, RunFolder, checkpoint, summarise, train
from labeltrace.engine.train import Training
from labeltrace.errors import InputError
from labeltrace.learners import Outcome, learners
from labeltrace.runs import figures, run

FILES = {"config.yaml", "metrics.jsonl", "environment.json", "checkpoints/last.ckpt", "checkpoints/best.ckpt"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that others are cut out of: RoLR with TRACE, four epochs, nobody stops it; and its samples table."""
    return run(toy.config(), tmp_path_factory.mktemp("whole") / "run", dataset=toy.blobs())


def noisy(**changes):
    """A run that adds its own noise to clean blobs."""
    return toy.config(noise="symmetric-exact", rate=0.25, **changes)


def test_a_run_leaves_its_files_and_no_others(tmp_path):
    train(toy.config(), tmp_path / "run", dataset=toy.blobs())
    assert saved.files(tmp_path / "run") == FILES


def test_noise_that_was_added_is_kept(tmp_path):
    trained = train(noisy(), tmp_path / "run", dataset=toy.blobs(noise=0))
    assert saved.files(tmp_path / "run") == FILES | {"noise.npz"}
    labels, record = load_noise(tmp_path / "run" / "noise.npz")
    assert labels.tolist() == trained.plan.dataset.train.labels.tolist()
    assert record.flipped == 24


def test_a_whole_run_also_leaves_the_samples_table(tmp_path):
    _, table = run(noisy(), tmp_path / "run", dataset=toy.blobs(noise=0))
    assert saved.files(tmp_path / "run") == FILES | {"noise.npz", "samples.parquet"}
    assert read_samples(tmp_path / "run").equals(table)
    found = figures(tmp_path / "run")
    assert found.keys() >= {"best", "last", "mean_last_10", "precision", "recall", "suggestion_accuracy"}
    assert found["last"] == saved.metrics(tmp_path / "run")[-1]["test_accuracy"]


def test_one_line_of_metrics_per_epoch(whole):
    trained, _ = whole
    lines = [json.loads(line) for line in trained.folder.metrics.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1, 2, 3]
    for line in lines:
        assert math.isfinite(line["loss"]) and line["seconds"] >= 0 and line["lr"] > 0
        assert 0 <= line["test_accuracy"] <= 1
        steps = sum(phase["steps"] for phase in line["phases"].values())
        mean = sum(phase["loss"] * phase["steps"] for phase in line["phases"].values()) / steps
        assert line["loss"] == pytest.approx(mean)
    assert lines == trained.metrics


def test_the_environment_says_what_was_run_on(tmp_path):
    train(noisy(seed=7), tmp_path / "run", dataset=toy.blobs(noise=0))
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["torch"] == torch.__version__
    assert environment["seed"] == 7
    assert "CPU" in environment["device"]
    assert environment["labeltrace"] and "revision" in environment
    assert environment["train_samples"] == 96
    assert environment["noise"]["actual"] == 0.25


def test_the_test_accuracy_is_that_of_the_networks(whole):
    trained, _ = whole
    test, views = trained.plan.dataset.test, trained.plan.dataset.views
    with torch.no_grad():
        logits = sum(network.eval()(views.plain(test.inputs)).logits for network in trained.networks)
    accuracy = (logits.argmax(1) == test.labels).double().mean().item()
    assert trained.metrics[-1]["test_accuracy"] == pytest.approx(accuracy)


def test_the_callers_random_state_is_left_alone(tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    train(toy.config(epochs=2), tmp_path / "run", dataset=toy.blobs())
    assert random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[0])


def test_the_callers_random_state_does_not_count(tmp_path):
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        runs.append(train(toy.config(epochs=2), tmp_path / str(seed), dataset=toy.blobs()))
    assert torch.equal(*map(toy.weights, runs))


def test_the_networks_of_a_run_start_apart(tmp_path):
    frozen = toy.config(epochs=1, settings={"lr": 0.0, "weight_decay": 0.0})
    one, two = train(frozen, tmp_path / "run", dataset=toy.blobs()).networks
    assert not torch.equal(next(one.parameters()), next(two.parameters()))


def test_a_folder_that_holds_a_run_is_overwritten_only_when_asked(tmp_path):
    train(toy.config(epochs=1), tmp_path / "run", dataset=toy.blobs())
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match="holds a run"):
        train(toy.config(epochs=2), tmp_path / "run", dataset=toy.blobs())
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    train(toy.config(epochs=2), tmp_path / "run", dataset=toy.blobs(), overwrite=True)
    assert len(saved.metrics(tmp_path / "run")) == 2


def test_a_network_that_cannot_be_made_leaves_the_folder_free(tmp_path):
    """Somebody who mends a network and tries again need not choose another folder."""

    def broken():
        raise RuntimeError("a mistake in the network")

    with pytest.raises(RuntimeError, match="a mistake in the network"):
        train(toy.config(epochs=1), tmp_path / "run", dataset=toy.blobs(), make_network=broken)
    train(toy.config(epochs=1), tmp_path / "run", dataset=toy.blobs())
    assert saved.files(tmp_path / "run") == FILES


# Going on with a run


def test_going_on_with_a_finished_run_changes_nothing(tmp_path):
    folder = tmp_path / "run"
    first, table = run(noisy(), folder, dataset=toy.blobs(noise=0))
    before = {name: (folder / name).read_bytes() for name in saved.files(folder)}
    again, table_again = run(noisy(), folder, dataset=toy.blobs(noise=0), resume=True)
    assert {name: (folder / name).read_bytes() for name in saved.files(folder)} == before
    assert torch.equal(toy.weights(first), toy.weights(again))
    assert table.equals(table_again) and first.metrics == again.metrics


def test_only_a_run_can_be_gone_on_with(tmp_path):
    with pytest.raises(InputError, match="no run here"):
        train(toy.config(), tmp_path / "run", dataset=toy.blobs(), resume=True)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_started_and_no_more_starts_at_its_beginning(tmp_path, whole):
    class Stop(Reporter):
        def start(self, name, epochs, done):
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(toy.config(), tmp_path / "cut", dataset=toy.blobs(), reporter=Stop())
    resumed = train(RunConfig(device="cpu"), tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(whole[0]), toy.weights(resumed))


def cut_short(config, folder, dataset):
    """Stop a run when two epochs are over."""

    class Stop(Reporter):
        def epoch(self, record):
            if record["epoch"] == 1:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        train(config, folder, dataset=dataset, reporter=Stop())


def test_a_changed_dataset_is_refused_by_the_noise_it_gets(tmp_path):
    data = toy.blobs(noise=0)
    cut_short(noisy(), tmp_path / "run", data)
    other = data.with_labels(data.train.labels.roll(1), truth=None)
    with pytest.raises(InputError, match="the dataset has changed since it began"):
        train(noisy(), tmp_path / "run", dataset=other, resume=True)
    train(noisy(), tmp_path / "run", dataset=data, resume=True)


@pytest.mark.parametrize(
    ("change", "told"), [("labels", "labels [0-9a-f]+"), ("number", "96 samples, now there are 90;")]
)
def test_a_changed_dataset_is_refused_where_no_noise_was_added(tmp_path, change, told):
    """A resumed run trains on the labels it began with, or not at all."""
    data = toy.blobs()
    cut_short(toy.config(), tmp_path / "run", data)
    other = data.subset(90, 0) if change == "number" else data.with_labels(data.train.labels.roll(1), truth=None)
    with pytest.raises(InputError, match=f"it began with {told}"):
        train(toy.config(), tmp_path / "run", dataset=other, resume=True)


def test_a_resumed_run_is_the_one_in_the_folder(tmp_path, whole):
    """What is asked for now does not count, but for where it runs."""
    cut_short(toy.config(), tmp_path / "cut", toy.blobs())
    asked = RunConfig(learner="cross_entropy", seed=99, epochs=30, device="cpu")
    resumed = train(asked, tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(whole[0]), toy.weights(resumed))


def test_what_a_learner_remembers_of_the_samples_is_restored(tmp_path):
    """Posteriors over a window of three epochs' losses: an empty memory would give others."""
    config = toy.config(epochs=5, settings={"loss_window": 3})
    uncut = train(config, tmp_path / "whole", dataset=toy.blobs())
    cut_short(config, tmp_path / "cut", toy.blobs())
    resumed = train(config, tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(uncut), toy.weights(resumed))
    one, two = saved.checkpoint(tmp_path / "whole")["memory"], saved.checkpoint(tmp_path / "cut")["memory"]
    assert torch.isfinite(one["losses"]).all() and saved.same(one, two)


@pytest.mark.parametrize("options", [{"resume": True}, {"overwrite": True}, {}], ids=str)
def test_a_run_that_another_process_trains_is_left_alone(tmp_path, options):
    cut_short(toy.config(), tmp_path / "run", toy.blobs())
    before = {name: (tmp_path / "run" / name).read_bytes() for name in saved.files(tmp_path / "run")}
    with RunFolder.open(tmp_path / "run").locked(), pytest.raises(InputError):
        train(toy.config(), tmp_path / "run", dataset=toy.blobs(), **options)
    assert before == {name: (tmp_path / "run" / name).read_bytes() for name in saved.files(tmp_path / "run")}


# Ctrl-C


class CtrlC(Reporter):
    """Press Ctrl-C in the given step of an epoch (0: at its very end)."""

    def __init__(self, epoch, step):
        self.at, self.now, self.steps = (epoch, step), 0, 0

    def step(self, label, fraction, loss):
        self.steps += 1
        if (self.now, self.steps) == self.at:
            raise KeyboardInterrupt

    def epoch(self, record):
        self.now, self.steps = record["epoch"] + 1, 0
        if (record["epoch"], 0) == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("epoch", "step", "done"), [(0, 3, 0), (1, 1, 1), (2, 15, 2), (2, 0, 3), (3, 0, 4)], ids=lambda value: str(value)
)
def test_ctrl_c_saves_what_is_done_and_the_rest_follows_bit_for_bit(tmp_path, whole, epoch, step, done):
    uncut, table = whole
    with pytest.raises(Interrupted) as caught:
        train(toy.config(), tmp_path / "cut", dataset=toy.blobs(), reporter=CtrlC(epoch, step))
    assert (caught.value.folder, caught.value.epoch) == (tmp_path / "cut", done)
    if done:
        assert saved.checkpoint(tmp_path / "cut")["epoch"] == done
        assert len(saved.metrics(tmp_path / "cut")) == done
    resumed, table_again = run(RunConfig(device="cpu"), tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(uncut), toy.weights(resumed))
    assert table.equals(table_again)
    assert saved.metrics(uncut.folder.path) == saved.metrics(tmp_path / "cut")
    for name in ("last", "best"):
        one, two = saved.checkpoint(uncut.folder.path, name), saved.checkpoint(tmp_path / "cut", name)
        assert one["epoch"] == two["epoch"]
        for part in ("networks", "optimizers", "memory", "generators"):
            assert saved.same(one[part], two[part])


@pytest.mark.parametrize("writing", [1, 2, 3, 4, 6])
def test_ctrl_c_while_a_checkpoint_is_written_loses_nothing(tmp_path, whole, monkeypatch, writing):
    """Six files are written in four epochs whose accuracy rises, then falls: best and last, twice; then last, twice."""
    dictated = [0.5, 0.6, 0.4, 0.3]
    monkeypatch.setattr(Training, "_test_accuracy", lambda self, *_: dictated[self.loop.epoch])
    config = toy.config(checkpoint_seconds=0.0)
    save, calls = torch.save, []

    def stopped(state, path):
        calls.append(path)
        if len(calls) == writing:
            raise KeyboardInterrupt
        save(state, path)

    monkeypatch.setattr(torch, "save", stopped)
    with pytest.raises(Interrupted) as caught:
        train(config, tmp_path / "cut", dataset=toy.blobs())
    assert saved.checkpoint(tmp_path / "cut")["epoch"] == caught.value.epoch  # "all saved" is true
    resumed = train(config, tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(whole[0]), toy.weights(resumed))
    assert [line["test_accuracy"] for line in saved.metrics(tmp_path / "cut")] == dictated
    assert saved.checkpoint(tmp_path / "cut")["epoch"] == 4
    assert saved.checkpoint(tmp_path / "cut", "best")["epoch"] == 2


def test_ctrl_c_while_the_state_is_copied_counts_only_what_is_saved(tmp_path, monkeypatch):
    copied, calls = checkpoint.copied, []

    def stopped(state):
        if isinstance(state, dict) and "networks" in state:  # the whole state, once an epoch
            calls.append(state["epoch"])
            if len(calls) == 3:
                raise KeyboardInterrupt
        return copied(state)

    monkeypatch.setattr(checkpoint, "copied", stopped)
    with pytest.raises(Interrupted) as caught:
        train(toy.config(checkpoint_seconds=0.0), tmp_path / "run", dataset=toy.blobs())
    assert calls == [1, 2, 3]
    assert saved.checkpoint(tmp_path / "run")["epoch"] == caught.value.epoch == 2


def test_what_a_kill_left_half_written_is_cleared_away(tmp_path):
    """A checkpoint of a large network takes hundreds of megabytes: each kill would leave as much for ever."""
    cut_short(toy.config(), tmp_path / "run", toy.blobs())
    (tmp_path / "run" / "checkpoints" / ".last.ckpt.abc123.tmp").write_bytes(b"half a checkpoint")
    train(toy.config(), tmp_path / "run", dataset=toy.blobs(), resume=True)
    assert saved.files(tmp_path / "run") == FILES


def test_the_reporter_hears_the_end_however_it_comes(tmp_path):
    ends = []

    class Listen(CtrlC):
        def start(self, name, epochs, done):
            ends.append((name, epochs, done))

        def end(self):
            ends.append("end")

    with pytest.raises(Interrupted):
        train(toy.config(), tmp_path / "run", dataset=toy.blobs(), reporter=Listen(2, 1))
    train(toy.config(), tmp_path / "run", dataset=toy.blobs(), reporter=Listen(9, 9), resume=True)
    assert ends == [("run", 4, 0), "end", ("run", 4, 2), "end"]


# A loss that is no number


def poison(monkeypatch, call):
    """Make the loss of RoLR's step NaN, once, at the given call."""
    original, calls = learners["rolr"].step, []

    def step(self, member, epoch, batch):
        outcome = original(self, member, epoch, batch)
        calls.append(1)
        return Outcome(outcome.loss * math.nan, outcome.logs) if len(calls) == call else outcome

    monkeypatch.setattr(learners["rolr"], "step", step)


def test_a_loss_that_turns_nan_is_placed_and_a_good_checkpoint_stays(tmp_path, whole, monkeypatch):
    # Epoch 1 warms up; from epoch 2 on each network has 2 passes of 6 batches: call 29 is batch 5 of epoch 3.
    poison(monkeypatch, 24 + 5)
    with pytest.raises(Diverged) as caught:
        train(toy.config(), tmp_path / "run", dataset=toy.blobs())
    message = str(caught.value)
    assert (
        "epoch 3" in message and "batch 5" in message and str(tmp_path / "run" / "checkpoints" / "last.ckpt") in message
    )
    state = saved.checkpoint(tmp_path / "run")
    assert state["epoch"] == 2 and saved.finite(state)
    assert len(saved.metrics(tmp_path / "run")) == 2
    resumed = train(toy.config(), tmp_path / "run", dataset=toy.blobs(), resume=True)  # the step is sound again
    assert torch.equal(toy.weights(whole[0]), toy.weights(resumed))


def test_a_loss_that_is_nan_from_the_start_leaves_no_checkpoint(tmp_path, monkeypatch):
    poison(monkeypatch, 1)
    with pytest.raises(Diverged, match=r"epoch 1, .*batch 1; no epoch was finished before"):
        train(toy.config(settings={"warmup": 0}), tmp_path / "run", dataset=toy.blobs())
    assert saved.files(tmp_path / "run" / "checkpoints") == set()


@pytest.mark.parametrize(
    ("learner", "more"),
    [
        ("cross_entropy", {}),
        ("rolr", {"warmup": 1, "warmup_batch_size": 96}),
        ("rolr", {"warmup": 0}),  # the second network is trained towards what the first one says
    ],
)
def test_weights_that_blow_up_in_the_last_step_of_a_phase_are_no_checkpoint(tmp_path, learner, more):
    """The loss is a number in every step; the weights are none when it is over."""
    settings = {"batch_size": 96, "lr": math.inf, "passes": 1, "weight_decay": 0.0, **more}
    with pytest.raises(Diverged, match="epoch 1"):
        train(toy.config(learner, settings=settings), tmp_path / "run", dataset=toy.blobs())
    assert saved.files(tmp_path / "run" / "checkpoints") == set()


# TensorBoard, devices, summary


def test_tensorboard_files_are_written_when_asked(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(toy.config(tensorboard=True), tmp_path / "run", dataset=toy.blobs())
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    lines = saved.metrics(tmp_path / "run")
    for name, values in (
        ("test_accuracy", [line["test_accuracy"] for line in lines]),
        ("loss", [line["loss"] for line in lines]),
        ("signals/auroc_clean", [line["signals"]["auroc_clean"] for line in lines]),
    ):
        scalars = events.Scalars(name)
        assert [scalar.step for scalar in scalars] == [0, 1, 2, 3]
        assert [scalar.value for scalar in scalars] == pytest.approx(values)


def test_without_tensorboard_the_extra_is_named_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"labeltrace\[tensorboard\]"):
        train(toy.config(tensorboard=True), tmp_path / "run", dataset=toy.blobs())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1"])
def test_a_device_that_is_not_there_is_refused(tmp_path, monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=f"'{device}' asked for.*--device cpu"):
        train(toy.config(device=device), tmp_path / "run", dataset=toy.blobs())
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_not_resumed_on_a_device_that_is_not_there(tmp_path, monkeypatch):
    cut_short(toy.config(), tmp_path / "run", toy.blobs())
    before = {name: (tmp_path / "run" / name).read_bytes() for name in saved.files(tmp_path / "run")}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="'cuda' asked for"):
        train(toy.config(device="cuda"), tmp_path / "run", dataset=toy.blobs(), resume=True)
    assert before == {name: (tmp_path / "run" / name).read_bytes() for name in saved.files(tmp_path / "run")}


def test_half_precision_runs_on_the_cpu_too(tmp_path):
    whole = train(toy.config(precision="bf16"), tmp_path / "half", dataset=toy.blobs())
    full = train(toy.config(precision="fp32"), tmp_path / "full", dataset=toy.blobs())
    assert json.loads((tmp_path / "half" / "environment.json").read_text())["precision"] == "bf16-mixed"
    assert not torch.equal(toy.weights(whole), toy.weights(full))
    assert all(p.dtype == torch.float32 for network in whole.networks for p in network.parameters())


def test_the_learning_rate_of_an_epoch_reaches_the_optimizers(tmp_path, monkeypatch):
    rates = []
    original = Training._test_accuracy

    def spy(self, *inputs):
        rates.append([group["lr"] for optimizer in self.optimizers for group in optimizer.param_groups])
        return original(self, *inputs)

    monkeypatch.setattr(Training, "_test_accuracy", spy)
    settings = {"lr": 0.5, "lr_drop": 2, "lr_factor": 0.5, "warmup": 1}
    train(toy.config(settings=settings), tmp_path / "run", dataset=toy.blobs())
    assert rates == [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.25, 0.25]]  # two epochs after the one of warm-up
    assert [line["lr"] for line in saved.metrics(tmp_path / "run")] == [0.5, 0.5, 0.5, 0.25]


def test_the_summary_is_best_last_and_mean_of_ten():
    accuracies = [0.0, 0.1, 0.9, *[0.5] * 8, 0.7]
    found = summarise([{"epoch": e, "test_accuracy": value} for e, value in enumerate(accuracies)])
    assert found == pytest.approx({"best": 0.9, "last": 0.7, "mean_last_10": (0.9 + 8 * 0.5 + 0.7) / 10})
    assert summarise([{"test_accuracy": 0.25}]) == {"best": 0.25, "last": 0.25, "mean_last_10": 0.25}
    assert summarise([{"epoch": 0, "loss": 1.0}]) == summarise([]) == {}


class Heard(Reporter):
    """Remembers what a person is told."""

    def __init__(self):
        self.notes = []

    def note(self, message):
        self.notes.append(message)


@pytest.mark.parametrize(("seconds", "told"), [(1.0, 0), (4000.0, 1)])
def test_a_run_of_hours_on_a_cpu_is_announced_once(tmp_path, monkeypatch, seconds, told):
    whole_epoch = Training.epoch
    monkeypatch.setattr(Training, "epoch", lambda self, n: whole_epoch(self, n) | {"seconds": seconds})
    heard = Heard()
    train(toy.config(), tmp_path / "run", dataset=toy.blobs(), reporter=heard)
    hours = [note for note in heard.notes if "without a GPU" in note]
    assert len(hours) == told
    assert not told or hours[0].startswith("an epoch took 4000 s, so the run takes 3 hours or more without a GPU")
