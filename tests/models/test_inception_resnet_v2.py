"""Inception-ResNet-v2: the count by hand, the names of the published checkpoint, stages, blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models import build_model, pool
from labeltrace.models.inception_resnet_v2 import BLOCK_35, ConvUnit, InceptionResNetV2, ResidualBlock

NAME = "inception_resnet_v2"


def on_meta(classes: int, channels: int = 3) -> InceptionResNetV2:
    with torch.device("meta"):
        network = build_model(NAME, classes, (channels, 299, 299))
    assert isinstance(network, InceptionResNetV2)
    return network


def unit(inputs: int, outputs: int, area: int) -> int:
    """Parameters of a convolution over `area` places and its BatchNorm."""
    return inputs * outputs * area + 2 * outputs


def chain(inputs: int, *steps: tuple[int, int]) -> int:
    total = 0
    for outputs, area in steps:
        total += unit(inputs, outputs, area)
        inputs = outputs
    return total


def test_the_count_by_hand() -> None:
    stem = chain(3, (32, 9), (32, 9), (64, 9), (80, 1), (192, 9))
    mixed_5b = (
        chain(192, (96, 1))
        + chain(192, (48, 1), (64, 25))
        + chain(192, (64, 1), (96, 9), (96, 9))
        + chain(192, (64, 1))
    )
    block35 = chain(320, (32, 1)) + chain(320, (32, 1), (32, 9)) + chain(320, (32, 1), (48, 9), (64, 9)) + 129 * 320
    mixed_6a = chain(320, (384, 9)) + chain(320, (256, 1), (256, 9), (384, 9))
    block17 = chain(1088, (192, 1)) + chain(1088, (128, 1), (160, 7), (192, 7)) + 385 * 1088
    mixed_7a = (
        chain(1088, (256, 1), (384, 9)) + chain(1088, (256, 1), (288, 9)) + chain(1088, (256, 1), (288, 9), (320, 9))
    )
    block8 = chain(2080, (192, 1)) + chain(2080, (192, 1), (224, 3), (256, 3)) + 449 * 2080
    body = stem + mixed_5b + 10 * block35 + mixed_6a + 20 * block17 + mixed_7a + 10 * block8 + chain(2080, (1536, 1))
    for classes in (14, 1000):
        count = sum(parameter.numel() for parameter in on_meta(classes).parameters())
        assert count == body + 1537 * classes
    assert body == 54_306_464
    assert body + 1537 * 1000 == 55_843_464  # that of the published checkpoint at 1,000 classes


def published_names() -> set[str]:
    """The names in Cadene's and timm's checkpoints, written out from their layout, less the classifier's."""
    units = ["conv2d_1a", "conv2d_2a", "conv2d_2b", "conv2d_3b", "conv2d_4a", "conv2d_7b"]
    units += [f"mixed_5b.{at}" for at in ("branch0", *rows("branch1", 2), *rows("branch2", 3), "branch3.1")]
    units += [f"mixed_6a.{at}" for at in ("branch0", *rows("branch1", 3))]
    units += [f"mixed_7a.{at}" for at in (*rows("branch0", 2), *rows("branch1", 2), *rows("branch2", 3))]
    plain = []
    for group, count, inner in (
        ("repeat", 10, ("branch0", *rows("branch1", 2), *rows("branch2", 3))),
        ("repeat_1", 20, ("branch0", *rows("branch1", 3))),
        ("repeat_2", 9, ("branch0", *rows("branch1", 3))),
    ):
        units += [f"{group}.{block}.{at}" for block in range(count) for at in inner]
        plain += [f"{group}.{block}.conv2d" for block in range(count)]
    units += [f"block8.{at}" for at in ("branch0", *rows("branch1", 3))]
    plain.append("block8.conv2d")
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return {
        *(f"{name}.conv.weight" for name in units),
        *(f"{name}.bn.{key}" for name in units for key in norm),
        *(f"{name}.{key}" for name in plain for key in ("weight", "bias")),
    }


def rows(name: str, count: int) -> list[str]:
    return [f"{name}.{index}" for index in range(count)]


def test_names_are_those_of_the_published_checkpoint() -> None:
    names = set(on_meta(1000).state_dict())
    assert names == published_names() | {"last_linear.weight", "last_linear.bias"}


