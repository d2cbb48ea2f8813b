"""RoLR's RandAugment for a whole batch on its device, with one policy per image.

Source: the strong view of Robust-LR (Chen et al., AAAI 2023), which draws its operations with replacement, always
applies them, and takes each magnitude uniformly from the operation's range. Pixels equal Pillow's exactly.

An operation touches an image in one of three ways, so a round is three passes over the batch instead of fourteen:
where a pixel is read (rotate, shear, translate), how its level is mapped (autocontrast, equalize, posterize, solarize),
and how far it is blended with a degenerate image (brightness, colour, contrast, sharpness). The passes that an image's
operation does not use leave it as it is. All shapes are fixed and no constant is copied from the host, so the code
can be captured in a CUDA graph.

`apply_operation` serves other policies too: it takes their list of operations, which may hold "invert" and
"solarize_add" besides those of RoLR, and blends beyond the image itself (factors above 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from labeltrace.data.draws import Draws
from labeltrace.errors import InputError

Level = TypeVar("Level", int, Tensor)


class Operation(NamedTuple):
    """One operation and the range [low, high] of its magnitude; no range, no magnitude.

    >>> Operation("rotate", -30, 30).high
    30
    """

    name: str
    low: float = 0.0
    high: float = 0.0


OPERATIONS = (  # ranges: Robust-LR, randaugment.py
    Operation("autocontrast"),
    Operation("brightness", 0.05, 0.95),
    Operation("colour", 0.05, 0.95),
    Operation("contrast", 0.05, 0.95),
    Operation("equalize"),
    Operation("identity"),
    Operation("posterize", 4, 8),  # bits kept, rounded down; 8 is never drawn
    Operation("rotate", -30, 30),  # degrees, counter-clockwise
    Operation("sharpness", 0.05, 0.95),
    Operation("shear_x", -0.3, 0.3),
    Operation("shear_y", -0.3, 0.3),
    Operation("solarize", 0, 256),  # levels from here on are inverted
    Operation("translate_x", -0.3, 0.3),  # of the width
    Operation("translate_y", -0.3, 0.3),  # of the height
)
_GRID = 65536  # magnitudes are multiples of 1/65536: every blend is then exact in float32, compiled or not


def randaugment(images: Tensor, draws: Draws, rounds: int = 3) -> Tensor:
    """Apply `rounds` random operations, one after another, to each of `images` [B, C, H, W] uint8 (C is 1 or 3).

    >>> images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    >>> randaugment(images, Draws.at(torch.tensor([4, 9]), 0)).shape
    torch.Size([2, 3, 8, 8])

    Raises:
        InputError: `images` is not a batch of uint8 images.
    """
    operation, magnitude = draw_policy(draws, rounds)
    for step in range(rounds):
        images = apply_operation(images, operation[:, step], magnitude[:, step])
    return images


def draw_policy(draws: Draws, rounds: int = 3) -> tuple[Tensor, Tensor]:
    """Draw what `randaugment` applies: numbers into `OPERATIONS` [B, rounds] int64 and magnitudes [B, rounds] float32.

    >>> operation, magnitude = draw_policy(Draws.at(torch.arange(5), 0), rounds=2)
    >>> operation.shape, bool((operation < len(OPERATIONS)).all())
    (torch.Size([5, 2]), True)
    """
    pick, unit = draws.uniform(2 * rounds).chunk(2, dim=1)
    operation = (pick * len(OPERATIONS)).long()
    steps = (unit * _GRID).long()
    magnitude = torch.zeros_like(steps)
    for number, (_, low, high) in enumerate(OPERATIONS):
        if high > low:
            drawn = round(low * _GRID) + steps * round((high - low) * _GRID) // _GRID
            magnitude = torch.where(operation == number, drawn, magnitude)
    return operation, magnitude.float() / _GRID


def apply_operation(
    images: Tensor, operation: Tensor, magnitude: Tensor, operations: Sequence[Operation] = OPERATIONS
) -> Tensor:
    """Apply to each image its own operation at its own magnitude.

    The numbers are not checked against `operations` and the ranges, since that would wait for the device. A name that
    is none of the pixel operations here ("identity", or a square that a policy paints itself) changes nothing.

    >>> images = torch.full((1, 1, 2, 2), 200, dtype=torch.uint8)
    >>> solarize = [operation.name for operation in OPERATIONS].index("solarize")
    >>> apply_operation(images, torch.tensor([solarize]), torch.tensor([128.0])).flatten().tolist()
    [55, 55, 55, 55]

    Args:
        images: [B, C, H, W] uint8, C is 1 or 3.
        operation: [B] integers, places in `operations`.
        magnitude: [B] floats, in the unit of the operation; ignored by an operation without a range.
        operations: what the numbers stand for, each name at most once.

    Returns:
        [B, C, H, W] uint8.

    Raises:
        InputError: `images` is not a batch of uint8 images, or the other two are not one number per image.
    """
    check_images(images)
    for name, given in (("operation", operation), ("magnitude", magnitude)):
        if given.shape != images.shape[:1]:
            raise InputError(f"{name} has shape {list(given.shape)}; expected one per image, {[len(images)]}")
    which = operation[:, None] == torch.arange(len(operations), device=images.device)
    chosen = {known.name: here for known, here in zip(operations, which.unbind(1), strict=True)}
    images = _move(images, chosen, magnitude)
    images = _remap(images, chosen, magnitude)
    return _blend(images, chosen, magnitude)


def check_images(images: Tensor) -> None:
    """Raise unless `images` is a batch of grey or colour images, [B, 1 or 3, H, W] uint8.

    >>> check_images(torch.zeros(2, 8, 8, 3, dtype=torch.uint8))
    Traceback (most recent call last):
    labeltrace.errors.InputError: images is uint8 [2, 8, 8, 3]; expected uint8 [B, C, H, W] with C = 1 or 3
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        given = f"{str(images.dtype).removeprefix('torch.')} {list(images.shape)}"
        raise InputError(f"images is {given}; expected uint8 [B, C, H, W] with C = 1 or 3")


