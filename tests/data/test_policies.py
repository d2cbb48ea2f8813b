"""DISC's strong view: every operation against Pillow with the published numbers, and how often each is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from labeltrace.data import policies as module
from labeltrace.data.draws import Draws
from labeltrace.data.policies import DISC_OPERATIONS, disc_magnitude, disc_randaugment
from labeltrace.data.randaugment import Operation, apply_operation, paint_square
from labeltrace.data.views import FeatureViews, ImageViews, crop_flip
from labeltrace.errors import InputError

SHAPES = [(3, 32, 32), (1, 28, 28), (3, 64, 64), (1, 8, 8), (3, 20, 33), (1, 1, 1)]
NAMES = [operation.name for operation in DISC_OPERATIONS]
CIFAR = ImageViews(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def draws_of(count: int, seed: int = 0) -> Draws:
    return Draws.at(torch.arange(count), seed)


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy())


def from_pillow(picture: Image.Image, like: Tensor) -> Tensor:
    return torch.from_numpy(np.array(picture)).view(*like.shape[1:], -1).permute(2, 0, 1)


def factor(v: int) -> float:
    """0.18 v + 0.1, on the grid that makes blends exact."""
    return round((0.18 * v + 0.1) * 32768) / 32768


def square(image: Image.Image, side: int, x: float, y: float) -> Image.Image:
    x0, y0 = int(max(0, x * image.width - side / 2)), int(max(0, y * image.height - side / 2))
    corners = (x0, y0, int(min(image.width, x0 + side)), int(min(image.height, y0 + side)))
    ImageDraw.Draw(image).rectangle(corners, (127, 127, 127) if image.mode == "RGB" else 127)
    return image


def add_then_solarize(image: Image.Image, added: int) -> Image.Image:
    levels = np.clip(np.array(image).astype(int) + added, 0, 255).astype(np.uint8)
    return ImageOps.solarize(Image.fromarray(levels), 128)


def affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


# name → (image, level, sign) → image, as DISC's code has it
PUBLISHED: dict[str, Callable[[Image.Image, int, int], Image.Image]] = {
    "autocontrast": lambda image, v, sign: ImageOps.autocontrast(image),
    "brightness": lambda image, v, sign: ImageEnhance.Brightness(image).enhance(factor(v)),
    "colour": lambda image, v, sign: ImageEnhance.Color(image).enhance(factor(v)),
    "contrast": lambda image, v, sign: ImageEnhance.Contrast(image).enhance(factor(v)),
    "equalize": lambda image, v, sign: ImageOps.equalize(image),
    "invert": lambda image, v, sign: ImageOps.invert(image),
    "posterize": lambda image, v, sign: ImageOps.posterize(image, int(v * 4 / 10) + 4),
    "rotate": lambda image, v, sign: image.rotate(sign * int(v * 30 / 10)),
    "sharpness": lambda image, v, sign: ImageEnhance.Sharpness(image).enhance(factor(v)),
    "shear_x": lambda image, v, sign: affine(image, 1, sign * (v * 0.1 / 10), 0, 0, 1, 0),
    "shear_y": lambda image, v, sign: affine(image, 1, 0, 0, sign * (v * 0.1 / 10), 1, 0),
    "solarize": lambda image, v, sign: ImageOps.solarize(image, 256 - int(v * 256 / 10)),
    "solarize_add": lambda image, v, sign: add_then_solarize(image, sign * int(v * 110 / 10)),
    "translate_x": lambda image, v, sign: affine(image, 1, 0, int(sign * (v * 0.05 / 10) * image.width), 0, 1, 0),
    "translate_y": lambda image, v, sign: affine(image, 1, 0, 0, 0, 1, int(sign * (v * 0.05 / 10) * image.height)),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", PUBLISHED)
def test_operation_equals_pillow_at_every_level(name: str, shape: tuple[int, int, int]) -> None:
    images = noise(18, *shape)
    images[9:12], images[12:15] = images[9:12] // 8 + 100, 77  # a narrow band, constants
    level, negative = torch.arange(18) % 9 + 1, torch.arange(18) % 2 == 0
    operation = torch.full((18,), NAMES.index(name))
    ours = apply_operation(images, operation, disc_magnitude(operation, level, negative, *shape[1:]), DISC_OPERATIONS)
    for image, result, v, minus in zip(images, ours, level.tolist(), negative.tolist(), strict=True):
        theirs = PUBLISHED[name](to_pillow(image), v, -1 if minus else 1)
        assert torch.equal(result, from_pillow(theirs, image)), (name, v)


@pytest.mark.parametrize("levels", [4, 9])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_policy_equals_the_slow_loop(shape: tuple[int, int, int], levels: int) -> None:
    images, draws = noise(60, *shape), draws_of(60, seed=3)
    ours = disc_randaugment(images, draws, levels)
    for image, result, numbers in zip(images, ours, draws.uniform(14).tolist(), strict=True):
        picture = to_pillow(image)
        for step in range(2):
            pick, level, whether, sign, x, y = numbers[6 * step : 6 * step + 6]
            name, v = NAMES[int(pick * 16)], 1 + int(level * levels)
            if whether >= 0.5:
                continue
            if name == "cutout":
                picture = square(picture, int(v * 0.1 / 10 * min(picture.size)), x, y)
            else:
                picture = PUBLISHED[name](picture, v, -1 if sign < 0.5 else 1)
        picture = square(picture, int(picture.width * 0.15), *numbers[12:])
        assert torch.equal(result, from_pillow(picture, image))


def test_two_of_sixteen_each_with_probability_one_half() -> None:
    numbers = draws_of(32_000).uniform(14)
    for step in range(2):
        operation = (numbers[:, 6 * step] * 16).long()
        assert operation.bincount(minlength=16).div(2000).sub(1).abs().max() < 0.12  # 5.5 deviations
        assert abs((numbers[:, 6 * step + 2] < 0.5).float().mean() - 0.5) < 0.015
    # A quarter of the images keep all pixels but the square's; a few more where an operation changes nothing.
    images = noise(4000, 1, 32, 32)
    changed = (disc_randaugment(images, draws_of(4000)) != images).flatten(1).sum(1)
    untouched = (changed <= 25).float().mean()  # 5×5 pixels
    assert 0.25 < untouched < 0.42


def test_levels_bound_the_magnitudes() -> None:
    operation = torch.full((9,), NAMES.index("translate_x"))
    shift = 32 * disc_magnitude(operation, torch.arange(1, 10), torch.zeros(9, dtype=torch.bool), 32, 32)
    assert shift.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1]  # whole pixels: on CIFAR-10 (levels 1–4) nothing moves
    with pytest.raises(InputError, match="levels is 0; expected 1 to 10"):
        disc_randaugment(noise(1, 3, 8, 8), draws_of(1), levels=0)
    with pytest.raises(InputError, match="images is float32"):
        disc_randaugment(noise(1, 3, 8, 8).float(), draws_of(1))


def test_factors_make_blends_exact() -> None:
    value = disc_magnitude(torch.full((9,), 1), torch.arange(1, 10), torch.zeros(9, dtype=torch.bool), 8, 8)
    assert torch.equal(value * 32768, (value * 32768).round())
    assert (value - (0.18 * torch.arange(1, 10) + 0.1)).abs().max() < 1.6e-5


def test_a_side_of_zero_paints_one_pixel() -> None:
    images, middle = torch.zeros(1, 1, 5, 5, dtype=torch.uint8), torch.tensor([0.5])
    assert int((paint_square(images, middle, middle, torch.zeros(1), (127,) * 3) == 127).sum()) == 1


def test_an_operation_without_pixels_changes_nothing() -> None:
    images = noise(4, 3, 8, 8)
    zeros = torch.zeros(4)
    assert torch.equal(apply_operation(images, zeros.long(), zeros, (Operation("cutout", 0, 0.1),)), images)


@pytest.mark.parametrize("padding", [0, 1, 4, 9])
def test_reflecting_crop_equals_numpy(padding: int) -> None:
    images, draws = noise(30, 3, 10, 12), draws_of(30)
    ours = crop_flip(images, draws, padding, flip=True, reflect=True)
    for image, result, (u, v, w) in zip(images.numpy(), ours.numpy(), draws.uniform(3).tolist(), strict=True):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)), mode="reflect")
        top, left = int(u * (2 * padding + 1)), int(v * (2 * padding + 1))
        window = padded[:, top : top + 10, left : left + 12]
        assert np.array_equal(result, window[:, :, ::-1] if w < 0.5 else window)


def test_a_border_wider_than_the_image_is_still_an_image() -> None:
    images = noise(6, 1, 2, 1)
    assert crop_flip(images, draws_of(6), 4, flip=True, reflect=True).shape == images.shape


@pytest.mark.parametrize(("policy", "levels"), [("disc", 9), ("disc_mild", 4)])
def test_the_strong_view_is_crop_then_policy(policy: str, levels: int) -> None:
    images, draws = noise(20, 3, 32, 32), draws_of(20)
    seen = disc_randaugment(crop_flip(images, draws.fork(2), 4, True, reflect=True), draws.fork(0), levels)
    assert torch.equal(CIFAR.strong(images, draws, policy), CIFAR.plain(seen))
    window = replace(CIFAR, size=24)
    assert window.strong(images, draws, policy).shape == (20, 3, 24, 24)


def test_policies_leave_the_default_and_features_alone() -> None:
    images, draws = noise(9, 3, 16, 16), draws_of(9)
    assert torch.equal(CIFAR.strong(images, draws), CIFAR.strong(images, draws, policy=None))
    assert torch.equal(CIFAR.weak(images, draws), CIFAR.weak(images, draws, reflect=False))
    assert not torch.equal(CIFAR.weak(images, draws), CIFAR.weak(images, draws, reflect=True))
    features = FeatureViews((0.0,) * 4, (1.0,) * 4)
    rows = torch.randn(5, 4)
    assert torch.equal(features.strong(rows, draws_of(5)), features.strong(rows, draws_of(5), policy="disc"))
    assert torch.equal(features.weak(rows, draws_of(5)), features.weak(rows, draws_of(5), reflect=True))
    with pytest.raises(InputError, match="unknown policy 'dics': did you mean 'disc'"):
        CIFAR.strong(images, draws, policy="dics")


def test_a_view_belongs_to_the_sample() -> None:
    images, index = noise(12, 3, 14, 14), torch.arange(12)
    whole = CIFAR.strong(images, Draws.at(index, 0), "disc")
    assert torch.equal(CIFAR.strong(images[5:], Draws.at(index[5:], 0), "disc"), whole[5:])


@pytest.mark.slow
def test_compiled_policy_equals_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUNDS", 1)  # half of the compiler's time
    images, draws = noise(256, 3, 32, 32), draws_of(256)

    def changed(batch: Tensor, keys: Tensor) -> Tensor:
        return disc_randaugment(batch, Draws(keys))

    assert torch.equal(torch.compile(changed, fullgraph=True)(images, draws.keys), changed(images, draws.keys))
