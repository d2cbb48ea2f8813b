"""Stages of every backbone in the registry, and surgery between two networks."""

import pytest
import torch
from torch import nn

from labeltrace.diagnostics.gradients import stage_gradients
from labeltrace.diagnostics.stages import accuracy, evaluating, pooled, stage_features, stage_keys, stage_names
from labeltrace.diagnostics.surgery import VARIANTS, surgery, transplant
from labeltrace.errors import InputError
from labeltrace.learners.heads import Headed
from labeltrace.models import Staged, build_model, models

SEVEN = ["preact_resnet18", "resnet18", "resnet34", "resnet50", "wrn28_10", "densenet121", "mobilenet_v2"]
ALIKE = ["resnet34", "resnet50"]  # resnet18 with more blocks, which take time to fill
FOUR = ["layer1", "layer2", "layer3", "layer4"]
SHAPES = {"mlp": (6,), "resnet50_large": (3, 96, 96), "inception_resnet_v2": (3, 96, 96)}


def build(name, seed=0, device="cpu"):
    torch.manual_seed(seed)
    with torch.device(device):
        return build_model(name, 10, SHAPES.get(name, (3, 16, 16)))


def images(rows=3, seed=5):
    return torch.randn(rows, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def stir(network):
    """Move every parameter and buffer off its start, as training would."""
    with torch.no_grad():
        for value in network.state_dict().values():
            if value.is_floating_point():
                value.mul_(1 + 0.05 * torch.rand(value.shape)).add_(0.01)
    return network.eval()


@pytest.mark.parametrize("name", list(models))
def test_the_parts_are_the_network(name):
    network = build(name, device="meta")
    parts = stage_keys(network)
    assert list(parts) == ["stem", *FOUR, "head"] and stage_names(network) == FOUR
    listed = [key for keys in parts.values() for key in keys]
    assert sorted(listed) == sorted(network.state_dict())
    assert any(key.endswith("weight") for key in parts["head"])
    assert parts["layer4"]


@pytest.mark.parametrize("name", SEVEN)
def test_a_layer_owns_what_carries_its_name(name):
    parts = stage_keys(build(name, device="meta"))
    for layer in FOUR:
        assert parts[layer] and all(key.startswith(f"{layer}.") for key in parts[layer])
    assert not any(key.startswith("layer") for part in ("stem", "head") for key in parts[part])
    assert bool(parts["stem"]) == (name != "wrn28_10")  # whose stem is its first stage


def test_a_wide_network_counts_its_stem_as_a_stage():
    parts = stage_keys(build("wrn28_10", device="meta"))
    assert parts["layer1"] == ["layer1.weight"]
    assert set(parts["head"]) >= {"bn.weight", "bn.running_mean", "fc.weight"}


def test_what_stands_between_stages_belongs_to_the_later_one():
    parts = stage_keys(build("inception_resnet_v2", device="meta"))
    assert {key.split(".")[0] for key in parts["layer3"]} == {"mixed_6a", "repeat_1"}
    assert {key.split(".")[0] for key in parts["layer4"]} == {"mixed_7a", "repeat_2", "block8", "conv2d_7b"}
    assert {key.split(".")[0] for key in parts["head"]} == {"last_linear"}


def test_a_perceptrons_first_stage_has_no_parameters():
    network = build("mlp")
    assert stage_keys(network)["layer1"] == [] and len(stage_keys(network)["layer2"]) == 6
    gradients = stage_gradients(network, torch.randn(4, 6), torch.zeros(4).long())
    assert [len(gradients[layer]) > 0 for layer in FOUR] == [False, True, True, True]


def test_own_and_headed_networks():
    own = Staged(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2)), ["1", "3"])
    assert stage_keys(own) == {
        "stem": ["module.0.weight", "module.0.bias"], "layer1": [],
        "layer2": ["module.2.weight", "module.2.bias"], "head": ["module.4.weight", "module.4.bias"],
    }  # fmt: skip
    headed = stage_keys(Headed(build("small_cnn"), 128, 16, 8))
    assert all(key.startswith("body.layer2.") for key in headed["layer2"])
    assert "predict.3.weight" in headed["head"]


