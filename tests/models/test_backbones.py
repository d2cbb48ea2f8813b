"""ResNet-50, Wide ResNet, DenseNet and MobileNetV2: counts by hand, stages, blocks; the rest is in test_models."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models import build_model, pool
from labeltrace.models.densenet import DenseLayer
from labeltrace.models.mobilenet_v2 import InvertedResidual
from labeltrace.models.resnet import Bottleneck
from labeltrace.models.wide_resnet import WideBlock, WideResNet

BLOCKS_50 = (3, 4, 6, 3)


def on_meta(name: str, classes: int, side: int = 32) -> nn.Module:
    """Build a model without drawing its parameters."""
    with torch.device("meta"):
        return build_model(name, classes, (3, side, side))


def count_parameters(name: str, classes: int, side: int = 32) -> int:
    return sum(parameter.numel() for parameter in on_meta(name, classes, side).parameters())


# parameter counts: the arithmetic of the papers' tables, one function per network; a BatchNorm has 2 per channel


def count_resnet50(stem: int, classes: int) -> int:
    total, inputs = stem + 2 * 64, 64
    for width, blocks in zip((64, 128, 256, 512), BLOCKS_50, strict=True):
        for block in range(blocks):
            total += inputs * width + 2 * width  # 1x1
            total += 9 * width * width + 2 * width  # 3x3
            total += width * 4 * width + 2 * 4 * width  # 1x1
            if block == 0:
                total += inputs * 4 * width + 2 * 4 * width  # shortcut
            inputs = 4 * width
    return total + (2048 + 1) * classes


def count_wrn28_10(classes: int) -> int:
    total, inputs = 9 * 3 * 16, 16
    for width in (160, 320, 640):
        for block in range((28 - 4) // 6):
            total += 2 * inputs + 9 * inputs * width + 2 * width + 9 * width * width
            if block == 0:
                total += inputs * width  # shortcut
            inputs = width
    return total + 2 * 640 + (640 + 1) * classes


def count_densenet121(classes: int) -> int:
    total, width = 9 * 3 * 64, 64
    for index, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            total += 2 * width + width * 128 + 2 * 128 + 9 * 128 * 32
            width += 32
        total += 2 * width  # BatchNorm of the transition, or the final one
        if index < 3:
            total += width * (width // 2)
            width //= 2
    return total + (1024 + 1) * classes


def count_mobilenet_v2(classes: int) -> int:
    total, inputs = 9 * 3 * 32 + 2 * 32, 32
    for expansion, width, blocks in (
        (1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1),
    ):  # fmt: skip
        for _ in range(blocks):
            wide = expansion * inputs
            if expansion > 1:
                total += inputs * wide + 2 * wide
            total += 9 * wide + 2 * wide + wide * width + 2 * width
            inputs = width
    return total + 320 * 1280 + 2 * 1280 + (1280 + 1) * classes


def test_resnet50_counts() -> None:
    assert count_parameters("resnet50", 10) == count_resnet50(9 * 3 * 64, 10)
    assert count_parameters("resnet50_large", 10, 96) == count_resnet50(49 * 3 * 64, 10)
    assert count_parameters("resnet50_large", 1000, 96) == 25_557_032  # torchvision's documentation


def test_wrn28_10_counts() -> None:
    assert count_parameters("wrn28_10", 10) == count_wrn28_10(10) == 36_479_194  # 36.5 M in the paper's Table 4
    assert count_parameters("wrn28_10", 100) == count_wrn28_10(100)


def test_densenet121_counts() -> None:
    assert count_parameters("densenet121", 10) == count_densenet121(10)
    # torchvision's 7,978,856 for ImageNet, less its stem (7x7 with BatchNorm), plus ours (3x3 without)
    assert count_parameters("densenet121", 1000) == 7_978_856 - (49 * 3 * 64 + 2 * 64) + 9 * 3 * 64


def test_mobilenet_v2_counts() -> None:
    assert count_parameters("mobilenet_v2", 10) == count_mobilenet_v2(10)
    assert count_parameters("mobilenet_v2", 1000) == 3_504_872  # torchvision's: strides have no parameters


# stages

STAGES = [  # name, side of the image, (width, side) of each stage
    ("resnet50", 32, [(256, 32), (512, 16), (1024, 8), (2048, 4)]),
    ("resnet50_large", 96, [(256, 24), (512, 12), (1024, 6), (2048, 3)]),
    ("wrn28_10", 32, [(16, 32), (160, 32), (320, 16), (640, 8)]),
    ("densenet121", 32, [(128, 16), (256, 8), (512, 4), (1024, 4)]),
    ("mobilenet_v2", 32, [(24, 32), (32, 16), (96, 8), (320, 4)]),
]
each_backbone = pytest.mark.parametrize(("name", "side", "maps"), STAGES, ids=[name for name, _, _ in STAGES])


@each_backbone
def test_stages_and_head_of_one_image(name: str, side: int, maps: list[tuple[int, int]]) -> None:
    network = build_model(name, 10, (3, side, side), "flatten").eval()
    outputs: dict[str, Tensor] = {}
    for stage in ("layer1", "layer2", "layer3", "layer4"):
        network.get_submodule(stage).register_forward_hook(lambda _, __, out, key=stage: outputs.update({key: out}))
    with torch.no_grad():
        output = network(torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0)))
        last = output.features[-1].reshape(1, maps[-1][0], maps[-1][1], maps[-1][1])
        head = {
            "wrn28_10": lambda: torch.relu(network.bn(last)),
            "densenet121": lambda: torch.relu(last),
            "mobilenet_v2": lambda: network.last(last),
        }
        read = pool(head.get(name, lambda: last)(), "gap")
        torch.testing.assert_close(output.logits, network.fc(read))
    assert [tuple(feature.shape) for feature in outputs.values()] == [(1, width, s, s) for width, s in maps]
    for feature, stage_output in zip(output.features, outputs.values(), strict=True):  # layer1..4 are the stages
        assert torch.equal(feature, stage_output.flatten(1))
    # one kind of feature in all four stages: after a ReLU in the ResNets, before one in the others
    signed = {bool((feature < 0).any()) for feature in output.features}
    assert signed == {not name.startswith("resnet")}


@each_backbone
def test_bfloat16_autocast_is_as_exact_as_its_weights(name: str, side: int, maps: list[tuple[int, int]]) -> None:
    # Random deep networks enlarge any rounding: the last stage of ResNet-50 and MobileNetV2 turns by 0.04 to 0.11 (one
    # minus the cosine). So the yardstick is the same network in float32 with its weights rounded once.
    torch.manual_seed(0)
    network = build_model(name, 10, (3, side, side)).train()  # batch statistics, so that the values are of size one
    images = torch.randn(4, 3, side // 2, side // 2)
    with torch.no_grad():
        full = network(images).features
        with torch.autocast("cpu", torch.bfloat16):
            half = network(images)
        for parameter in network.parameters():
            parameter.copy_(parameter.bfloat16())
        rounded = network(images.bfloat16().float()).features
    assert half.logits.dtype == torch.bfloat16
    for exact, ours, yardstick in zip(full, half.features, rounded, strict=True):
        turn, allowed = (1 - torch.cosine_similarity(exact, other.float()).mean() for other in (ours, yardstick))
        assert turn <= 5 * allowed + 1e-3


# names


def expected_resnet50(classes: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's resnet50, written out from its layout."""

    def norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
        vectors = {f"{name}.{key}": (width,) for key in ("weight", "bias", "running_mean", "running_var")}
        return {**vectors, f"{name}.num_batches_tracked": ()}

    names = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    inputs = 64
    for layer, (width, blocks) in enumerate(zip((64, 128, 256, 512), BLOCKS_50, strict=True), start=1):
        for block in range(blocks):
            at = f"layer{layer}.{block}"
            names |= {f"{at}.conv1.weight": (width, inputs, 1, 1), **norm(f"{at}.bn1", width)}
            names |= {f"{at}.conv2.weight": (width, width, 3, 3), **norm(f"{at}.bn2", width)}
            names |= {f"{at}.conv3.weight": (4 * width, width, 1, 1), **norm(f"{at}.bn3", 4 * width)}
            if block == 0:
                names |= {f"{at}.downsample.0.weight": (4 * width, inputs, 1, 1)}
                names |= norm(f"{at}.downsample.1", 4 * width)
            inputs = 4 * width
    return {**names, "fc.weight": (classes, 2048), "fc.bias": (classes,)}


