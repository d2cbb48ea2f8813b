"""Models of timm (PyTorch Image Models) by name: "timm:resnet50d", "timm:vit_small_patch16_224".

timm is an extra, `pip install 'labeltrace[timm]'`, and imported only when such a name is used. Networks start at
random: nothing is ever downloaded, pretrained weights come from a file, see `load_weights`.

Stages are the modules that the model itself lists in `feature_info`, or its `blocks` where it lists fewer than two; of
more than four, four evenly spaced ones with the last among them (of a ResNet's five it is the stem that is left out).
Convolutional networks have the channels on axis 1, transformers on the last axis, [B, tokens, D] or [B, H, W, D]; which
of the two a stage has is seen in one forward of a blank image when the network is built. "gap" is the mean over all
positions, class and register tokens among them.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models.inputs import image_channels
from labeltrace.models.staged import Staged

PREFIX = "timm:"
INSTALL = "pip install 'labeltrace[timm]'"
STAGES = 4  # as many as our own networks have


def find(name: str) -> ModuleType:
    """Return the timm library when it has the model `name`.

    Args:
        name: "timm:NAME"; a tag after a dot, which in timm chooses pretrained weights, is not looked at.

    Returns:
        The imported library.

    Raises:
        InputError: timm is not installed or cannot be imported, or has no such model.

    >>> find("timm:resnet50d")  # doctest: +SKIP
    <module 'timm' from ...>
    """
    try:
        library = importlib.import_module("timm")
    except Exception as error:  # a torchvision that does not fit torch fails in ways of its own
        if isinstance(error, ModuleNotFoundError) and error.name == "timm":
            raise InputError(f"model {name!r} needs timm, which is not installed: {INSTALL}") from error
        raise InputError(
            f"model {name!r} needs timm, which is installed but cannot be imported ({_reason(error)}): "
            f"mend what it names, or {INSTALL} in a fresh environment"
        ) from error
    wanted = name.removeprefix(PREFIX).partition(".")[0]
    known = library.list_models()
    if wanted not in known:
        close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)
        hint = f"nearest are {', '.join(PREFIX + match for match in close)}" if close else "see timm.list_models()"
        raise InputError(f"unknown model {name!r}: {hint}")
    return library


def build(name: str, num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> Staged:
    """Build a model of timm as a staged network, with random weights.

    Args:
        name: "timm:NAME".
        num_classes: C.
        input_shape: [channels, height, width].
        pooling: "gap" or "flatten", see `pool`.

    Returns:
        The network in train mode; its parameters have timm's names after "module.".

    Raises:
        InputError: as `find`, or the model does not take such images, or it shows fewer than two stages.

    >>> build("timm:resnet50d", 14, (3, 224, 224)).stages  # doctest: +SKIP
    ('layer1', 'layer2', 'layer3', 'layer4')
    """
    library = find(name)
    channels = image_channels(name, input_shape)
    try:
        module = library.create_model(
            name.removeprefix(PREFIX), pretrained=False, num_classes=num_classes, in_chans=channels
        )
        listed = _listed(module)
        shapes = _output_shapes(module.eval(), list(listed), input_shape)
    except Exception as error:  # whatever a model says of images that it was not made for
        raise InputError(f"model {name!r} cannot be built for images {input_shape}: {_reason(error)}") from error
    module.train()
    stages = _spread(list(shapes))
    if len(stages) < 2:
        raise InputError(
            f"model {name!r} shows {len(stages)} of its stages, and the drift needs at least 2: "
            "build it in Python and name them, labeltrace.models.Staged(timm.create_model(…), stages=[…])"
        )
    axes = [-1 if _channels_last(shapes[stage], listed[stage]) else 1 for stage in stages]
    return Staged(module, stages, pooling, axes)


def _listed(module: nn.Module) -> dict[str, int]:
    """Return the modules that may be stages, shallow to deep, each with its channels, or 0 where it does not say."""
    known = {name for name, _ in module.named_modules() if name}
    listed = {info["module"]: info.get("num_chs", 0) for info in getattr(module, "feature_info", [])}
    listed = {name: channels for name, channels in listed.items() if name in known}
    if len(listed) < 2:  # older transformers list their head alone
        blocks = getattr(module, "blocks", None)
        listed = {f"blocks.{name}": 0 for name, _ in blocks.named_children()} if blocks is not None else {}
    return listed


def _output_shapes(module: nn.Module, names: Sequence[str], input_shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the shape of what each submodule makes of a blank image; those that do not run are left out."""
    shapes: dict[str, tuple[int, ...]] = {}

    def keep(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            first = output[0] if isinstance(output, tuple) and output else output
            if isinstance(first, Tensor) and first.ndim > 1:
                shapes[name] = tuple(first.shape)

        return hook

    handles = [module.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    try:
        with torch.no_grad():
            module(torch.zeros(1, *input_shape))
    finally:
        for handle in handles:
            handle.remove()
    return {name: shapes[name] for name in names if name in shapes}


def _channels_last(shape: tuple[int, ...], channels: int) -> bool:
    """Say whether the output of a stage is [B, tokens, D], or [B, H, W, D] with D as the model lists it."""
    return len(shape) == 3 or (len(shape) == 4 and shape[1] != channels and shape[3] == channels)


def _spread(names: list[str]) -> list[str]:
    """Return at most four names, evenly spaced, the last among them: of five the last four, of twelve every third."""
    if len(names) <= STAGES:
        return names
    return [names[-(-(step * len(names)) // STAGES) - 1] for step in range(1, STAGES + 1)]


def _reason(error: Exception) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