def test_a_network_without_stages_is_told_what_to_do():
    with pytest.raises(InputError, match="Staged"):
        stage_keys(nn.Linear(2, 2))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in ALIKE else n for n in SEVEN])
def test_features_gradients_and_whole_surgery(name):
    noisy, clean, x = stir(build(name, 0)), stir(build(name, 1)), images()
    features = stage_features(noisy, [x[:2], x[2:]])
    with torch.no_grad():
        for found, expected in zip(features, noisy(x).features, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    gradients = stage_gradients(noisy, x, torch.tensor([0, 1, 2]))
    sizes = {layer: sum(p.numel() for p in getattr(noisy, layer).parameters()) for layer in FOUR}
    assert {layer: len(gradients[layer]) for layer in FOUR} == sizes
    whole = transplant(noisy, clean, stage_keys(noisy))  # all stages, stem and head
    with torch.no_grad():
        assert torch.equal(whole(x).logits, clean(x).logits)
        assert not torch.equal(noisy(x).logits, clean(x).logits)


@pytest.mark.parametrize("variant", VARIANTS)
def test_surgery_takes_its_parts_and_no_others(variant):
    noisy, clean = stir(build("small_cnn", 0)), stir(build("small_cnn", 1))
    before = {key: value.clone() for key, value in noisy.state_dict().items()}
    mixed, parts = transplant(noisy, clean, VARIANTS[variant]).state_dict(), stage_keys(noisy)
    for part, keys in parts.items():
        source = clean if part in VARIANTS[variant] else noisy
        assert all(torch.equal(mixed[key], source.state_dict()[key]) for key in keys)  # BatchNorm statistics too
    assert all(torch.equal(before[key], value) for key, value in noisy.state_dict().items())


def test_recover_is_in_points_over_the_noisy_network():
    noisy, clean, x = stir(build("small_cnn", 0)), stir(build("small_cnn", 1)), images(40)
    labels = clean(x).logits.argmax(1)  # by which the clean network is always right

    def test(network):
        return accuracy(network, x.split(16), labels)

    found = surgery(noisy, clean, test)
    assert found.clean == 1 and found.noisy == test(noisy) < 1
    for name, parts in VARIANTS.items():
        assert found.recover[name] == pytest.approx(100 * (test(transplant(noisy, clean, parts)) - found.noisy))
    assert found.repair == pytest.approx(found.recover["Suffix34h"] - found.recover["Prefix12"])


def test_a_network_in_itself_changes_nothing():
    network = stir(build("small_cnn"))
    assert set(
        surgery(network, network, lambda n: accuracy(n, [images()], torch.zeros(3).long())).recover.values()
    ) == {0.0}


def test_networks_must_be_built_alike():
    with pytest.raises(InputError, match=r"fc.weight is \[10, 128\] in the noisy network and \[3, 128\]"):
        transplant(build("small_cnn"), build_model("small_cnn", 3, (3, 16, 16)), ["head"])
    with pytest.raises(InputError, match="nothing"):
        transplant(build("small_cnn"), build("mobilenet_v2"), ["head"])
    with pytest.raises(InputError, match="did you mean 'layer4'"):
        transplant(build("small_cnn"), build("small_cnn"), ["layer44"])


def test_modes_and_pooling_are_given_back():
    network = build("small_cnn").train()
    network.layer2.eval()
    with evaluating(network), pooled(network, "flatten"):
        assert not network.training
        assert network(images()).features[0].shape == (3, 32 * 16 * 16)
    assert network.training and not network.layer2.training and network.layer1.training
    assert network(images()).features[0].shape == (3, 32)


def test_features_are_averaged_whatever_the_network_was_built_for():
    flat = build_model("small_cnn", 10, (3, 16, 16), "flatten")
    assert [feature.shape[1] for feature in stage_features(flat, [images()])] == [32, 64, 96, 128]
    with pytest.raises(InputError, match="no samples"):
        stage_features(flat, [])
