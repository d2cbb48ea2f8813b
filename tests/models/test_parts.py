"""Several batches in one forward give what forwards one after the other give."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from labeltrace.models import build_model
from labeltrace.models.parts import PartNorm2d, forward_parts, norm_by_parts

BATCHES = 3


@pytest.fixture
def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [part + torch.randn(8, 3, 32, 32, generator=generator) for part in range(BATCHES)]  # each of its own mean


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    network = build_model("resnet18", 10, (3, 32, 32))
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:  # not the values every layer begins with
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.5, 0.5)
    return network


def test_outputs_and_running_statistics_are_those_of_forwards_one_after_the_other(network, batches):
    prepared = deepcopy(network)
    norm_by_parts(prepared)
    calls = []
    prepared.register_forward_pre_hook(lambda module, inputs: calls.append(len(inputs[0])))
    with torch.no_grad():
        wanted = [network(batch) for batch in batches]
        made = forward_parts(prepared, torch.cat(batches), BATCHES)
    assert calls == [8 * BATCHES]
    for one, other in zip(wanted, made, strict=True):
        torch.testing.assert_close(other.logits, one.logits, rtol=1e-4, atol=1e-4)
        for feature, wanted_feature in zip(other.features, one.features, strict=True):
            torch.testing.assert_close(feature, wanted_feature, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(prepared.state_dict(), network.state_dict(), rtol=1e-4, atol=1e-5)


def test_batches_of_different_mean_would_not_give_this_as_one_batch(network, batches):
    with torch.no_grad():
        apart = torch.cat([network(batch).logits for batch in batches])
        as_one = network(torch.cat(batches)).logits
    assert (apart - as_one).abs().max() > 0.1  # else the test above would say nothing


def test_gradients_are_those_of_forwards_one_after_the_other():
    torch.manual_seed(0)
    layer, batches = nn.BatchNorm2d(2).double(), torch.randn(2, 4, 2, 3, 3, dtype=torch.float64)
    prepared = deepcopy(layer)
    norm_by_parts(prepared)
    prepared.parts = 2
    goal = torch.randn(8, 2, 3, 3, dtype=torch.float64)
    (torch.cat([layer(batch) for batch in batches]) * goal).sum().backward()
    (prepared(batches.flatten(0, 1)) * goal).sum().backward()
    torch.testing.assert_close(prepared.weight.grad, layer.weight.grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(prepared.bias.grad, layer.bias.grad, rtol=1e-5, atol=1e-5)


def test_a_prepared_network_is_the_ordinary_one_otherwise(network, batches):
    prepared = deepcopy(network)
    norm_by_parts(prepared)
    assert list(prepared.state_dict()) == list(network.state_dict())
    for mode in (True, False):
        network.train(mode), prepared.train(mode)
        with torch.no_grad():
            assert torch.equal(prepared(batches[0]).logits, network(batches[0]).logits)
    with torch.no_grad():
        evaluated = forward_parts(prepared, torch.cat(batches), BATCHES)  # statistics are fixed now
        wanted = network(batches[1]).logits
    torch.testing.assert_close(evaluated[1].logits, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(prepared.state_dict(), network.state_dict())


def test_the_layers_are_themselves_again_after_an_error(network):
    norm_by_parts(network)
    with pytest.raises(RuntimeError):
        forward_parts(network, torch.zeros(4, 1, 32, 32), 2)  # one channel for three
    assert {module.parts for module in network.modules() if isinstance(module, PartNorm2d)} == {1}


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm2d(3, momentum=None),
        nn.BatchNorm2d(3, affine=False),
        nn.BatchNorm2d(3, track_running_stats=False),
        nn.InstanceNorm2d(3),
        nn.Sequential(nn.Flatten(2), nn.BatchNorm1d(3)),
        nn.SyncBatchNorm(3),
    ],
    ids=str,
)
def test_a_network_with_a_layer_of_another_kind_takes_its_batches_one_after_the_other(layer, batches):
    module = nn.Sequential(nn.BatchNorm2d(3), layer, nn.Flatten(), nn.LazyLinear(2))
    norm_by_parts(module)
    assert not any(isinstance(part, PartNorm2d) for part in module.modules())


def test_an_unprepared_network_takes_its_batches_one_after_the_other(network, batches):
    sizes = []
    network.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    with torch.no_grad():
        forward_parts(network, torch.cat(batches), BATCHES)
    assert sizes == [8] * BATCHES


def test_half_precision_comes_out_as_it_went_in(batches):
    layer = nn.BatchNorm2d(3)
    norm_by_parts(layer)
    layer.parts = BATCHES
    assert layer(torch.cat(batches).bfloat16()).dtype == torch.bfloat16
    assert layer.running_mean.dtype == torch.float32
