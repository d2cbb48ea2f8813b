"""The pass over the training set: loss → clean posterior, relation drift → structure confidence, the sample memory."""

from labeltrace.scoring.memory import Field, SampleMemory
from labeltrace.scoring.posterior import loss_posterior
from labeltrace.scoring.relations import relation_drift, relation_matrix, structure_confidence
from labeltrace.scoring.score import ScorePass, Scores, score
from labeltrace.scoring.settings import StructureSettings

__all__ = [
    "Field",
    "SampleMemory",
    "ScorePass",
    "Scores",
    "StructureSettings",
    "loss_posterior",
    "relation_drift",
    "relation_matrix",
    "score",
    "structure_confidence",
]
