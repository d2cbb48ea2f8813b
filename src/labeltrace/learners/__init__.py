"""The training methods, one file each; the registry `learners` knows them by name."""

from labeltrace.learners.base import Batch, Learner, Loop, Outcome, learners
from labeltrace.learners.cross_entropy import CrossEntropy
from labeltrace.learners.rolr import RoLR

__all__ = ["Batch", "CrossEntropy", "Learner", "Loop", "Outcome", "RoLR", "learners"]
