"""Windows: the part of a large stored image that a network sees, cut for a whole batch on its device.

Three ways to choose it: in the middle (test and scoring), at a random place, or of random area and aspect and resized,
as torchvision's CenterCrop, RandomCrop and RandomResizedCrop do. Resizing is Pillow's bilinear filter with antialias,
in its own fixed point, first along the width and then along the height, so every pixel equals Pillow's (up to version
12 in all cases; since 13 it takes some windows that shrink more in height the other way round, which shows in the last
level). Shapes are fixed and nothing is copied from the host, so the code can be captured in a CUDA graph: the number of
pixels that a resized one is made of is that of the largest window.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labeltrace.data.draws import Draws
from labeltrace.data.randaugment import check_images
from labeltrace.errors import InputError

ASPECT = (3 / 4, 4 / 3)  # width over height: torchvision's RandomResizedCrop
TRIES = 10  # likewise: areas and aspects drawn until a window fits into the image; then the whole image
_BITS = 22  # of the fixed point of Pillow's weights: 8 bits of a level and 2 to spare in 32


def centre_window(images: Tensor, size: int) -> Tensor:
    """Return the window [B, C, size, size] in the middle of `images` [B, C, H, W] uint8; half a pixel goes up and left.

    >>> centre_window(torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4), 2).tolist()
    [[[[5, 6], [9, 10]]]]

    Raises:
        InputError: `images` is not a batch of uint8 images, or smaller than the window.
    """
    height, width = _sides(images, size)
    top, left = (height - size) // 2, (width - size) // 2
    return images[:, :, top : top + size, left : left + size]


def random_window(images: Tensor, draws: Draws, size: int, flip: bool) -> Tensor:
    """Cut a window at a random place of each image, every place equally likely, then mirror half of them if `flip`.

    >>> images = torch.arange(8, dtype=torch.uint8).view(1, 1, 2, 4)
    >>> random_window(images, Draws.at(torch.tensor([2]), 0), size=2, flip=False).tolist()
    [[[[1, 2], [5, 6]]]]

    Args:
        images: [B, C, H, W] uint8.
        draws: the streams of the B images.
        size: side of the window.
        flip: whether to mirror left and right with probability 1/2.

    Returns:
        [B, C, size, size] uint8.

    Raises:
        InputError: `images` is not a batch of uint8 images, or smaller than the window.
    """
    height, width = _sides(images, size)
    down, right, mirror = draws.uniform(3)[:, :, None].unbind(1)
    place = torch.arange(size, device=images.device)
    rows = (down * (height - size + 1)).long() + place
    columns = (right * (width - size + 1)).long() + (
        torch.where(mirror < 0.5, size - 1 - place, place) if flip else place
    )
    return _take(_take(images, rows, dim=2), columns, dim=3)


def resized_window(images: Tensor, draws: Draws, size: int, scale: tuple[float, float], flip: bool) -> Tensor:
    """Cut a window of random area, aspect and place, resize it, then mirror half of them if `flip`.

    >>> images = torch.full((2, 1, 8, 8), 7, dtype=torch.uint8)
    >>> resized_window(images, Draws.at(torch.arange(2), 0), size=4, scale=(0.2, 1.0), flip=True).unique().tolist()
    [7]

    Args:
        images: [B, C, H, W] uint8.
        draws: the streams of the B images.
        size: side of the result.
        scale: range of the window's share of the image's area.
        flip: whether to mirror left and right with probability 1/2.

    Returns:
        [B, C, size, size] uint8.

    Raises:
        InputError: `images` is not a batch of uint8 images, or a side of them is below `size`.
    """
    height, width = _sides(images, size)
    top, left, tall, wide, mirror = draw_windows(draws, height, width, scale)
    # Each pass rounds to whole levels, as Pillow's, so their order shows.
    images = _resize(images, left, wide, size, mirror=mirror < 0.5 if flip else None, dim=3)
    return _resize(images, top, tall, size, mirror=None, dim=2)


def draw_windows(
    draws: Draws, height: int, width: int, scale: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Draw what `resized_window` cuts, in the way of torchvision's RandomResizedCrop.

    The area is uniform in `scale` times the image's, the aspect log-uniform in `ASPECT`, both until the window fits
    into the image. After ten failures it is the largest window in the middle with an aspect in the range.

    >>> top, left, tall, wide, _ = draw_windows(Draws.at(torch.arange(3), 0), 8, 8, scale=(1.0, 1.0))
    >>> top.tolist(), left.tolist(), tall.tolist(), wide.tolist()
    ([0, 0, 0], [0, 0, 0], [8, 8, 8], [8, 8, 8])

    Args:
        draws: the streams of the B images.
        height: of the images.
        width: of the images.
        scale: range of the share of the area.

    Returns:
        Top, left, height and width of the windows, [B] int64, and a number in [0, 1) for the mirror, [B] float32.
    """
    numbers = draws.uniform(2 * TRIES + 3)
    share, turn = numbers[:, : 2 * TRIES].double().chunk(2, dim=1)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * share)
    low, high = math.log(ASPECT[0]), math.log(ASPECT[1])
    aspect = torch.exp(low + (high - low) * turn)
    wide, tall = torch.sqrt(area * aspect).round().long(), torch.sqrt(area / aspect).round().long()
    fits = (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
    first = fits.int().argmax(1, keepdim=True)
    found = fits.any(1)
    most_wide, most_tall = min(width, round(height * ASPECT[1])), min(height, round(width / ASPECT[0]))
    wide = torch.where(found, wide.gather(1, first).squeeze(1), most_wide)
    tall = torch.where(found, tall.gather(1, first).squeeze(1), most_tall)
    down, right, mirror = numbers[:, 2 * TRIES :].unbind(1)
    top = torch.where(found, (down * (height - tall + 1)).long(), (height - most_tall) // 2)
    left = torch.where(found, (right * (width - wide + 1)).long(), (width - most_wide) // 2)
    return top, left, tall, wide, mirror


def _resize(images: Tensor, start: Tensor, length: Tensor, size: int, mirror: Tensor | None, dim: int) -> Tensor:
    """Resize along `dim` the pixels [start, start + length) of each image to `size` pixels, perhaps in reverse order.

    A pixel is the mean of its neighbours with weights that fall off linearly to zero at `reach` from its centre, a
    pixel when the window grows and as many as go into one when it shrinks; the window's border cuts them off.
    """
    taps = 2 * math.ceil(max(1.0, images.shape[dim] / size)) + 1
    step = (length.double() / size)[:, None]
    reach = step.clamp(min=1.0)
    place = torch.arange(size, device=images.device)
    if mirror is not None:
        place = torch.where(mirror[:, None], size - 1 - place, place)
    centre = (place + 0.5) * step  # [B, size]
    nearest = (centre - reach + 0.5).long().clamp(min=0)
    beyond = torch.minimum((centre + reach + 0.5).long(), length[:, None])
    sources = nearest[..., None] + torch.arange(taps, device=images.device)  # [B, size, taps]
    weights = (1 - ((sources - centre[..., None] + 0.5) * (1 / reach)[..., None]).abs()).clamp(min=0)
    weights = torch.where(sources < beyond[..., None], weights, 0.0)
    weights = (weights / weights.sum(2, keepdim=True) * 2**_BITS + 0.5).int()
    sources = start[:, None, None] + torch.minimum(sources, length[:, None, None] - 1)
    shape = [len(images), 1, 1, 1]
    shape[dim] = size
    total = torch.full((), 2 ** (_BITS - 1), dtype=torch.int32, device=images.device)
    for source, weight in zip(sources.unbind(2), weights.unbind(2), strict=True):
        total = total + _take(images, source, dim) * weight.view(shape)
    return (total >> _BITS).clamp(0, 255).to(torch.uint8)


def _take(images: Tensor, places: Tensor, dim: int) -> Tensor:
    """Return, for each image, its lines `places` [B, size] along `dim`."""
    shape, index = list(images.shape), [len(images), 1, 1, 1]
    shape[dim] = index[dim] = places.shape[1]
    return images.gather(dim, places.view(index).expand(shape))


def _sides(images: Tensor, size: int) -> tuple[int, int]:
    """Return height and width of the images, in which a window of `size` must fit."""
    check_images(images)
    height, width = images.shape[-2:]
    if size > min(height, width):
        raise InputError(
            f"size is {size} and the images are {height}x{width}: take a size of at most {min(height, width)}, "
            "or store larger images"
        )
    return height, width
