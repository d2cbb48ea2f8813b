"""How the command talks: results on stdout, words on stderr, a mistake in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console

console = Console(markup=False, highlight=False)


def talk_console(quiet: bool) -> Console:
    """Return the console for what is said on the way; stdout is for results."""
    return Console(stderr=True, quiet=quiet, markup=False, highlight=False)


def complain(message: str, code: int) -> int:
    """Print one line to stderr and return the exit code."""
    print(f"labeltrace: {' '.join(message.splitlines())}", file=sys.stderr)  # noqa: T201
    return code


def file_names(folder: Path) -> str:
    """Return the names in a folder on one line, without hidden files."""
    shown = (p for p in folder.iterdir() if not p.name.startswith("."))
    return "  ".join(sorted(p.name + ("/" if p.is_dir() else "") for p in shown))


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity become null."""
    from labeltrace.engine.folder import finite

    print(json.dumps(finite(value), indent=2, ensure_ascii=False))  # noqa: T201
