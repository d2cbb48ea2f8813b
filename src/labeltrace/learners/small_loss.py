"""What Co-teaching and JoCoR share: two networks side by side, trained on the samples of a batch with small losses.

Networks learn right labels before wrong ones, so early on a small loss speaks for a label. Of each batch a share 1 − F
with the smallest losses is kept; the forget rate F rises from 0 to τ, the share of wrong labels, in the first epochs.

What both official codes (bhanML/Co-teaching, hongxin001/JoCoR) do alike that a reader of the papers would not guess,
kept here:
  - F of epoch e, from 0, is τ · e/9 up to epoch 9 (the papers' formula is τ · e/10, counted from 1);
  - from an epoch on the learning rate falls linearly towards 0, and there Adam's β1 goes from 0.9 to 0.1 at once;
    Adam's state stays;
  - the number of samples kept is truncated, not rounded, and the last short batch is dropped;
  - both networks see the same view of a batch.
What we chose:
  - τ, which the published runs take from the true rate (`oracle_*` presets), is estimated where it is not given. In
    each epoch of the rise but the first a scoring pass comes before training, and F rises towards its answer; the last
    one stays. The answer is 1 − the mean clean posterior of a mixture over 1 − p(label), the mean of both networks.
    That is bounded; over losses a few very large ones draw a component to themselves, and with most labels wrong the
    answer is far too low. What networks have not learnt in the rise, or know by heart by then, deceives it in either
    way: give τ where it is known. With τ given the rise is the published one; without it a short run's takes three
    epochs at least, because a network of one epoch calls twice as many labels wrong;
  - what binary fractions take off a count does not cost a sample, and one sample at least is kept;
  - epoch 0 is trained, with F = 0; the codes begin at index 1 of their plans and so train 199 epochs of 200;
  - no exponent c: it is 1 in all published runs, and elsewhere code (τ^c) and paper (T^c) mean different things by it;
  - weak view, the data's normalisation and the run's model; the codes neither augment nor normalise CIFAR, and have
    small networks of their own;
  - test accuracy is that of the sum of both networks' logits. The codes test each network alone (without the images of
    a last short batch) and report two numbers or their mean; a sum of two networks is usually more often right than
    either, so our numbers are not to be read beside the papers' without that;
  - among several processes each keeps the smallest losses of its own part of a batch.
The samples table takes cleanliness and suggestion from the mixtures and the mean prediction of the last pass, as for
other pairs of networks: what a batch keeps depends on which samples are in it, and is not remembered.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from labeltrace.control.schedule import ramp
from labeltrace.learners.base import Batch, Loop, Outcome
from labeltrace.learners.falling import Falling, FallingSettings
from labeltrace.learners.settings import Preset, setting
from labeltrace.scoring import loss_posterior

CODES = "official codes (bhanML/Co-teaching and hongxin001/JoCoR)"
RATE = "the share of wrong labels, which the published runs are given"
HALF = "the same: CIFAR-10's pair noise moves five of ten classes; JoCoR's code halves the rate likewise"
CIFAR_N = "KlemenVovk/noisy-labels: fixed, whatever the labels of CIFAR-N"
SMALL = "ours: RoLR's small recipe, so that a comparison changes the method only"
LARGE = "ours, unmeasured: epochs and batches as cross-entropy's recipe for photos"
PART = "ours: in proportion to the published one"

ESTIMATES = 3  # of the noise rate, one in each epoch, before it stays

Values = dict[str, tuple[Any, str]]


@dataclass(frozen=True)
class SmallLossSettings(FallingSettings):
    """Settings of both methods; warm-up is the time in which the forget rate rises."""

    epochs: int = setting(200, CODES)
    warmup: int = setting(10, CODES + ": num_gradual, epochs in which the forget rate rises", epochs=True)
    batch_size: int = setting(128, CODES)
    passes: int = setting(1, CODES + ": an epoch is one pass over the data")
    tau: float | None = setting(None, "ours: estimated while the forget rate rises, because a user does not know it")
    lr: float = setting(0.001, CODES + ": of Adam")
    lr_fall: int = setting(80, CODES + ": epoch_decay_start on CIFAR-10 (100 on CIFAR-100)", epochs=True)
    momentum: float = setting(0.9, CODES + ": Adam's β1 until the learning rate falls")
    momentum_late: float = setting(0.1, CODES + ": Adam's β1 from then on")
    weight_decay: float = setting(0.0, CODES)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, holds, expected in (
            ("warmup", self.warmup >= 1, "≥ 1: the first epoch forgets nothing"),
            ("tau", self.tau is None or 0 <= self.tau <= 1, "0 ≤ tau ≤ 1, or null to estimate it"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")


class SmallLoss(Falling):
    """Two networks that are trained in one step on what `step` keeps of a batch."""

    networks_needed = 2
    refurbishes = False
    settings: SmallLossSettings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        device = next(self.networks[0].parameters()).device
        self.state = nn.Module()
        # 0 until it is estimated; float64, so that it counts as the same number that a setting would be
        given = torch.tensor(self.settings.tau or 0.0, dtype=torch.float64, device=device)
        self.state.register_buffer("tau", given)

    def companions(self) -> dict[str, nn.Module]:
        """The noise rate."""
        return {"state": self.state}

    @property
    def tau(self) -> Tensor:
        """τ, 0-d; 0 before it is estimated."""
        assert isinstance(self.state.tau, Tensor)
        return self.state.tau

    @property
    def rise(self) -> int:
        """The epoch, counted from 0, in which the forget rate reaches τ."""
        s = self.settings
        least = min(ESTIMATES, s.epochs - 1) if s.tau is None else 1
        return max(s.warmup - 1, least, 1)

    def forget_rate(self, epoch: int) -> float:
        """F_e = τ · min(e / rise, 1)."""
        return float(self.tau) * ramp(epoch, 0, self.rise)

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Estimate the noise rate where it is not given and the forget rate still rises, then train both networks."""
        s = self.settings
        if s.tau is None and 1 <= epoch <= self.rise:
            self.estimate(loop, last=epoch == self.rise)
        loop.train(
            partial(self.step, self.forget_rate(epoch)),
            members=[0, 1],
            batch_size=s.batch_size,
            passes=s.passes,
            drop_last=True,
            label="train",
        )

    def estimate(self, loop: Loop, last: bool) -> None:
        """τ = 1 − mean clean posterior by 1 − p(label) in a pass; the last estimate is told."""
        unlikely = 1 - (-loop.score(self.score_view).loss[:, loop.chosen()]).exp().mean(0)
        self.tau.copy_(1 - loss_posterior(unlikely).double().mean())
        if last:
            loop.note(f"noise rate estimated as {float(self.tau):.3f}")

    @abstractmethod
    def step(self, forget: float, batch: Batch) -> Outcome:
        """Return the sum of both networks' losses over the samples that are kept at a forget rate."""


