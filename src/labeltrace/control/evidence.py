"""The seam: what a refurbishment learner knows about a batch, what a controller makes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from labeltrace.scoring.checks import check_classes, check_distribution, check_rows, check_unit, work


@dataclass(frozen=True)
class Evidence:
    """What a batch knows about its labels and their replacements.

    Args:
        observed: [B, C] one-hot observed labels; class numbers [B] are accepted and turned into one-hot rows.
        pseudo: [B, C] the base learner's pseudo target, rows are probabilities.
        clean: [B] the base learner's cleanliness score in [0, 1].
        votes: two predictions [B, C] whose agreement is asked, or None.
        structure: [B] structure confidence in [0, 1], or None.
        epoch: counted from the end of warm-up; a 0-d tensor where the step is captured.

    Raises:
        ValueError: a shape that does not fit, and, on the CPU, a value out of range, with its index.

    >>> e = Evidence(observed=torch.tensor([1]), pseudo=torch.tensor([[0.8, 0.2]]), clean=torch.tensor([0.3]))
    >>> e.observed
    tensor([[0., 1.]])
    """

    observed: Tensor
    pseudo: Tensor
    clean: Tensor
    votes: tuple[Tensor, Tensor] | None = None
    structure: Tensor | None = None
    epoch: int | Tensor = 0

    def __post_init__(self) -> None:
        if self.pseudo.ndim != 2:
            raise ValueError(f"pseudo: shape {tuple(self.pseudo.shape)}, expected [B, C]")
        if self.observed.ndim == 1 and self.observed.is_floating_point():
            raise ValueError("observed: class numbers [B] are whole; pass labels.long(), or one-hot rows [B, C]")
        if self.observed.ndim == 1:
            check_classes("observed", self.observed, self.pseudo.shape[1])
            object.__setattr__(self, "observed", one_hot(self.observed, self.pseudo.shape[1], self.pseudo.dtype))
        rows, shape = self.pseudo.shape[0], self.pseudo.shape
        if self.votes is not None and len(self.votes) != 2:
            raise ValueError(f"votes: {len(self.votes)} given, expected two predictions")
        for name, values in self._wide():
            check_rows(name, values, rows, "pseudo")
            if values.shape != shape:
                raise ValueError(f"{name}: shape {tuple(values.shape)} does not match pseudo, {tuple(shape)}")
        for name, values in self._narrow():
            check_rows(name, values, rows, "pseudo")
            if values.ndim != 1:
                raise ValueError(f"{name}: shape {tuple(values.shape)}, expected [B], one number per sample")
        self.check(force=False)

    def check(self, *, force: bool = True) -> None:
        """Look at the values, on any device (a synchronisation there), and raise `ValueError` at the first bad one."""
        for name, values in self._wide():
            check_distribution(name, values, force=force)
        for name, values in self._narrow():
            check_unit(name, values, force=force)

    def _wide(self) -> list[tuple[str, Tensor]]:
        votes = [] if self.votes is None else [(f"votes[{i}]", vote) for i, vote in enumerate(self.votes)]
        return [("pseudo", self.pseudo), ("observed", self.observed), *votes]

    def _narrow(self) -> list[tuple[str, Tensor]]:
        structure = [] if self.structure is None else [("structure", self.structure)]
        return [("clean", self.clean), *structure]


@dataclass(frozen=True)
class Supervision:
    """What a batch is trained on; every tensor is detached.

    Args:
        target: [B, C] corrected target.
        weight: [B] strength of the supervision, mean 1 over the batch.
        observed_reliability: [B] how far the observed label is trusted.
        pseudo_reliability: [B] how far the replacement is trusted.
        a: [B] weight of the observed branch.
        b: [B] weight of the pseudo branch.
    """

    target: Tensor
    weight: Tensor
    observed_reliability: Tensor
    pseudo_reliability: Tensor
    a: Tensor
    b: Tensor

    def loss(self, logits: Tensor) -> Tensor:
        """Return the weighted soft cross-entropy mean_i w_i · (−Σ_c target_ic log softmax(logits)_ic), a scalar."""
        if logits.shape != self.target.shape:
            raise ValueError(f"logits: shape {tuple(logits.shape)}, expected {tuple(self.target.shape)} as the target")
        cross_entropy = -(self.target * F.log_softmax(work(logits), dim=1)).sum(1)
        return (self.weight * cross_entropy).mean()


class Controller(ABC):
    """Decides how far each of the two supervision sources is trusted."""

    #: the name it is chosen by
    name: str
    #: whether `Evidence.structure` is used
    uses_structure: bool = False

    @abstractmethod
    def __call__(self, evidence: Evidence) -> Supervision:
        """Turn the evidence of a batch into its supervision."""

    @abstractmethod
    def reliabilities(
        self, clean: Tensor, structure: Tensor | None, agree: Tensor | None, confidence: Tensor, epoch: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return (observed, pseudo) reliability from numbers per sample alone.

        Args:
            clean: [N] cleanliness score.
            structure: [N] structure confidence, or None.
            agree: [N] bool, whether the votes agree, or None.
            confidence: [N] max_c of the pseudo target.
            epoch: counted from the end of warm-up.
        """

    def begun(self, epoch: int | Tensor) -> bool | Tensor:
        """Whether the controller may differ from the base method at an epoch, counted from the end of warm-up.

        A base method that is no mix of label and replacement (it drops samples, say) keeps its own rule until then.
        """
        return False

    def weigh(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the sample weights [N] of branch weights a, b, mean 1."""
        return torch.ones_like(a + b)

    def batch_structure(self, features: Sequence[Sequence[Tensor]], clean: Tensor) -> Tensor | None:
        """Return structure confidence [B] of a training batch from each network's stage features, or None.

        Only a controller that scores structure inside the training batch (`scope="batch"`) returns a value.
        """
        return None


def one_hot(labels: Tensor, num_classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return [B, C] one-hot rows without looking at the values (so it can be captured).

    >>> one_hot(torch.tensor([2, 0]), 3)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    return (labels[:, None] == torch.arange(num_classes, device=labels.device)).to(dtype)
