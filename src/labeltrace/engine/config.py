"""What a run is: one flat record, from a YAML file, flags or both, written back resolved into the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from labeltrace.errors import InputError
from labeltrace.validation import build

#: what a resumed run may change: where and how it computes
WHERE = {"device", "precision", "capture", "compile"}


class RunConfig(BaseModel):
    """A run. Every key can stand in a YAML file or be given as a flag of `labeltrace train`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str = Field("digits", description="dataset by name, or the path of own files")
    root: Path | None = Field(None, description="folder that holds the dataset of that name")
    subset: int | None = Field(None, ge=1, description="train on a stratified random subset of this size")
    noise: str | None = Field(None, description="label noise to add, by name")
    rate: float = Field(0.0, description="its rate")
    noise_seed: int | None = Field(None, ge=0, lt=2**32, description="its seed (default: the run's)")
    noise_file: Path | None = Field(None, description="train on the labels of this file (labeltrace noise writes one)")
    foreign: str | None = Field(
        None, description="images that open-set noise brings in, where the file's name is no path"
    )
    foreign_root: Path | None = Field(None, description="folder that holds them (default: root)")
    learner: str = Field("rolr", description="training method by name")
    preset: str | None = Field(None, description="recipe of the learner (default: by the kind of data)")
    controller: str | None = Field(None, description="coupled (the base method) or trace (default, where one applies)")
    plugin: str | None = Field(None, description="rival of TRACE to attach to the learner, by name")
    model: str | None = Field(None, description="network by name (default: by the kind of data)")
    weights: Path | None = Field(None, description="checkpoint file that the networks start from")
    epochs: int | None = Field(None, ge=1, description="length of the run (default: the recipe's; shorter shrinks it)")
    epoch_samples: int | None = Field(
        None, ge=1, description="samples of an epoch, drawn anew and alike from all classes (default: all)"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of everything that is drawn")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
    precision: str = Field("auto", description="auto (bf16 on CUDA, else fp32), fp32 or bf16")
    capture: bool = Field(True, description="on CUDA: record steps as a graph and replay it")
    compile: bool | None = Field(None, description="on CUDA: compile networks and views (default: in long runs)")
    tensorboard: bool = Field(False, description="also write TensorBoard files")
    checkpoint_seconds: float = Field(20.0, ge=0, description="least time between two checkpoints on disk")
    read: dict[str, Any] = Field(default_factory=dict, description="how files are read")
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of the learner")
    trace: dict[str, Any] = Field(default_factory=dict, description="settings of TRACE")
    plugin_settings: dict[str, Any] = Field(default_factory=dict, description="settings of the plug-in")

    @property
    def method(self) -> str:
        """Learner, controller and plug-in in a word, e.g. rolr+trace or dividemix+ct; the base method stands alone."""
        return method_of(self.learner, self.controller, self.plugin)

    @property
    def own_files(self) -> Path | None:
        """A user's own files, which the config of a run names by their whole path; None for other data."""
        path = Path(self.data)
        return path if path.is_absolute() else None


def method_of(learner: str, controller: str | None, plugin: str | None = None) -> str:
    """Return what a method is called; the controller of the base method is not named.

    >>> method_of("rolr", "coupled"), method_of("rolr", "trace"), method_of("dividemix", "coupled", "ct")
    ('rolr', 'rolr+trace', 'dividemix+ct')
    """
    return "+".join(filter(None, (learner, "trace" if controller == "trace" else None, plugin)))


def load_config(path: Path | None, overrides: dict[str, Any]) -> RunConfig:
    """Return the run of a YAML file with `overrides` on top; nested records are merged key by key.

    Raises:
        InputError: no such file, no YAML, an unknown key (with the nearest known one), a wrong value.
    """
    values: dict[str, Any] = {}
    if path is not None:
        values = read_yaml(path)
    where = str(path) if path else "config"
    for name, value in overrides.items():
        old = values.get(name) or {}
        if isinstance(value, dict) and not isinstance(old, dict):
            raise InputError(f"{where}: {name}: {old!r} is no record, so it has no {next(iter(value), 'keys')!r}")
        values[name] = {**old, **value} if isinstance(value, dict) else value
    return build(RunConfig, values, where)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file."""
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a date that is none
        raise InputError(f"{path}: not a YAML file: {' '.join(str(error).split())}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected keys and values, found {type(loaded).__name__}")
    return loaded


def dump_config(config: RunConfig) -> str:
    """Return the run as YAML."""
    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return text
