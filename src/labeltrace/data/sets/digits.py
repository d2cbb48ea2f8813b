"""scikit-learn's handwritten digits: 1,797 grey 8×8 images that come with the package, for tests and demos."""

from __future__ import annotations

import numpy as np
import torch

from labeltrace.data.dataset import Dataset, Split, datasets, stratified
from labeltrace.data.views import ImageViews

TEST_SIZE = 450  # a quarter of the images, scikit-learn's usual share; 1,347 stay for training
PADDING = 1  # the 4 pixels of CIFAR in proportion to 8 instead of 32
ROUNDS = 3
CUTOUT = 0.5


def load_digits(seed: int = 0) -> Dataset:
    """Return the digits in a stratified split drawn by `seed`; the images come with scikit-learn.

    Pixels 0..16 become 0..255. Ids are the row numbers in scikit-learn's array.

    >>> data = load_digits(seed=0)
    >>> data.train, data.test, data.train.inputs.max().item(), len(set(data.train.ids) & set(data.test.ids))
    (Split(1347 samples, uint8 [1, 8, 8]), Split(450 samples, uint8 [1, 8, 8]), 255, 0)
    """
    from sklearn import datasets as bundled  # heavy: only who asks for digits waits for it

    raw = bundled.load_digits()
    images = torch.from_numpy(np.rint(raw.images * (255 / 16)).astype(np.uint8)[:, None])
    every = Split(images, torch.from_numpy(raw.target.astype(np.int64)))
    held_out = stratified(every.labels, TEST_SIZE, seed)
    rest = torch.ones(len(every), dtype=torch.bool)
    rest[held_out] = False
    train = every.take(rest.nonzero()[:, 0])
    scale = ImageViews.from_images(images[rest])
    # A mirrored digit is another sign, so no flip.
    views = ImageViews(scale.mean, scale.std, padding=PADDING, flip=False, rounds=ROUNDS, cutout=CUTOUT)
    return Dataset("digits", train, every.take(held_out), tuple("0123456789"), views)


datasets.add(
    "digits",
    lambda root, seed, read: load_digits(seed),
    "scikit-learn's handwritten digits, 8×8, 1,347 to train on; needs no files",
)
