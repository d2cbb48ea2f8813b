"""Every registered model, asked the same questions; then what is special to each."""

from __future__ import annotations

import functools
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models import Output, build_model, default_model, models, pool
from labeltrace.models.mlp import MLP
from labeltrace.models.preact_resnet import PreActBlock
from labeltrace.models.resnet import BasicBlock

CLASSES = 7
SHAPES = [(3, 8, 8), (20,), (3, 75, 75)]  # the first that a model takes is tried, so a new model needs no entry here


@functools.cache
def shape_of(name: str) -> tuple[int, ...]:
    for shape in SHAPES:
        try:
            with torch.device("meta"):  # only the shape is in question: draw no parameters
                build_model(name, CLASSES, shape)
        except InputError:
            continue
        return shape
    raise AssertionError(f"model {name!r} takes none of {SHAPES}")


@functools.cache
def network_of(name: str, pooling: str = "gap") -> nn.Module:
    """One network per model, shared by the tests that leave its parameters alone."""
    torch.manual_seed(0)
    return build_model(name, CLASSES, shape_of(name), pooling)


def images_for(name: str, count: int = 4) -> Tensor:
    return torch.randn(count, *shape_of(name), generator=torch.Generator().manual_seed(1))


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


every_model = pytest.mark.parametrize("name", list(models))
image_model = pytest.mark.parametrize("name", [name for name in models if len(shape_of(name)) == 3])


# conformance, over the registry


@every_model
@pytest.mark.parametrize("pooling", ["gap", "flatten"])
def test_output_has_logits_and_a_vector_per_stage(name: str, pooling: str) -> None:
    output = network_of(name, pooling).eval()(images_for(name))
    assert isinstance(output, Output)
    assert output.logits.shape == (4, CLASSES)
    assert isinstance(output.features, tuple)
    assert len(output.features) >= 2
    assert all(feature.ndim == 2 and len(feature) == 4 for feature in output.features)
    assert all(torch.isfinite(tensor).all() for tensor in (output.logits, *output.features))


@every_model
def test_gap_is_the_mean_of_flatten_over_positions(name: str) -> None:
    flat = network_of(name, "flatten").eval()(images_for(name))
    mean = network_of(name, "gap").eval()(images_for(name))
    torch.testing.assert_close(mean.logits, flat.logits)  # pooling is of the features, never of the head
    for vector, values in zip(mean.features, flat.features, strict=True):
        torch.testing.assert_close(vector, values.reshape(*vector.shape, -1).mean(2), atol=1e-5, rtol=1e-4)


@every_model
def test_features_are_of_increasing_depth(name: str) -> None:
    network = network_of(name).eval()
    output = network(images_for(name, 1))
    reached: list[set[str]] = []
    for tensor in (*output.features, output.logits):
        named = dict(network.named_parameters())
        gradients = (
            torch.autograd.grad(tensor.sum(), list(named.values()), retain_graph=True, allow_unused=True)
            if tensor.requires_grad
            else [None] * len(named)
        )
        reached.append({key for key, gradient in zip(named, gradients, strict=True) if gradient is not None})
    assert all(shallow < deep for shallow, deep in pairwise(reached))
    assert reached[-1] == {key for key, _ in network.named_parameters()}


