"""What a plug-in is: a function from a learner's class to a class that does something more.

A plug-in overrides what it changes of a learner and calls the rest, so learners know nothing of plug-ins, and one that
is not asked for costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from labeltrace.errors import InputError
from labeltrace.learners import Learner
from labeltrace.registry import Registry


@dataclass(frozen=True)
class PluginSettings:
    """Settings of a plug-in; each declares its own, with sources, by `labeltrace.learners.settings.setting`."""


class Plugin(ABC):
    """A rival of TRACE.

    Args:
        settings: of this run.
    """

    name: ClassVar[str]
    #: whether it keeps what several ranks do not share, so that they are refused
    alone: ClassVar[bool] = False
    settings_type: ClassVar[type[PluginSettings]]
    #: learner's name → the class that goes before it
    attached: ClassVar[Mapping[str, type]]

    def __init__(self, settings: PluginSettings) -> None:
        self.settings = settings

    @abstractmethod
    def extras(self, learner: type[Learner]) -> dict[str, Any]:
        """Return the class attributes of an attached learner that depend on the learner or on the settings."""

    def attach(self, learner: type[Learner]) -> type[Learner]:
        """Return the learner with this plug-in; its name, presets and settings stay its own.

        Raises:
            InputError: this plug-in does not attach to that learner.
        """
        if learner.name not in self.attached:
            known = ", ".join(self.attached)
            raise InputError(f"{self.name} does not attach to {learner.name}; it attaches to {known}")
        attributes = {"__module__": learner.__module__, "__doc__": learner.__doc__, **self.extras(learner)}
        return type(learner.__name__, (self.attached[learner.name], learner), attributes)


plugins: Registry[type[Plugin]] = Registry("plug-in")
