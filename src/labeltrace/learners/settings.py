"""Settings of learners: every value carries its source, every epoch-valued one shrinks with a shorter run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from labeltrace.control.schedule import shrink
from labeltrace.validation import build


def setting(default: Any, source: str, *, epochs: bool = False) -> Any:
    """Declare a setting: its default, where that value comes from, and whether it counts epochs."""
    return field(default=default, metadata={"source": source, "epochs": epochs})


@dataclass(frozen=True)
class LearnerSettings:
    """What every learner has; each learner declares them anew with its own values and sources."""

    epochs: int = setting(100, "declared by each learner")
    warmup: int = setting(0, "declared by each learner", epochs=True)
    batch_size: int = setting(64, "declared by each learner")
    lr: float = setting(0.02, "declared by each learner")
    momentum: float = setting(0.9, "declared by each learner")
    weight_decay: float = setting(5e-4, "declared by each learner")

    def __post_init__(self) -> None:
        for name, least in (
            ("epochs", 1),
            ("warmup", 0),
            ("batch_size", 1),
            ("lr", 0),
            ("momentum", 0),
            ("weight_decay", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)!r}, expected ≥ {least}")


S = TypeVar("S", bound=LearnerSettings)


@dataclass(frozen=True)
class Preset:
    """A recipe for a family of data: values that differ from the learner's defaults, each with its source.

    Args:
        about: one line for `labeltrace list`.
        values: name → (value, source).
        trace: the same for TRACE's epoch-valued settings (`start`, `ramp`), which belong to the recipe's length.
    """

    about: str
    values: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    trace: Mapping[str, tuple[int, str]] = field(default_factory=dict)


def sources(kind: type[LearnerSettings], preset: Preset | None = None) -> dict[str, str]:
    """Return where the value of each setting comes from."""
    found = {f.name: f.metadata["source"] for f in fields(kind)}
    if preset is not None:
        found |= {name: source for name, (_, source) in preset.values.items()}
    return found


def resolve(kind: type[S], preset: Preset, given: Mapping[str, Any], epochs: int | None) -> tuple[S, int]:
    """Return the settings of a run and the epochs of the recipe they were taken from.

    A run shorter than its recipe shrinks every epoch-valued setting in proportion, except those in `given`.

    Args:
        kind: the learner's settings class.
        preset: the recipe.
        given: values a person asked for explicitly.
        epochs: length of the run; None means the recipe's.

    Raises:
        InputError: a name that is no setting of this learner, a value out of range.
    """
    known = {f.name: f for f in fields(kind)}
    build(kind, given, "settings")  # the names and types that were asked for, before anything is computed from them
    recipe: dict[str, Any] = {name: f.default for name, f in known.items()}
    recipe |= {name: value for name, (value, _) in preset.values.items()}
    recipe_epochs = int(recipe["epochs"])
    length = epochs or int(given.get("epochs") or recipe_epochs)
    for name, f in known.items():
        if f.metadata["epochs"]:
            recipe[name] = shrink(recipe[name], length, recipe_epochs)
    return build(kind, recipe | dict(given) | {"epochs": length}, "settings"), recipe_epochs