def kept_count(forget: float, rows: int) -> int:
    """Return how many of the rows of a batch are kept: ⌊rows · (1 − forget)⌋, one at least.

    Truncated as in the codes, but safe from binary fractions: int((1 - 0.8) * 100) is 19.

    >>> kept_count(0.8, 100), kept_count(0.8, 128), kept_count(1.0, 128)
    (20, 25, 1)
    """
    return max(1, math.floor(rows * (1 - forget) + 1e-6))


def kept_mean(losses: Tensor, kept: Tensor) -> Tensor:
    """Return the mean of losses [B] over the samples marked in `kept` [B]; the others get no gradient.

    >>> kept_mean(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False]))
    tensor(1.5000)
    """
    return (losses * kept).sum() / kept.sum()


#: The end of a preset's name, the noise in words, and τ on CIFAR-10 and on CIFAR-100.
NOISES = (
    ("20", "symmetric 20 %", 0.2, 0.2),
    ("40", "symmetric 40 %", 0.4, 0.4),
    ("50", "symmetric 50 %", 0.5, 0.5),
    ("80", "symmetric 80 %", 0.8, 0.8),
    ("pair_40", "pair 40 %", 0.2, 0.4),
    ("instance_40", "instance 40 %", 0.4, 0.4),
)


def recipes(hundred: Values, special: Mapping[str, Values] = MappingProxyType({})) -> dict[str, Preset]:
    """Return the presets of a method, whose own settings hold the recipe for CIFAR-10.

    Args:
        hundred: what differs with a hundred classes.
        special: `small`, `cifar100n` or an oracle preset → what else differs in it.
    """
    fixed = {"tau": (0.2, CIFAR_N)}
    found = {
        "cifar": Preset("32-pixel images, about ten classes (published recipe, noise rate estimated)"),
        "cifar100": Preset("32-pixel images, about a hundred classes (noise rate estimated)", hundred),
        "cifar10n": Preset("CIFAR-10N, a noise rate of 20 % for all of its labels", fixed),
        "cifar100n": Preset("CIFAR-100N, a noise rate of 20 %", hundred | fixed | special.get("cifar100n", {})),
    }
    for classes, more in ((10, {}), (100, hundred)):
        for end, noise, *taus in NOISES:
            name, tau = f"oracle_cifar{classes}_{end}", taus[classes == 100]
            values = more | {"tau": (tau, HALF if (classes, end) == (10, "pair_40") else RATE)} | special.get(name, {})
            found[name] = Preset(f"CIFAR-{classes} when the noise is known: {noise}", values)
    found["large"] = Preset("photos of more than 64 pixels", _in_proportion(80, LARGE))
    found["small"] = Preset(
        "images up to 28 pixels, features",
        _in_proportion(40, SMALL)
        | {"warmup": (4, SMALL + ": its warm-up"), "passes": (2, SMALL)}
        | special.get("small", {}),
    )
    return found


def _in_proportion(epochs: int, source: str) -> Values:
    """A recipe of other epochs, batches of 64. Published are 200: the forget rate rises in 10, lr falls from 80 on."""
    return {
        "epochs": (epochs, source),
        "warmup": (10 * epochs // 200, PART),
        "batch_size": (64, source),
        "lr_fall": (80 * epochs // 200, PART),
    }
