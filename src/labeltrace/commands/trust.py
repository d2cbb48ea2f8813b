"""The flags that decide anew: from where a label, and from where a suggestion, is trusted."""

from __future__ import annotations

from typing import Annotated

import typer

from labeltrace.errors import InputError

TrustLabel = Annotated[
    float | None, typer.Option(help="Decide anew: reliability from which a label is not replaced (default 0.9).")
]
TrustSuggestion = Annotated[
    float | None, typer.Option(help="Decide anew: confidence from which a suggestion is taken (default 0.9).")
]


def thresholds(trust_label: float | None, trust_suggestion: float | None) -> tuple[float, float] | None:
    """Return both thresholds, the usual one for the other where one is given; None where none is.

    Raises:
        InputError: one that no reliability can be held against.

    >>> thresholds(None, 0.8), thresholds(None, None)
    ((0.9, 0.8), None)
    """
    from labeltrace.audit.decisions import TRUST_LABEL, TRUST_SUGGESTION

    for flag, value in (("--trust-label", trust_label), ("--trust-suggestion", trust_suggestion)):
        if value is not None and not value >= 0:
            raise InputError(f"{flag} {value:g}: expected a number from 0 to 1 (more than 1: never trusted)")
    if trust_label is None and trust_suggestion is None:
        return None
    label = TRUST_LABEL if trust_label is None else trust_label
    return label, TRUST_SUGGESTION if trust_suggestion is None else trust_suggestion


def as_flags(trust: tuple[float, float]) -> str:
    """Return thresholds as the flags that set them.

    >>> as_flags((0.25, 0.9))
    '--trust-label 0.25 --trust-suggestion 0.9'
    """
    return f"--trust-label {trust[0]:.9g} --trust-suggestion {trust[1]:.9g}"
