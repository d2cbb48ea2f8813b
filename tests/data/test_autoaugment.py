"""AutoAugment's CIFAR-10 policy against Pillow: the same sub-policy gives the same pixels."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from labeltrace.data.autoaugment import (
    GREY,
    NAMES,
    POLICY,
    apply_step,
    autoaugment,
    draw_subpolicy,
    magnitude_of,
)
from labeltrace.data.draws import Draws
from labeltrace.data.views import ImageViews
from labeltrace.errors import InputError

SHAPES = [(3, 32, 32), (1, 28, 28), (3, 33, 47), (1, 8, 8), (3, 2, 5), (1, 1, 1)]


def move(image, matrix, how=Image.Resampling.NEAREST):
    fill = (GREY,) * 3 if image.mode == "RGB" else GREY
    return image.transform(image.size, Image.Transform.AFFINE, matrix, how, fillcolor=fill)


PILLOW = {
    "identity": lambda image, _: image,
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "invert": lambda image, _: ImageOps.invert(image),
    "posterize": lambda image, v: ImageOps.posterize(image, int(v)),
    "solarize": lambda image, v: ImageOps.solarize(image, v),
    "brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "colour": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "rotate": lambda image, v: image.rotate(v, fillcolor=(GREY,) * 3 if image.mode == "RGB" else GREY),
    "translate_x": lambda image, v: move(image, (1, 0, v * image.width, 0, 1, 0)),
    "translate_y": lambda image, v: move(image, (1, 0, 0, 0, 1, v * image.height)),
    "shear_y": lambda image, v: move(image, (1, 0, 0, v, 1, 0), Image.Resampling.BICUBIC),
}


def pillow(image, *steps):
    picture = Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy())
    for name, magnitude in steps:
        picture = PILLOW[name](picture, magnitude)
    return torch.from_numpy(np.array(picture)).view(*image.shape[1:], -1).permute(2, 0, 1)


def pictures(shape, count, seed=0):
    g = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 256, (count, *shape), generator=g)
    dark = noise // 4
    slope = (torch.arange(shape[2]) * 5 + torch.arange(shape[1])[:, None] * 3).clamp(max=255).expand(count, *shape)
    return torch.cat([noise, dark, slope]).to(torch.uint8)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("name", "level"), sorted({(h.name, h.level) for pair in POLICY for h in pair}))
def test_every_half_equals_pillow(name, level, shape):
    images = pictures(shape, 3)
    middle, swing = magnitude_of(name, level)
    for magnitude in {middle - swing, middle + swing}:
        given = torch.full((len(images),), magnitude)
        ours = apply_step(images, torch.full((len(images),), NAMES.index(name)), given)
        theirs = torch.stack([pillow(image, (name, float(given[0]))) for image in images])
        assert torch.equal(ours, theirs)


def test_a_batch_equals_pillow_image_by_image():
    images = pictures((3, 32, 32), 100)
    draws = Draws.at(torch.arange(len(images)), 5)
    operation, magnitude = draw_subpolicy(draws)
    ours = autoaugment(images, draws)
    for i, image in enumerate(images):
        steps = [(NAMES[int(o)], float(m)) for o, m in zip(operation[i], magnitude[i], strict=True)]
        assert torch.equal(ours[i], pillow(image, *steps))


def test_the_policy_is_drawn_as_published():
    count = 200_000
    operation, magnitude = draw_subpolicy(Draws.at(torch.arange(count), 0))
    assert len(POLICY) == 25
    for name in NAMES[1:]:
        number = NAMES.index(name)
        for step in (0, 1):
            wanted = sum(pair[step].chance for pair in POLICY if pair[step].name == name) / 25
            found = float((operation[:, step] == number).float().mean())
            assert found == pytest.approx(wanted, abs=4e-3)
    shift = magnitude[operation == NAMES.index("translate_x")]
    assert sorted({round(abs(v), 5) for v in shift.tolist()}) == pytest.approx([8 / 9 * 150 / 331, 150 / 331], abs=1e-5)
    assert float((shift > 0).float().mean()) == pytest.approx(0.5, abs=0.02)
    assert (magnitude[operation == NAMES.index("rotate")] > 0).all()
    assert set(magnitude[operation == NAMES.index("posterize")].tolist()) == {5.0}


def test_an_image_draws_the_same_in_any_batch():
    images = pictures((3, 16, 16), 4)
    index = torch.arange(len(images)) + 3
    whole = autoaugment(images, Draws.at(index, 1))
    assert torch.equal(autoaugment(images[5:6], Draws.at(index[5:6], 1)), whole[5:6])
    assert not torch.equal(autoaugment(images, Draws.at(index, 2)), whole)


def test_moves_uncover_grey():
    images = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    for name, magnitude in (("rotate", 20.0), ("translate_y", 0.4), ("shear_y", 0.3)):
        moved = apply_step(images, torch.tensor([NAMES.index(name)]), torch.tensor([magnitude]))
        assert set(moved.unique().tolist()) == {0, GREY}


def test_the_strong_view_takes_it():
    images = pictures((3, 16, 16), 2)
    views, draws = ImageViews((0.5,) * 3, (0.5,) * 3), Draws.at(torch.arange(6), 0)
    seen = views.strong(images, draws, policy="autoaugment")
    assert seen.shape == images.shape and seen.dtype == torch.float32
    assert not torch.equal(seen, views.strong(images, draws))


def test_refuses_what_is_no_image():
    with pytest.raises(InputError, match="uint8"):
        autoaugment(torch.zeros(1, 3, 4, 4), Draws.at(torch.arange(1), 0))
