"""TRACE: the observed label and its replacement are judged by separate evidence (paper, Method).

The functions follow the paper's equations in its order: plain name first, symbol beside it. What the paper leaves open
(order of floor and normalisation, ε, the linear ramp, what happens before the start) is settled in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labeltrace.control.coupled import Coupled
from labeltrace.control.evidence import Controller, Evidence, Supervision
from labeltrace.control.schedule import ramp
from labeltrace.scoring.checks import check_distribution, check_rows, check_unit, work
from labeltrace.scoring.relations import pool, relation_drift, structure_confidence
from labeltrace.scoring.settings import StructureSettings

__all__ = [
    "VARIANTS",
    "Trace",
    "TraceConfig",
    "agreement_gate",
    "observed_reliability",
    "pseudo_reliability",
    "ramp",
    "supervise",
]

SCOPES = ("pass", "batch")


@dataclass(frozen=True)
class TraceConfig(StructureSettings):
    """TRACE's settings; defaults are the paper's (Appendix A table), epochs count from the end of warm-up.

    Args:
        alpha: α, share of the loss posterior against structure once the ramp is over.
        start: epoch at which structure and agreement begin to count.
        ramp: epochs until they count fully.
        disagreement: λ_dis in (0, 1], factor on the observed score where the votes disagree.
        rho: ρ ≥ 1, power on the confidence of the pseudo target.
        pseudo_start: epoch at which the pseudo gate opens; None means `start`, as in the paper.
        w_min: floor of the sample weight before normalisation.
        structure: use structure confidence (off: the loss posterior stands alone).
        agreement: use the agreement gate.
        pseudo_gate: judge the replacement by its confidence (off: the complementary weight of the base methods).
        reweight: weigh samples by a + b.
        scope: "pass" takes structure from the scoring pass, "batch" from the training batch (Algorithm 1's letter).
        k, gamma, score_batch, drift_norm, transitions, pooling: see `StructureSettings`.

    >>> TraceConfig().alpha, TraceConfig(structure=False).structure
    (0.7, False)
    """

    alpha: float = 0.7
    start: int = 30
    ramp: int = 20
    disagreement: float = 0.5
    rho: float = 1.0
    pseudo_start: int | None = None
    w_min: float = 0.2
    structure: bool = True
    agreement: bool = True
    pseudo_gate: bool = True
    reweight: bool = True
    scope: str = "pass"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, holds, expected in (
            ("alpha", 0 <= self.alpha <= 1, "0 ≤ alpha ≤ 1"),
            ("disagreement", 0 < self.disagreement <= 1, "0 < disagreement ≤ 1"),
            ("rho", self.rho >= 1, "rho ≥ 1"),
            ("w_min", self.w_min >= 0, "w_min ≥ 0"),
            ("start", self.start >= 0, "start ≥ 0"),
            ("ramp", self.ramp >= 0, "ramp ≥ 0"),
            ("pseudo_start", self.pseudo_start is None or self.pseudo_start >= 0, "pseudo_start ≥ 0"),
            ("scope", self.scope in SCOPES, f"one of {', '.join(SCOPES)}"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")

    @property
    def gate_start(self) -> int:
        """Epoch at which the pseudo gate opens."""
        return self.start if self.pseudo_start is None else self.pseudo_start


#: The paper's ablation rows. `obs_only` and `coupled_null` are one computation: the paper gives them two names and two
#: numbers.
VARIANTS: dict[str, TraceConfig] = {
    "paper": TraceConfig(),
    "no_structure": TraceConfig(structure=False),
    "no_agreement": TraceConfig(agreement=False),
    "obs_only": TraceConfig(pseudo_gate=False, reweight=False),
    "coupled_null": TraceConfig(pseudo_gate=False, reweight=False),
    "decoupled": TraceConfig(reweight=False),
}


def agreement_gate(p1: Tensor, p2: Tensor, disagreement: float) -> Tensor:
    """Return g^agr: 1 where both predictions [B, C] name the same class, `disagreement` (λ_dis) elsewhere.

    >>> agreement_gate(torch.tensor([[0.9, 0.1]]), torch.tensor([[0.4, 0.6]]), 0.5)
    tensor([0.5000])
    """
    if p1.shape != p2.shape or p1.ndim != 2:
        raise ValueError(f"p2: shape {tuple(p2.shape)} does not match p1, {tuple(p1.shape)}; expected two [B, C]")
    check_distribution("p1", p1)
    check_distribution("p2", p2)
    return _gate(p1.argmax(1) == p2.argmax(1), disagreement, work(p1))


def observed_reliability(
    clean: Tensor, structure: Tensor | None, gate: Tensor | None, alpha: float, beta: float | Tensor
) -> Tensor:
    """Return s^obs = clip((α_t c^loss + (1−α_t) c̄^str) · ((1−β_t) + β_t g^agr), 0, 1) with α_t = 1 − β_t(1−α).

    Args:
        clean: [B] loss posterior c^loss.
        structure: [B] structure confidence c̄^str; None leaves c^loss alone.
        gate: [B] agreement gate g^agr; None means agreement.
        alpha: α, the final loss–structure balance.
        beta: β_t, the activation of this epoch.

    >>> observed_reliability(torch.tensor([0.2]), torch.tensor([0.9]), torch.tensor([0.5]), alpha=0.7, beta=1.0)
    tensor([0.2050])
    """
    check_unit("clean", clean)
    clean = work(clean)
    score = clean
    if structure is not None:
        check_rows("structure", structure, len(clean), "clean")
        check_unit("structure", structure)
        alpha_t = 1 - beta * (1 - alpha)
        score = alpha_t * clean + (1 - alpha_t) * work(structure)
    if gate is not None:
        check_rows("gate", gate, len(clean), "clean")
        check_unit("gate", gate)
        score = score * ((1 - beta) + beta * work(gate))
    return score.clamp(0, 1)


def pseudo_reliability(pseudo: Tensor, rho: float) -> Tensor:
    """Return s^pseudo = (max_c q_c)^ρ of pseudo targets q [B, C].

    >>> pseudo_reliability(torch.tensor([[0.05, 0.85, 0.10]]), rho=1.0)
    tensor([0.8500])
    """
    check_distribution("pseudo", pseudo)
    if rho < 1:
        raise ValueError(f"rho: {rho}, expected ≥ 1")
    return _confidence_score(work(pseudo).amax(1), rho)


def supervise(
    observed: Tensor,
    pseudo: Tensor,
    observed_reliability: Tensor,
    pseudo_reliability: Tensor,
    w_min: float,
    eps: float = 1e-8,
) -> Supervision:
    """Build target and weight: a = s^obs, b = (1−s^obs) s^pseudo, ỹ = (a ŷ + b q)/(a+b+ε), w = max(a+b, w_min).

    The floor is applied first, then the weights are divided by their batch mean.

    Args:
        observed: [B, C] one-hot observed labels ŷ.
        pseudo: [B, C] pseudo targets q.
        observed_reliability: [B] s^obs.
        pseudo_reliability: [B] s^pseudo.
        w_min: floor of the weight.
        eps: ε.

    >>> s = supervise(torch.tensor([[1.0, 0, 0]]), torch.tensor([[0.05, 0.85, 0.10]]), torch.tensor([0.205]),
    ...               torch.tensor([0.85]), w_min=0.2)
    >>> s.target, s.b
    (tensor([[0.2711, 0.6522, 0.0767]]), tensor([0.6758]))
    """
    rows = len(pseudo)
    for name, values in (("observed", observed), ("pseudo", pseudo)):
        check_rows(name, values, rows, "pseudo")
        check_distribution(name, values)
        if values.shape != pseudo.shape:
            raise ValueError(f"{name}: shape {tuple(values.shape)} does not match pseudo, {tuple(pseudo.shape)}")
    for name, values in (("observed_reliability", observed_reliability), ("pseudo_reliability", pseudo_reliability)):
        check_rows(name, values, rows, "pseudo")
        check_unit(name, values)
    with torch.no_grad():
        a, s_pseudo = work(observed_reliability).detach(), work(pseudo_reliability).detach()
        b = (1 - a) * s_pseudo
        strength = a + b
        target = (a[:, None] * work(observed) + b[:, None] * work(pseudo)) / (strength + eps)[:, None]
        return Supervision(target, _normalised(strength, w_min), a, s_pseudo, a, b)


class Trace(Controller):
    """TRACE as a plug-in: `Evidence` in, `Supervision` out; before its start it is `Coupled`, bit for bit.

    Args:
        config: settings; keyword arguments override single ones.

    >>> trace = Trace(structure=False)
    >>> e = Evidence(observed=torch.tensor([2]), pseudo=torch.tensor([[0.55, 0.35, 0.10]]),
    ...              clean=torch.tensor([0.3]), epoch=50)
    >>> trace(e).target
    tensor([[0.3091, 0.1967, 0.4942]])
    """

    name = "trace"

    def __init__(self, config: TraceConfig | None = None, **options: float | bool | str | None) -> None:
        self.config = replace(config or TraceConfig(), **options)  # type: ignore[arg-type]
        self.uses_structure = self.config.structure
        self._coupled = Coupled()

    @torch.no_grad()
    def __call__(self, evidence: Evidence) -> Supervision:
        """Judge both sources, then build target and weight."""
        config, epoch = self.config, evidence.epoch
        begun = self.begun(epoch)
        if begun is False:
            return self._coupled(evidence)
        votes = evidence.votes
        s_obs, s_pseudo = self.reliabilities(
            evidence.clean,
            evidence.structure,
            None if votes is None else votes[0].argmax(1) == votes[1].argmax(1),
            work(evidence.pseudo).amax(1),
            epoch,
        )
        after = supervise(evidence.observed, evidence.pseudo, s_obs, s_pseudo, config.w_min)
        if not config.reweight:
            after = replace(after, weight=torch.ones_like(after.weight))
        if not isinstance(begun, Tensor):
            return after
        pairs = zip(_fields(self._coupled(evidence)), _fields(after), strict=True)
        return Supervision(*(torch.where(begun, late, early) for early, late in pairs))

    def begun(self, epoch: int | Tensor) -> bool | Tensor:
        """Whether structure and agreement count, or the pseudo gate is open."""
        return epoch >= min(self.config.start, self.config.gate_start)

    def reliabilities(
        self, clean: Tensor, structure: Tensor | None, agree: Tensor | None, confidence: Tensor, epoch: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return (s^obs, s^pseudo) of samples at an epoch, from numbers per sample alone."""
        config = self.config
        if config.structure and structure is None:
            raise ValueError(
                "structure: None given, but this Trace uses structure confidence; "
                "pass Evidence(structure=scores.structure[index]) or take Trace(structure=False)"
            )
        clean = work(clean)
        beta = ramp(epoch, config.start, config.ramp)
        gate = _gate(agree, config.disagreement, clean) if config.agreement and agree is not None else None
        s_obs = observed_reliability(clean, structure if config.structure else None, gate, config.alpha, beta)
        s_pseudo = torch.ones_like(clean)
        if config.pseudo_gate:
            score, is_open = _confidence_score(work(confidence), config.rho), epoch >= config.gate_start
            if isinstance(is_open, Tensor):
                s_pseudo = torch.where(is_open, score, s_pseudo)
            elif is_open:
                s_pseudo = score
        return s_obs, s_pseudo

    def weigh(self, a: Tensor, b: Tensor) -> Tensor:
        """Return max(a + b, w_min) divided by its mean."""
        return _normalised(a + b, self.config.w_min) if self.config.reweight else super().weigh(a, b)

    def batch_structure(self, features: Sequence[Sequence[Tensor]], clean: Tensor) -> Tensor | None:
        """Return c̄^str of a training batch under `scope="batch"`; fewer than 3 samples fall back to `clean`."""
        config = self.config
        if not config.structure or config.scope != "batch":
            return None
        if len(clean) < 3:
            return work(clean)
        confidences = []
        for stages in features:
            vectors = [pool(work(stage), config.pooling) if stage.ndim > 2 else stage for stage in stages]
            drift = relation_drift(vectors, config.k, config.transitions)
            confidences.append(structure_confidence(drift, config.gamma, config.drift_norm))
        return torch.stack(confidences).mean(0)


def _gate(agree: Tensor, disagreement: float, like: Tensor) -> Tensor:
    if not 0 < disagreement <= 1:
        raise ValueError(f"disagreement: {disagreement}, expected 0 < disagreement ≤ 1")
    return torch.ones_like(agree, dtype=like.dtype).masked_fill(~agree, disagreement)


def _confidence_score(confidence: Tensor, rho: float) -> Tensor:
    return confidence.clamp(max=1) ** rho  # a sum of rounded probabilities may pass 1


def _normalised(strength: Tensor, w_min: float) -> Tensor:
    weight = strength.clamp_min(w_min)
    return weight / weight.mean().clamp_min(torch.finfo(weight.dtype).tiny)  # nothing is trusted, and no floor: zeros


def _fields(s: Supervision) -> tuple[Tensor, ...]:
    return s.target, s.weight, s.observed_reliability, s.pseudo_reliability, s.a, s.b