@every_model
def test_gradient_reaches_every_parameter(name: str) -> None:
    network = network_of(name).train()
    network.zero_grad()
    labels = torch.arange(8) % CLASSES
    nn.functional.cross_entropy(network(images_for(name, 8)).logits, labels).backward()
    dead = [key for key, parameter in network.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    network.zero_grad()
    assert dead == []


@every_model
def test_same_seed_same_network(name: str) -> None:
    networks = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        networks.append(build_model(name, CLASSES, shape_of(name)).eval())
    logits = [network(images_for(name)).logits for network in networks]
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


@every_model
def test_a_batch_of_one_equals_its_row_in_eval_mode(name: str) -> None:
    network = network_of(name).eval()
    images = images_for(name)
    torch.testing.assert_close(network(images[:1]).logits, network(images).logits[:1], atol=1e-5, rtol=1e-4)


@every_model
def test_bfloat16_autocast(name: str) -> None:
    network = network_of(name).eval()
    with torch.no_grad():
        full = network(images_for(name)).logits
        with torch.autocast("cpu", torch.bfloat16):
            half = network(images_for(name)).logits
    torch.testing.assert_close(half.float(), full, atol=0.1, rtol=0.1)


@every_model
def test_state_round_trip(name: str) -> None:
    torch.manual_seed(9)
    copy = build_model(name, CLASSES, shape_of(name)).eval()
    copy.load_state_dict(network_of(name).state_dict())
    assert torch.equal(copy(images_for(name)).logits, network_of(name).eval()(images_for(name)).logits)


@image_model
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_any_size(name: str, channels: int) -> None:
    side = shape_of(name)[1]
    network = build_model(name, CLASSES, (channels, side, side)).eval()
    sizes = ((side, side), (side + 20, side + 20), (side + 12, side + 4))
    with torch.no_grad():
        outputs = [network(torch.randn(1, channels, *size)) for size in sizes]
    assert {tuple(feature.shape[1] for feature in output.features) for output in outputs} == {
        tuple(feature.shape[1] for feature in outputs[0].features)
    }
    assert all(torch.isfinite(output.logits).all() for output in outputs)


@image_model
@pytest.mark.parametrize("pooling", ["gap", "flatten"])
def test_channels_last_changes_nothing(name: str, pooling: str) -> None:
    network = network_of(name, pooling).eval()
    with torch.no_grad():
        expected = network(images_for(name))
        actual = network(images_for(name).to(memory_format=torch.channels_last))
    torch.testing.assert_close(actual.logits, expected.logits, atol=1e-4, rtol=1e-3)
    for ours, theirs in zip(actual.features, expected.features, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small_cnn", "mlp"])
def test_compiled_to_one_graph(name: str) -> None:
    network = network_of(name).eval()
    compiled = torch.compile(network, fullgraph=True)(images_for(name))
    expected = network(images_for(name))
    torch.testing.assert_close(compiled.logits, expected.logits, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(compiled.features, expected.features, atol=1e-5, rtol=1e-4)


# build_model and default_model


@every_model
def test_the_wrong_kind_of_input_names_the_right_model(name: str) -> None:
    wrong, instead = ((20,), "mlp") if len(shape_of(name)) == 3 else ((3, 8, 8), "small_cnn")
    with pytest.raises(InputError, match=f"model '{name}' takes .* take model '{instead}'"):
        build_model(name, CLASSES, wrong)


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="unknown model 'resnet81': did you mean 'resnet18'"):
        build_model("resnet81", 10, (3, 32, 32))
    with pytest.raises(InputError, match="unknown pooling 'gab': did you mean 'gap'"):
        build_model("small_cnn", 10, (1, 8, 8), pooling="gab")
    with pytest.raises(InputError, match="num_classes is 1"):
        build_model("small_cnn", 1, (1, 8, 8))
    with pytest.raises(InputError, match=r"take \(1, 28, 28\)"):
        build_model("small_cnn", 10, (28, 28))
    with pytest.raises(InputError, match="not understood"):
        build_model("small_cnn", 10, (3, 0, 8))
    with pytest.raises(ValueError, match="at least one hidden layer"):
        MLP(10, 20, hidden=())


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((512,), "mlp"),
        ((1, 8, 8), "small_cnn"),
        ((3, 28, 28), "small_cnn"),
        ((1, 28, 29), "preact_resnet18"),
        ((3, 64, 64), "preact_resnet18"),
        ((3, 64, 65), "resnet50_large"),
        ((1, 65, 20), "resnet50_large"),
        ((3, 224, 224), "resnet50_large"),
        ((3, 299, 299), "resnet50_large"),
    ],
)
def test_default_model_takes_its_input(shape: tuple[int, ...], name: str) -> None:
    assert default_model(shape) == name
    with torch.device("meta"):
        build_model(name, CLASSES, shape)


# pool


