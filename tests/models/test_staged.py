"""A user's own module as a staged one."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models import Output, Staged, build_model


class Net(nn.Module):
    """A user's network: named blocks, a branch it may skip, logits as `form` says."""

    def __init__(self, form: str = "tensor") -> None:
        super().__init__()
        self.form = form
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.ModuleDict({"low": nn.Conv2d(4, 6, 3, stride=2), "high": nn.Conv2d(6, 8, 3)})
        self.unused = nn.Linear(8, 8)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> object:
        x = self.act(self.stem(x))
        x = self.body["high"](self.act(self.body["low"](x)))
        logits = self.head(x.mean((2, 3)))
        return {"tensor": logits, "tuple": (logits, x), "dict": {"logits": logits}, "maps": x}[self.form]


STAGES = ["stem", "body.low", "body.high"]


@pytest.fixture
def images() -> Tensor:
    return torch.randn(5, 1, 12, 12, generator=torch.Generator().manual_seed(0))


def hooks(module: nn.Module) -> int:
    return sum(len(child._forward_hooks) for child in module.modules())


@pytest.mark.parametrize("form", ["tensor", "tuple"])
def test_output_equals_a_hand_written_forward(form: str, images: Tensor) -> None:
    torch.manual_seed(0)
    net = Net(form)
    stem = net.stem(images)
    low = net.body["low"](stem.relu())
    high = net.body["high"](low.relu())
    for pooling, by_hand in (("gap", lambda t: t.mean((2, 3))), ("flatten", lambda t: t.flatten(1))):
        output = Staged(net, STAGES, pooling=pooling)(images)
        assert isinstance(output, Output)
        torch.testing.assert_close(output.logits, net.head(high.mean((2, 3))))
        for feature, expected in zip(output.features, (stem, low, high), strict=True):
            torch.testing.assert_close(feature, by_hand(expected))


@pytest.mark.parametrize("pooling", ["gap", "flatten"])
def test_features_are_taken_before_in_place_operations(pooling: str) -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))
    samples = torch.randn(8, 4)
    with torch.no_grad():
        output = Staged(net, ["0", "2"], pooling=pooling)(samples)
        torch.testing.assert_close(output.features[0], net[0](samples))
    assert (output.features[1] < 0).any()


def test_a_vector_stage_and_a_tuple_stage(images: Tensor) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(12, 6)
            self.cell = nn.GRU(6, 4, batch_first=True)
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cell(self.embed(x))[0][:, -1])

    output = Staged(Recurrent(), ["embed", "cell", "head"], pooling="flatten")(images.squeeze(1))
    assert [feature.shape[1] for feature in output.features] == [12 * 6, 12 * 4, 3]
    assert torch.equal(output.features[-1], output.logits)