def test_resnet50_large_has_torchvisions_names_shapes_and_strides() -> None:
    network = on_meta("resnet50_large", 1000, 224)
    assert {key: tuple(value.shape) for key, value in network.state_dict().items()} == expected_resnet50(1000)
    assert len(network.state_dict()) == 320
    for layer in (2, 3, 4):
        block = network.get_submodule(f"layer{layer}.0")
        assert (block.conv1.stride, block.conv2.stride, block.conv3.stride) == ((1, 1), (2, 2), (1, 1))
        assert block.downsample[0].stride == (2, 2)
    assert (network.conv1.stride, network.conv1.padding) == ((2, 2), (3, 3))
    assert (network.maxpool.kernel_size, network.maxpool.stride, network.maxpool.padding) == (3, 2, 1)


def test_small_and_large_resnet50_differ_in_the_stem_only() -> None:
    small, large = (on_meta(name, 10).state_dict() for name in ("resnet50", "resnet50_large"))
    assert list(small) == list(large)
    assert [key for key in small if small[key].shape != large[key].shape] == ["conv1.weight"]


# blocks


def test_bottleneck_by_hand() -> None:
    torch.manual_seed(0)
    block = Bottleneck(4, 16, 2).eval()
    x = torch.randn(2, 4, 8, 8)
    out = torch.relu(block.bn1(block.conv1(x)))
    out = torch.relu(block.bn2(block.conv2(out)))
    shortcut = block.downsample[1](block.downsample[0](x))
    torch.testing.assert_close(block(x), torch.relu(block.bn3(block.conv3(out)) + shortcut))
    same = Bottleneck(16, 16, 1).eval()
    nn.init.zeros_(same.conv3.weight)
    y = torch.randn(2, 16, 8, 8)
    torch.testing.assert_close(same(y), torch.relu(y))


