"""What learners share that drop samples: their own rule as a `Supervision`, and when a controller replaces it.

Such a base method is no mix of label and replacement, so `Coupled` cannot stand for it: each sample has one hard label
and is used or not. Under `Coupled`, and under TRACE before its start, the learner's own rule counts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labeltrace.control import Controller, Supervision


def takes_over(controller: Controller | None, epoch: int | Tensor) -> bool | Tensor:
    """Return whether the controller, not the learner's own rule, supervises at an epoch (after warm-up).

    >>> from labeltrace.control import Trace
    >>> [takes_over(Trace(start=3), epoch) for epoch in (2, 3)], takes_over(None, 9)
    ([False, True], False)
    """
    return False if controller is None else controller.begun(epoch)


def kept_only(target: Tensor, kept: Tensor) -> Supervision:
    """Return the supervision of hard targets [B, C] on the samples marked in `kept` [B]: the mean loss over those.

    The weight is `kept / mean(kept)`; where nothing is kept it is 0 and so is the loss.

    >>> kept_only(torch.eye(4), torch.tensor([True, True, False, False])).weight
    tensor([2., 2., 0., 0.])
    """
    flags = kept.to(target.dtype)
    weight = per_kept(flags)
    return Supervision(target, weight, flags, torch.ones_like(flags), flags, torch.zeros_like(flags))


def per_kept(weight: Tensor) -> Tensor:
    """Divide weights [B] by their mean; all zero stays zero.

    >>> per_kept(torch.tensor([1.0, 0.5, 0.0])), per_kept(torch.zeros(2))
    (tensor([2., 1., 0.]), tensor([0., 0.]))
    """
    mean = weight.mean()
    return weight / torch.where(mean > 0, mean, 1.0)


def where(mask: Tensor, late: Supervision, early: Supervision) -> Supervision:
    """Choose between two supervisions by a mask, 0-d or [B]."""

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(mask[:, None] if mask.ndim and a.ndim > 1 else mask, a, b)

    return Supervision(
        pick(late.target, early.target),
        pick(late.weight, early.weight),
        pick(late.observed_reliability, early.observed_reliability),
        pick(late.pseudo_reliability, early.pseudo_reliability),
        pick(late.a, early.a),
        pick(late.b, early.b),
    )


def smallest(values: Tensor, count: int | Tensor) -> Tensor:
    """Mark the `count` smallest of values [B]; of equal ones the first.

    >>> smallest(torch.tensor([3.0, 1.0, 2.0]), torch.tensor(2))
    tensor([False,  True,  True])
    """
    return values.argsort(stable=True).argsort() < count


def repeated(used: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return how a batch of one size is filled with the samples marked in `used` [B] alone: in turn, again and again.

    A batch of which nothing is used stays as it is, and no row counts.

    Returns:
        rows: [B] the row of the batch that stands at each place.
        turn: [B] the place at which that row stands first.
        counted: [B] whether it stands there for the first time, so that each sample counts once.

    >>> repeated(torch.tensor([False, True, False, True, True]))
    (tensor([1, 3, 4, 1, 3]), tensor([0, 1, 2, 0, 1]), tensor([ True,  True,  True, False, False]))
    """
    place = torch.arange(len(used), device=used.device)
    inside = used | ~used.any()
    turn = place % inside.sum()
    return (~inside).to(torch.uint8).argsort(stable=True)[turn], turn, place < used.sum()
