"""Rivals of TRACE that attach to a learner as well; the registry `plugins` knows them by name."""

from labeltrace.plugins.base import Plugin, PluginSettings, plugins
from labeltrace.plugins.ct import ConfidenceTracking

__all__ = ["ConfidenceTracking", "Plugin", "PluginSettings", "plugins"]
