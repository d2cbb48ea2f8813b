"""What a run ends with: the judgement of every sample, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from labeltrace.engine.folder import RunFolder
from labeltrace.engine.parallel import RankGone
from labeltrace.engine.plan import Plan
from labeltrace.scoring import Scores


def are_saved(count: int) -> str:
    """Return in words how many epochs a checkpoint holds.

    >>> are_saved(1), are_saved(12)
    ('1 epoch is saved', '12 epochs are saved')
    """
    return "1 epoch is saved" if count == 1 else f"{count} epochs are saved"


class Interrupted(Exception):
    """Ctrl-C (or SIGTERM): the run is saved in `folder` and can be resumed."""

    def __init__(self, folder: Path, epoch: int) -> None:
        super().__init__(f"{folder}: stopped; {are_saved(epoch)}")
        self.folder, self.epoch = folder, epoch


class Diverged(Exception):
    """A loss turned NaN or infinite."""


class RankDied(Exception):
    """A process of the run died; what is saved in `folder` can be resumed, by as many processes as one likes.

    `epoch` counts what is saved; None where there is no run to go on with.
    """

    def __init__(self, folder: Path, epoch: int | None, reason: RankGone, size: int) -> None:
        self.folder, self.epoch = folder, epoch
        saved = "the run had not begun" if epoch is None else f"{are_saved(epoch)} in {folder}"
        super().__init__(f"{reason}, of {size} ranks; {saved}")


@dataclass(frozen=True)
class Judgement:
    """What the controller says of every training sample after a scoring pass; all [N]."""

    scores: Scores
    clean: Tensor
    agree: Tensor | None
    suggested: Tensor
    confidence: Tensor
    observed_reliability: Tensor
    pseudo_reliability: Tensor
    a: Tensor
    b: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    folder: RunFolder
    plan: Plan
    metrics: list[dict[str, Any]]
    judgement: Judgement
    networks: list[nn.Module]
    first: bool = True  # False on all ranks of a run but the one that writes

    @property
    def summary(self) -> dict[str, float]:
        """Test accuracy: best epoch, last epoch, mean of the last ten; empty without a test set."""
        return summarise(self.metrics)


def summarise(metrics: list[dict[str, Any]]) -> dict[str, float]:
    """Return best, last and mean-of-last-10 test accuracy of a run's metrics."""
    accuracy = [record["test_accuracy"] for record in metrics if record.get("test_accuracy") is not None]
    if not accuracy:
        return {}
    tail = accuracy[-10:]
    return {"best": max(accuracy), "last": accuracy[-1], "mean_last_10": sum(tail) / len(tail)}
