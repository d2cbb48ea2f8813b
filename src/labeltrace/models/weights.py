"""Weights from a file into a network: an ImageNet checkpoint as the start of a run, or a network saved earlier.

Ours; no paper. The file is read with `weights_only=True`, so it can hold tensors but no code. Nothing is copied before
everything has been checked: a file that does not fit leaves the network as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from labeltrace.errors import InputError

PREFIX = "module."  # what DistributedDataParallel, DataParallel and `Staged` put before every name
WRAPPERS = ("state_dict", "model")  # keys under which training scripts keep the weights, beside the optimiser's
# What published networks call their classifier: torchvision and timm the first three, Cadene's ports `last_linear`,
# timm's Inception-ResNet-v2 `classif`. A file may call it one of these and the network another.
CLASSIFIERS = ("fc", "head", "classifier", "last_linear", "classif")
SHOWN = 5
# A counter that BatchNorm reads only without a momentum; checkpoints from before PyTorch 0.4.1 do not have it.
COUNTER = "num_batches_tracked"


def load_weights(network: nn.Module, path: Path | str) -> str:
    """Copy the weights of a file into a network of the same architecture.

    The file holds what `torch.save` makes of `network.state_dict()`, bare or under the key "state_dict" or "model".
    A "module." before every name is ignored, in the file and in the network. The classifier, the network's last linear
    layer, is left as it is when the file's was made for another number of classes; in the file it may have another of
    the names in `CLASSIFIERS`.

    Args:
        network: changed in place, on whatever device it is.
        path: the file.

    Returns:
        A sentence that says how many entries were loaded, and what was left out and why.

    Raises:
        InputError: the file is missing or damaged, holds no weights, or does not fit the network; the message then
            lists missing, unexpected and mis-shaped names. The network is unchanged.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "weights.pt"
    >>> torch.save(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1000)).state_dict(), file)
    >>> load_weights(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 10)), file)
    'loaded 2 entries from .../weights.pt; left out 1.weight, 1.bias: made for 1000 classes, the network has 10'
    """
    path = Path(path).expanduser()
    state = network.state_dict()
    prefix = _prefix(state)
    own = {name.removeprefix(prefix): value for name, value in state.items()}
    given = _read(path)
    given = {name.removeprefix(_prefix(given)): value for name, value in given.items()}
    classifier = [name.removeprefix(prefix) for name in _classifier(network)]
    given, renamed = _rename_classifier(classifier, own, given)
    left_out = _left_out(classifier, own, given)
    missing = [name for name in own if name not in given and name.rpartition(".")[2] != COUNTER]
    unexpected = [name for name in given if name not in own]
    misshaped = [
        f"{name} {list(given[name].shape)} instead of {list(own[name].shape)}"
        for name in own
        if name in given and name not in left_out and given[name].shape != own[name].shape
    ]
    if missing or unexpected or misshaped:
        found = [
            _listing("missing", missing),
            _listing("unexpected", unexpected),
            _listing("of another shape", misshaped),
        ]
        raise InputError(
            f"the weights in {path} do not fit the network: {'; '.join(filter(None, found))}. "
            "Build the network that the file was saved from"
        )
    loaded = {prefix + name: given[name] for name in own if name in given and name not in left_out}
    network.load_state_dict(state | loaded)
    report = f"loaded {len(loaded)} entries from {path}{renamed}"
    if left_out:
        was, now = len(given[left_out[0]]), len(own[left_out[0]])
        report += f"; left out {', '.join(left_out)}: made for {was} classes, the network has {now}"
    return report


def _read(path: Path) -> dict[str, Tensor]:
    """Return the state dict in a file, on the CPU."""
    if not path.is_file():
        raise InputError(f"no weights at {path}: {'it is a folder' if path.is_dir() else 'there is no such file'}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail in any way that unpickling can
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"cannot read weights from {path}: it is damaged or holds more than tensors ({reason}); "
            "expected a file written by torch.save(network.state_dict(), path)"
        ) from error
    candidates = [content]
    if isinstance(content, Mapping):
        candidates += [content[key] for key in WRAPPERS if key in content]
    for candidate in candidates:
        if _is_state(candidate):
            return dict(candidate)
    raise InputError(
        f"no weights in {path}: found {_kind(content)}; expected names with tensors, bare or under "
        f"{' or '.join(map(repr, WRAPPERS))}"
    )


def _kind(content: object) -> str:
    """Say in words what a file without weights holds."""
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    return f"keys {_first(map(str, content))}" if content else "an empty mapping"


def _is_state(candidate: object) -> bool:
    return (
        isinstance(candidate, Mapping)
        and len(candidate) > 0
        and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in candidate.items())
    )


def _prefix(names: Iterable[str]) -> str:
    """Return the "module.", or several of them, that every name has; a submodule that is called so keeps its name."""
    names = list(names)
    prefix = ""
    while names and all(name.startswith(prefix + PREFIX) for name in names):
        prefix += PREFIX
    return prefix


def _classifier(network: nn.Module) -> list[str]:
    """Return the names of the weight and the bias of the last linear layer."""
    layers = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not layers:
        return []
    name, layer = layers[-1]
    return [f"{name}.{key}" if name else key for key, _ in layer.named_parameters()]


def _rename_classifier(
    classifier: list[str], own: Mapping[str, Tensor], given: dict[str, Tensor]
) -> tuple[dict[str, Tensor], str]:
    """Return the file's state with its classifier under the network's name, and words for the report if it was another.

    Nothing is renamed unless the network's classifier is not in the file and exactly one candidate is.
    """
    unexpected = [name for name in given if name not in own]
    found = [base for base in CLASSIFIERS if any(name.startswith(f"{base}.") for name in unexpected)]
    if not classifier or len(found) != 1 or any(name in given for name in classifier):
        return given, ""
    target = classifier[0].rpartition(".")[0]
    names = {f"{found[0]}.{name.rpartition('.')[2]}": name for name in classifier}
    if not set(unexpected) >= set(names):
        return given, ""
    renamed = {names.get(name, name): value for name, value in given.items()}
    return renamed, f" ({found[0]} as {target})"


def _left_out(classifier: list[str], own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """Return the classifier's names when the file's differs from it in the number of classes and in nothing else."""
    if not all(name in own and name in given and given[name].ndim == own[name].ndim for name in classifier):
        return []
    same_input = all(given[name].shape[1:] == own[name].shape[1:] for name in classifier)
    was, now = ({len(state[name]) for name in classifier} for state in (given, own))
    return classifier if same_input and len(was) == 1 and was != now else []


def _listing(what: str, names: list[str]) -> str:
    return f"{len(names)} {what} ({_first(names)})" if names else ""


def _first(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join([*names[:SHOWN], "…"] if len(names) > SHOWN else names)
