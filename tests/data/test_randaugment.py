"""RandAugment against Pillow: the same image and magnitude give the same pixels, all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from labeltrace.data.draws import Draws
from labeltrace.data.randaugment import OPERATIONS, apply_operation, draw_policy, luma, randaugment, take_pixels

SHAPES = [(3, 32, 32), (1, 28, 28), (3, 8, 8), (3, 33, 47), (1, 47, 33), (3, 20, 9), (1, 8, 30), (3, 2, 5), (1, 1, 1)]
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
NUMBER = {operation.name: number for number, operation in enumerate(OPERATIONS)}


def affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "colour": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "identity": lambda image, _: image,
    "posterize": lambda image, v: ImageOps.posterize(image, int(v)),
    "rotate": lambda image, v: image.rotate(v),
    "sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "shear_x": lambda image, v: affine(image, 1, v, 0, 0, 1, 0),
    "shear_y": lambda image, v: affine(image, 1, 0, 0, v, 1, 0),
    "solarize": lambda image, v: ImageOps.solarize(image, v),  # type: ignore[arg-type]
    "translate_x": lambda image, v: affine(image, 1, 0, v * image.width, 0, 1, 0),
    "translate_y": lambda image, v: affine(image, 1, 0, 0, 0, 1, v * image.height),
}


def pillow(image: Tensor, *policy: tuple[str, float]) -> Tensor:
    """Apply (name, magnitude) pairs to one image [C, H, W] with Pillow."""
    picture = Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy())
    for name, magnitude in policy:
        picture = PILLOW[name](picture, magnitude)
    return torch.from_numpy(np.array(picture)).view(*image.shape[1:], -1).permute(2, 0, 1)


def pictures(shape: tuple[int, int, int], count: int, seed: int = 0) -> Tensor:
    """Return [5 * count, C, H, W]: noise, noise in a narrow band, two levels, gradients, constants."""
    generator = torch.Generator().manual_seed(seed)

    def whole(low: int, high: int, *size: int) -> Tensor:
        return torch.randint(low, high, (count, *size), generator=generator)

    channels, height, width = shape
    noise = whole(0, 256, *shape)
    band = whole(0, 200, channels, 1, 1) + noise % whole(1, 57, channels, 1, 1)
    two = torch.where(noise < 30, whole(0, 256, channels, 1, 1), whole(0, 256, channels, 1, 1))
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    slope = (rows * whole(-9, 10, channels, 1, 1) + columns * whole(-9, 10, channels, 1, 1)).clamp(-128, 127) + 128
    flat = whole(0, 256, channels, 1, 1).expand(-1, *shape)
    return torch.cat([noise, band, two, slope, flat]).to(torch.uint8)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NUMBER)
def test_operation_equals_pillow(name: str, shape: tuple[int, int, int]) -> None:
    images = pictures(shape, count=8)
    _, low, high = OPERATIONS[NUMBER[name]]
    magnitude = low + (high - low) * torch.rand(len(images), generator=torch.Generator().manual_seed(1))
    magnitude[::5], magnitude[1::5] = low, high
    if low < 0:
        magnitude[2::10] = 0
        magnitude[3::10] = low / 2  # translation: half pixels
    ours = apply_operation(images, torch.full((len(images),), NUMBER[name]), magnitude)
    theirs = torch.stack([pillow(image, (name, float(m))) for image, m in zip(images, magnitude, strict=True)])
    assert torch.equal(ours, theirs)


def test_autocontrast_equals_pillow_for_every_pair_of_ends() -> None:
    # Truncation makes this the one operation where a rounding error of 1e-14 shows.
    low, high = torch.triu_indices(256, 256, offset=1)[:, ::7]
    ramp = torch.arange(256)
    images = torch.maximum(torch.minimum(ramp, high[:, None]), low[:, None]).to(torch.uint8).view(-1, 1, 16, 16)
    zeros = torch.zeros(len(images))
    ours = apply_operation(images, zeros.long() + NUMBER["autocontrast"], zeros)
    assert torch.equal(ours, torch.stack([pillow(image, ("autocontrast", 0)) for image in images]))


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_CUDA])])
def test_compiled_operations_equal_eager(device: str) -> None:
    compiled = torch.compile(apply_operation, fullgraph=True)
    images = pictures((3, 32, 32), count=100)
    for seed in range(20):
        operation, magnitude = (part[:, 0] for part in draw_policy(Draws.at(torch.arange(len(images)), seed), rounds=1))
        found = compiled(*(given.to(device) for given in (images, operation, magnitude))).cpu()
        assert torch.equal(found, apply_operation(images, operation, magnitude))


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(NUMBER)),
    unit=st.floats(0, 1, width=32),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(1, 40), st.integers(1, 40)),
    seed=st.integers(0, 99),
)
def test_any_operation_equals_pillow(name: str, unit: float, shape: tuple[int, int, int], seed: int) -> None:
    images = pictures(shape, count=1, seed=seed)
    _, low, high = OPERATIONS[NUMBER[name]]
    magnitude = torch.full((5,), low + (high - low) * unit)
    ours = apply_operation(images, torch.full((5,), NUMBER[name]), magnitude)
    assert torch.equal(ours, torch.stack([pillow(image, (name, float(magnitude[0]))) for image in images]))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 33, 47)], ids=str)
def test_policy_equals_its_operations_in_turn(shape: tuple[int, int, int]) -> None:
    images = pictures(shape, count=60)
    draws = Draws.at(torch.arange(len(images)), 11)
    operation, magnitude = draw_policy(draws)
    policies = [
        [(OPERATIONS[number].name, value) for number, value in zip(*row, strict=True)]
        for row in zip(operation.tolist(), magnitude.tolist(), strict=True)
    ]
    theirs = torch.stack([pillow(image, *policy) for image, policy in zip(images, policies, strict=True)])
    assert torch.equal(randaugment(images, draws), theirs)


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(8)))
def test_an_image_does_not_see_its_batch(order: list[int]) -> None:
    images, index = pictures((3, 12, 10), count=2)[:8], torch.arange(8)
    whole = randaugment(images, Draws.at(index, 3))
    assert torch.equal(randaugment(images[order], Draws.at(index[order], 3)), whole[order])
    alone = [randaugment(images[i : i + 1], Draws.at(index[i : i + 1], 3)) for i in order]
    assert torch.equal(torch.cat(alone), whole[order])


def test_operations_are_drawn_uniformly_and_independently() -> None:
    operation, _ = draw_policy(Draws.at(torch.arange(28_000), 5))
    for column in operation.unbind(1):
        assert column.bincount(minlength=14).float().div(2000).sub(1).abs().max() < 0.12  # 5.5 deviations
    pairs = (operation[:, 0] * 14 + operation[:, 1]).bincount(minlength=196)
    assert pairs.min() > 80  # of about 143: with replacement, no pair is left out


def test_magnitudes_fill_their_range() -> None:
    operation, magnitude = draw_policy(Draws.at(torch.arange(14_000), 6))
    for number, (name, low, high) in enumerate(OPERATIONS):
        drawn = magnitude[operation == number]
        assert drawn.min() >= low - 2**-17  # half a step of the grid
        assert drawn.max() <= high + 2**-17
        if high == low:
            continue
        unit = (drawn - low) / (high - low)
        assert abs(unit.mean() - 0.5) < 0.03
        assert unit.min() < 0.01
        assert unit.max() > 0.99
        if name == "posterize":
            assert drawn.long().unique().tolist() == [4, 5, 6, 7]


def test_magnitudes_make_blends_exact() -> None:
    # 16 bits of factor times 8 bits of level fit float32's 24: a fused multiply-add gives the same pixel.
    _, magnitude = draw_policy(Draws.at(torch.arange(500), 7))
    assert torch.equal(magnitude * 65536, (magnitude * 65536).round())


def test_no_round_is_no_change() -> None:
    images = pictures((3, 8, 8), count=1)
    assert torch.equal(randaugment(images, Draws.at(torch.arange(5), 0), rounds=0), images)


def test_empty_batch() -> None:
    images = torch.zeros(0, 3, 8, 8, dtype=torch.uint8)
    assert randaugment(images, Draws.at(torch.arange(0), 0)).shape == images.shape


def test_layout_in_memory_does_not_matter() -> None:
    images, draws = pictures((3, 9, 8), count=4), Draws.at(torch.arange(20), 0)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(randaugment(last, draws), randaugment(images, draws))


def test_take_pixels_reads_outside_as_black() -> None:
    images = torch.arange(1, 7, dtype=torch.uint8).view(1, 1, 2, 3)
    rows, columns = torch.tensor([[-1], [1]]), torch.tensor([2, 0, 3])
    assert take_pixels(images, rows[None], columns[None]).tolist() == [[[[0, 0, 0], [6, 4, 0]]]]


def test_luma_equals_pillow() -> None:
    image = pictures((3, 16, 16), count=1)[0]
    theirs = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")
    assert np.array_equal(luma(*image.int().unbind(0)).numpy(), np.array(theirs))


@pytest.mark.parametrize(
    ("images", "given"),
    [
        (torch.zeros(2, 3, 8, 8), r"float32 \[2, 3, 8, 8\]"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), r"uint8 \[3, 8, 8\]"),
        (torch.zeros(2, 4, 8, 8, dtype=torch.uint8), r"uint8 \[2, 4, 8, 8\]"),
    ],
)
def test_wrong_images_are_named(images: Tensor, given: str) -> None:
    with pytest.raises(ValueError, match=f"images is {given}; expected uint8"):
        randaugment(images, Draws.at(torch.arange(2), 0))


def test_wrong_policy_is_named() -> None:
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"magnitude has shape \[1\]; expected one per image, \[2\]"):
        apply_operation(images, torch.zeros(2).long(), torch.zeros(1))
