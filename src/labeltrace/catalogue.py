"""What can be named on the command line, with one line about each."""

from __future__ import annotations

from labeltrace.data import datasets, noises
from labeltrace.learners import learners
from labeltrace.models import models
from labeltrace.plugins import plugins


def catalogue() -> dict[str, dict[str, str]]:
    """Return kind → name → one line."""
    presets = {name: ", ".join(learners[name].presets) for name in learners}
    return {
        "learners": {name: f"{learners.about(name)}; presets: {presets[name]}" for name in learners},
        "controllers": {
            "coupled": "the base method: what the label loses, its replacement gains",
            "trace": "TRACE: label and replacement are judged by separate evidence",
        },
        "plugins": {name: f"{plugins.about(name)}; on {', '.join(plugins[name].attached)}" for name in plugins},
        "models": {name: models.about(name) for name in models},
        "datasets": {name: datasets.about(name) for name in datasets},
        "noises": {name: noises.about(name) for name in noises},
    }
