"""The training methods, one file each; the registry `learners` knows them by name."""

from labeltrace.learners.anne import ANNE
from labeltrace.learners.base import Batch, Learner, Loop, Outcome, learners
from labeltrace.learners.cores import Cores
from labeltrace.learners.cross_entropy import CrossEntropy
from labeltrace.learners.crosssplit import CrossSplit
from labeltrace.learners.disc import DISC
from labeltrace.learners.dividemix import DivideMix
from labeltrace.learners.f_dividemix import FDivideMix
from labeltrace.learners.rolr import RoLR
from labeltrace.learners.selc import SELC
from labeltrace.learners.selfie import Selfie

__all__ = [
    "ANNE",
    "DISC",
    "SELC",
    "Batch",
    "Cores",
    "CrossEntropy",
    "CrossSplit",
    "DivideMix",
    "FDivideMix",
    "Learner",
    "Loop",
    "Outcome",
    "RoLR",
    "Selfie",
    "learners",
]
