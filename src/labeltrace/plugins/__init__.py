"""Rivals of TRACE that attach to a learner as well; the registry `plugins` knows them by name."""

from labeltrace.plugins.base import Plugin, PluginSettings, plugins
from labeltrace.plugins.ct import ConfidenceTracking
from labeltrace.plugins.l2b import LearningToBootstrap
from labeltrace.plugins.snscl import SNSCL

__all__ = ["SNSCL", "ConfidenceTracking", "LearningToBootstrap", "Plugin", "PluginSettings", "plugins"]
