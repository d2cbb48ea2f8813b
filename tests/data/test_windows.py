"""Windows of large images: places and areas against a slow loop, resized pixels against Pillow and torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from labeltrace.data.draws import Draws
from labeltrace.data.windows import centre_window, draw_windows, random_window, resized_window
from labeltrace.errors import InputError


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def draws_of(count: int, seed: int = 0) -> Draws:
    return Draws.at(torch.arange(count), seed)


@pytest.mark.parametrize("shape", [(9, 9), (8, 9), (9, 8), (5, 12)], ids=str)
@pytest.mark.parametrize("size", [1, 4, 5])
def test_centre_window(shape: tuple[int, int], size: int) -> None:
    images = noise(2, 3, *shape)
    window = centre_window(images, size)
    top, left = (shape[0] - size) // 2, (shape[1] - size) // 2
    assert torch.equal(window, images[:, :, top : top + size, left : left + size])
    assert abs((shape[0] - size) - 2 * top) <= 1


@settings(max_examples=25, deadline=None)
@given(
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    share=st.floats(0, 1),
    flip=st.booleans(),
    seed=st.integers(0, 99),
)
def test_random_window_equals_slow_loop(
    channels: int, height: int, width: int, share: float, flip: bool, seed: int
) -> None:
    size = max(1, round(share * min(height, width)))
    images, draws = noise(6, channels, height, width, seed=seed), draws_of(6, seed)
    ours = random_window(images, draws, size, flip)
    assert ours.dtype == torch.uint8
    for image, result, (u, v, w) in zip(images.numpy(), ours.numpy(), draws.uniform(3).tolist(), strict=True):
        top, left = int(u * (height - size + 1)), int(v * (width - size + 1))
        window = image[:, top : top + size, left : left + size]
        assert np.array_equal(result, window[:, :, ::-1] if flip and w < 0.5 else window)


def test_random_windows_are_uniform() -> None:
    places = torch.arange(9, dtype=torch.uint8).view(1, 1, 3, 3).expand(9000, 1, 3, 3)
    seen = random_window(places, draws_of(9000), size=1, flip=True).flatten().bincount(minlength=9)
    assert (seen - 1000).abs().max() < 150  # 5 deviations
    side = torch.tensor([0, 1], dtype=torch.uint8).expand(9000, 1, 2, 2)
    flipped = random_window(side, draws_of(9000), size=2, flip=True)[:, 0, 0, 0].float().mean()
    assert abs(flipped - 0.5) < 0.03


def slow_window(numbers: list[float], height: int, width: int, scale: tuple[float, float]) -> tuple[int, int, int, int]:
    """Top, left, height and width as torchvision finds them, one try after another."""
    down, right, _ = numbers[20:]
    for share, turn in zip(numbers[:10], numbers[10:20], strict=True):
        area = height * width * (scale[0] + (scale[1] - scale[0]) * share)
        aspect = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * turn)
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            return int(down * (height - tall + 1)), int(right * (width - wide + 1)), tall, wide
    if width / height < 3 / 4:
        tall, wide = round(width / (3 / 4)), width
    elif width / height > 4 / 3:
        tall, wide = height, round(height * 4 / 3)
    else:
        tall, wide = height, width
    return (height - tall) // 2, (width - wide) // 2, tall, wide


@pytest.mark.parametrize("shape", [(64, 64), (256, 256), (60, 80), (33, 100), (100, 33), (1, 1)], ids=str)
@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.9, 1.0), (1.0, 1.0), (0.0001, 0.001)], ids=str)
def test_draw_windows_equals_slow_loop(shape: tuple[int, int], scale: tuple[float, float]) -> None:
    draws = draws_of(300)
    ours = torch.stack(draw_windows(draws, *shape, scale)[:4], dim=1).tolist()
    expected = [slow_window(numbers, *shape, scale) for numbers in draws.uniform(23).tolist()]
    assert [tuple(window) for window in ours] == expected
    for top, left, tall, wide in ours:
        assert 0 <= top <= top + tall <= shape[0] and 0 <= left <= left + wide <= shape[1] and tall and wide


def test_areas_are_uniform_and_aspects_log_uniform() -> None:
    side, (low, high) = 1000, (0.08, 0.5)  # up to 0.5 every window fits, so none is drawn again
    top, left, tall, wide, mirror = (part.double() for part in draw_windows(draws_of(9000), side, side, (low, high)))
    share = (tall * wide / side**2 - low) / (high - low)
    turn = torch.log(wide / tall) / math.log(4 / 3)
    for values, (start, stop) in ((share, (0, 1)), (turn, (-1, 1)), (mirror, (0, 1))):
        counts = torch.histc(values.float(), bins=9, min=start, max=stop)
        assert (counts - 1000).abs().max() < 150
    for place, room in ((top, side - tall), (left, side - wide)):
        counts = torch.histc((place / room).float(), bins=9, min=0, max=1)
        assert (counts - 1000).abs().max() < 150
    parts = torch.corrcoef(torch.stack([share, turn, top / (side - tall), left / (side - wide), mirror]))
    assert (parts - torch.eye(5)).abs().max() < 0.06


CASES = [  # channels, height, width, size, scale
    (3, 64, 64, 56, (0.08, 1.0)),
    (1, 80, 60, 32, (0.1, 1.0)),
    (3, 40, 40, 40, (0.05, 0.3)),  # always larger
    (1, 50, 90, 7, (0.3, 1.0)),  # seven times smaller
    (3, 33, 47, 33, (1.0, 1.0)),
    (1, 5, 5, 1, (0.001, 1.0)),
]


@pytest.mark.parametrize(("channels", "height", "width", "size", "scale"), CASES)
@pytest.mark.parametrize("flip", [False, True])
def test_resized_window_equals_pillow(
    channels: int, height: int, width: int, size: int, scale: tuple[float, float], flip: bool
) -> None:
    images, draws = noise(60, channels, height, width), draws_of(60)
    ours = resized_window(images, draws, size, scale, flip)
    assert ours.shape == (60, channels, size, size) and ours.dtype == torch.uint8
    drawn = zip(*(part.tolist() for part in draw_windows(draws, height, width, scale)), strict=True)
    for image, result, (top, left, tall, wide, mirror) in zip(images, ours, drawn, strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy()).crop((left, top, left + wide, top + tall))
        # two calls, for since version 13 one call does not always begin with the width
        picture = picture.resize((size, tall), Image.Resampling.BILINEAR)
        pixels = np.array(picture.resize((size, size), Image.Resampling.BILINEAR))
        expected = pixels[:, ::-1] if flip and mirror < 0.5 else pixels
        assert np.array_equal(result.permute(1, 2, 0).squeeze(2).numpy(), expected)


def test_resized_window_is_near_torch() -> None:
    images, draws = noise(40, 3, 64, 64), draws_of(40)
    ours = resized_window(images, draws, 48, (0.1, 1.0), flip=False)
    drawn = zip(*(part.tolist() for part in draw_windows(draws, 64, 64, (0.1, 1.0))), strict=True)
    for image, result, (top, left, tall, wide, _) in zip(images, ours, drawn, strict=True):
        cut = image[None, :, top : top + tall, left : left + wide].float()
        expected = torch.nn.functional.interpolate(cut, (48, 48), mode="bilinear", antialias=True)[0]
        assert (result - expected).abs().max() <= 1.01  # whole levels, twice rounded


def test_the_whole_image_at_its_own_size_is_itself() -> None:
    images = noise(9, 3, 24, 24)
    assert torch.equal(resized_window(images, draws_of(9), 24, (1.0, 1.0), flip=False), images)
    flipped = resized_window(images, draws_of(9), 24, (1.0, 1.0), flip=True)
    mirrored = (draw_windows(draws_of(9), 24, 24, (1.0, 1.0))[4] < 0.5)[:, None, None, None]
    assert mirrored.any() and not mirrored.all()
    assert torch.equal(flipped, torch.where(mirrored, images.flip(3), images))


@pytest.mark.parametrize("shape", [(2, 3, 20, 16), (2, 3, 16, 20)], ids=str)
def test_a_window_must_fit(shape: tuple[int, ...]) -> None:
    message = rf"size is 17 and the images are {shape[2]}x{shape[3]}: take a size of at most 16"
    images = noise(*shape)
    for call in (
        lambda: centre_window(images, 17),
        lambda: random_window(images, draws_of(2), 17, flip=True),
        lambda: resized_window(images, draws_of(2), 17, (0.1, 1.0), flip=True),
    ):
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(InputError, match="images is float32"):
        random_window(images.float(), draws_of(2), 8, flip=True)
