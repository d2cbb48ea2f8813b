"""The moving average of a network: against a loop over its values, its buffers, its place in a checkpoint."""

import copy

import pytest
import torch
from torch import nn

import toy
from labeltrace.engine import train
from labeltrace.engine.checkpoint import read_checkpoint
from labeltrace.learners.average import Average
from labeltrace.models import build_model


def network():
    torch.manual_seed(0)
    return build_model("mlp", num_classes=3, input_shape=(4,))


def test_parameters_are_averaged_and_buffers_copied():
    net = network().train()
    average = Average(net, decay=0.9)
    wanted = [p.detach().clone() for p in net.parameters()]
    for _ in range(5):
        net(torch.randn(8, 4))  # moves the running statistics
        with torch.no_grad():
            for p in net.parameters():
                p.add_(torch.randn_like(p))
        average.update(net)
        wanted = [0.9 * w + 0.1 * p.detach() for w, p in zip(wanted, net.parameters(), strict=True)]
    for mine, value in zip(average.module.parameters(), wanted, strict=True):
        assert torch.allclose(mine, value, atol=1e-6)
    for mine, its in zip(average.module.buffers(), net.buffers(), strict=True):
        assert torch.equal(mine, its) and mine is not its
    assert [b.dtype for b in average.module.buffers()].count(torch.int64) == 3  # counters are copied, not averaged


def test_the_default_decay_is_0_999():
    net = nn.Linear(1, 1, bias=False)
    average = Average(net)
    with torch.no_grad():
        before = net.weight.clone()
        net.weight.add_(1000.0)
    average.update(net)
    assert float(average.module.weight - before) == pytest.approx(1.0, abs=1e-3)


def test_it_predicts_in_eval_mode_without_gradient():
    net = network().train()
    average = Average(net)
    x = torch.randn(8, 4)
    net(x)  # the network's own statistics move, the average's do not until it is updated
    output = average(x)
    assert not output.logits.requires_grad and not average.module.training
    assert all(not p.requires_grad for p in average.module.parameters())
    assert torch.equal(output.logits, average(x).logits)
    assert all(p.requires_grad for p in net.parameters())


def test_copy_begins_anew():
    net, x = network(), torch.randn(8, 4)
    average = Average(net)
    other = build_model("mlp", num_classes=3, input_shape=(4,))
    average.copy(other)
    assert torch.equal(average(x).logits, other.eval()(x).logits)


def test_decay_out_of_range():
    for decay in (-0.1, 1.0):
        with pytest.raises(ValueError, match="decay"):
            Average(nn.Linear(1, 1), decay)


def test_a_deep_copied_state_comes_back():
    net = network()
    average, again = Average(net), Average(network())
    with torch.no_grad():
        net.fc.bias.add_(1.0)
    average.update(net)
    again.module.load_state_dict(copy.deepcopy(average.module.state_dict()))
    x = torch.randn(3, 4)
    assert torch.equal(average(x).logits, again(x).logits)


def test_it_is_saved_with_a_run(tmp_path):
    config = toy.config("cores", controller="trace", trace={"start": 0, "ramp": 0, "k": 5})
    trained = train(config, tmp_path / "run", dataset=toy.blobs())
    saved = read_checkpoint(trained.folder.last)
    state, average = saved["networks"][0], saved["companions"]["average"]
    assert state.keys() == average.keys()
    assert any(not torch.equal(state[name], average[name]) for name in state)
    assert all(torch.isfinite(value).all() for value in average.values())
