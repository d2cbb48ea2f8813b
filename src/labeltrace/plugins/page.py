"""The page about the plug-ins, made from their code: `python -m labeltrace.plugins.page > docs/plugins.md`."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields

from labeltrace.plugins.base import Plugin, plugins

HEAD = """# The plug-ins

Made from the code by `python -m labeltrace.plugins.page > docs/plugins.md`; a test compares. They are rivals of TRACE:
each attaches to learners too, so that base, base + rival and base + TRACE differ in one thing only. The controller is
then the base method's (`coupled`) unless `--controller trace` puts TRACE behind the rival.

    labeltrace train --data cifar10 --root DATA --learner dividemix --plugin ct --set plugin_settings.alpha=0.1
"""


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([HEAD, *(section(plugins[name]) for name in plugins)])


def section(plugin: type[Plugin]) -> str:
    """Return what a plug-in is, what it attaches to, and its settings with their sources."""
    about = plugins.about(plugin.name)
    text = inspect.getdoc(inspect.getmodule(plugin)) or ""
    lines = [
        f"## {plugin.name}",
        "",
        f"{about[0].upper()}{about[1:]}. File: `{plugin.__module__.replace('.', '/')}.py`.",
        "",
        f"Attaches to {', '.join(f'`{name}`' for name in plugin.attached)}.",
        "",
        text,
        "",
        "| setting | default | source |",
        "|---|---|---|",
        *(f"| `{f.name}` | {f.default} | {f.metadata['source']} |" for f in fields(plugin.settings_type)),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page())
