"""Runs of a learner with a side optimizer: tuned, saved, resumed; runs without one leave what they always left."""

import pytest
import torch

import saved
import toy
from labeltrace.engine import train
from labeltrace.errors import InputError
from labeltrace.learners import CrossEntropy, Outcome

KEYS = {"format", "epoch", "networks", "optimizers", "memory", "companions", "generators", "best", "config"}


@pytest.fixture
def sided(monkeypatch):
    """Cross-entropy after a step that shrinks the logits of the last layer, by an Adam of its own."""

    def side_optimizer(cls, settings, network):
        return torch.optim.Adam(network.fc.parameters(), lr=1.0)  # a rate that `tune` replaces

    def shrink(self, batch):
        return Outcome(self.networks[0](self.views.weak(batch.inputs, batch.draws)).logits.square().mean())

    def epoch(self, loop, epoch):
        loop.train(self.step, before=lambda b: shrink(self, b), members=[0], batch_size=16, label="train")

    monkeypatch.setattr(CrossEntropy, "side_optimizer", classmethod(side_optimizer))
    monkeypatch.setattr(CrossEntropy, "epoch", epoch)
    return CrossEntropy


def run(folder, **changes):
    config = toy.config("cross_entropy", settings={"lr": 0.01, "lr_drop": 2}, **changes)
    return train(config, folder, dataset=toy.blobs())


def test_a_checkpoint_without_a_side_is_what_it_was(tmp_path):
    run(tmp_path / "run")
    assert saved.checkpoint(tmp_path / "run").keys() == KEYS


@pytest.mark.usefixtures("sided")
def test_a_checkpoint_holds_the_side(tmp_path):
    trained = run(tmp_path / "run")
    state = saved.checkpoint(tmp_path / "run")
    assert state.keys() == KEYS | {"sides"}
    (side,) = state["sides"]
    assert [m["exp_avg"].shape for m in side["state"].values()] == [
        p.shape for p in trained.networks[0].fc.parameters()
    ]
    assert side["param_groups"][0]["lr"] == pytest.approx(0.001)  # of the last epoch, as the main one's
    assert state["optimizers"][0]["param_groups"][0]["lr"] == pytest.approx(0.001)


def test_a_resumed_run_goes_on_with_both_states(tmp_path, sided):
    whole = run(tmp_path / "whole")
    with toy.killed_in(sided, 2):
        run(tmp_path / "cut", checkpoint_seconds=0.0)
    resumed = train(toy.config("cross_entropy"), tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(whole), toy.weights(resumed))
    one, two = (saved.checkpoint(tmp_path / name) for name in ("whole", "cut"))
    assert saved.same(one["sides"], two["sides"]) and saved.same(one["optimizers"], two["optimizers"])


@pytest.mark.usefixtures("sided")
def test_a_run_goes_on_where_adam_keeps_its_counters_elsewhere(tmp_path):
    """As a run does that began on a GPU."""
    run(tmp_path / "run", epochs=2)
    path = tmp_path / "run" / "checkpoints" / "last.ckpt"
    state = torch.load(path, weights_only=True)
    for one in state["sides"]:
        for group in one["param_groups"]:
            assert group["capturable"] is False
            group["capturable"] = True
    torch.save(state, path)
    config = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(config.replace("epochs: 2", "epochs: 4"))
    train(toy.config("cross_entropy"), tmp_path / "run", dataset=toy.blobs(), resume=True)
    (side,) = saved.checkpoint(tmp_path / "run")["sides"]
    assert not any(group["capturable"] for group in side["param_groups"])


def test_a_checkpoint_without_the_side_that_a_run_has_is_refused(tmp_path, request):
    run(tmp_path / "run", epochs=2)
    request.getfixturevalue("sided")
    with pytest.raises(InputError, match="not a checkpoint of this run"):
        train(toy.config("cross_entropy"), tmp_path / "run", dataset=toy.blobs(), resume=True)
