"""f-DivideMix: DivideMix with FINE's selector (Kim, Ko, Cho, Choi, Yun, "FINE Samples for Learning with Noisy Labels",
NeurIPS 2021; arXiv 2102.11628).

The division does not come from losses, which a head that fits noise corrupts, but from geometry: how well a sample's
last feature points along the leading direction of its observed class (`labeltrace.scoring.fine`). All else is
DivideMix, see there, also for TRACE: its cleanliness score is the peer's FINE posterior. FINE looks at the deepest
features, structure confidence at the drift from shallow to deep ones, and neither enters the other.

What the official code (Kthyeon/FINE_official, folder dividemix) does that a reader of the paper would not guess: the
score is |cosine|, not the squared inner product; directions come from ALL samples of a label each time; the mixture has
reg_covar 1e-6, which matters because scores lie in a narrow band; warm-up takes twice as long as DivideMix's. A switch
`refinement`, which is off in its scripts, would put the loss mixture in place of FINE.
What we chose: λ_u and the other values of DivideMix's table (the code's scripts name one cell only, which agrees);
WebVision as in Confidence Tracking's code, because the official script cannot run. Pair noise near 50 % is where the
method fails: the direction of a class goes over to its majority.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from labeltrace.learners.base import Loop, learners
from labeltrace.learners.dividemix import CT, MANY_CLASSES, DivideMix, DivideMixSettings
from labeltrace.learners.settings import LearnerSettings, Preset, setting
from labeltrace.scoring import Field, Scores
from labeltrace.scoring.fine import SCORES, fine_posterior

CODE = "official code (Kthyeon/FINE_official)"


@dataclass(frozen=True)
class FDivideMixSettings(DivideMixSettings):
    """Settings of DivideMix, and FINE's own."""

    warmup: int = setting(20, CODE + ": CIFAR-10 (50 on CIFAR-100)", epochs=True)
    loss_window: int = setting(1, "no part of f-DivideMix: its posterior does not look at losses")
    fine_score: str = setting("abs", CODE + ": |cosine|; 'sq' is the paper's squared inner product")
    fine_iterations: int = setting(10, CODE + ": EM steps of the mixture")
    fine_tolerance: float = setting(1e-6, CODE + ": of the mixture's log-likelihood")
    fine_reg_covar: float = setting(1e-6, CODE + ": scikit-learn's default, added to each variance")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_window != 1:
            raise ValueError(f"loss_window: {self.loss_window!r}, expected 1 (f-DivideMix does not look at losses)")
        if self.fine_score not in SCORES:
            raise ValueError(f"fine_score: {self.fine_score!r}, expected one of {', '.join(SCORES)}")
        for name, least in (("fine_iterations", 1), ("fine_tolerance", 0), ("fine_reg_covar", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected ≥ {least}")


BLURRED: dict[str, tuple[Any, str]] = {
    "fine_tolerance": (1e-2, CT),
    "fine_reg_covar": (5e-4, CT + ": DivideMix's own value"),
}


def _recipe(name: str, preset: Preset) -> Preset:
    """DivideMix's recipe with what f-DivideMix does otherwise."""
    values = {key: value for key, value in preset.values.items() if key != "loss_window"}
    if values.get("warmup") == MANY_CLASSES["warmup"]:
        values["warmup"] = (50, CODE + ": CIFAR-100")
    if name in ("webvision", "food101n", "large"):
        values |= BLURRED
    return replace(preset, values=values)


@learners.register("f_dividemix", "DivideMix that divides by the geometry of features (FINE) instead of losses")
class FDivideMix(DivideMix):
    """DivideMix whose clean posterior is FINE's."""

    name = "f_dividemix"
    when = (
        "in place of DivideMix when losses do not tell right from wrong but features do; it fails when one "
        "wrong class holds the majority of a label."
    )
    settings_type = FDivideMixSettings
    keeps = ("embedding",)
    presets: ClassVar[Mapping[str, Preset]] = {name: _recipe(name, p) for name, p in DivideMix.presets.items()}
    settings: FDivideMixSettings
    _judged: tuple[weakref.ref[Scores], Tensor] | None = None

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """DivideMix's, and the observed labels, which FINE needs of all samples at once."""
        return super().fields(settings, num_classes) | {"observed": Field(dtype=torch.int64)}

    def epoch(self, loop: Loop, epoch: int) -> None:
        """As DivideMix."""
        self.memory["observed"] = loop.labels
        super().epoch(loop, epoch)

    def posteriors(self, scores: Scores) -> Tensor:
        """Return [2, N] FINE's, each network's on its own features; NaN at samples that the pass did not look at.

        They are made once per pass.
        """
        if self._judged is not None and self._judged[0]() is scores:
            return self._judged[1]
        s, observed = self.settings, self.memory["observed"]
        assert scores.embedding is not None
        seen = ~scores.loss[0].isnan()
        posterior = torch.full_like(scores.loss, torch.nan)
        for member, features in enumerate(scores.embedding):
            posterior[member, seen] = fine_posterior(
                features[seen],
                observed[seen],
                self.num_classes,
                score=s.fine_score,
                max_iter=s.fine_iterations,
                tol=s.fine_tolerance,
                reg_covar=s.fine_reg_covar,
            )
        self._judged = weakref.ref(scores), posterior
        return posterior
