"""How the command talks: results on stdout, words on stderr, a mistake in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from labeltrace.errors import InputError

console = Console(markup=False, highlight=False)
LONGEST = 900  # characters of a line that says what is wrong; file names and labels may have thousands


def talk_console(quiet: bool) -> Console:
    """Return the console for what is said on the way; stdout is for results."""
    return Console(stderr=True, quiet=quiet, markup=False, highlight=False)


def complain(message: str, code: int) -> int:
    """Print one line to stderr and return the exit code."""
    print(f"labeltrace: {one_line(message)}", file=sys.stderr)  # noqa: T201
    return code


@contextmanager
def complaining() -> Iterator[None]:
    """End a module that is run by `python -m` as the command ends: what is wrong in one line, and exit code 2."""
    try:
        yield
    except (InputError, OSError) as error:
        raise SystemExit(complain(str(error), 2)) from None


def one_line(message: str) -> str:
    r"""Return a message as one line that a terminal shows as it is, its middle left out where it is very long.

    >>> one_line("two\nlines,\x1b[2J and colour")
    'two lines,\\x1b[2J and colour'
    """
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(message.splitlines()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST * 2 // 3]} … {line[-LONGEST // 3 :]}"


def file_names(folder: Path) -> str:
    """Return the names in a folder on one line, without hidden files."""
    shown = (p for p in folder.iterdir() if not p.name.startswith("."))
    return "  ".join(sorted(p.name + ("/" if p.is_dir() else "") for p in shown))


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity become null."""
    from labeltrace.engine.folder import finite

    text = json.dumps(finite(value), indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # where the output has not all signs, JSON has its own way to write them
        text = json.dumps(finite(value), indent=2)
    print(text)  # noqa: T201
