"""Networks that return logits and the pooled features of their stages, by name.

A new model costs one file with a builder `(num_classes, input_shape, pooling) -> nn.Module` and one line below;
the tests find it in the registry. A user's own module needs neither: see `Staged`. `timm:NAME` is any model of timm.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from labeltrace.errors import InputError
from labeltrace.models import (
    densenet,
    inception_resnet_v2,
    mlp,
    mobilenet_v2,
    preact_resnet,
    resnet,
    small_cnn,
    timm,
    wide_resnet,
)
from labeltrace.models.inputs import default_model
from labeltrace.models.output import Output, check_pooling, pool
from labeltrace.models.staged import Staged
from labeltrace.models.weights import load_weights
from labeltrace.registry import Registry

__all__ = [
    "ModelBuilder",
    "Output",
    "Staged",
    "build_model",
    "check_model",
    "default_model",
    "load_weights",
    "models",
    "pool",
]

ModelBuilder = Callable[[int, tuple[int, ...], str], nn.Module]

models = Registry[ModelBuilder]("model")
models.add(
    "preact_resnet18", preact_resnet.preact_resnet18, "DivideMix's PreAct ResNet-18 for small images, 11.2 M parameters"
)
models.add("resnet18", resnet.resnet18, "ResNet-18 for small images (3×3 stem), 11.2 M parameters")
models.add("resnet34", resnet.resnet34, "ResNet-34 for small images (3×3 stem), 21.3 M parameters")
models.add("resnet50", resnet.resnet50, "ResNet-50 for small images (3×3 stem), 23.5 M parameters")
models.add(
    "resnet50_large", resnet.resnet50_large, "torchvision's ResNet-50 for images over 64 pixels, 23.5 M parameters"
)
models.add(
    "inception_resnet_v2",
    inception_resnet_v2.inception_resnet_v2,
    "Inception-ResNet-v2 for images of 75 pixels and more (299 in the paper), 54.3 M parameters",
)
models.add("wrn28_10", wide_resnet.wrn28_10, "Wide ResNet 28-10 for small images, 36.5 M parameters")
models.add("densenet121", densenet.densenet121, "DenseNet-121 for small images (3×3 stem), 7.0 M parameters")
models.add("mobilenet_v2", mobilenet_v2.mobilenet_v2, "MobileNetV2 for small images (stem stride 1), 2.2 M parameters")
models.add("small_cnn", small_cnn.small_cnn, "four convolutions for images of 8 to 28 pixels, 0.19 M parameters")
models.add("mlp", mlp.mlp, "three hidden layers for features; the input counts as the shallowest stage")


def check_model(name: str) -> str:
    """Return `name` when `build_model` knows it, so that a misspelling is found before any data is read.

    Args:
        name: a key of `models`, or "timm:NAME" for a model of timm, which is imported only then.

    Returns:
        The same name.

    Raises:
        InputError: the name is unknown, or timm is needed and cannot be imported.

    >>> check_model("resnet18")
    'resnet18'
    >>> check_model("resnet81")
    Traceback (most recent call last):
    labeltrace.errors.InputError: unknown model 'resnet81': did you mean 'resnet18'?
    """
    if name.startswith(timm.PREFIX):
        timm.find(name)
    else:
        models[name]
    return name


def build_model(name: str, num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> nn.Module:
    """Build a model by name, a module whose `forward(x)` returns an `Output`.

    Args:
        name: a key of `models`, or "timm:NAME"; `default_model(input_shape)` names a sensible one.
        num_classes: C, at least 2.
        input_shape: shape of one sample, [D] or [channels, height, width].
        pooling: "gap" or "flatten", see `pool`.

    Returns:
        The module, on the CPU, in train mode, initialised from torch's global generator.

    Raises:
        InputError: unknown name or pooling, fewer than two classes, a shape the model does not take, or timm is
            needed and cannot be imported.

    >>> import torch
    >>> network = build_model("small_cnn", num_classes=10, input_shape=(1, 8, 8))
    >>> network(torch.zeros(4, 1, 8, 8)).logits.shape
    torch.Size([4, 10])
    >>> build_model("mlp", num_classes=10, input_shape=(1, 8, 8))
    Traceback (most recent call last):
    labeltrace.errors.InputError: model 'mlp' takes features, got images of shape (1, 8, 8): take model 'small_cnn'
    """
    check_model(name)
    if num_classes < 2:
        raise InputError(f"num_classes is {num_classes}: a classifier needs at least 2")
    default_model(input_shape)  # refuses a shape that is neither features nor images, whatever the builder checks
    check_pooling(pooling)
    if name.startswith(timm.PREFIX):
        return timm.build(name, num_classes, input_shape, pooling)
    return models[name](num_classes, input_shape, pooling)
