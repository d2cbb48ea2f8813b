"""Checkpoints: complete, readable by torch alone, copied before they are held, refused when they are not ours."""

import shutil

import pytest
import torch

import saved
import toy
from labeltrace.engine import Reporter, train
from labeltrace.engine.checkpoint import Checkpointer, copied, read_checkpoint
from labeltrace.engine.train import Training
from labeltrace.errors import InputError


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of RoLR with TRACE."""
    folder = tmp_path_factory.mktemp("checkpoint") / "run"
    return train(toy.config(), folder, dataset=toy.blobs())


def test_torch_alone_reads_it_and_finds_everything(finished):
    state = saved.checkpoint(finished.folder.path)
    assert state["epoch"] == 4
    assert saved.same(state["networks"], [dict(network.state_dict()) for network in finished.networks])
    assert len(state["optimizers"]) == 2
    for optimizer, network in zip(state["optimizers"], finished.networks, strict=True):
        moments = [entry["momentum_buffer"] for entry in optimizer["state"].values()]
        assert [m.shape for m in moments] == [p.shape for p in network.parameters()]
        assert any(m.abs().sum() > 0 for m in moments)
    assert state["memory"]["posterior"].shape == (96, 2)
    assert not torch.equal(state["memory"]["posterior"], torch.ones(96, 2))  # what a pass said, not the fill
    assert state["config"] == finished.folder.config.read_text()
    with torch.random.fork_rng():
        torch.set_rng_state(state["generators"]["cpu"])
        torch.rand(1)


def test_best_is_the_best_epoch_and_the_first_of_equals(tmp_path, monkeypatch):
    """Accuracies are dictated: the best epoch is the second, and the last one only draws level."""
    accuracies = iter([0.5, 0.9, 0.7, 0.9])
    monkeypatch.setattr(Training, "_test_accuracy", lambda *_: next(accuracies))

    class Keep(Reporter):
        def epoch(self, record):
            shutil.copy(tmp_path / "run" / "checkpoints" / "last.ckpt", tmp_path / f"{record['epoch']}.ckpt")

    train(toy.config(checkpoint_seconds=0.0), tmp_path / "run", dataset=toy.blobs(), reporter=Keep())
    best, second, last = (
        saved.checkpoint(tmp_path / "run", "best"),
        *(torch.load(tmp_path / f"{epoch}.ckpt", weights_only=True) for epoch in (1, 3)),
    )
    assert best["epoch"] == 2
    assert saved.same(best["networks"], second["networks"])
    assert not saved.same(best["networks"], last["networks"])


def test_best_gives_the_best_accuracy_of_the_metrics(finished):
    test, views = finished.plan.dataset.test, finished.plan.dataset.views
    total = 0
    for weights in saved.checkpoint(finished.folder.path, "best")["networks"]:
        network = finished.plan.make_network()
        network.load_state_dict(weights)
        with torch.no_grad():
            total = total + network.eval()(views.plain(test.inputs)).logits
    assert (total.argmax(1) == test.labels).float().mean().item() == pytest.approx(finished.summary["best"])


def test_a_resumed_run_keeps_its_best(tmp_path, monkeypatch):
    accuracies = iter([0.9, 0.5, 0.6, 0.7])

    def accuracy(*_):
        value = next(accuracies)
        if value == 0.6:
            raise RuntimeError("killed")
        return value

    monkeypatch.setattr(Training, "_test_accuracy", accuracy)
    with pytest.raises(RuntimeError, match="killed"):
        train(toy.config(checkpoint_seconds=0.0), tmp_path / "run", dataset=toy.blobs())
    accuracies = iter([0.8, 0.7])
    train(toy.config(), tmp_path / "run", dataset=toy.blobs(), resume=True)
    assert saved.checkpoint(tmp_path / "run", "best")["epoch"] == 1
    assert saved.checkpoint(tmp_path / "run")["epoch"] == 4


def test_without_a_test_set_there_is_no_best(tmp_path):
    data = toy.blobs()
    no_test = type(data)(data.name, data.train, None, data.classes, data.views)
    train(toy.config(epochs=2), tmp_path / "run", dataset=no_test)
    assert saved.files(tmp_path / "run" / "checkpoints") == {"last.ckpt"}


@pytest.mark.parametrize(("seconds", "during"), [(1e6, [False] * 4), (0.0, [True] * 4)])
def test_however_seldom_it_is_written_the_end_is_written(tmp_path, seconds, during):
    seen = []

    class Look(Reporter):
        def epoch(self, record):
            seen.append((tmp_path / "run" / "checkpoints" / "last.ckpt").exists())

    trained = train(toy.config(checkpoint_seconds=seconds), tmp_path / "run", dataset=toy.blobs(), reporter=Look())
    assert seen == during
    state = saved.checkpoint(tmp_path / "run")
    assert state["epoch"] == 4
    assert saved.same(state["networks"], [dict(network.state_dict()) for network in trained.networks])
    assert (tmp_path / "run" / "checkpoints" / "best.ckpt").exists()


def test_a_held_state_does_not_follow_the_live_one(tmp_path):
    live = {"format": 1, "epoch": 1, "weights": [torch.zeros(3)], "nested": {"moment": torch.ones(2)}}
    checkpoints = Checkpointer(tmp_path / "last.ckpt", tmp_path / "best.ckpt", seconds=1e6)
    checkpoints.offer(live, is_best=True)
    live["weights"][0] += 5
    live["nested"]["moment"] *= 0
    live["nested"]["new"] = 1
    checkpoints.flush()
    for name in ("last.ckpt", "best.ckpt"):
        state = read_checkpoint(tmp_path / name)
        assert torch.equal(state["weights"][0], torch.zeros(3))
        assert torch.equal(state["nested"]["moment"], torch.ones(2))
        assert state["nested"].keys() == {"moment"}


def test_a_later_state_that_is_not_better_replaces_the_last_only(tmp_path):
    checkpoints = Checkpointer(tmp_path / "last.ckpt", tmp_path / "best.ckpt", seconds=1e6)
    checkpoints.offer({"format": 1, "epoch": 1}, is_best=True)
    checkpoints.offer({"format": 1, "epoch": 2}, is_best=False)
    assert saved.files(tmp_path) == set()  # it is not time yet
    checkpoints.flush()
    assert read_checkpoint(tmp_path / "best.ckpt")["epoch"] == 1
    assert read_checkpoint(tmp_path / "last.ckpt")["epoch"] == 2


def test_flushing_nothing_writes_nothing(tmp_path):
    checkpoints = Checkpointer(tmp_path / "last.ckpt", tmp_path / "best.ckpt", seconds=0.0)
    checkpoints.flush()
    assert saved.files(tmp_path) == set()


def test_copies_share_no_memory_and_no_gradient():
    weights = torch.ones(2, requires_grad=True)
    value = {"a": weights, "b": [torch.ones(2), (torch.ones(2), 3)], "c": "text", "d": None}
    copy = copied(value)
    assert saved.same(copy, value)
    assert not copy["a"].requires_grad
    assert type(copy["b"][1]) is tuple
    for mine, theirs in ((copy["a"], weights), (copy["b"][0], value["b"][0]), (copy["b"][1][0], value["b"][1][0])):
        assert mine.data_ptr() != theirs.data_ptr()


def test_a_writing_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    checkpoints = Checkpointer(tmp_path / "last.ckpt", tmp_path / "best.ckpt", seconds=0.0)
    checkpoints.offer({"format": 1, "epoch": 1}, is_best=False)

    def full(state, path):
        path.write_bytes(b"half of it")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space left"):
        checkpoints.offer({"format": 1, "epoch": 2}, is_best=False)
    assert read_checkpoint(tmp_path / "last.ckpt")["epoch"] == 1
    assert saved.files(tmp_path) == {"last.ckpt"}


@pytest.mark.parametrize("interrupted", [1, 2])
def test_a_writing_that_is_interrupted_can_be_made_up_for(tmp_path, monkeypatch, interrupted):
    """Ctrl-C while the best or the last is being written: neither is lost."""
    save, calls = torch.save, []

    def stopped(state, path):
        calls.append(path)
        if len(calls) == interrupted:
            raise KeyboardInterrupt
        save(state, path)

    monkeypatch.setattr(torch, "save", stopped)
    checkpoints = Checkpointer(tmp_path / "last.ckpt", tmp_path / "best.ckpt", seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.offer({"format": 1, "epoch": 7}, is_best=True)
    checkpoints.flush()
    assert read_checkpoint(tmp_path / "best.ckpt")["epoch"] == 7
    assert read_checkpoint(tmp_path / "last.ckpt")["epoch"] == 7


class Stranger:
    pass


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a checkpoint",
        {"format": 99, "networks": []},
        {"networks": []},
        [1, 2, 3],
        torch.ones(3),
        {"format": 1, "object": Stranger()},
    ],
    ids=["empty", "text", "another format", "no format", "a list", "a tensor", "code"],
)
def test_a_file_that_is_no_checkpoint_is_named(tmp_path, content):
    path = tmp_path / "last.ckpt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(InputError) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture
def copy_of_run(finished, tmp_path):
    shutil.copytree(finished.folder.path, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.99])
def test_a_damaged_checkpoint_is_named_on_resume(copy_of_run, kept):
    path = copy_of_run / "checkpoints" / "last.ckpt"
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    before = {name: (copy_of_run / name).read_bytes() for name in saved.files(copy_of_run)}
    with pytest.raises(InputError) as caught:
        train(toy.config(), copy_of_run, dataset=toy.blobs(), resume=True)
    assert str(path) in str(caught.value)
    assert before == {name: (copy_of_run / name).read_bytes() for name in saved.files(copy_of_run)}


@pytest.mark.parametrize("other", [{"learner": "cross_entropy"}, {"dataset": toy.blobs(features=7)}])
def test_the_checkpoint_of_another_run_is_named_on_resume(copy_of_run, tmp_path, other):
    """One network in place of two, or networks of another shape."""
    train(toy.config(other.get("learner", "rolr")), tmp_path / "other", dataset=other.get("dataset", toy.blobs()))
    path = copy_of_run / "checkpoints" / "last.ckpt"
    shutil.copy(tmp_path / "other" / "checkpoints" / "last.ckpt", path)
    with pytest.raises(InputError) as caught:
        train(toy.config(), copy_of_run, dataset=toy.blobs(), resume=True)
    assert str(path) in str(caught.value)


def test_what_torch_makes_of_a_full_disk_is_the_systems_error(tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos\nframes")

    keeper = Checkpointer(tmp_path / "last.ckpt", tmp_path / "best.ckpt", 0.0)
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=r"last\.ckpt: cannot be written .* unexpected pos\); what was saved") as caught:
        keeper.offer({"epoch": 1}, is_best=False)
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []
