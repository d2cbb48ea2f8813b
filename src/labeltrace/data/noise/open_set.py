"""Open-set noise: some of the wrong labels sit on images of classes that the dataset does not have.

The setting of ANNE's code and of the papers on open-set noise: CIFAR-10 with images of CIFAR-100 or SVHN. Of the
samples that are corrupted, a share gets a foreign image and keeps its label; the others keep their image and get
another label of the dataset's own. What is ours: foreign images are drawn without repetition, and labels of the second
part never return to the true class, so that the overall rate is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labeltrace.data.noise.kinds import Labels, checked_labels, checked_rate, flip_count, generator
from labeltrace.errors import InputError


def open_set(
    labels: ArrayLike, num_classes: int, rate: float, open_share: float, foreign_count: int, seed: int
) -> tuple[Labels, NDArray[np.int64], NDArray[np.int64]]:
    """Choose which labels flip, which samples are replaced, and by which foreign images.

    Of n = floor(rate · N) samples, floor(open_share · n) are replaced; the others flip to another class, all equally
    likely. With `open_share` 0 the labels are those of `symmetric_exact`.

    Args:
        labels: [N] clean labels in 0..C-1.
        num_classes: C.
        rate: in [0, 1), the share of samples corrupted in either way.
        open_share: ρ in [0, 1], the share of these that get a foreign image.
        foreign_count: how many foreign images there are to draw from.
        seed: of the one generator of this call.

    Returns:
        The labels int64 [N]; the positions replaced [k], ascending; the foreign image of each [k], all different.

    Raises:
        InputError: for a rate or share outside its range, a label outside 0..C-1, a negative seed, too few images.

    >>> noisy, positions, indices = open_set(np.arange(20) % 10, 10, 0.5, 0.4, foreign_count=100, seed=0)
    >>> int((noisy != np.arange(20) % 10).sum()), positions, indices
    (6, array([ 2,  4,  6, 19]), array([13, 29, 52, 99]))
    """
    noisy, rng = checked_labels(labels, num_classes), generator(seed)
    if not 0 <= open_share <= 1:
        raise InputError(f"open share {open_share} is outside [0, 1]: it is a share of the samples that are corrupted")
    chosen = rng.permutation(len(noisy))[: flip_count(checked_rate(rate), len(noisy))]
    replaced, flipped = np.split(chosen, [flip_count(open_share, len(chosen))])
    if len(replaced) > foreign_count:
        raise InputError(
            f"{len(replaced):,} samples are to be replaced but there are only {foreign_count:,} foreign images; "
            "lower the rate or the open share"
        )
    noisy[flipped] = (noisy[flipped] + rng.integers(1, num_classes, len(flipped))) % num_classes
    return noisy, np.sort(replaced), rng.permutation(foreign_count)[: len(replaced)]
