"""The command. Each subcommand is thin: flags in, one call of the library, words out."""

from __future__ import annotations

import json
import math
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

from labeltrace.errors import InputError, nearest

app = typer.Typer(
    name="labeltrace",
    help="Classification with wrong labels: train a robust model, learn what to keep, relabel or review.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
console = Console(markup=False, highlight=False)

# Typer carries its own copy of click in newer versions: take the base of all usage errors from the class it exports.
UsageProblem: Any = typer.BadParameter.__mro__[2]

KINDS = ("learners", "controllers", "models", "datasets", "noises")


def main(argv: list[str] | None = None) -> None:
    """Run the command; a user's mistake is one line on stderr and exit code 2, Ctrl-C is 130."""
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(_main(sys.argv[1:] if argv is None else argv))


def _main(argv: list[str]) -> int:
    try:
        code = app(argv or ["--help"], prog_name="labeltrace", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Exit as error:
        if error.exit_code == 130 and isinstance(error.__context__, KeyboardInterrupt):
            return _complain("stopped", 130)
        return error.exit_code
    except UsageProblem as error:
        return _complain(error.format_message() or "see labeltrace --help", 2)
    except InputError as error:
        return _complain(str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("stopped", 130)
    except BrokenPipeError:
        return 0


def _complain(message: str, code: int) -> int:
    print(f"labeltrace: {' '.join(message.splitlines())}", file=sys.stderr)  # noqa: T201
    return code


def _talk(quiet: bool) -> Console:
    """The console for what is said on the way; stdout is for results."""
    return Console(stderr=True, quiet=quiet, markup=False, highlight=False)


def _stop(*_: object) -> None:
    """SIGTERM (a scheduler ending the job) is treated as Ctrl-C."""
    raise KeyboardInterrupt


def _version(wanted: bool) -> None:
    if wanted:
        from labeltrace import __version__

        console.print(f"labeltrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the four runs and the picture.")] = Path("runs/demo"),
    rate: Annotated[float, typer.Option(help="Share of training labels made wrong.")] = 0.4,
    seed: Annotated[int, typer.Option(help="Of the noise, the networks and everything drawn.")] = 0,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each run (default: the recipe's).")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time (default: one per core).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Solve a noisy-label problem four ways on scikit-learn's digits; takes a few minutes on two cores.

    Example: labeltrace demo --rate 0.4
    """
    import time

    from labeltrace import demo as the
    from labeltrace.data import load_noise
    from labeltrace.engine import RunFolder
    from labeltrace.grid import run_all
    from labeltrace.progress import Bars

    started = time.perf_counter()
    configs = the.demo_configs(rate, seed, epochs)
    talk = _talk(as_json)
    talk.print(f"digits, {rate:.0%} of the training labels made wrong; four runs with the same labels and seed")
    with Bars(talk) as bars:
        run_all(configs, out, bars, jobs)
    picture, found = the.draw_demo(out), the.demo_figures(out)
    if as_json:
        _print_json(found)
        return
    _, record = load_noise(RunFolder(out / next(iter(configs))).noise)
    console.print(record.describe(), soft_wrap=True)
    console.print(the.demo_table(found))
    console.print(f"{time.perf_counter() - started:.0f} s. Wrong labels found are those not marked keep. Written:")
    console.print(f"  {picture}  a dozen samples: label, suggestion, a, b, keep / relabel / review", soft_wrap=True)
    for name in reversed(configs):
        console.print(f"  {out / name}/  {_files(out / name)}", soft_wrap=True)


@app.command()
def train(
    config: Annotated[Path | None, typer.Argument(help="YAML file with the run's keys; flags override it.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Dataset by name (labeltrace list datasets); digits if none is given.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder that holds the dataset.")] = None,
    subset: Annotated[int | None, typer.Option(help="Train on a stratified random subset of this size.")] = None,
    noise: Annotated[str | None, typer.Option(help="Label noise to add (labeltrace list noises).")] = None,
    rate: Annotated[float | None, typer.Option(help="Its rate.")] = None,
    noise_seed: Annotated[int | None, typer.Option(help="Its seed (default: --seed).")] = None,
    learner: Annotated[
        str | None, typer.Option(help="Training method (labeltrace list learners); rolr if none is given.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Recipe of the learner (default: by the kind of data).")] = None,
    controller: Annotated[
        str | None, typer.Option(help="coupled (the base method) or trace; trace if none is given.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Network (default: by the kind of data).")] = None,
    epochs: Annotated[int | None, typer.Option(help="Length of the run; a shorter one shrinks the recipe.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn; 0 if none is given.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or bf16.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key, e.g. trace.structure=false or settings.lr=0.05."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/<what is run>).")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with the run in this folder.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete an earlier run in the folder first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Train a run: a model, its metrics, and a table of every sample with keep, relabel or review.

    Example: labeltrace train --data cifar10 --root ~/data --noise symmetric --rate 0.5 --learner rolr
    """
    given = {
        "data": data, "root": root, "subset": subset, "noise": noise, "rate": rate, "noise_seed": noise_seed,
        "learner": learner, "preset": preset, "controller": controller, "model": model, "epochs": epochs, "seed": seed,
        "device": device, "precision": precision, "tensorboard": tensorboard or None,
    }  # fmt: skip
    overrides = _merge({name: value for name, value in given.items() if value is not None}, set_ or [])
    others = config is not None or out is not None or overwrite or set(overrides) - {"device", "precision"}
    if resume is not None and others:
        raise InputError("--resume repeats the run in its folder; only --device and --precision may be changed")

    from labeltrace.engine import load_config
    from labeltrace.progress import Bars
    from labeltrace.runs import figures, run

    run_config = load_config(config, overrides)
    folder = resume or out or Path("runs") / _run_name(run_config)
    talk = _talk(as_json)
    with _resumable(), Bars(talk) as bars:
        trained, table = run(run_config, folder, resume=resume is not None, overwrite=overwrite, reporter=bars)
    plan, found = trained.plan, figures(folder)
    if as_json:
        noise_record = None if plan.noise is None else plan.noise.to_dict()
        _print_json({"run": str(folder), "noise": noise_record, "figures": found})
        return
    if plan.noise is not None:
        console.print(plan.noise.describe(), soft_wrap=True)
    if plan.dataset.test is None:
        console.print("no test set: no accuracy is reported, and there is no best.ckpt")
    for name, value in found.items():
        shown = "–" if math.isnan(value) else f"{100 * value:.2f} %"
        console.print(f"{name.replace('_', ' '):>20}  {shown}")
    counts = {entry["values"]: entry["counts"] for entry in table["decision"].value_counts().to_pylist()}
    console.print(", ".join(f"{decision} {counts.get(decision, 0)}" for decision in ("keep", "relabel", "review")))
    console.print(f"{folder}/  {_files(folder)}", soft_wrap=True)


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Argument(help=f"One of {', '.join(KINDS)} (default: all).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List what can be named: learners, controllers, models, datasets, noises.

    Example: labeltrace list learners
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}: {nearest(kind, KINDS)}")
    from labeltrace.catalogue import catalogue

    entries = {name: rows for name, rows in catalogue().items() if kind in (None, name)}
    if as_json:
        _print_json(entries)
        return
    for name, rows in entries.items():
        table = Table(title=name, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for row, about in rows.items():
            table.add_row(row, about)
        console.print(table)


def _merge(overrides: dict[str, Any], pairs: list[str]) -> dict[str, Any]:
    """Add --set KEY=VALUE pairs; a dotted key goes into a nested record, values are read as YAML."""
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set {pair!r}: expected KEY=VALUE, e.g. trace.alpha=0.5")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        outer, dot, inner = key.partition(".")
        if dot:
            nested = overrides.setdefault(outer, {})
            if not isinstance(nested, dict):
                raise InputError(f"--set {key}: {outer!r} is no record; nested keys are settings.NAME and trace.NAME")
            nested[inner] = value
        else:
            overrides[key] = value
    return overrides


def _run_name(config: Any) -> str:
    """A folder name that says what is run, e.g. digits-symmetric0.4-rolr+trace-s0."""
    from labeltrace.engine.plan import DEFAULT_CONTROLLER
    from labeltrace.learners import learners

    controller = config.controller or (DEFAULT_CONTROLLER if learners[config.learner].refurbishes else None)
    noise = [f"{config.noise}{config.rate:g}"] if config.noise else []
    return "-".join([config.data, *noise, config.learner + (f"+{controller}" if controller else ""), f"s{config.seed}"])


class _resumable:
    """Turns an interrupted or diverged run into words and an exit code."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from labeltrace.engine import Diverged, Interrupted

        if isinstance(error, Interrupted):
            command = f"labeltrace train --resume {shlex.quote(str(error.folder))}"
            raise typer.Exit(_complain(f"stopped after {error.epoch} epochs, all saved. Go on with: {command}", 130))
        if isinstance(error, Diverged):
            raise typer.Exit(_complain(str(error), 1))


def _files(folder: Path) -> str:
    shown = (p for p in folder.iterdir() if not p.name.startswith("."))
    return "  ".join(sorted(p.name + ("/" if p.is_dir() else "") for p in shown))


def _print_json(value: object) -> None:
    from labeltrace.engine.folder import finite

    print(json.dumps(finite(value), indent=2, ensure_ascii=False))  # noqa: T201