def test_wide_shortcuts_carry_the_raw_input_and_project_the_activated_one() -> None:
    x = torch.randn(2, 4, 8, 8)
    same = WideBlock(4, 4, 1).eval()
    nn.init.zeros_(same.conv2.weight)
    assert torch.equal(same(x), x)
    wider = WideBlock(4, 6, 2).eval()
    nn.init.zeros_(wider.conv2.weight)
    torch.testing.assert_close(wider(x), wider.shortcut(torch.relu(wider.bn1(x))))


@pytest.mark.parametrize("depth", [4, 27, 0])
def test_wide_depth_is_6n_plus_4(depth: int) -> None:
    with pytest.raises(ValueError, match=f"depth is {depth}: .* e.g. 28"):
        WideResNet(depth, 1, num_classes=10)


def test_dense_layer_appends_to_its_input() -> None:
    torch.manual_seed(0)
    layer = DenseLayer(4, growth=2).eval()
    x = torch.randn(2, 4, 8, 8)
    out = layer(x)
    assert torch.equal(out[:, :4], x)
    inner = torch.relu(layer.bn2(layer.conv1(torch.relu(layer.bn1(x)))))
    torch.testing.assert_close(out[:, 4:], layer.conv2(inner))


@pytest.mark.parametrize("shape", [(3, 7, 7), (1, 32, 7)])
def test_densenet_refuses_images_that_it_cannot_halve_three_times(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"at least 8 pixels a side, got shape .* take model 'small_cnn'"):
        build_model("densenet121", 10, shape)


def test_inverted_residual_adds_its_input_only_where_the_shape_is_kept() -> None:
    x = torch.randn(2, 4, 8, 8)
    for inputs, outputs, stride, added in ((4, 4, 1, True), (4, 4, 2, False), (4, 6, 1, False)):
        block = InvertedResidual(inputs, outputs, stride, expansion=6).eval()
        nn.init.zeros_(block.body[-2].weight)
        assert torch.equal(block(x), x) if added else not block(x).any()


def test_inverted_residual_by_hand() -> None:
    torch.manual_seed(0)
    block = InvertedResidual(4, 6, 2, expansion=3).eval()
    x = torch.randn(2, 4, 8, 8)
    conv1, bn1, _, conv2, bn2, _, conv3, bn3 = block.body
    wide = bn1(conv1(x)).clamp(0, 6)
    channels = [
        nn.functional.conv2d(wide[:, d : d + 1], conv2.weight[d : d + 1], stride=2, padding=1) for d in range(12)
    ]
    torch.testing.assert_close(block(x), bn3(conv3(bn2(torch.cat(channels, dim=1)).clamp(0, 6))))
    assert len(InvertedResidual(4, 4, 1, expansion=1).body) == 5  # nothing to expand
