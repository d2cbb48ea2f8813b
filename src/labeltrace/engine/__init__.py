"""The training loop on Lightning Fabric: run folder, checkpoints, logging, seeds."""

from labeltrace.engine.config import RunConfig, load_config
from labeltrace.engine.ending import Diverged, Interrupted, Judgement, RankDied, Trained, summarise
from labeltrace.engine.folder import RunFolder
from labeltrace.engine.plan import CONTROLLERS, Plan, plan
from labeltrace.engine.reporter import Reporter
from labeltrace.engine.train import train

__all__ = [
    "CONTROLLERS",
    "Diverged",
    "Interrupted",
    "Judgement",
    "Plan",
    "RankDied",
    "Reporter",
    "RunConfig",
    "RunFolder",
    "Trained",
    "load_config",
    "plan",
    "summarise",
    "train",
]