class Tokens(nn.Module):
    """Patches of 4 pixels, two blocks [B, 9, 6] that end with a normalisation, logits."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, 6, 4, stride=4)
        self.blocks = nn.Sequential(*(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True) for _ in range(2)))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.patch(x).flatten(2).mT).mean(1))


@pytest.mark.parametrize("channels", [-1, [1, -1, -1]])
def test_tokens_are_averaged_where_the_channels_come_last(channels: object, images: Tensor) -> None:
    net, names = Tokens().eval(), ["patch", "blocks.0", "blocks.1"]
    names = names[1:] if channels == -1 else names
    outputs = {"patch": net.patch(images)}
    outputs["blocks.0"] = net.blocks[0](outputs["patch"].flatten(2).mT)
    outputs["blocks.1"] = net.blocks[1](outputs["blocks.0"])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        averaged = Staged(net, names, channels=channels)(images).features
        flat = Staged(net, names, "flatten", channels)(images).features
    for name, mean, row in zip(names, averaged, flat, strict=True):
        torch.testing.assert_close(mean, outputs[name].mean((2, 3) if name == "patch" else 1))
        torch.testing.assert_close(row, outputs[name].flatten(1))


def test_three_axes_are_asked_about(images: Tensor) -> None:
    """A mean over channels that were just normalised is rounding and nothing else."""
    with pytest.warns(UserWarning, match=r"'blocks.0' returned \[B, 9, 6\].* channels=-1"):
        output = Staged(Tokens().eval(), ["blocks.0", "blocks.1"])(images)
    assert output.features[1].abs().max() < 1e-5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Staged(Tokens(), ["blocks.0", "blocks.1"], channels=1)(images)
        Staged(Tokens(), ["blocks.0", "blocks.1"], "flatten")(images)


def test_a_library_model_gives_the_same_features_through_staged() -> None:
    model = build_model("small_cnn", 10, (1, 8, 8)).eval()
    images = torch.randn(4, 1, 8, 8)
    output = Staged(model, ["layer1", "layer2", "layer3", "layer4"])(images)
    torch.testing.assert_close(output, model(images))


def test_gradient_flows_through_logits_and_features(images: Tensor) -> None:
    staged = Staged(Net(), STAGES)
    output = staged(images)
    (output.logits.sum() + output.features[1].sum()).backward()
    assert staged.module.stem.weight.grad is not None


# what it leaves behind


def test_nothing_outlives_a_forward(images: Tensor) -> None:
    staged = Staged(Net(), STAGES)
    output = staged(images)
    feature = weakref.ref(output.features[0])
    assert hooks(staged) == 0
    del output
    gc.collect()
    assert feature() is None


def test_a_failed_forward_leaves_no_hook(images: Tensor) -> None:
    staged = Staged(Net(), STAGES)
    with pytest.raises(RuntimeError):
        staged(images[:, :, :2, :2])
    assert hooks(staged) == 0
    assert len(staged(images).features) == 3


def test_two_views_of_one_module_do_not_disturb_each_other(images: Tensor) -> None:
    net = Net().eval()
    shallow, deep = Staged(net, STAGES[:2]), Staged(Staged(net, STAGES), ["module.stem", "module.body.high"])
    expected = Staged(net, STAGES)(images)
    torch.testing.assert_close(deep(images).features, (expected.features[0], expected.features[2]))
    torch.testing.assert_close(shallow(images).features, expected.features[:2])


def test_replicas_that_run_at_once_read_their_own_stages(images: Tensor) -> None:
    """As those of DataParallel, which share the hooks of the module that they were made of."""

    def replica(module: nn.Module) -> nn.Module:
        made = module._replicate_for_data_parallel()
        made._parameters = dict(module._parameters)
        made._modules = {name: replica(child) for name, child in module._modules.items()}
        for name, child in made._modules.items():
            setattr(made, name, child)
        return made

    class Meeting(nn.Conv2d):
        """Waits until both replicas have come here."""

        def forward(self, x: Tensor) -> Tensor:
            barrier.wait(timeout=60)
            return super().forward(x)

    barrier = threading.Barrier(1)
    staged = Staged(nn.Sequential(Meeting(1, 4, 3), Meeting(4, 6, 3), nn.Flatten(), nn.Linear(384, 3)), ["0", "1"])
    parts = [images, images + 1]
    with torch.no_grad():
        expected = [staged(part) for part in parts]
        barrier = threading.Barrier(2)
        with ThreadPoolExecutor(2) as threads:
            found = list(threads.map(lambda network, part: network(part), [replica(staged) for _ in parts], parts))
    for output, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(output, wanted)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda staged: pickle.loads(pickle.dumps(staged))])
def test_copies_are_whole_and_independent(clone: object, images: Tensor) -> None:
    staged = Staged(Net(), STAGES)
    expected = staged(images)
    other = clone(staged)
    nn.init.zeros_(staged.module.stem.weight)
    torch.testing.assert_close(other(images), expected)


def test_state_is_the_modules_under_one_prefix(images: Tensor) -> None:
    net = Net()
    staged = Staged(net, STAGES)
    assert list(staged.state_dict()) == [f"module.{key}" for key in net.state_dict()]
    other = Staged(Net(), STAGES)
    other.load_state_dict(staged.state_dict())
    torch.testing.assert_close(other(images), staged(images))


@pytest.mark.slow
def test_it_compiles_although_it_need_not(images: Tensor) -> None:
    staged = Staged(Net(), STAGES).eval()
    torch.testing.assert_close(torch.compile(staged)(images), staged(images), atol=1e-5, rtol=1e-4)


# mistakes


def test_mistakes_at_construction_name_the_fix() -> None:
    with pytest.raises(ValueError, match=r"no submodule 'body.hi' in Net: nearest are .*body.high"):
        Staged(Net(), ["stem", "body.hi"])
    with pytest.raises(InputError, match=r"no submodule 'zzz' in Net: nearest are stem"):
        Staged(Net(), ["zzz", "stem"])
    with pytest.raises(ValueError, match="at least 2"):
        Staged(Net(), ["stem"])
    with pytest.raises(ValueError, match="at least 2"):
        Staged(Net(), [])
    with pytest.raises(ValueError, match="twice"):
        Staged(Net(), ["stem", "stem"])
    with pytest.raises(ValueError, match="pass a list"):
        Staged(Net(), "stem")
    with pytest.raises(ValueError, match="unknown pooling 'flaten': did you mean 'flatten'"):
        Staged(Net(), STAGES, pooling="flaten")
    for channels in (0, 2, [1, -1], [1, 1, 3]):
        with pytest.raises(ValueError, match="expected 1 or -1, or one of them for each of 3 stages"):
            Staged(Net(), STAGES, channels=channels)


def test_mistakes_in_the_forward_name_the_fix(images: Tensor) -> None:
    with pytest.raises(RuntimeError, match=r"stages \['unused'\] did not run"):
        Staged(Net(), ["stem", "unused"])(images)
    with pytest.raises(TypeError, match="the module returned dict"):
        Staged(Net("dict"), STAGES)(images)
    with pytest.raises(ValueError, match=r"expected \[B, C\]"):
        Staged(Net("maps"), STAGES)(images)
    tokens_first = nn.Sequential(nn.GRU(12, 4), nn.Identity(), Last())
    with pytest.raises(ValueError, match=r"stage '0' returned 12 rows for 5 samples: the batch comes first"):
        Staged(tokens_first, ["0", "1"], channels=-1)(images.squeeze(1).transpose(0, 1))


class Last(nn.Module):
    """Logits of the last of tokens [T, B, D]."""

    def forward(self, x: tuple[Tensor, Tensor]) -> Tensor:
        return x[0][-1]
