"""Models of timm, with a small library in its place: names, stages, layouts, weights by path, and what goes wrong."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models import Staged, build_model, check_model, load_weights
from labeltrace.models.timm import _spread

NAMES = ["resnet10d", "resnet14d", "vit_tiny", "vit_old", "swin_tiny", "mixed", "bare"]


class Pyramid(nn.Module):
    """A stem and four stages, all listed, as timm's ResNet has them; one listed name never runs."""

    def __init__(self, num_classes: int, in_chans: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_chans, 4, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(4 + i, 5 + i, 3, stride=2, padding=1) for i in range(4))
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, num_classes)
        self.unused = nn.Identity()
        self.feature_info = [
            {"module": "stem", "num_chs": 4, "reduction": 1},
            *({"module": f"layers.{i}", "num_chs": 5 + i, "reduction": 2 ** (i + 1)} for i in range(4)),
            {"module": "unused", "num_chs": 8, "reduction": 32},
            {"module": "gone", "num_chs": 8, "reduction": 32},
        ]

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x).relu()
        return self.fc(self.bn(x).mean((2, 3)))


class Transformer(nn.Module):
    """Patches of 4 pixels of 16, a class token, `depth` blocks [B, 17, 6]."""

    def __init__(self, num_classes: int, in_chans: int, listed: str) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(in_chans, 6, 4, stride=4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 6))
        self.blocks = nn.Sequential(*(nn.Linear(6, 6) for _ in range(6)))
        self.head = nn.Linear(6, num_classes)
        self.feature_info = {
            "blocks": [{"module": f"blocks.{i}", "num_chs": 6, "reduction": 4} for i in range(6)],
            "head": [{"module": "head", "num_chs": 6, "reduction": 0}],
        }[listed]

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != 16:
            raise AssertionError("Input width doesn't match model (16).\nmore words")
        tokens = self.patch_embed(x).flatten(2).mT
        tokens = self.blocks(torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1))
        return self.head(tokens[:, 0])


class Windows(nn.Module):
    """A convolutional stage [B, 5, H, W], then two with the channels last, [B, H, W, D]."""

    def __init__(self, num_classes: int, in_chans: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_chans, 5, 4, stride=4)
        self.low = nn.Linear(5, 6)
        self.high = nn.Linear(6, 7)
        self.head = nn.Linear(7, num_classes)
        self.feature_info = [
            {"module": name, "num_chs": width, "reduction": 4} for name, width in (("stem", 5), ("low", 6), ("high", 7))
        ]

    def forward(self, x: Tensor) -> Tensor:
        x = self.high(self.low(self.stem(x).permute(0, 2, 3, 1)))
        return self.head(x.mean((1, 2)))


class Bare(nn.Module):
    def __init__(self, num_classes: int, in_chans: int) -> None:
        super().__init__()
        self.head = nn.Linear(in_chans, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean((2, 3)))


MAKERS: dict[str, Callable[[int, int], nn.Module]] = {
    "resnet10d": Pyramid,
    "vit_tiny": lambda classes, channels: Transformer(classes, channels, "blocks"),
    "vit_old": lambda classes, channels: Transformer(classes, channels, "head"),
    "swin_tiny": Windows,
    "bare": Bare,
}


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module in timm's place with the two functions that are called."""

    def create_model(name: str, pretrained: bool, num_classes: int, in_chans: int) -> nn.Module:
        assert pretrained is False
        return MAKERS[name.partition(".")[0]](num_classes, in_chans)

    fake = ModuleType("timm")
    fake.create_model = create_model  # type: ignore[attr-defined]
    fake.list_models = lambda: NAMES  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", fake)
    return fake


def images(channels: int = 3, count: int = 4) -> Tensor:
    return torch.randn(count, channels, 16, 16, generator=torch.Generator().manual_seed(0))


def build(name: str, pooling: str = "gap", channels: int = 3) -> Staged:
    torch.manual_seed(0)
    network = build_model(f"timm:{name}", 5, (channels, 16, 16), pooling)
    assert isinstance(network, Staged)
    return network


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("pooling", ["gap", "flatten"])
def test_a_pyramid_has_its_last_four_stages(pooling: str, channels: int) -> None:
    network = build("resnet10d", pooling, channels).eval()
    assert network.stages == ("layers.0", "layers.1", "layers.2", "layers.3")
    output = network(images(channels))
    assert output.logits.shape == (4, 5)
    by_hand = Staged(network.module, network.stages, pooling)(images(channels))
    torch.testing.assert_close(output, by_hand)
    assert [f.shape[1] for f in output.features] == ([5, 6, 7, 8] if pooling == "gap" else [5 * 64, 6 * 16, 28, 8])


