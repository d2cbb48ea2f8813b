"""AutoAugment's CIFAR-10 policy for a whole batch on its device: each image draws one of 25 pairs of operations.

Source: Cubuk, Zoph, Mané, Vasudevan, Le, "AutoAugment: Learning Augmentation Policies from Data" (CVPR 2019, arXiv
1805.09501), its CIFAR-10 table, in the rendering that SSR's and ANNE's codes use (levels 0 to 9 of the ranges below,
grey fill). What that rendering does that the paper does not say: a rotation always turns counter-clockwise, all other
moves and all blends draw their sign, a shear is bicubic, rotation and translation read the nearest pixel.

Pixels equal Pillow's. What we chose: blend factors are multiples of 1/65536, so that compiled code gives the same
pixels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from labeltrace.data.draws import Draws
from labeltrace.data.randaugment import Operation, _move, apply_operation, check_images

GREY = 128  # fill of what a move uncovers
_GRID = 65536


class Half(NamedTuple):
    """One of the two operations of a sub-policy: its chance and its level, 0 to 9."""

    chance: float
    name: str
    level: int


def _pair(one: tuple[float, str, int], two: tuple[float, str, int]) -> tuple[Half, Half]:
    return Half(*one), Half(*two)


POLICY: tuple[tuple[Half, Half], ...] = (  # the paper's table, sub-policies 0 to 24
    _pair((0.1, "invert", 7), (0.2, "contrast", 6)),
    _pair((0.7, "rotate", 2), (0.3, "translate_x", 9)),
    _pair((0.8, "sharpness", 1), (0.9, "sharpness", 3)),
    _pair((0.5, "shear_y", 8), (0.7, "translate_y", 9)),
    _pair((0.5, "autocontrast", 8), (0.9, "equalize", 2)),
    _pair((0.2, "shear_y", 7), (0.3, "posterize", 7)),
    _pair((0.4, "colour", 3), (0.6, "brightness", 7)),
    _pair((0.3, "sharpness", 9), (0.7, "brightness", 9)),
    _pair((0.6, "equalize", 5), (0.5, "equalize", 1)),
    _pair((0.6, "contrast", 7), (0.6, "sharpness", 5)),
    _pair((0.7, "colour", 7), (0.5, "translate_x", 8)),
    _pair((0.3, "equalize", 7), (0.4, "autocontrast", 8)),
    _pair((0.4, "translate_y", 3), (0.2, "sharpness", 6)),
    _pair((0.9, "brightness", 6), (0.2, "colour", 8)),
    _pair((0.5, "solarize", 2), (0.0, "invert", 3)),
    _pair((0.2, "equalize", 0), (0.6, "autocontrast", 0)),
    _pair((0.2, "equalize", 8), (0.8, "equalize", 4)),
    _pair((0.9, "colour", 9), (0.6, "equalize", 6)),
    _pair((0.8, "autocontrast", 4), (0.2, "solarize", 8)),
    _pair((0.1, "brightness", 3), (0.7, "colour", 0)),
    _pair((0.4, "solarize", 5), (0.9, "autocontrast", 3)),
    _pair((0.9, "translate_y", 9), (0.7, "translate_y", 9)),
    _pair((0.9, "autocontrast", 2), (0.8, "solarize", 3)),
    _pair((0.8, "equalize", 8), (0.1, "invert", 3)),
    _pair((0.7, "translate_y", 9), (0.9, "autocontrast", 1)),
)
_BLENDS = ("brightness", "colour", "contrast", "sharpness")
_MAPS = ("identity", "autocontrast", "equalize", "invert", "posterize", "solarize")
_MOVES = ("rotate", "translate_x", "translate_y", "shear_y")
#: what the numbers of `draw_subpolicy` stand for
NAMES = (*_MAPS, *_BLENDS, *_MOVES)
_LEVELS = tuple(Operation(name) for name in (*_MAPS, *_BLENDS))  # a number beyond these changes no level


def autoaugment(images: Tensor, draws: Draws) -> Tensor:
    """Apply a sub-policy of its own to each of `images` [B, C, H, W] uint8 (C is 1 or 3).

    >>> images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    >>> autoaugment(images, Draws.at(torch.tensor([4, 9]), 0)).shape
    torch.Size([2, 3, 8, 8])

    Raises:
        InputError: `images` is not a batch of uint8 images.
    """
    check_images(images)
    operation, magnitude = draw_subpolicy(draws)
    for step in range(2):
        images = apply_step(images, operation[:, step], magnitude[:, step])
    return images


def draw_subpolicy(draws: Draws) -> tuple[Tensor, Tensor]:
    """Draw what `autoaugment` applies: numbers into `NAMES` [B, 2] int64 and magnitudes [B, 2] float32.

    A half that does not take place is "identity".

    >>> operation, magnitude = draw_subpolicy(Draws.at(torch.arange(5), 0))
    >>> operation.shape, bool((operation < len(NAMES)).all())
    (torch.Size([5, 2]), True)
    """
    unit = draws.uniform(5)
    chance, number, middle, swing = _table(unit.device)[(unit[:, 0] * len(POLICY)).long()].unbind(2)
    happens = unit[:, 1:3] < chance
    sign = torch.where(unit[:, 3:5] < 0.5, -1.0, 1.0)
    return torch.where(happens, number, 0.0).long(), (middle + sign * swing).float()


def apply_step(images: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    """Apply to each image its own operation at its own magnitude.

    Args:
        images: [B, C, H, W] uint8.
        operation: [B] places in `NAMES`.
        magnitude: [B]: degrees, shares of the side, bits kept, a level, or the factor of a blend.

    >>> images = torch.full((1, 1, 1, 4), 200, dtype=torch.uint8)
    >>> apply_step(images, torch.tensor([NAMES.index("translate_x")]), torch.tensor([0.25])).flatten().tolist()
    [200, 200, 200, 128]
    """
    chosen = {name: operation == NAMES.index(name) for name in _MOVES}
    shear = chosen.pop("shear_y")
    # what a move uncovers is 0, so grey is moved to 0 and back
    moved = (_move(images.short() - GREY, chosen, magnitude) + GREY).to(torch.uint8)
    moved = torch.where(shear[:, None, None, None], shear_y(images, magnitude), moved)
    return apply_operation(moved, operation, magnitude, _LEVELS)


def shear_y(images: Tensor, slope: Tensor) -> Tensor:
    """Shift each column by `slope` [B] times its place, bicubic as in Pillow (kernel −1), over grey.

    >>> images = torch.tensor([10, 20, 30, 40], dtype=torch.uint8).view(1, 1, 4, 1)
    >>> shear_y(images, torch.tensor([2.0])).flatten().tolist()
    [20, 30, 40, 128]
    """
    height, width = images.shape[-2:]
    columns = torch.arange(width, device=images.device, dtype=torch.float64) + 0.5
    rows = torch.arange(height, device=images.device, dtype=torch.float64)[:, None] + 0.5
    place = slope.double()[:, None, None] * columns + rows  # [B, H, W], in Pillow's pixel-edge coordinates
    inside = (place >= 0) & (place < height)
    first = (place - 0.5).floor()
    part = (place - 0.5 - first)[:, None]
    a, b, c, d = (_rows(images, first.long() + step) for step in (-1, 0, 1, 2))
    cubic = b + part * ((c - a) + part * ((2 * (a - b) + c - d) + part * (b - a + d - c)))
    return torch.where(inside[:, None], cubic.clamp(0, 255), GREY).to(torch.uint8)


def _rows(images: Tensor, rows: Tensor) -> Tensor:
    """Read [B, C, H, W] float64 from each column at its own rows [B, H, W]; beyond the border stands the border."""
    index = rows.clamp(0, images.shape[2] - 1)[:, None].expand(-1, images.shape[1], -1, -1)
    return images.gather(2, index).double()


def magnitude_of(name: str, level: int) -> tuple[float, float]:
    """Return the middle of an operation's magnitude at a level 0 to 9, and how far its sign swings it.

    >>> magnitude_of("colour", 5), magnitude_of("posterize", 9), magnitude_of("invert", 3)
    ((1.0, 0.5), (4.0, 0.0), (0.0, 0.0))
    """
    share = level / 9
    if name in _BLENDS:
        return 1.0, round(0.9 * share * _GRID) / _GRID
    if name == "posterize":
        return float(round(8 - 4 * share)), 0.0
    if name == "solarize":
        return 256 * (1 - share), 0.0
    if name == "rotate":
        return 30 * share, 0.0
    return 0.0, {"shear_y": 0.3, "translate_x": 150 / 331, "translate_y": 150 / 331}.get(name, 0.0) * share


@lru_cache(maxsize=8)
def _table(device: torch.device) -> Tensor:
    """The policy as [25, 2, 4] float64: chance, number, magnitude and its swing; copied to a device once."""
    rows = [[(h.chance, NAMES.index(h.name), *magnitude_of(h.name, h.level)) for h in pair] for pair in POLICY]
    return torch.tensor(rows, dtype=torch.float64, device=device)
