"""Settings of structure confidence, shared by the scoring pass and by TRACE."""

from __future__ import annotations

from dataclasses import dataclass

from labeltrace.scoring.relations import DRIFT_NORMS, POOLINGS, TRANSITIONS


@dataclass(frozen=True)
class StructureSettings:
    """How relation drift is computed and mapped to confidence; defaults are the paper's (Appendix A table).

    Args:
        k: neighbours kept per row, clamped to the group.
        gamma: γ, how fast confidence falls with drift.
        score_batch: samples per group in the scoring pass (the paper's batch size), whatever the forward's batch is.
        drift_norm: "minmax" (paper) or "rank".
        transitions: "all" (paper) or "last".
        pooling: "gap" (ours: the paper does not say) or "flatten", how a stage's map becomes a vector.
    """

    k: int = 50
    gamma: float = 5.0
    score_batch: int = 64
    drift_norm: str = "minmax"
    transitions: str = "all"
    pooling: str = "gap"

    def __post_init__(self) -> None:
        for name, holds, expected in (
            ("k", self.k >= 1, "k ≥ 1"),
            ("gamma", self.gamma > 0, "gamma > 0"),
            ("score_batch", self.score_batch >= 2, "score_batch ≥ 2"),
            ("drift_norm", self.drift_norm in DRIFT_NORMS, f"one of {', '.join(DRIFT_NORMS)}"),
            ("transitions", self.transitions in TRANSITIONS, f"one of {', '.join(TRANSITIONS)}"),
            ("pooling", self.pooling in POOLINGS, f"one of {', '.join(POOLINGS)}"),
        ):
            if not holds:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected {expected}")