def test_pool_equals_a_slow_loop() -> None:
    feature = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    for b in range(2):
        for d in range(3):
            mean = sum(float(feature[b, d, i, j]) for i in range(4) for j in range(5)) / 20
            assert float(pool(feature, "gap")[b, d]) == pytest.approx(mean, abs=1e-6)
    assert torch.equal(pool(feature, "flatten")[1, 2 * 20 + 3 * 5 + 4], feature[1, 2, 3, 4])


@pytest.mark.parametrize("pooling", ["gap", "flatten"])
def test_pool_leaves_vectors_alone_and_takes_any_rank(pooling: str) -> None:
    vectors = torch.randn(2, 3)
    assert pool(vectors, pooling) is vectors
    expected = 3 if pooling == "gap" else 12
    assert pool(torch.randn(2, 3, 4), pooling).shape == (2, expected)
    assert pool(torch.randn(2, 3, 2, 1, 2), pooling).shape == (2, expected)
    with pytest.raises(InputError, match="cannot be pooled"):
        pool(torch.randn(2), pooling)


# special to each


@pytest.mark.parametrize(
    ("name", "classes", "count"),
    [
        ("preact_resnet18", 10, 11_171_274),  # DivideMix's network, methods/rolr.md section 6
        ("preact_resnet18", 100, 11_217_444),
        ("resnet18", 10, 11_173_962),
        ("resnet34", 10, 21_282_122),
        ("small_cnn", 10, 187_114),
    ],
)
def test_parameter_counts(name: str, classes: int, count: int) -> None:
    with torch.device("meta"):
        assert count_parameters(build_model(name, classes, (3, 32, 32))) == count


def test_resnet_names_are_torchvisions() -> None:
    keys = set(network_of("resnet18").state_dict())
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer4.1.bn2.bias", "fc.bias"} <= keys
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.weight"} <= keys
    assert not any(key.startswith(("layer1.0.downsample", "layer2.1.downsample")) for key in keys)
    assert len(keys) == 122  # torchvision's resnet18 has as many entries


def test_basic_block_by_hand() -> None:
    torch.manual_seed(0)
    block = BasicBlock(4, 6, 2).eval()
    x = torch.randn(2, 4, 8, 8)
    inner = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(x)))))
    shortcut = block.downsample[1](block.downsample[0](x))
    torch.testing.assert_close(block(x), torch.relu(inner + shortcut))


def test_preact_shortcuts_start_from_the_activated_input() -> None:
    # DivideMix's variant: with the convolutions at zero the block returns relu(bn(x)), not x.
    block = PreActBlock(4, 4, 1).eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 8, 8)
    torch.testing.assert_close(block(x), torch.relu(block.bn1(x)))
    wider = PreActBlock(4, 6, 2).eval()
    nn.init.zeros_(wider.conv2.weight)
    torch.testing.assert_close(wider(x), wider.shortcut[0](torch.relu(wider.bn1(x))))


def test_preact_head_is_a_4x4_average_at_32_pixels() -> None:
    network = build_model("preact_resnet18", 10, (3, 32, 32), "flatten").eval()
    output = network(torch.randn(1, 3, 32, 32))
    assert [feature.shape[1] for feature in output.features] == [64 * 32**2, 128 * 16**2, 256 * 8**2, 512 * 4**2]
    maps = output.features[-1].reshape(1, 512, 4, 4)
    expected = network.linear(nn.functional.avg_pool2d(maps, 4).flatten(1))
    torch.testing.assert_close(output.logits, expected, atol=1e-5, rtol=1e-4)


def test_small_cnn_keeps_positions_at_8_pixels() -> None:
    features = build_model("small_cnn", 10, (1, 8, 8), "flatten").eval()(torch.randn(1, 1, 8, 8)).features
    assert [feature.shape[1] for feature in features] == [32 * 8**2, 64 * 4**2, 96 * 2**2, 128 * 2**2]


def test_mlp_stages_start_with_the_input() -> None:
    samples = torch.randn(5, 20)
    features = network_of("mlp").eval()(samples).features
    assert features[0] is samples
    assert [feature.shape[1] for feature in features] == [20, 256, 256, 128]
    assert all((feature >= 0).all() for feature in features[1:])
