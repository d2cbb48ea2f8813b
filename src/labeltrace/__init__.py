"""labeltrace: classification with wrong labels. Train a robust model, learn what to keep, relabel or review.

`import labeltrace` loads nothing heavy: a name is imported when it is asked for, so that the command answers at once. A
training loop of one's own needs torch and numpy and nothing else.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from labeltrace.auditing import CallableFolder

if TYPE_CHECKING:
    from labeltrace.auditing import audit
    from labeltrace.control import Coupled, Evidence, Supervision, Trace, TraceConfig
    from labeltrace.scoring import Scores, score
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

_FOLDERS = {  # where a public name lives, but for `audit`, which is a folder
    **dict.fromkeys(("Coupled", "Evidence", "Supervision", "Trace", "TraceConfig"), "control"),
    **dict.fromkeys(("Scores", "score"), "scoring"),
    "TraceClassifier": "sklearn",
}


def __getattr__(name: str) -> Any:
    if name in _FOLDERS:
        globals()[name] = found = getattr(import_module(f"labeltrace.{_FOLDERS[name]}"), name)
        return found
    if name == "audit" or name in _FOLDERS.values():
        return import_module(f"labeltrace.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """This package: its folder `audit` becomes one that can be called, whoever imports it first."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "audit" and type(value) is ModuleType:
            value.__class__ = CallableFolder
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
