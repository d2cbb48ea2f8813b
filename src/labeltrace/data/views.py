"""Views: what a network sees of a sample, made for a whole batch on its device.

A learner asks for the plain view (test and scoring), a weak one, or a strong one. Each sample draws its own crop,
flip and policy from the `Draws` it is given, so a view belongs to (seed, epoch, sample), not to the batch it was made
in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from labeltrace.data.draws import Draws
from labeltrace.data.randaugment import check_images, paint_square, per_channel, randaugment, take_pixels
from labeltrace.data.windows import centre_window, random_window, resized_window
from labeltrace.errors import InputError, nearest

_RANDAUGMENT, _CUTOUT, _CROP, _NOISE = range(4)  # each part of a view draws from its own fork
#: strong views of images other than a dataset's own, each of which begins with the weak view's crop and flip
POLICIES = {
    "disc": "DISC's: the crop over a mirrored border, two of 16 operations at levels up to 9 of 10, a small square",
    "disc_mild": "DISC's on CIFAR-10: the same at levels up to 4",
    "autoaugment": "AutoAugment's CIFAR-10 policy, without a square (ANNE's)",
}
_CHUNK = 2**22  # values read at a time for the mean and deviation: 32 MiB in float64


class Views(Protocol):
    """The three ways a learner looks at a batch; each returns the float32 input of a network.

    `weak` and `strong` take the draws of the batch; fork them for each view, or two views share their crop.

    >>> views: Views = FeatureViews(mean=(0.0,), std=(2.0,))
    >>> views.plain(torch.tensor([[1.0]])).tolist()
    [[0.5]]
    """

    def plain(self, inputs: Tensor) -> Tensor:
        """Return `inputs` [B, …] normalised only."""

    def weak(self, inputs: Tensor, draws: Draws, *, reflect: bool = False) -> Tensor:
        """Return a view that no person would call changed; `reflect` fills a crop's border with the image's mirror."""

    def strong(self, inputs: Tensor, draws: Draws, policy: str | None = None) -> Tensor:
        """Return a view that is hard to recognise but keeps its class.

        Args:
            inputs: [B, …].
            draws: the streams of the B samples.
            policy: whose strong view, one of `POLICIES`; None for the dataset's own.
        """


@dataclass(frozen=True)
class ImageViews:
    """Views of images [B, C, H, W] uint8: weak is crop, flip; strong is RandAugment, cutout, crop, flip (RoLR's order).

    >>> views = ImageViews(mean=(0.5,), std=(0.5,))
    >>> images = torch.full((2, 1, 8, 8), 255, dtype=torch.uint8)
    >>> views.plain(images).unique().tolist()
    [1.0]
    >>> views.strong(images, Draws.at(torch.arange(2), 0)).shape
    torch.Size([2, 1, 8, 8])

    Of large images the network sees a square of `size` pixels: the middle in the plain view, and in the other two a
    window in place of the crop.

    >>> large = ImageViews(mean=(0.5,), std=(0.5,), size=6, scale=(0.2, 1.0))
    >>> large.plain(images).shape, large.weak(images, Draws.at(torch.arange(2), 0)).shape
    (torch.Size([2, 1, 6, 6]), torch.Size([2, 1, 6, 6]))

    Attributes:
        mean: per channel, for levels in [0, 1].
        std: likewise.
        padding: the crop moves by up to this many pixels; 0 for no crop (default: Robust-LR, 4 for 32 pixels). Has no
            part in a view of a given `size`.
        flip: mirror half of the images.
        rounds: operations of RandAugment; 0 for none (default: Robust-LR).
        cutout: largest side of the square as a share of the width; 0 for no square (default: Robust-LR).
        size: side of the window that the network sees, at most that of the images; None for whole images.
        scale: range of the window's share of the area, before it is resized to `size` (ImageNet's usual: (0.08, 1));
            None for a window of `size` pixels at a random place.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int = 4
    flip: bool = True
    rounds: int = 3
    cutout: float = 0.5
    size: int | None = None
    scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name, given in (("padding", self.padding), ("rounds", self.rounds), ("cutout", self.cutout)):
            if given < 0:
                raise InputError(f"{name} is {given}; expected 0 (off) or more")
        if self.size is not None and self.size < 1:
            raise InputError(f"size is {self.size}; expected 1 or more, or None for whole images")
        if self.scale is not None:
            if self.size is None:
                raise InputError(f"scale is {self.scale} without a size: say what to resize to, e.g. size=224")
            if not 0 < self.scale[0] <= self.scale[1] <= 1:
                raise InputError(f"scale is {self.scale}; expected shares of the area, 0 < low <= high <= 1")

    @classmethod
    def from_images(cls, images: Tensor) -> ImageViews:
        """Return the default views with the mean and deviation of each channel of `images` [N, C, H, W] uint8.

        A constant channel gets deviation 1.

        >>> ImageViews.from_images(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1))
        ImageViews(mean=(0.5,), std=(0.5,), padding=4, flip=True, rounds=3, cutout=0.5, size=None,
            scale=None)
        """
        check_images(images)
        if images.numel() == 0:
            raise InputError(f"images is empty, {list(images.shape)}; expected at least one image")
        # Sums of integers below 2^53: exact in float64, so the chunks leave no trace.
        total = torch.zeros(2, images.shape[1], dtype=torch.float64, device=images.device)
        for part in _parts(images):
            levels = part.double()
            total += torch.stack([levels.sum((0, 2, 3)), levels.square().sum((0, 2, 3))])
        mean, square = total / (images.numel() // images.shape[1])
        std = (square - mean.square()).clamp(min=0).sqrt()
        std = torch.where(std > 0, std, 255.0)
        return cls(tuple((mean / 255).tolist()), tuple((std / 255).tolist()))

    def plain(self, inputs: Tensor) -> Tensor:
        """Return `inputs` [B, C, H, W] uint8 normalised, float32; of a given `size` their middle."""
        return self._normalise(inputs if self.size is None else centre_window(inputs, self.size))

    def weak(self, inputs: Tensor, draws: Draws, *, reflect: bool = False) -> Tensor:
        """Return `inputs` cropped, flipped and normalised; of a given `size` a window, flipped and normalised.

        With `reflect` the crop's border is the image's mirror instead of black; a window has no border.
        """
        return self._normalise(self._part(inputs, draws, reflect))

    def strong(self, inputs: Tensor, draws: Draws, policy: str | None = None) -> Tensor:
        """Return `inputs` after RandAugment, cutout and the weak view's chain, or after another `policy`.

        Raises:
            InputError: a policy that is none of `POLICIES`.
        """
        if policy is not None:
            return self._normalise(self._changed(inputs, draws, policy))
        if self.rounds:
            inputs = randaugment(inputs, draws.fork(_RANDAUGMENT), self.rounds)
        if self.cutout:
            inputs = cutout(inputs, draws.fork(_CUTOUT), self.cutout)
        return self.weak(inputs, draws)

    def _part(self, inputs: Tensor, draws: Draws, reflect: bool) -> Tensor:
        """The crop or window of each image, uint8."""
        draws = draws.fork(_CROP)
        if self.size is None:
            return crop_flip(inputs, draws, self.padding, self.flip, reflect=reflect)
        if self.scale is None:
            return random_window(inputs, draws, self.size, self.flip)
        return resized_window(inputs, draws, self.size, self.scale, self.flip)

    def _changed(self, inputs: Tensor, draws: Draws, policy: str) -> Tensor:
        """The crop or window of each image after a policy, uint8."""
        if policy not in POLICIES:
            raise InputError(f"unknown policy {policy!r}: {nearest(policy, POLICIES)}")
        seen, draws_of_policy = self._part(inputs, draws, policy.startswith("disc")), draws.fork(_RANDAUGMENT)
        if policy == "autoaugment":
            from labeltrace.data.autoaugment import autoaugment

            return autoaugment(seen, draws_of_policy)
        from labeltrace.data.policies import disc_randaugment

        return disc_randaugment(seen, draws_of_policy, levels=9 if policy == "disc" else 4)

    def _normalise(self, images: Tensor) -> Tensor:
        return normalise(images, self.mean, self.std)


@dataclass(frozen=True, eq=False)
class FeatureViews:
    """Views of features [B, D]: plain and weak standardise, strong adds normal noise.

    >>> views = FeatureViews.from_features(torch.tensor([[1.0, 7.0], [3.0, 7.0]]))
    >>> views.plain(torch.tensor([[3.0, 8.0]])).tolist()
    [[1.0, 1.0]]

    Attributes:
        mean: [D] per feature.
        std: [D] per feature.
        noise: deviation of the strong view's noise, in standard deviations of the feature (default: ours, measured by
            benchmarks/features.py).
    """

    mean: Tensor | Sequence[float]
    std: Tensor | Sequence[float]
    noise: float = 0.5
    _placed: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_features(cls, features: Tensor) -> FeatureViews:
        """Return the default views with the mean and deviation of each column of `features` [N, D] float.

        A constant feature gets deviation 1.

        >>> FeatureViews.from_features(torch.tensor([[0.0], [4.0]])).std.tolist()
        [2.0]
        """
        _check_features(features)
        if len(features) == 0:
            raise InputError(f"features is empty, {list(features.shape)}; expected at least one row")
        mean = torch.stack([part.double().sum(0) for part in _parts(features)]).sum(0) / len(features)
        square = torch.stack([(part.double() - mean).square().sum(0) for part in _parts(features)]).sum(0)
        std = (square / len(features)).sqrt()
        # Of a constant feature the mean, and so the deviation, may be off by a rounding error.
        std = torch.where(features.amin(0) == features.amax(0), 1.0, std)
        return cls(mean.float(), std.float())

    def plain(self, inputs: Tensor) -> Tensor:
        """Return `inputs` [B, D] standardised, float32."""
        _check_features(inputs)
        if inputs.device not in self._placed:  # copied once: a captured step cannot
            mean, std = (torch.as_tensor(v, dtype=torch.float32, device=inputs.device) for v in (self.mean, self.std))
            self._placed[inputs.device] = mean, std
        mean, std = self._placed[inputs.device]
        for name, given in (("mean", mean), ("std", std)):
            if given.shape != inputs.shape[1:]:
                raise InputError(f"{name} has shape {list(given.shape)}; expected one per feature, {[inputs.shape[1]]}")
        return (inputs.float() - mean) / std

    def weak(self, inputs: Tensor, draws: Draws, *, reflect: bool = False) -> Tensor:
        """Return the plain view: features have no change that is known to keep the class."""
        return self.plain(inputs)

    def strong(self, inputs: Tensor, draws: Draws, policy: str | None = None) -> Tensor:
        """Return the plain view plus normal noise, whatever the policy: those are of images."""
        plain = self.plain(inputs)
        if not self.noise:
            return plain
        return plain + self.noise * draws.fork(_NOISE).normal(inputs.shape[1])


def crop_flip(images: Tensor, draws: Draws, padding: int, flip: bool, *, reflect: bool = False) -> Tensor:
    """Shift each image by up to `padding` pixels over black or its own mirror, then mirror half of them if `flip`.

    >>> images = torch.arange(8, dtype=torch.uint8).view(1, 1, 2, 4)
    >>> crop_flip(images, Draws.at(torch.tensor([2]), 0), padding=0, flip=True).tolist()
    [[[[3, 2, 1, 0], [7, 6, 5, 4]]]]

    Args:
        images: [B, C, H, W] uint8.
        draws: the streams of the B images.
        padding: width of the border of which the crop takes a window of the image's size; 0 leaves it in place.
        flip: whether to mirror left and right with probability 1/2.
        reflect: fill the border with the image mirrored at its edge pixel (torchvision's "reflect") instead of black;
            beyond the opposite edge that is repeated.

    Returns:
        [B, C, H, W] uint8.
    """
    check_images(images)
    if not padding and not flip:
        return images
    height, width = images.shape[-2:]
    down, right, mirror = draws.uniform(3)[:, :, None, None].unbind(1)
    rows = torch.arange(height, device=images.device)[:, None]
    columns = torch.arange(width, device=images.device)
    if flip:
        columns = torch.where(mirror < 0.5, width - 1 - columns, columns)
    places = 2 * padding + 1
    rows, columns = rows + (down * places).long() - padding, columns + (right * places).long() - padding
    if reflect:
        rows, columns = _mirrored(rows, height), _mirrored(columns, width)
    return take_pixels(images, rows, columns)


def _mirrored(places: Tensor, size: int) -> Tensor:
    """Places outside 0 … size − 1, read in the mirror that stands on the nearer end."""
    return (size - 1 - (size - 1 - places.abs()).abs()).clamp(0, size - 1)


def cutout(
    images: Tensor, draws: Draws, fraction: float = 0.5, colour: tuple[int, int, int] = (125, 123, 114)
) -> Tensor:
    """Paint one square of random side and place on each image, as Robust-LR does with Pillow's `ImageDraw.rectangle`.

    The side is uniform up to `fraction` of the width and the centre uniform in the image. Near the top and left border
    the square is moved inside; near the other two it is cut off. The end pixel belongs to the square.

    >>> images = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    >>> cutout(images, Draws.at(torch.tensor([5]), 0)).unique().tolist()
    [0, 123]

    Args:
        images: [B, C, H, W] uint8.
        draws: the streams of the B images.
        fraction: largest side as a share of the width (default: Robust-LR).
        colour: of the square, red, green, blue; a grey image gets its grey (default: Robust-LR).

    Returns:
        [B, C, H, W] uint8.
    """
    check_images(images)
    x, y, side = draws.uniform(3).double().unbind(1)
    return paint_square(images, x, y, side * fraction * images.shape[-1], colour)


def normalise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Return (images / 255 - mean) / std per channel, float32 [B, C, H, W].

    >>> normalise(torch.full((1, 1, 1, 1), 51, dtype=torch.uint8), mean=(0.1,), std=(0.5,)).item()
    0.2...

    Raises:
        InputError: `images` is not a batch of uint8 images, or `mean` or `std` has not one value per channel.
    """
    check_images(images)
    for name, given in (("mean", mean), ("std", std)):
        if len(given) != images.shape[1]:
            raise InputError(f"{name} has {len(given)} values; expected {images.shape[1]}, one per channel of images")
    if min(std) <= 0:
        raise InputError(f"std is {std}; expected values above 0 (1 for a constant channel)")
    pixels = images.float()  # a new tensor, so that the rest may happen in place
    pixels -= per_channel([255 * value for value in mean], pixels)
    pixels *= per_channel([1 / (255 * value) for value in std], pixels)
    return pixels


def _parts(inputs: Tensor) -> Sequence[Tensor]:
    """The inputs in pieces that can be held in float64."""
    return inputs.split(max(1, _CHUNK // inputs[0].numel()))


def _check_features(features: Tensor) -> None:
    if not features.is_floating_point() or features.ndim != 2:
        given = f"{str(features.dtype).removeprefix('torch.')} {list(features.shape)}"
        raise InputError(f"features is {given}; expected floats [B, D]")
