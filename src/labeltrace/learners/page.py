"""The page about the learners, made from their code: `python -m labeltrace.learners.page > docs/learners.md`."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields

from labeltrace.learners.base import Learner, learners
from labeltrace.learners.settings import resolve, sources
from labeltrace.scoring import SampleMemory

HEAD = """# The learners

Made from the code by `python -m labeltrace.learners.page > docs/learners.md`; a test compares. Every learner that takes
a controller runs as published (`--controller coupled`) and with TRACE (`--controller trace`). Its own file says at the
head what the official code does that the paper does not say, and what was chosen here. Which one is best on your data
is a matter of measurement: `benchmarks/learners.py` compares all of them on the same labels.
"""
CLASSES = 10  # for the memory that grows with the number of classes


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([HEAD, *(section(learners[name]) for name in learners)])


def section(learner: type[Learner]) -> str:
    """Return what one learner needs, remembers and does, its settings with their sources, and its recipes."""
    settings, _ = resolve(learner.settings_type, learner.presets["cifar"], {}, None)
    small, _ = resolve(learner.settings_type, learner.presets["small"], {}, None)
    source = sources(learner.settings_type, learner.presets["cifar"])
    declared = learner.fields(settings, CLASSES)
    remembered = ", ".join(f"`{name}`" + (f" {list(f.shape)}" if f.shape else "") for name, f in declared.items())
    size = SampleMemory(1, declared).bytes_per_sample
    kept = f"; a scoring pass keeps {' and '.join(learner.keeps)}" if learner.keeps else ""
    networks = "one network" if learner.networks_needed == 1 else f"{learner.networks_needed} networks"
    about = learners.about(learner.name)
    lines = [
        f"## {learner.name}",
        "",
        f"{about[0].upper()}{about[1:]}. File: `{learner.__module__.replace('.', '/')}.py`.",
        "",
        f"- **Choose it** {learner.when}",
        f"- **Needs** {networks}{kept}; {'takes a controller' if learner.refurbishes else 'takes no controller'}.",
        f"- **Remembers** of each sample: {remembered or 'nothing'} ({size} bytes at {CLASSES} classes).",
        f"- **An epoch**: {_first(learner.epoch)}",
        f"- **A step**: {_first(getattr(learner, 'step', learner.epoch))}",
        f"- **Recipes**: {'; '.join(f'`{name}` {preset.about}' for name, preset in learner.presets.items())}.",
        "",
        "| setting | `cifar` | `small` | source of the first |",
        "|---|---|---|---|",
    ]
    for field in fields(settings):
        here, there = getattr(settings, field.name), getattr(small, field.name)
        lines.append(f"| `{field.name}` | {here} | {'' if here == there else there} | {source[field.name]} |")
    return "\n".join([*lines, ""])


def _first(function: object) -> str:
    """Return the first paragraph of a docstring on one line."""
    text = inspect.getdoc(function) or ""
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    sys.stdout.write(page())
