"""DISC's RandAugment and small square, for a whole batch on its device, with one policy per image.

Source: the strong view of DISC (Li et al., CVPR 2023; `RandAugmentwogeo` of its code): two operations drawn with
replacement from sixteen, each applied with probability 1/2 at a whole level, then always a grey square. What its code
leaves unsaid: at level v an operation has v tenths of its largest magnitude, cut to whole numbers for degrees, bits,
thresholds and shifts, so that on 32 pixels the shifts of levels below 7 move nothing; the squares include their end
pixel, so the "0.15" of 32 pixels covers 5×5.

Blending factors are rounded to multiples of 1/32768 (at most 1.6e-5 from the published ones): every blend is then exact
in float32, compiled or not. All else equals Pillow with the published numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labeltrace.data.draws import Draws
from labeltrace.data.randaugment import Operation, apply_operation, check_images, paint_square
from labeltrace.errors import InputError

DISC_OPERATIONS = (  # the magnitudes of levels 0 and 10: DISC, datasets/randaugment.py
    Operation("autocontrast"),
    Operation("brightness", 0.1, 1.9),
    Operation("colour", 0.1, 1.9),
    Operation("contrast", 0.1, 1.9),
    Operation("cutout", 0, 0.1),  # of the shorter side
    Operation("equalize"),
    Operation("invert"),
    Operation("posterize", 4, 8),  # bits kept
    Operation("rotate", 0, 30),  # degrees; this and the rest but "solarize" have a random sign
    Operation("sharpness", 0.1, 1.9),
    Operation("shear_x", 0, 0.1),
    Operation("shear_y", 0, 0.1),
    Operation("solarize", 256, 0),  # levels from here on are inverted
    Operation("solarize_add", 0, 110),  # added before solarizing at 128
    Operation("translate_x", 0, 0.05),  # of the width
    Operation("translate_y", 0, 0.05),  # of the height
)
ROUNDS = 2
SQUARE = 0.15  # side of the last square as a share of the width
GREY = (127, 127, 127)
_GRID = 32768
_NAMES = [operation.name for operation in DISC_OPERATIONS]
_NUMBERS = 6  # that a round draws: operation, level, whether, sign, and the place of a square


def disc_randaugment(images: Tensor, draws: Draws, levels: int = 9) -> Tensor:
    """Apply DISC's two random operations and its grey square to each of `images` [B, C, H, W] uint8 (C is 1 or 3).

    >>> images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    >>> disc_randaugment(images, Draws.at(torch.tensor([4, 9]), 0)).shape
    torch.Size([2, 3, 8, 8])

    Args:
        images: [B, C, H, W] uint8.
        draws: the streams of the B images.
        levels: magnitudes are of levels 1 … `levels` out of 10 (its code: 4 for CIFAR-10, 9 elsewhere).

    Returns:
        [B, C, H, W] uint8.

    Raises:
        InputError: `images` is not a batch of uint8 images, or `levels` is not in 1 … 10.
    """
    check_images(images)
    if not 1 <= levels <= 10:
        raise InputError(f"levels is {levels}; expected 1 to 10")
    numbers = draws.uniform(_NUMBERS * ROUNDS + 2)
    for step in range(ROUNDS):
        pick, level, whether, sign, x, y = numbers[:, _NUMBERS * step : _NUMBERS * (step + 1)].unbind(1)
        operation = (pick * len(DISC_OPERATIONS)).long()
        level = 1 + (level * levels).long()
        height, width = images.shape[-2:]
        changed = apply_operation(
            images, operation, disc_magnitude(operation, level, sign < 0.5, height, width), DISC_OPERATIONS
        )
        side = torch.floor(level.double() * 0.1 / 10 * min(height, width))
        square = (operation == _NAMES.index("cutout"))[:, None, None, None]
        changed = torch.where(square, paint_square(images, x, y, side, GREY), changed)
        images = torch.where((whether < 0.5)[:, None, None, None], changed, images)
    x, y = numbers[:, -2:].unbind(1)
    side = torch.full_like(x, int(images.shape[-1] * SQUARE))
    return paint_square(images, x, y, side, GREY)


def disc_magnitude(operation: Tensor, level: Tensor, negative: Tensor, height: int, width: int) -> Tensor:
    """Return the magnitude [B] float64 of operations [B] (places in `DISC_OPERATIONS`) at levels [B] of 10.

    >>> brightness, shift = torch.tensor([1]), torch.tensor([14])
    >>> at = torch.tensor([9]), torch.tensor([True]), 32, 32  # level, sign, size
    >>> round(disc_magnitude(brightness, *at).item(), 3), 32 * disc_magnitude(shift, *at).item()
    (1.72, -1.0)

    Args:
        operation: [B] integers.
        level: [B] integers in 1 … 10.
        negative: [B] whether a random sign came out negative.
        height: of the images, which shifts count in whole pixels.
        width: likewise.
    """
    v = level.double()
    sign = torch.where(negative, -1.0, 1.0).double()
    # In whole numbers where the published code cuts to them, in its order of float64 products elsewhere.
    factor = (((18 * level + 10) * _GRID + 50) // 100).double() / _GRID
    known = {
        "brightness": factor,
        "colour": factor,
        "contrast": factor,
        "sharpness": factor,
        "posterize": (level * 4 // 10 + 4).double(),
        "rotate": sign * 3 * level,
        "shear_x": sign * (v * 0.1 / 10),
        "shear_y": sign * (v * 0.1 / 10),
        "solarize": (256 - level * 256 // 10).double(),
        "solarize_add": sign * 11 * level,
        "translate_x": sign * torch.floor(v * 0.05 / 10 * width) / width,
        "translate_y": sign * torch.floor(v * 0.05 / 10 * height) / height,
    }
    magnitude = torch.zeros_like(v)
    for name, value in known.items():
        magnitude = torch.where(operation == _NAMES.index(name), value, magnitude)
    return magnitude
