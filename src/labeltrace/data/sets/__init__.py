"""Datasets by name, each read in its official layout; importing this registers them."""

from labeltrace.data.sets import (  # noqa: F401
    animal10n,
    cifar,
    cifar_n,
    clothing1m,
    digits,
    food101n,
    red_mini_imagenet,
    tiny_imagenet,
    webvision,
)
