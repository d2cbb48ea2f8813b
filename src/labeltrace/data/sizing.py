"""Which square a set of image files is brought to, and the views that fit it.

Files are stored as squares and a network sees squares. Small images are seen whole; of large ones the views take a
window of 7/8 of the side, as ImageNet's 224 of 256.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from labeltrace.data.images import Images
from labeltrace.data.views import ImageViews

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, which every published network was trained with
LARGE = 224  # what networks for photos were made for
WHOLE = 64  # images up to this side are seen whole (CIFAR's 32, Tiny ImageNet's 64)
SMALLEST = 8  # four stages halve a side three times
HEADS = 256  # files that are looked at


def network_side(sizes: Sequence[tuple[int, int]]) -> int:
    """Return the side of what a network sees, from the (width, height) of some of the images.

    Images of one size up to 64 pixels keep it (the shorter edge, where they are no squares); others up to 127 pixels
    are brought to the multiple of 32 below the median of their shorter edges; larger ones are seen at 224.

    >>> network_side([(28, 28)] * 3), network_side([(90, 70), (120, 100), (40, 50)]), network_side([(640, 480)])
    (28, 64, 224)
    """
    if not sizes:
        return LARGE
    edges = [min(size) for size in sizes]
    if len(set(sizes)) == 1 and edges[0] <= WHOLE:
        return max(SMALLEST, edges[0])
    middle = int(median(edges))
    return LARGE if middle >= 128 else max(32, middle // 32 * 32)


def stored_side(side: int) -> int:
    """Return the side that images are stored at when a network sees `side`.

    >>> stored_side(32), stored_side(96), stored_side(224)
    (32, 110, 256)
    """
    return side if side <= WHOLE else round(side * 8 / 7)


def file_views(side: int, flip: bool) -> ImageViews:
    """Return the views of image files of which a network sees `side` pixels.

    >>> file_views(32, flip=True).padding, file_views(224, flip=True).size
    (4, 224)
    """
    if side > WHOLE:
        return ImageViews(MEAN, STD, flip=flip, size=side)
    return ImageViews(MEAN, STD, padding=max(1, side // 8), flip=flip)


def fitted(images: Images, wanted: int | None, flip: bool) -> tuple[Images, ImageViews]:
    """Return `images` at the side they are stored at, and their views.

    Args:
        images: of any side; the heads of up to 256 of them, evenly spread, are looked at.
        wanted: the side that the network sees; None to choose by the size of the images.
        flip: whether images keep their class when mirrored.
    """
    side = wanted
    if side is None:
        places = np.linspace(0, len(images) - 1, min(HEADS, len(images))).astype(int)
        side = network_side([size for size in (images.size(int(i)) for i in places) if size is not None])
    return images.at_side(stored_side(side)), file_views(side, flip)
