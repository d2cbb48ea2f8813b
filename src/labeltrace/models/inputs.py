"""Which input a model takes: images [channels, height, width] or features [dimension]."""

from __future__ import annotations

from labeltrace.errors import InputError

SMALL_IMAGE = 28  # pixels; MNIST's side, the largest for which `small_cnn` is meant
LARGE_IMAGE = 64  # pixels; Tiny ImageNet's side: beyond it a stem without stride costs more than it shows


def default_model(input_shape: tuple[int, ...]) -> str:
    """Name the model to take for samples of `input_shape` when the user names none.

    Args:
        input_shape: shape of one sample, [D] or [channels, height, width].

    Returns:
        "mlp" for features, "small_cnn" for images up to 28 pixels, "preact_resnet18" up to 64, "resnet50_large" for
        larger ones; the longer side counts.

    Raises:
        InputError: the shape is neither of the two.

    >>> default_model((64,)), default_model((1, 28, 28)), default_model((3, 32, 32))
    ('mlp', 'small_cnn', 'preact_resnet18')
    >>> default_model((3, 224, 224))
    'resnet50_large'
    """
    if len(input_shape) == 2:
        height, width = input_shape
        raise InputError(f"input_shape {input_shape} has no channels: for grey images take (1, {height}, {width})")
    if len(input_shape) not in (1, 3) or min(input_shape) < 1:
        raise InputError(f"input_shape {input_shape} is not understood: expected (D,) or (channels, height, width)")
    if len(input_shape) == 1:
        return "mlp"
    side = max(input_shape[1:])
    if side <= SMALL_IMAGE:
        return "small_cnn"
    return "preact_resnet18" if side <= LARGE_IMAGE else "resnet50_large"


def image_channels(model: str, input_shape: tuple[int, ...]) -> int:
    """Return the channels of an image shape, for a `model` that takes images only.

    Args:
        model: its name, for the message.
        input_shape: [channels, height, width].

    Returns:
        The number of channels.

    Raises:
        InputError: the shape is one of features; the message names the model to take instead.

    >>> image_channels("resnet18", (3, 32, 32))
    3
    >>> image_channels("resnet18", (64,))
    Traceback (most recent call last):
    labeltrace.errors.InputError: model 'resnet18' takes images, got features of shape (64,): take model 'mlp'
    """
    instead = default_model(input_shape)
    if len(input_shape) != 3:
        raise InputError(f"model {model!r} takes images, got features of shape {input_shape}: take model {instead!r}")
    return input_shape[0]


def feature_dimension(model: str, input_shape: tuple[int, ...]) -> int:
    """Return the dimension of a feature shape, for a `model` that takes features only.

    Args:
        model: its name, for the message.
        input_shape: [D].

    Returns:
        D.

    Raises:
        InputError: the shape is one of images; the message names the model to take instead.

    >>> feature_dimension("mlp", (64,))
    64
    >>> feature_dimension("mlp", (1, 8, 8))
    Traceback (most recent call last):
    labeltrace.errors.InputError: model 'mlp' takes features, got images of shape (1, 8, 8): take model 'small_cnn'
    """
    instead = default_model(input_shape)
    if len(input_shape) != 1:
        raise InputError(f"model {model!r} takes features, got images of shape {input_shape}: take model {instead!r}")
    return input_shape[0]
