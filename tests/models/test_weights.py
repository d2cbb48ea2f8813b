"""Weights from a file: what fits is loaded, what does not is named, and then nothing has changed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models import Staged, build_model, load_weights

State = dict[str, Tensor]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.pt"


def network(classes: int = 3, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    built = build_model("small_cnn", classes, (1, 8, 8))
    built(torch.randn(4, 1, 8, 8))  # moves the running statistics and counters of BatchNorm
    return built


def snapshot(module: nn.Module) -> State:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one: State, other: State) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


def prefixed(state: State, prefix: str) -> State:
    return {prefix + name: value for name, value in state.items()}


# what fits


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "optimizer": {"lr": 0.1}},
        lambda state: prefixed(state, "module."),
        lambda state: prefixed(state, "module.module."),
        lambda state: {"state_dict": prefixed(state, "module.")},
    ],
    ids=["bare", "state_dict", "model", "module.", "module.module.", "both"],
)
def test_round_trip(path: Path, wrap: object) -> None:
    saved, other = network(seed=0), network(seed=1)
    torch.save(wrap(saved.state_dict()), path)
    assert load_weights(other, path) == f"loaded {len(saved.state_dict())} entries from {path}"
    assert same(snapshot(other), snapshot(saved))
    assert other.training


def test_a_staged_network_and_a_bare_one_read_each_others_files(path: Path) -> None:
    stages = ["layer1", "layer2"]
    saved, other = network(seed=0), Staged(network(seed=1), stages)
    torch.save(saved.state_dict(), path)
    load_weights(other, path)
    assert same(snapshot(other.module), snapshot(saved))
    bare = network(seed=2)
    torch.save(other.state_dict(), path)
    load_weights(bare, str(path))
    assert same(snapshot(bare), snapshot(saved))


def test_a_submodule_called_module_keeps_its_name(path: Path) -> None:
    def pair() -> nn.Module:
        return nn.ModuleDict({"module": nn.Linear(2, 2), "head": nn.Linear(2, 2)})

    saved, other = pair(), pair()
    torch.save(saved.state_dict(), path)
    load_weights(other, path)
    assert same(snapshot(other), snapshot(saved))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("small_cnn", (1, 8, 8)), ("preact_resnet18", (3, 8, 8)), ("mobilenet_v2", (3, 8, 8)), ("mlp", (6,))],
)
def test_a_classifier_of_another_number_of_classes_is_left_out(path: Path, name: str, shape: tuple[int, ...]) -> None:
    saved, other = build_model(name, 5, shape), build_model(name, 3, shape)
    before, wanted = snapshot(other), snapshot(saved)
    torch.save(saved.state_dict(), path)
    message = load_weights(other, path)
    head = [key for key in before if before[key].shape != wanted[key].shape]
    assert len(head) == 2
    assert message == (
        f"loaded {len(before) - 2} entries from {path}; left out {head[0]}, {head[1]}: "
        "made for 5 classes, the network has 3"
    )
    expected = {key: before[key] if key in head else wanted[key] for key in before}
    assert same(snapshot(other), expected)


def test_an_old_checkpoint_of_1000_classes_in_half_precision(path: Path) -> None:
    saved = build_model("resnet50_large", 1000, (3, 96, 96)).half().state_dict()
    old = {key: value for key, value in saved.items() if not key.endswith("num_batches_tracked")}
    torch.save(old, path, _use_new_zipfile_serialization=False)  # the format of files from before PyTorch 1.6
    other = build_model("resnet50_large", 14, (3, 96, 96))
    message = load_weights(other, path)
    path.unlink()  # 50 MB
    assert message.startswith("loaded 265 entries")  # 320, less 53 counters and the classifier's two
    assert message.endswith("left out fc.weight, fc.bias: made for 1000 classes, the network has 14")
    assert other.conv1.weight.dtype == torch.float32
    assert torch.equal(other.layer4[2].conv3.weight, saved["layer4.2.conv3.weight"].float())


def hollow(network: nn.Module, classes: int, classifier: str, called: str) -> State:
    """A checkpoint with the names of `network` and constant values, of another classifier and a few bytes in a file."""
    state: State = {}
    for key, value in network.state_dict().items():
        name = key.replace(f"{classifier}.", f"{called}.")
        shape = (classes, *value.shape[1:]) if key.startswith(f"{classifier}.") else value.shape
        state[name] = torch.full((1,), len(state) / 1024).expand(shape) if value.is_floating_point() else value
    return state


@pytest.mark.parametrize("called", ["last_linear", "classif"])  # Cadene's port, timm
@pytest.mark.parametrize("classes", [1000, 1001])  # 1001: with a class for the background
def test_inception_checkpoints_of_both_kinds(path: Path, called: str, classes: int) -> None:
    other = build_model("inception_resnet_v2", 14, (3, 299, 299))
    head = other.last_linear.weight.clone()
    state = hollow(other, classes, "last_linear", called)
    message = load_weights(other, save(state, path))
    renamed = "" if called == "last_linear" else " (classif as last_linear)"
    assert message == (
        f"loaded {len(state) - 2} entries from {path}{renamed}; "
        f"left out last_linear.weight, last_linear.bias: made for {classes} classes, the network has 14"
    )
    assert torch.equal(other.last_linear.weight, head)
    for key in ("conv2d_1a.conv.weight", "repeat_1.19.branch1.2.bn.running_var", "conv2d_7b.bn.bias"):
        assert torch.equal(other.state_dict()[key], state[key])


@pytest.mark.parametrize("called", ["fc", "last_linear"])  # torchvision, Cadene's port
def test_resnet50_checkpoints_of_both_kinds(path: Path, called: str) -> None:
    other = build_model("resnet50_large", 14, (3, 224, 224))
    state = hollow(other, 1000, "fc", called)
    message = load_weights(other, save(state, path))
    assert message.endswith("left out fc.weight, fc.bias: made for 1000 classes, the network has 14")
    assert ("(last_linear as fc)" in message) == (called == "last_linear")
    assert torch.equal(other.layer3[5].bn3.running_mean, state["layer3.5.bn3.running_mean"])


def test_a_classifier_of_another_name_and_the_same_classes_is_loaded(path: Path) -> None:
    saved, other = network(seed=0), network(seed=1)
    state = {key.replace("fc.", "head."): value for key, value in saved.state_dict().items()}
    assert load_weights(other, save(state, path)) == f"loaded {len(state)} entries from {path} (head as fc)"
    assert same(snapshot(other), snapshot(saved))
    staged = Staged(network(seed=2), ["layer1", "layer2"])
    load_weights(staged, path)
    assert same(snapshot(staged.module), snapshot(saved))


@pytest.mark.parametrize(
    ("names", "listed"),
    [
        (("head.weight", "classifier.bias"), "2 missing (fc.weight, fc.bias); 2 unexpected (head.weight, classifier"),
        (("head.weight",), "2 missing (fc.weight, fc.bias); 1 unexpected (head.weight)"),
        (("head.0.weight", "head.0.bias"), "2 unexpected (head.0.weight, head.0.bias)"),
        (("fc.weight", "fc.bias", "head.weight", "head.bias"), "2 unexpected (head.weight, head.bias)"),
        (("top.weight", "top.bias"), "2 unexpected (top.weight, top.bias)"),
    ],
)
def test_a_classifier_is_renamed_only_where_it_is_plain_which(path: Path, names: tuple[str, ...], listed: str) -> None:
    state = snapshot(network())
    head = {"weight": state.pop("fc.weight"), "bias": state.pop("fc.bias")}
    state |= {name: head[name.rpartition(".")[2]] for name in names}
    assert listed in refused(network(seed=1), save(state, path))


def test_a_network_without_a_linear_layer(path: Path) -> None:
    saved, other = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 1)
    torch.save(saved.state_dict(), path)
    assert load_weights(other, path) == f"loaded 2 entries from {path}"
    with pytest.raises(InputError, match="of another shape"):
        load_weights(nn.Conv2d(2, 4, 1), path)


# what does not fit


def refused(module: nn.Module, path: Path) -> str:
    """The message, once it is sure that the network is as before."""
    before = snapshot(module)
    with pytest.raises(InputError) as caught:
        load_weights(module, path)
    assert same(snapshot(module), before)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_misfits_are_listed_five_of_a_kind(path: Path) -> None:
    state = network().state_dict()
    weights = [key for key in state if key.startswith(("layer1", "layer2"))]
    torch.save({(f"other.{key}" if key in weights else key): value for key, value in state.items()}, path)
    message = refused(network(seed=1), path)
    assert len(weights) == 12
    # the counter of a BatchNorm may be missing, but it may not have another name
    missing = [key for key in weights if not key.endswith("num_batches_tracked")]
    assert f"10 missing ({', '.join(missing[:5])}, …)" in message
    assert f"12 unexpected ({', '.join(f'other.{key}' for key in weights[:5])}, …)" in message
    assert "shape" not in message


def test_all_kinds_at_once_without_dots_when_few(path: Path) -> None:
    state = snapshot(network())
    del state["layer2.0.weight"]
    state["more"] = torch.zeros(1)
    state["layer1.1.bias"] = torch.zeros(31)
    assert refused(network(seed=1), path=save(state, path)) == (
        f"the weights in {path} do not fit the network: 1 missing (layer2.0.weight); 1 unexpected (more); "
        "1 of another shape (layer1.1.bias [31] instead of [32]). Build the network that the file was saved from"
    )


def save(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    ("weight", "bias", "listed"),
    [
        ((5, 64), (5,), "2 of another shape"),  # another width of the input
        ((5, 64), (3,), "1 of another shape"),
        ((3, 128), (5,), "1 of another shape"),  # weight and bias disagree
        ((5, 128), (4,), "2 of another shape"),
        ((5, 128, 1), (5,), "2 of another shape"),
        ((5, 128), None, "1 missing"),
        (None, None, "2 missing"),
    ],
)
def test_only_the_number_of_classes_may_differ(
    path: Path, weight: tuple[int, ...] | None, bias: tuple[int, ...] | None, listed: str
) -> None:
    state = snapshot(network())
    for key, shape in (("fc.weight", weight), ("fc.bias", bias)):
        if shape is None:
            del state[key]
        else:
            state[key] = torch.zeros(shape)
    assert listed in refused(network(seed=1), save(state, path))


def test_another_architecture(path: Path) -> None:
    torch.save(network().state_dict(), path)
    other = build_model("mlp", 3, (6,))
    message = refused(other, path)
    assert "missing (layers.0.0.weight" in message
    assert "unexpected (layer1.0.weight" in message


# files


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert "there is no such file" in refused(network(), tmp_path / "weights.pt")
    assert "it is a folder" in refused(network(), tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"not weights at all", b"PK\x03\x04" + bytes(100), pickle.dumps({"a": 1}, protocol=2)[:-3]]
)
def test_damaged_file(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "cannot read weights" in refused(network(), path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_truncated_file(path: Path, share: float) -> None:
    torch.save(network().state_dict(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    message = refused(network(), path)
    assert "cannot read weights" in message
    assert "\n" not in message


def test_a_pickled_module_is_not_run(path: Path) -> None:
    torch.save(network(), path)
    message = refused(network(), path)
    assert "holds more than tensors" in message
    assert "torch.save(network.state_dict(), path)" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({}, "found an empty mapping"),
        ({"epoch": 3, "optimizer": {}}, "found keys epoch, optimizer"),
        ({"model": {"lr": 0.1}}, "found keys model"),
        ({"state_dict": {}}, "found keys state_dict"),
        ({number: number for number in range(9)}, "found keys 0, 1, 2, 3, 4, …"),
        ([torch.zeros(2)], "found a list"),
        (torch.zeros(2), "found a Tensor"),
    ],
)
def test_files_without_weights(path: Path, content: object, found: str) -> None:
    message = refused(network(), save(content, path))
    assert (
        f"no weights in {path}: {found}; expected names with tensors, bare or under 'state_dict' or 'model'" == message
    )
