"""Views: crop and flip against a slow loop, cutout against Pillow, and the promises of the two classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from torch import Tensor

from labeltrace.data import views as module
from labeltrace.data.draws import Draws
from labeltrace.data.views import FeatureViews, ImageViews, Views, crop_flip, cutout, normalise
from labeltrace.data.windows import centre_window, random_window, resized_window
from labeltrace.errors import InputError

CIFAR = ImageViews(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
WINDOW = replace(CIFAR, size=12)
RESIZED = replace(CIFAR, size=12, scale=(0.2, 1.0))
COLOUR = (125, 123, 114)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def draws_of(count: int, seed: int = 0) -> Draws:
    return Draws.at(torch.arange(count), seed)


@settings(max_examples=25, deadline=None)
@given(
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    padding=st.integers(0, 5),
    flip=st.booleans(),
    seed=st.integers(0, 99),
)
def test_crop_flip_equals_slow_loop(
    channels: int, height: int, width: int, padding: int, flip: bool, seed: int
) -> None:
    images, draws = noise(6, channels, height, width, seed=seed), draws_of(6, seed)
    ours = crop_flip(images, draws, padding, flip)
    for image, result, (u, v, w) in zip(images.numpy(), ours.numpy(), draws.uniform(3).tolist(), strict=True):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        top, left = int(u * (2 * padding + 1)), int(v * (2 * padding + 1))
        window = padded[:, top : top + height, left : left + width]
        assert np.array_equal(result, window[:, :, ::-1] if flip and w < 0.5 else window)


def test_crop_places_and_flips_are_uniform() -> None:
    dot = torch.zeros(9000, 1, 9, 9, dtype=torch.uint8)
    dot[:, :, 4, 4] = 1
    seen = crop_flip(dot, draws_of(9000), padding=1, flip=False).sum((0, 1))
    assert seen.sum() == 9000
    assert (seen[3:6, 3:6] - 1000).abs().max() < 150  # 5 deviations
    side = torch.tensor([0, 1], dtype=torch.uint8).expand(9000, 1, 1, 2)
    flipped = crop_flip(side, draws_of(9000), padding=0, flip=True)[:, 0, 0, 0].float().mean()
    assert abs(flipped - 0.5) < 0.03


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 20, 33), (1, 33, 20), (3, 1, 1)], ids=str)
@pytest.mark.parametrize("fraction", [0.5, 1.0, 0.03])
def test_cutout_equals_pillow(shape: tuple[int, int, int], fraction: float) -> None:
    channels, height, width = shape
    images, draws = noise(80, *shape), draws_of(80)
    ours = cutout(images, draws, fraction)
    for image, result, (u, v, w) in zip(images, ours, draws.uniform(3).tolist(), strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy())
        side = w * fraction * width
        x0, y0 = int(max(0, u * width - side / 2)), int(max(0, v * height - side / 2))
        corners = (x0, y0, min(width, x0 + side), min(height, y0 + side))
        grey = Image.new("RGB", (1, 1), COLOUR).convert("L").getpixel((0, 0))
        ImageDraw.Draw(picture).rectangle(corners, COLOUR if channels == 3 else grey)
        assert np.array_equal(result.permute(1, 2, 0).squeeze(2).numpy(), np.array(picture))


def test_normalise_equals_the_formula() -> None:
    images = noise(4, 3, 5, 6)
    mean, std = torch.tensor(CIFAR.mean).view(3, 1, 1), torch.tensor(CIFAR.std).view(3, 1, 1)
    ours = normalise(images, CIFAR.mean, CIFAR.std)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, (images / 255 - mean) / std)


def test_parts_that_are_off_change_nothing() -> None:
    images, draws = noise(8, 3, 16, 16), draws_of(8)
    off = replace(CIFAR, padding=0, flip=False, rounds=0, cutout=0.0)
    assert torch.equal(off.weak(images, draws), CIFAR.plain(images))
    assert torch.equal(off.strong(images, draws), CIFAR.plain(images))
    assert torch.equal(replace(CIFAR, rounds=0, cutout=0.0).strong(images, draws), CIFAR.weak(images, draws))
    for change in ({"padding": 4}, {"flip": True}, {"rounds": 3}, {"cutout": 0.5}):
        assert not torch.equal(replace(off, **change).strong(images, draws), CIFAR.plain(images))  # type: ignore[arg-type]


def test_strong_is_augment_then_cutout_then_crop() -> None:
    # Were RandAugment last, it would change the square's colour; were the crop first, it could not cut a square away.
    images, square = torch.zeros(600, 3, 16, 16, dtype=torch.uint8), torch.tensor(COLOUR).view(3, 1, 1)
    views = replace(CIFAR, mean=(0.0,) * 3, std=(1 / 255,) * 3)

    def painted(padding: int) -> torch.Tensor:
        strong = replace(views, padding=padding).strong(images, draws_of(600))
        return (strong.round() == square).all(1).flatten(1).any(1)

    assert painted(0).all()
    assert not painted(4).all()


@pytest.mark.parametrize("views", [WINDOW, RESIZED], ids=["window", "resized"])
@pytest.mark.parametrize("channels", [1, 3])
def test_views_of_large_images(views: ImageViews, channels: int) -> None:
    if channels == 1:
        views = replace(views, mean=(0.5,), std=(0.25,))
    images, draws = noise(8, channels, 20, 16), draws_of(8)
    whole = replace(views, size=None, scale=None)
    assert torch.equal(views.plain(images), whole.plain(centre_window(images, 12)))
    crop = draws.fork(2)
    if views.scale is None:
        window = random_window(images, crop, 12, flip=True)
    else:
        window = resized_window(images, crop, 12, views.scale, flip=True)
    assert torch.equal(views.weak(images, draws), whole.plain(window))
    for view in (views.plain(images), views.weak(images, draws), views.strong(images, draws)):
        assert (view.shape, view.dtype) == ((8, channels, 12, 12), torch.float32)
    still = replace(views, rounds=0, cutout=0.0)
    assert torch.equal(still.strong(images, draws), views.weak(images, draws))
    assert torch.equal(replace(views, padding=0).strong(images, draws), views.strong(images, draws))
    assert not torch.equal(replace(views, flip=False).weak(images, draws), views.weak(images, draws))


@pytest.mark.parametrize("views", [WINDOW, RESIZED], ids=["window", "resized"])
def test_strong_cuts_the_window_last(views: ImageViews) -> None:
    # Were the window first, the square would always be in it.
    images, square = torch.zeros(600, 3, 36, 36, dtype=torch.uint8), torch.tensor(COLOUR).view(3, 1, 1)
    views = replace(views, mean=(0.0,) * 3, std=(1 / 255,) * 3, rounds=0)
    painted = (views.strong(images, draws_of(600)).round() == square).all(1).flatten(1).any(1)
    assert painted.any()
    assert not painted.all()


@pytest.mark.parametrize("views", [CIFAR, WINDOW, RESIZED], ids=["whole", "window", "resized"])
def test_views_are_determined_by_their_draws_alone(views: ImageViews) -> None:
    images = noise(8, 3, 16, 16)
    first = views.strong(images, draws_of(8))
    torch.manual_seed(5)
    state = torch.get_rng_state()
    with torch.no_grad():
        again = views.strong(images, draws_of(8))
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), state)
    assert not first.requires_grad
    assert not torch.equal(first, views.strong(images, draws_of(8, seed=1)))


def test_parts_draw_from_their_own_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[Tensor] = []
    uniform = Draws.uniform

    def record(self: Draws, count: int) -> Tensor:
        streams.append(self.keys)
        return uniform(self, count)

    monkeypatch.setattr(Draws, "uniform", record)
    draws = draws_of(5)
    for views in (CIFAR, WINDOW, RESIZED):
        streams.clear()
        views.strong(noise(5, 3, 12, 12), draws)
        assert len(streams) == 3
        assert len(torch.cat([draws.keys, *streams]).unique()) == 20


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    start=st.integers(0, 11),
    kind=st.sampled_from(["weak", "strong"]),
    views=st.sampled_from([CIFAR, WINDOW, RESIZED]),
)
def test_a_view_belongs_to_the_sample(seed: int, start: int, kind: str, views: ImageViews) -> None:
    images, index = noise(12, 3, 14, 14), torch.arange(12)
    whole = getattr(views, kind)(images, Draws.at(index, seed))
    rest = getattr(views, kind)(images[start:], Draws.at(index[start:], seed))
    assert torch.equal(rest, whole[start:])


def test_views_do_not_touch_their_input() -> None:
    images, features = noise(6, 3, 12, 12), torch.randn(6, 4)
    kept, rows = images.clone(), features.clone()
    for views in (CIFAR, WINDOW, RESIZED):
        views.strong(images, draws_of(6))
    FeatureViews.from_features(features).strong(features, draws_of(6))
    assert torch.equal(images, kept)
    assert torch.equal(features, rows)


@pytest.mark.parametrize("chunk", [1, 500, 2**22])
def test_from_images_equals_numpy(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    images = noise(13, 3, 7, 9)
    images[:, 1] = 77
    found = ImageViews.from_images(images)
    levels = images.numpy() / 255
    std = levels.std((0, 2, 3))
    std[1] = 1
    assert found.mean == pytest.approx(levels.mean((0, 2, 3)))
    assert found.std == pytest.approx(std)
    assert (found.padding, found.flip, found.rounds, found.cutout) == (4, True, 3, 0.5)
    assert (found.size, found.scale) == (None, None)


def test_feature_views() -> None:
    features = torch.randn(500, 6, generator=torch.Generator().manual_seed(0)) * 3 + 5
    features[:, 2] = 0.1
    views: Views = FeatureViews.from_features(features)
    plain = views.plain(features)
    expected = torch.ones(6).index_fill(0, torch.tensor([2]), 0)
    torch.testing.assert_close(plain.std(0, correction=0), expected, atol=1e-5, rtol=0)
    assert plain.mean(0).abs().max() < 1e-5
    assert torch.equal(views.weak(features, draws_of(500)), plain)
    added = views.strong(features, draws_of(500)) - plain
    assert abs(added.mean()) < 0.05
    assert abs(added.std() - 0.5) < 0.05
    quiet = FeatureViews(tuple(features.mean(0).tolist()), (1.0,) * 6, noise=0)
    assert torch.equal(quiet.strong(features, draws_of(500)), quiet.plain(features))


def test_double_features_come_back_as_float32() -> None:
    features = torch.rand(4, 2, dtype=torch.float64)
    assert FeatureViews.from_features(features).strong(features, draws_of(4)).dtype == torch.float32


def test_mistakes_are_named() -> None:
    images = noise(2, 3, 8, 8)
    with pytest.raises(ValueError, match=r"mean has 1 values; expected 3"):
        normalise(images, (0.5,), (0.5,) * 3)
    with pytest.raises(ValueError, match=r"std is \(0\.0, 1\.0, 1\.0\)"):
        normalise(images, (0.5,) * 3, (0.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="padding is -1"):
        replace(CIFAR, padding=-1)
    with pytest.raises(InputError, match=r"scale is \(0\.1, 1\.0\) without a size: .* e\.g\. size=224"):
        replace(CIFAR, scale=(0.1, 1.0))
    with pytest.raises(InputError, match="size is 0; expected 1 or more"):
        replace(CIFAR, size=0)
    for scale in ((0.0, 1.0), (0.5, 0.2), (0.5, 1.5)):
        with pytest.raises(InputError, match=r"expected shares of the area, 0 < low <= high <= 1"):
            replace(CIFAR, size=8, scale=scale)
    for view in (WINDOW.plain, lambda batch: RESIZED.weak(batch, draws_of(2))):
        with pytest.raises(InputError, match="size is 12 and the images are 8x8: take a size of at most 8"):
            view(images)
    with pytest.raises(InputError, match=r"images is float32"):
        RESIZED.plain(images.float())
    with pytest.raises(ValueError, match=r"images is float32"):
        CIFAR.weak(images.float(), draws_of(2))
    with pytest.raises(ValueError, match=r"images is float32"):
        cutout(images.float(), draws_of(2))
    with pytest.raises(ValueError, match="images is empty"):
        ImageViews.from_images(images[:0])
    with pytest.raises(ValueError, match=r"features is int64 \[3\]; expected floats"):
        FeatureViews.from_features(torch.arange(3))
    with pytest.raises(ValueError, match="features is empty"):
        FeatureViews.from_features(torch.zeros(0, 2))
    with pytest.raises(ValueError, match=r"mean has shape \[1\]; expected one per feature, \[2\]"):
        FeatureViews((0.0,), (1.0,)).plain(torch.zeros(3, 2))


@pytest.mark.slow
def test_compiled_strong_view_equals_eager() -> None:
    images, draws = noise(256, 3, 32, 32), draws_of(256)
    views = replace(CIFAR, rounds=1)  # a third of the compiler's time

    def strong(batch: Tensor, keys: Tensor) -> Tensor:
        return views.strong(batch, Draws(keys))

    compiled = torch.compile(strong, fullgraph=True)(images, draws.keys)
    torch.testing.assert_close(compiled, strong(images, draws.keys), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_compiled_resized_window_equals_eager() -> None:
    images, draws = noise(64, 3, 32, 32), draws_of(64)

    def weak(batch: Tensor, keys: Tensor) -> Tensor:
        return RESIZED.weak(batch, Draws(keys))

    compiled = torch.compile(weak, fullgraph=True)(images, draws.keys)
    torch.testing.assert_close(compiled, weak(images, draws.keys), atol=1e-5, rtol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("views", [CIFAR, WINDOW, RESIZED], ids=["whole", "window", "resized"])
def test_captured_strong_view_equals_cpu(views: ImageViews) -> None:
    images, keys = noise(256, 3, 32, 32), draws_of(256).keys
    batch, stream = images.cuda(), keys.cuda()
    views.strong(batch, Draws(stream))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = views.strong(batch, Draws(stream))
    for seed in (0, 1):
        stream.copy_(draws_of(256, seed).keys)
        graph.replay()
        torch.testing.assert_close(result.cpu(), views.strong(images, draws_of(256, seed)), atol=1e-5, rtol=0)