def test_kernels_strides_and_padding() -> None:
    network = on_meta(10)
    expected = {
        "conv2d_1a": ((3, 3), 2, (0, 0)),
        "conv2d_2a": ((3, 3), 1, (0, 0)),
        "conv2d_2b": ((3, 3), 1, (1, 1)),
        "conv2d_4a": ((3, 3), 1, (0, 0)),
        "mixed_5b.branch1.1": ((5, 5), 1, (2, 2)),
        "mixed_6a.branch0": ((3, 3), 2, (0, 0)),
        "mixed_6a.branch1.1": ((3, 3), 1, (1, 1)),
        "repeat_1.0.branch1.1": ((1, 7), 1, (0, 3)),
        "repeat_1.0.branch1.2": ((7, 1), 1, (3, 0)),
        "block8.branch1.1": ((1, 3), 1, (0, 1)),
        "block8.branch1.2": ((3, 1), 1, (1, 0)),
    }
    for name, (kernel, stride, padding) in expected.items():
        conv = network.get_submodule(name).conv
        assert (conv.kernel_size, conv.stride, conv.padding) == (kernel, (stride, stride), padding), name
    assert {module.eps for module in network.modules() if isinstance(module, nn.BatchNorm2d)} == {0.001}
    for group, scale in (("repeat", 0.17), ("repeat_1", 0.10), ("repeat_2", 0.20)):
        assert {(block.scale, block.activated) for block in network.get_submodule(group)} == {(scale, True)}
    assert (network.block8.scale, network.block8.activated) == (1.0, False)


@pytest.mark.parametrize(
    ("side", "sides"), [(299, (35, 35, 17, 8)), (224, (25, 25, 12, 5)), (75, (7, 7, 3, 1)), (91, (9, 9, 4, 1))]
)
def test_stages_of_some_sizes(side: int, sides: tuple[int, ...]) -> None:
    with torch.device("meta"):
        network = build_model(NAME, 10, (3, side, side), "flatten")
        features = network(torch.zeros(2, 3, side, side)).features
    widths = (320, 320, 1088, 1536)
    assert [f.shape[1] for f in features] == [width * s * s for width, s in zip(widths, sides, strict=True)]


def test_stages_and_head_by_hand() -> None:
    torch.manual_seed(0)
    network = build_model(NAME, 10, (3, 75, 75)).eval()
    outputs: dict[str, Tensor] = {}
    for stage in ("mixed_5b", "repeat", "repeat_1", "conv2d_7b"):
        network.get_submodule(stage).register_forward_hook(lambda _, __, out, key=stage: outputs.update({key: out}))
    with torch.no_grad():
        output = network(torch.randn(2, 3, 80, 96))
    for feature, maps in zip(output.features, outputs.values(), strict=True):
        torch.testing.assert_close(feature, pool(maps, "gap"))
        assert (feature >= 0).all()  # one kind of feature: after a ReLU
    torch.testing.assert_close(output.logits, network.last_linear(outputs["conv2d_7b"].mean((2, 3))))


def test_residual_block_by_hand() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 320, 5, 5)
    for scale, activated in ((0.17, True), (1.0, False)):
        block = ResidualBlock(320, BLOCK_35, scale, activated).eval()
        parts = [block.branch0(x), block.branch1(x), block.branch2(x)]
        assert [part.shape[1] for part in parts] == [32, 32, 64]
        by_hand = x + scale * block.conv2d(torch.cat(parts, dim=1))
        torch.testing.assert_close(block(x), by_hand.relu() if activated else by_hand)


def test_unit_by_hand() -> None:
    unit = ConvUnit(2, 3, 3).eval()
    unit.bn.running_var.fill_(4.0)
    x = torch.randn(1, 2, 6, 6)
    by_hand = nn.functional.conv2d(x, unit.conv.weight, padding=1) / (4.0 + 0.001) ** 0.5
    torch.testing.assert_close(unit(x), by_hand.clamp(min=0))


def test_the_smallest_image() -> None:
    for shape, instead in (((3, 74, 75), "resnet50_large"), ((3, 32, 32), "preact_resnet18"), ((1, 8, 8), "small_cnn")):
        message = rf"at least 75 pixels a side, got shape .*: take model '{instead}'"
        with pytest.raises(InputError, match=message):
            build_model(NAME, 10, shape)
    with pytest.raises(RuntimeError):
        on_meta(10)(torch.zeros(2, 3, 74, 74, device="meta"))  # the bound is not a guess