@pytest.mark.parametrize(("name", "stages"), [("vit_tiny", (1, 2, 4, 5)), ("vit_old", (1, 2, 4, 5))])
@pytest.mark.parametrize("pooling", ["gap", "flatten"])
def test_tokens_are_averaged_and_not_channels(name: str, stages: tuple[int, ...], pooling: str) -> None:
    network = build(name, pooling).eval()
    assert network.stages == tuple(f"blocks.{i}" for i in stages)
    output = network(images())
    tokens = network.module.patch_embed(images()).flatten(2).mT
    tokens = torch.cat([network.module.cls_token.expand(4, -1, -1), tokens], dim=1)
    outputs = [tokens := block(tokens) for block in network.module.blocks]
    for feature, stage in zip(output.features, stages, strict=True):
        expected = outputs[stage].mean(1) if pooling == "gap" else outputs[stage].flatten(1)
        torch.testing.assert_close(feature, expected)
    torch.testing.assert_close(output.logits, network.module.head(outputs[-1][:, 0]))


def test_stages_of_both_layouts_in_one_network() -> None:
    network = build("swin_tiny").eval()
    module = network.module
    stem = module.stem(images())
    low = module.low(stem.permute(0, 2, 3, 1))
    expected = (stem.mean((2, 3)), low.mean((1, 2)), module.high(low).mean((1, 2)))
    torch.testing.assert_close(network(images()).features, expected)


def test_the_look_at_the_shapes_leaves_nothing_behind() -> None:
    network = build("resnet10d")
    assert network.training and all(module.training for module in network.modules())
    assert not any(module._forward_hooks for module in network.modules())
    assert not network.module.bn.running_mean.any()
    assert int(network.module.bn.num_batches_tracked) == 0
    torch.manual_seed(0)
    same = Pyramid(5, 3).state_dict()
    assert all(torch.equal(value, same[key]) for key, value in network.module.state_dict().items())


def test_gradients_reach_the_parameters() -> None:
    for name in ("resnet10d", "vit_tiny", "swin_tiny"):
        network = build(name)
        output = network(images())
        (output.logits.square().sum() + sum(feature.square().sum() for feature in output.features)).backward()
        assert all(parameter.grad is not None for parameter in network.parameters())


def test_weights_of_1000_classes_come_by_path(tmp_path: Path) -> None:
    saved, path = Pyramid(1000, 3), tmp_path / "weights.pt"
    torch.save(saved.state_dict(), path)
    network = build("resnet10d")
    assert "left out fc.weight, fc.bias: made for 1000 classes" in load_weights(network, path)
    assert torch.equal(network.module.stem.weight, saved.stem.weight)


def test_a_tag_after_a_dot_is_timms_business() -> None:
    assert check_model("timm:resnet10d.a1_in1k") == "timm:resnet10d.a1_in1k"
    assert len(build("resnet10d.a1_in1k").stages) == 4


@pytest.mark.parametrize(
    ("count", "kept"), [(1, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [1, 2, 3, 4]), (12, [2, 5, 8, 11])]
)
def test_four_evenly_spaced_stages(count: int, kept: list[int]) -> None:
    assert _spread([str(i) for i in range(count)]) == [str(i) for i in kept]


# mistakes


def test_an_unknown_name_gets_the_nearest() -> None:
    for call in (check_model, lambda name: build_model(name, 5, (3, 16, 16))):
        with pytest.raises(InputError, match=r"unknown model 'timm:resnet10': nearest are timm:resnet10d, timm:res"):
            call("timm:resnet10")
        with pytest.raises(InputError, match=r"unknown model 'timm:zzz': see timm.list_models\(\)"):
            call("timm:zzz")
        with pytest.raises(InputError, match="unknown model 'timm:'"):
            call("timm:")
    with pytest.raises(InputError, match="unknown model 'resnet81': did you mean 'resnet18'"):
        check_model("resnet81")
    assert check_model("resnet18") == "resnet18"


def test_shapes_and_networks_that_do_not_fit() -> None:
    with pytest.raises(InputError, match=r"model 'timm:resnet10d' takes images, got features of shape \(20,\)"):
        build_model("timm:resnet10d", 5, (20,))
    message = r"^model 'timm:vit_tiny' cannot be built for images \(3, 24, 24\): Input width .* \(16\)\.$"
    with pytest.raises(InputError, match=message):
        build_model("timm:vit_tiny", 5, (3, 24, 24))
    with pytest.raises(InputError, match=r"'timm:bare' shows 0 of its stages.*Staged"):
        build("bare")
    with pytest.raises(InputError, match="unknown pooling"):
        build("resnet10d", "gab")
    with pytest.raises(InputError, match="num_classes is 1"):
        build_model("timm:resnet10d", 1, (3, 16, 16))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'timm'", name="timm"),
            r"not installed: pip install 'labeltrace\[timm\]'$",
        ),
        (
            ModuleNotFoundError("No module named 'torchvision'", name="torchvision"),
            r"\(No module named 'torchvision'\)",
        ),
        (RuntimeError("operator torchvision::nms does not exist\nmore"), r"imported \(operator .*nms does not exist\)"),
        (OSError(), r"cannot be imported \(OSError\)"),
    ],
)
def test_timm_missing_or_broken(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    load = importlib.import_module

    def fail(name: str, package: str | None = None) -> ModuleType:
        if name == "timm":
            raise error
        return load(name, package)

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(InputError, match=message) as caught:
        check_model("timm:resnet10d")
    assert "\n" not in str(caught.value)
    assert build_model("small_cnn", 5, (1, 8, 8)) is not None  # nothing else needs timm