def luma(red: Level, green: Level, blue: Level) -> Level:
    """Return the grey level of a colour as Pillow rounds it (ITU-R 601-2 in 16-bit fixed point).

    >>> luma(125, 123, 114)
    123
    """
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16


def take_pixels(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Read each output pixel from its own place of the same image; a place outside the image is black.

    >>> images = torch.arange(4, dtype=torch.uint8).view(1, 1, 2, 2)
    >>> take_pixels(images, torch.tensor([[[0], [1]]]), torch.tensor([[[1, 2]]])).tolist()
    [[[[1, 0], [3, 0]]]]

    Args:
        images: [B, C, H, W].
        rows: integers that broadcast to [B, H, W].
        columns: likewise.

    Returns:
        [B, C, H, W], the dtype of `images`.
    """
    batch, channels, height, width = images.shape
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    place = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    place = place.expand(batch, height, width).flatten(1)[:, None].expand(-1, channels, -1)
    return images.flatten(2).gather(2, place).view_as(images) * inside[:, None]


def paint_square(images: Tensor, x: Tensor, y: Tensor, side: Tensor, colour: tuple[int, int, int]) -> Tensor:
    """Paint a square on each image, as Pillow's `ImageDraw.rectangle` does with the corners of the published codes.

    Near the top and left border the square is moved inside; near the other two it is cut off. The end pixel belongs to
    the square, so a side of 0 paints one pixel.

    >>> images, middle = torch.zeros(1, 1, 4, 4, dtype=torch.uint8), torch.tensor([0.5])
    >>> paint_square(images, middle, middle, torch.tensor([1.0]), (9, 9, 9))[0, 0, 1:3, 1:3].tolist()
    [[9, 9], [9, 9]]

    Args:
        images: [B, C, H, W] uint8, C is 1 or 3.
        x: [B] centre of the square as a share of the width, in [0, 1).
        y: [B] likewise of the height.
        side: [B] in pixels.
        colour: red, green, blue; a grey image gets its grey.

    Returns:
        [B, C, H, W] uint8.
    """
    height, width = images.shape[-2:]
    sides = side.double()[:, None, None]

    def covered(centre: Tensor, size: int) -> Tensor:
        place = torch.arange(size, device=images.device)
        start = (centre.double()[:, None, None] * size - sides / 2).clamp(min=0).floor()
        return (place >= start) & (place <= (start + sides).floor())

    square = covered(y, height).mT & covered(x, width)
    fill = per_channel(colour if images.shape[1] == 3 else (luma(*colour),), images)
    return torch.where(square[:, None], fill, images)


def per_channel(values: Sequence[float], like: Tensor) -> Tensor:
    """Return [C, 1, 1] of the dtype and on the device of `like`, filled there: a copy from the host would wait.

    >>> per_channel([1, 2], torch.zeros(1)).flatten().tolist()
    [1.0, 2.0]
    """
    return torch.stack([torch.full((1, 1), value, dtype=like.dtype, device=like.device) for value in values])


def _move(images: Tensor, chosen: dict[str, Tensor], magnitude: Tensor) -> Tensor:
    """Rotate, shear, translate: read every pixel through an affine map in Pillow's 16.16 fixed point."""
    if not chosen.keys() & {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}:
        return images
    height, width = images.shape[-2:]
    value = magnitude.double()
    none = torch.zeros_like(value)

    def when(name: str, given: Tensor) -> Tensor:
        return torch.where(chosen[name], given, none) if name in chosen else none

    # Pillow also rounds the sine and cosine to 15 digits, which the 16 bits below do not see.
    angle = when("rotate", -torch.deg2rad(value))
    cos, sin = torch.cos(angle), torch.sin(angle)
    # Pillow shifts in whole pixels, in double precision.
    right = when("translate_x", torch.floor(value * width + 0.5))
    down = when("translate_y", torch.floor(value * height + 0.5))
    xx, xy = cos, sin + when("shear_x", value)
    yx, yy = when("shear_y", value) - sin, cos
    x0 = width / 2 - cos * (width / 2) - sin * (height / 2) + right + (xx + xy) / 2
    y0 = height / 2 + sin * (width / 2) - cos * (height / 2) + down + (yx + yy) / 2
    matrix = torch.stack([xx, xy, x0, yx, yy, y0], dim=1)
    along_x, along_y, start = torch.floor(matrix * 65536 + 0.5).long().view(-1, 2, 3, 1, 1).unbind(2)

    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device)[:, None]
    columns, rows = ((start + along_x * x + along_y * y) >> 16).unbind(1)
    return take_pixels(images, rows, columns)


