"""From a run as asked for to a run as it will be: data, noise, recipe and controller, with nothing written yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from inspect import getattr_static
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labeltrace.control import Controller, Coupled, Trace, TraceConfig
from labeltrace.control.schedule import shrink
from labeltrace.data import (
    Dataset,
    NoiseRecord,
    ReadOptions,
    Skipped,
    add_noise,
    apply_noise_file,
    datasets,
    load_dataset,
    load_foreign,
    noises,
    prepare,
)
from labeltrace.data.noise.kinds import checked_rate
from labeltrace.engine.config import RunConfig
from labeltrace.engine.loop import run_seed
from labeltrace.engine.reporter import Reporter
from labeltrace.errors import InputError, nearest
from labeltrace.files import exists, expanded
from labeltrace.learners import Learner, learners
from labeltrace.learners.settings import LearnerSettings, Preset, resolve
from labeltrace.models import build_model, check_model, default_model, load_weights
from labeltrace.models.inputs import LARGE_IMAGE, SMALL_IMAGE
from labeltrace.plugins import plugins
from labeltrace.validation import build

CONTROLLERS = ("coupled", "trace")
DEFAULT_CONTROLLER = "trace"  # of a learner that takes one; see docs/decisions.md
DEFAULT_TRACE = {"structure": False}  # where a run leaves the paper; see docs/decisions.md
IN_MEMORY = "memory:"  # in config.yaml, before the name of data that was passed from Python
OWN = "own"  # in config.yaml, the model of a run whose network was passed from Python


@dataclass(frozen=True)
class Plan:
    """A run, resolved: `config` holds every value in full and repeats the run when it is given again."""

    config: RunConfig
    dataset: Dataset
    read: ReadOptions
    skipped: list[Skipped]
    noise: NoiseRecord | None
    learner: type[Learner]
    settings: LearnerSettings
    controller: Controller | None
    trace: TraceConfig
    make_network: Callable[[], nn.Module]

    def network(self, member: int, reporter: Reporter, restart: int | None = None) -> nn.Module:
        """Return a network as it is before training; a restart draws other weights and leaves the random state alone.

        Args:
            member: which network of the run.
            reporter: told what was read, where the run starts from weights.
            restart: number of the restart; None for the network that the run begins with.
        """
        with torch.random.fork_rng(devices=[], enabled=restart is not None):
            torch.manual_seed(run_seed(self.config.seed, member, *(() if restart is None else (restart,))))
            network = self.make_network()
            if self.config.weights is not None:
                report = load_weights(network, self.config.weights)
                if member == 0 and restart is None:
                    reporter.note(report)
            return self.extended(network)

    def extended(self, network: nn.Module) -> nn.Module:
        """Return a network with what the learner adds to it."""
        like = self.dataset.train.inputs
        sample = torch.zeros((2, *like.shape[1:]), dtype=like.dtype if isinstance(like, Tensor) else torch.uint8)
        return self.learner.extend(self.settings, network, self.dataset.views.plain(sample))


def plan(
    config: RunConfig,
    dataset: Dataset | None = None,
    make_network: Callable[[], nn.Module] | None = None,
    reporter: Reporter | None = None,
) -> Plan:
    """Resolve a run.

    Args:
        config: as asked for.
        dataset: data in memory, in place of the named dataset.
        make_network: a user's network, in place of the named model; it returns `Output` (see `models.Staged`).
        reporter: told how many image files have been read.

    Raises:
        InputError: a name that is not known, a value that does not fit, data that cannot be read.
    """
    learner, plugin_settings = attached(config)
    if config.noise is None and config.rate:
        raise InputError(f"rate: {config.rate} given without a noise; say which: {', '.join(noises)}")
    if config.noise is not None:
        noises[config.noise]
        if config.noise_file is not None:
            raise InputError(f"noise: {config.noise} and noise_file: {config.noise_file} given; take one of them")
        checked_rate(config.rate)
    elif config.noise_file is not None and not exists(expanded(config.noise_file)):
        raise InputError(f"no noise file {config.noise_file}")
    if make_network is None and config.model is not None:
        if config.model == OWN:
            raise InputError("this run trains a network of its own: start or resume it from Python with make_network=")
        check_model(config.model)
    controller_name = _controller(config, learner)
    if config.preset is not None:
        _preset(config.preset, learner)
    build(learner.settings_type, config.settings, "settings")  # names and values, before the recipe that they change
    pooling = build(TraceConfig, config.trace, "trace").pooling
    if pooling != "gap" and _reads_features(learner):
        raise InputError(f"trace.pooling: {pooling!r} would change {learner.name} too, which reads features; use 'gap'")
    read = build(ReadOptions, config.read, "read")
    if dataset is not None:
        config = config.model_copy(update={"data": IN_MEMORY + dataset.name})
    elif config.data.startswith(IN_MEMORY):
        raise InputError(f"data: {config.data!r} is data in memory: start or resume this run from Python with dataset=")
    else:
        dataset = load_dataset(config.data, config.root, config.seed, read)
    if config.subset is not None:
        dataset = dataset.subset(config.subset, config.seed)
    preset_name = config.preset or _recipe(dataset.input_shape)
    preset = _preset(preset_name, learner)
    settings, recipe_epochs = resolve(learner.settings_type, preset, config.settings, config.epochs)
    trace = _trace(config, preset, settings.epochs, recipe_epochs)
    shape, classes = dataset.input_shape, dataset.num_classes
    model = OWN if make_network is not None else config.model or default_model(shape)
    if make_network is None:
        with torch.device("meta"):  # a misfit shows now, before anything is written, and without filling the weights
            build_model(model, classes, shape, trace.pooling)

        def make_network() -> nn.Module:
            return build_model(model, classes, shape, trace.pooling)

    if config.weights is not None:  # likewise: a file that does not fit shows before anything is written
        with torch.random.fork_rng(devices=[]):
            load_weights(make_network(), expanded(config.weights))

    # Many images take long to read: they come after all that can be refused without them (noise may look at them).
    dataset, skipped = prepare(dataset, read, None if reporter is None else reporter.reading)
    if len(dataset.train) < 2:
        raise InputError(f"{dataset.name}: {len(dataset.train)} training sample; training needs two or more")
    record = None
    if config.noise is not None:
        seed = config.seed if config.noise_seed is None else config.noise_seed
        dataset, record = add_noise(dataset, config.noise, config.rate, seed)
    elif config.noise_file is not None:
        dataset, record = apply_noise_file(dataset, expanded(config.noise_file), _foreign_images(config, dataset, read))

    named = config.data in datasets or config.data.startswith(IN_MEMORY)
    resolved = config.model_copy(
        update={
            "data": config.data if named else str(_absolute(Path(config.data))),
            "root": _absolute(config.root),
            "noise_file": _absolute(config.noise_file),
            "foreign_root": _absolute(config.foreign_root),
            "weights": _absolute(config.weights),
            "read": _stated(read),
            "noise_seed": config.noise_seed if record is None else record.seed,
            "preset": preset_name,
            "controller": controller_name,
            "model": model,
            "epochs": settings.epochs,
            "settings": dataclasses.asdict(settings),
            "trace": dataclasses.asdict(trace) if controller_name == "trace" else {},
            "plugin_settings": plugin_settings,
        }
    )
    controller: Controller | None = None
    if controller_name is not None:
        controller = Trace(trace) if controller_name == "trace" else Coupled()
    return Plan(resolved, dataset, read, skipped, record, learner, settings, controller, trace, make_network)


def attached(config: RunConfig) -> tuple[type[Learner], dict[str, Any]]:
    """Return the learner of a run with its plug-in, and all settings of the latter.

    Raises:
        InputError: a name that is not known, a plug-in that does not attach to the learner, a setting it does not have.
    """
    learner = learners[config.learner]
    if config.plugin is None:
        if config.plugin_settings:
            raise InputError("plugin_settings: settings given without a plug-in; say which: " + ", ".join(plugins))
        return learner, {}
    plugin = plugins[config.plugin]
    settings = build(plugin.settings_type, config.plugin_settings, "plugin_settings")
    return plugin(settings).attach(learner), dataclasses.asdict(settings)


def _foreign_images(config: RunConfig, dataset: Dataset, read: ReadOptions) -> Callable[[str], Dataset]:
    """How the images that a file of open-set noise names are found."""
    root = config.foreign_root or config.root
    return lambda name: load_foreign(config.foreign or name, root, config.seed, dataset, read)


def _absolute(path: Path | None) -> Path | None:
    # Not resolved: the images of a table lie beside the link to it that was given, not beside what it leads to.
    return None if path is None else expanded(path).absolute()


def _stated(read: ReadOptions) -> dict[str, Any]:
    """The options of reading that were given, so that config.yaml says no more than it must."""
    given = {f.name: getattr(read, f.name) for f in dataclasses.fields(read) if getattr(read, f.name) != f.default}
    return {name: str(_absolute(value)) if isinstance(value, Path) else value for name, value in given.items()}


def default_controller(config: RunConfig) -> str | None:
    """Return the controller of a run that names none: TRACE, or the base method where its rival is attached."""
    if not learners[config.learner].refurbishes:
        return None
    return DEFAULT_CONTROLLER if config.plugin is None else "coupled"


def _reads_features(learner: type[Learner]) -> bool:
    """Whether a method itself works on what TRACE's setting pools: by heads of its own, neighbours or directions."""
    return "embedding" in learner.keeps or getattr_static(learner, "extend") is not getattr_static(Learner, "extend")


