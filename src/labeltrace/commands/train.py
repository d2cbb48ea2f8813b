"""labeltrace train."""

from __future__ import annotations

import math
import shlex
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from labeltrace.commands import reading
from labeltrace.commands.console import complain, console, file_names, print_json, talk_console
from labeltrace.errors import InputError

if TYPE_CHECKING:
    from labeltrace.engine.parallel import World

DATA = (".csv", ".tsv", ".parquet", ".npy", ".npz")  # files of data, which --data takes


def train(
    config: Annotated[Path | None, typer.Argument(help="YAML file with the run's keys; flags override it.")] = None,
    data: reading.Data = None,
    root: reading.Root = None,
    subset: reading.Subset = None,
    noise: Annotated[str | None, typer.Option(help="Label noise to add (labeltrace list noises).")] = None,
    rate: Annotated[float | None, typer.Option(help="Its rate.")] = None,
    noise_seed: Annotated[int | None, typer.Option(help="Its seed (default: --seed).")] = None,
    noise_file: Annotated[
        Path | None, typer.Option(help="Train on the labels of this file (labeltrace noise writes one).")
    ] = None,
    foreign: Annotated[
        str | None,
        typer.Option(help="The images of open-set noise: a path, or a dataset by name (default: the file's)."),
    ] = None,
    foreign_root: Annotated[Path | None, typer.Option(help="Folder that holds them (default: --root).")] = None,
    learner: Annotated[
        str | None, typer.Option(help="Training method (labeltrace list learners); rolr if none is given.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Recipe of the learner (default: by the kind of data).")] = None,
    controller: Annotated[
        str | None, typer.Option(help="coupled (the base method) or trace; trace if none is given.")
    ] = None,
    plugin: Annotated[
        str | None,
        typer.Option(help="Rival of TRACE to attach (labeltrace list plugins); the controller is then coupled."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Network (default: by the kind of data).")] = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint file that the networks start from.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Length of the run; a shorter one shrinks the recipe.")] = None,
    epoch_samples: Annotated[
        int | None, typer.Option(help="Samples of an epoch, drawn anew and alike from all classes (default: all).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn; 0 if none is given.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or bf16.")] = None,
    capture: Annotated[
        bool | None, typer.Option("--capture/--no-capture", help="On CUDA: record steps as a graph (default) or not.")
    ] = None,
    compile: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="On CUDA: compile networks (default: in long runs).")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")] = False,
    labels: reading.Labels = None,
    test: reading.Test = None,
    path_column: reading.PathColumn = None,
    label_column: reading.LabelColumn = None,
    split_column: reading.SplitColumn = None,
    id_column: reading.IdColumn = None,
    truth_column: reading.TruthColumn = None,
    image_size: reading.ImageSize = None,
    flip: reading.Flip = None,
    bad_images: reading.BadImages = None,
    cache_gb: reading.CacheGb = None,
    memory_gb: reading.MemoryGb = None,
    workers: reading.NumWorkers = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key, e.g. trace.structure=true or settings.lr=0.05."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/<what is run>).")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with the run in this folder.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete an earlier run in the folder first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Train a run: a model, its metrics, and a table of every sample with keep, relabel or review.

    Example: labeltrace train --data photos/ --epochs 40

    Example: labeltrace train --data cifar10 --root ~/data --noise symmetric --rate 0.5 --learner rolr

    Example, on two GPUs: torchrun --nproc-per-node 2 -m labeltrace train --data cifar10 --root ~/data
    """
    read = reading.given(
        labels=labels, test=test, path_column=path_column, label_column=label_column, split_column=split_column,
        id_column=id_column, truth_column=truth_column, image_size=image_size, flip=flip, bad_images=bad_images,
        cache_gb=cache_gb, memory_gb=memory_gb, workers=workers,
    )  # fmt: skip
    flags = reading.given(
        data=data, root=root, subset=subset, noise=noise, rate=rate, noise_seed=noise_seed, noise_file=noise_file,
        foreign=foreign, foreign_root=foreign_root,
        learner=learner, preset=preset, controller=controller, plugin=plugin, model=model, weights=weights,
        epochs=epochs, epoch_samples=epoch_samples, seed=seed, device=device, precision=precision, capture=capture,
        compile=compile, tensorboard=tensorboard or None, read=read or None,
    )  # fmt: skip
    with resumable() as place:
        from labeltrace.audit.summary import decision_counts
        from labeltrace.engine import Reporter, load_config
        from labeltrace.engine.config import WHERE
        from labeltrace.progress import Bars
        from labeltrace.runs import figures, run

        given = _given_as(str(config or "config"), flags, read, set_ or [])
        overrides = _merge(flags, set_ or [])
        others = config is not None or out is not None or overwrite or set(overrides) - WHERE
        if resume is not None and others:
            allowed = ", ".join(f"--{name}" for name in sorted(WHERE))
            raise InputError(f"--resume repeats the run in its folder; only {allowed} may be changed")

        if config is not None:
            _check_config(config)
        with _flags_named(given):
            run_config = load_config(config, overrides)
            folder = resume or out or Path("runs") / _run_name(run_config)
            if resume is None:
                _check_outside(folder, run_config)
            with Bars(talk_console(as_json)) if place.rank == 0 else nullcontext(Reporter()) as bars:
                trained, table = run(run_config, folder, resume=resume is not None, overwrite=overwrite, reporter=bars)
        if place.rank:
            return
    plan, found = trained.plan, figures(folder)
    if as_json:
        noise_record = None if plan.noise is None else plan.noise.to_dict()
        print_json({"run": str(folder), "noise": noise_record, "figures": found})
        return
    if plan.noise is not None:
        console.print(plan.noise.describe(), soft_wrap=True)
    if plan.dataset.test is None:
        console.print("no test set (--test): no accuracy is reported, and there is no best.ckpt")
    for name, value in found.items():
        shown = "–" if math.isnan(value) else f"{100 * value:.2f} %"
        console.print(f"{name.replace('_', ' '):>20}  {shown}")
    truth = plan.dataset.train.truth
    known = 0 if truth is None else int((truth >= 0).sum())
    if truth is not None and known < len(truth):
        console.print(f"precision, recall and both accuracies: over the {known:,} samples whose truth is known")
    console.print(", ".join(f"{decision} {count}" for decision, count in decision_counts(table).items()))
    console.print(f"{folder}/  {file_names(folder)}", soft_wrap=True)
    where = shlex.quote(str(folder))
    steps = ", ".join(f"labeltrace {word} {where}" for word in ("audit", "report", "review"))
    console.print(f"next: {steps}", soft_wrap=True)


def _check_config(path: Path) -> None:
    """Refuse data, or a run, in the place of a YAML file, and say where they go."""
    from labeltrace.files import exists

    words = shlex.quote(str(path))
    if exists(path / "config.yaml"):
        raise InputError(
            f"{path}: a run, not a YAML file; labeltrace train --resume {words} goes on with it, and "
            f"labeltrace train {shlex.quote(str(path / 'config.yaml'))} --out FOLDER repeats it"
        )
    if exists(path) and (path.is_dir() or path.suffix.lower() in DATA):
        raise InputError(f"{path}: data, not a YAML file of a run's keys; labeltrace train --data {words} trains on it")


def _given_as(
    where: str, flags: Iterable[str], read: Iterable[str], pairs: Iterable[str]
) -> dict[tuple[str, str], str]:
    """Return (what a key belongs to in a message, the key) → how it was given."""
    found = {(where, name): f"--{name.replace('_', '-')}" for name in flags}
    found |= {("read", name): f"--{name.replace('_', '-')}" for name in read}
    for pair in pairs:
        key = pair.partition("=")[0]
        outer, dot, inner = key.partition(".")
        found[(outer, inner) if dot else (where, key)] = f"--set {key}"
    return found


@contextmanager
def _flags_named(given: Mapping[tuple[str, str], str]) -> Iterator[None]:
    """Let an error about a key begin with the flag that gave it."""
    try:
        yield
    except InputError as error:
        where, name, words = (*str(error).split(": ", 2), "", "")[:3]
        flag = given.get((where, name))
        if flag is None or not words:
            raise
        raise InputError(f"{flag}: {words}") from None


def _merge(overrides: dict[str, Any], pairs: list[str]) -> dict[str, Any]:
    """Add --set KEY=VALUE pairs; a dotted key goes into a nested record, values are read as YAML."""
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set {pair!r}: expected KEY=VALUE, e.g. trace.alpha=0.5")
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: a date that is none
            value = text
        outer, dot, inner = key.partition(".")
        if dot:
            nested = overrides.setdefault(outer, {})
            if not isinstance(nested, dict):
                raise InputError(
                    f"--set {key}: {outer!r} is no record; nested keys are read.NAME, settings.NAME, trace.NAME and "
                    "plugin_settings.NAME"
                )
            nested[inner] = value
        else:
            overrides[key] = value
    return overrides


def _run_name(config: Any) -> str:
    """A folder name that says what is run, e.g. digits-symmetric0.4-rolr+trace-s0."""
    from labeltrace.data import datasets
    from labeltrace.data.own.load import safe_name
    from labeltrace.engine.plan import default_controller

    added = (config.controller or default_controller(config), config.plugin)
    noise = [f"{config.noise}{config.rate:g}"] if config.noise else []
    data = config.data if config.data in datasets else safe_name(Path(config.data))
    if config.noise_file is not None:
        noise = [safe_name(config.noise_file)]
    return "-".join([data, *noise, "+".join(filter(None, (config.learner, *added))), f"s{config.seed}"])


def _check_outside(folder: Path, config: Any) -> None:
    """Refuse a run among its own data, where it would be taken for a class the next time."""
    from labeltrace.data import datasets
    from labeltrace.files import expanded

    if config.data in datasets:
        return
    data = expanded(Path(config.data))
    try:
        inside = data.is_dir() and folder.resolve().is_relative_to(data.resolve())
    except (OSError, ValueError):  # a path that nothing can have; who reads it will say so
        return
    if inside:
        raise InputError(f"--out {folder} lies in {data}, the folder of the data; choose one outside of it")


class resumable:
    """Turns a run that was interrupted, diverged or lost a rank into words and an exit code.

    Of several ranks the first talks; what is wrong with the input is said once on each machine, and that a rank died by
    every rank that is left.
    """

    def __enter__(self) -> World:
        from labeltrace.engine.parallel import world

        self.place = world()
        return self.place

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from labeltrace.engine import Diverged, Interrupted, RankDied

        if error is not None and self.place.size > 1:  # torchrun ends all ranks when one fails; this one ends anyway
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if isinstance(error, Interrupted):
            done = f"stopped after {error.epoch} epoch{'s' if error.epoch > 1 else ''}, all saved. Go on with"
            if not error.epoch:
                done = "stopped in the first epoch, so nothing is trained yet. Begin again with"
            raise typer.Exit(130 if self.place.rank else complain(f"{done}: {_resume(error.folder)}", 130))
        if isinstance(error, Diverged):
            raise typer.Exit(1 if self.place.rank else complain(str(error), 1))
        if isinstance(error, RankDied):
            on = "" if error.epoch is None else f". Go on, with torchrun or without: {_resume(error.folder)}"
            raise typer.Exit(complain(f"{error}{on}", 1))
        if isinstance(error, InputError) and self.place.local_rank:
            raise typer.Exit(2)


def _resume(folder: Path) -> str:
    return f"labeltrace train --resume {shlex.quote(str(folder))}"
