"""The errors a user can cause: each says what was given, what was expected, and what to type instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input from a user: a flag, a config key, a file. The command prints it as one line and exits with 2."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known spelling, or all known names when none is close.

    >>> nearest("rollr", ["rolr", "cross_entropy"])
    "did you mean 'rolr'?"
    >>> nearest("zzz", ["rolr", "cross_entropy"])
    'known: cross_entropy, rolr'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