def _controller(config: RunConfig, learner: type[Learner]) -> str | None:
    if config.controller is not None and config.controller not in CONTROLLERS:
        raise InputError(f"unknown controller {config.controller!r}: {nearest(config.controller, CONTROLLERS)}")
    if not learner.refurbishes:
        if config.controller is not None or config.trace:
            raise InputError(f"{learner.name} has no refurbishment step, so it takes no controller; leave it out")
        return None
    name = config.controller or default_controller(config)
    if config.trace and name != "trace":
        raise InputError(f"trace: settings of TRACE given, but the controller is {name!r}; say controller: trace")
    return name


def _preset(name: str, learner: type[Learner]) -> Preset:
    if name not in learner.presets:
        raise InputError(f"unknown preset {name!r} of {learner.name}: {nearest(name, learner.presets)}")
    return learner.presets[name]


def _recipe(shape: tuple[int, ...]) -> str:
    """The recipe for samples of a shape when none is named; the bounds are those of `default_model`."""
    if len(shape) == 1 or max(shape[1:]) <= SMALL_IMAGE:
        return "small"
    return "cifar" if max(shape[1:]) <= LARGE_IMAGE else "large"


def _trace(config: RunConfig, preset: Preset, epochs: int, recipe_epochs: int) -> TraceConfig:
    """TRACE's own settings; its epochs belong to the recipe and shrink with it unless asked for."""
    recipe = {"start": TraceConfig.start, "ramp": TraceConfig.ramp} | {k: v for k, (v, _) in preset.trace.items()}
    shrunk = {key: shrink(value, epochs, recipe_epochs) for key, value in recipe.items()}
    return build(TraceConfig, DEFAULT_TRACE | shrunk | config.trace, "trace")
