"""The training methods, one file each; the registry `learners` knows them by name."""

from labeltrace.learners.anne import ANNE
from labeltrace.learners.base import Batch, Learner, Loop, Outcome, learners
from labeltrace.learners.co_learning import CoLearning
from labeltrace.learners.co_teaching import CoTeaching
from labeltrace.learners.cores import Cores
from labeltrace.learners.cross_entropy import CrossEntropy
from labeltrace.learners.crosssplit import CrossSplit
from labeltrace.learners.disc import DISC
from labeltrace.learners.dividemix import DivideMix
from labeltrace.learners.elr import ELR
from labeltrace.learners.f_dividemix import FDivideMix
from labeltrace.learners.gce import GCE
from labeltrace.learners.jocor import JoCoR
from labeltrace.learners.rolr import RoLR
from labeltrace.learners.sce import SCE
from labeltrace.learners.selc import SELC
from labeltrace.learners.selfie import Selfie

__all__ = [
    "ANNE",
    "DISC",
    "ELR",
    "GCE",
    "SCE",
    "SELC",
    "Batch",
    "CoLearning",
    "CoTeaching",
    "Cores",
    "CrossEntropy",
    "CrossSplit",
    "DivideMix",
    "FDivideMix",
    "JoCoR",
    "Learner",
    "Loop",
    "Outcome",
    "RoLR",
    "Selfie",
    "learners",
]
