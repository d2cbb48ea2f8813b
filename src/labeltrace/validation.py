"""Typed records from untyped input (YAML, flags): one clear line for an unknown key or a wrong value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from labeltrace.errors import InputError, nearest

T = TypeVar("T")


def build(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Return `kind` (a dataclass or pydantic model) filled with `values`, converted to its field types.

    Args:
        kind: what to build.
        values: name → value.
        where: what the names belong to, for the message ("settings", "trace", a file's name).

    Raises:
        InputError: an unknown name (with the nearest known one), a wrong type, a value out of range.

    >>> from labeltrace.control import TraceConfig
    >>> build(TraceConfig, {"alpha": "0.5"}, "trace").alpha
    0.5
    >>> build(TraceConfig, {"alfa": 0.5}, "trace")
    Traceback (most recent call last):
    labeltrace.errors.InputError: trace: unknown key 'alfa': did you mean 'alpha'?
    """
    known = field_names(kind)
    for name in values:
        if name not in known:
            raise InputError(f"{where}: unknown key {name!r}: {nearest(str(name), known)}")
    try:
        made: T = _adapter(kind).validate_python(dict(values))  # type: ignore[arg-type]
        return made
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] == "value_error":  # our own message, raised by a check of the record itself
            raise InputError(f"{where}: {problem['ctx']['error']}") from None
        name = ".".join(str(part) for part in problem["loc"])
        said = problem["msg"].partition(" for <class")[0].lower()
        raise InputError(f"{where}: {name}: {said}, got {problem['input']!r}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)  # making one takes longer than many uses of it


def field_names(kind: type) -> list[str]:
    """Return the names that `kind` takes."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return list(kind.model_fields)
    return [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
