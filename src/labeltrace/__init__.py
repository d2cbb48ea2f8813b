"""labeltrace: classification with wrong labels. Train a robust model, learn what to keep, relabel or review.

`import labeltrace` loads torch and numpy and nothing heavier; the rest is imported where it is used.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from labeltrace.auditing import CallableFolder
from labeltrace.control import Coupled, Evidence, Supervision, Trace, TraceConfig
from labeltrace.scoring import Scores, score

if TYPE_CHECKING:
    from labeltrace.auditing import audit
    from labeltrace.sklearn import TraceClassifier

__version__ = "0.1.0"

__all__ = [
    "Coupled",
    "Evidence",
    "Scores",
    "Supervision",
    "Trace",
    "TraceClassifier",
    "TraceConfig",
    "audit",
    "score",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "TraceClassifier":
        return import_module("labeltrace.sklearn").TraceClassifier
    if name == "audit":
        return import_module("labeltrace.audit")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(ModuleType):
    """This package: its folder `audit` becomes one that can be called, whoever imports it first."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "audit" and type(value) is ModuleType:
            value.__class__ = CallableFolder
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