def _remap(images: Tensor, chosen: dict[str, Tensor], magnitude: Tensor) -> Tensor:
    """Autocontrast, equalize, posterize, solarize, invert: map each level by a table [B, C, 256] of its channel."""
    pixels = images.flatten(2).long()
    levels = torch.arange(256, device=images.device)
    value = magnitude[:, None, None]
    # int64 on purpose: compiled for the CPU by torch 2.13, the minimum of uint8 is wrong.
    darkest, brightest = pixels.amin(2, keepdim=True), pixels.amax(2, keepdim=True)

    span = brightest - darkest
    scale = torch.full_like(span, 255, dtype=torch.float64) / span.clamp(min=1)  # `255 / span` would round twice
    # Pillow truncates level * scale - darkest * scale, so the last bit shows: a whole 255 may come out as 254. Both
    # parts of the scale have exact products, which add up to the rounded product even where a compiler fuses them.
    coarse = torch.floor(scale * 2**20) / 2**20
    fine = scale - coarse
    stretched = ((levels * coarse + levels * fine) - (darkest * coarse + darkest * fine)).clamp(0, 255).long()

    count = torch.zeros(*images.shape[:2], 256, dtype=torch.int64, device=images.device)
    count = count.scatter_add(2, pixels, pixels.new_ones(()).expand_as(pixels))
    step = (pixels.shape[2] - count.gather(2, brightest)) // 255
    equal = ((step // 2 + count.cumsum(2) - count) // step.clamp(min=1)).clamp(max=255)

    dropped = (8 - value.long()).clamp(0, 8)
    added = (levels + value.long()).clamp(0, 255)
    changes = (
        ("autocontrast", torch.where(span > 0, stretched, levels)),
        ("equalize", torch.where(step > 0, equal, levels)),
        ("invert", 255 - levels),
        ("posterize", levels >> dropped << dropped),
        ("solarize", torch.where(levels < value, levels, 255 - levels)),
        ("solarize_add", torch.where(added < 128, added, 255 - added)),
    )
    table = levels.expand_as(count)
    for name, changed in changes:
        if name in chosen:
            table = torch.where(chosen[name][:, None, None], changed, table)
    return table.to(torch.uint8).gather(2, pixels).view_as(images)


def _blend(images: Tensor, chosen: dict[str, Tensor], magnitude: Tensor) -> Tensor:
    """Brightness, colour, contrast, sharpness: blend with black, the grey image, the mean grey, the smoothed image."""
    grey = luma(*images.int().unbind(1))[:, None] if images.shape[1] == 3 else images
    # Integers, as the mean is rounded half up: floor(sum / n + 1/2).
    size = images.shape[2] * images.shape[3]
    mean = (2 * grey.sum((1, 2, 3), keepdim=True) + size) // (2 * size)
    # A 3x3 kernel of ones with 5 in the middle, over 13; Pillow leaves the border as it is.
    wide = images.short()
    row = wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]
    total = row[..., :-2, :] + row[..., 1:-1, :] + row[..., 2:, :] + 4 * wide[..., 1:-1, 1:-1]
    smooth = images.clone()
    smooth[..., 1:-1, 1:-1] = (total / 13 + 0.5).to(torch.uint8)

    names, never = ("brightness", "colour", "contrast", "sharpness"), torch.zeros_like(magnitude, dtype=torch.bool)
    brightness, colour, contrast, sharpness = (chosen.get(name, never)[:, None, None, None] for name in names)
    level = torch.where(contrast, mean, 0)
    target = torch.where(sharpness, smooth, torch.where(colour, grey, level).to(torch.uint8)).float()
    factor = torch.where(brightness | colour | contrast | sharpness, magnitude.float()[:, None, None, None], 1.0)
    # float32 and truncation, as in Pillow; a factor above 1 may leave the range
    return (target + factor * (images.float() - target)).clamp(0, 255).to(torch.uint8)
