"""Fills cells: makes the noise files, trains what is missing, writes a line for every run that ends."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from labeltrace.data import ReadOptions, load_dataset, load_noise, prepare, save_noise
from labeltrace.data.noise.make import make_noise
from labeltrace.engine import RunFolder
from labeltrace.engine.config import RunConfig
from labeltrace.errors import InputError
from labeltrace.experiments.cells import digest, reading
from labeltrace.experiments.plan import Planned
from labeltrace.experiments.results import add_line, line_of
from labeltrace.experiments.tables import Cell, data_name
from labeltrace.grid import GridBars, run_all
from labeltrace.validation import build


def fill(
    planned: Sequence[Planned],
    out: Path,
    results: Path,
    cells: Sequence[Cell],
    bars: GridBars,
    *,
    jobs: int = 1,
    again: bool = False,
    slim: bool = False,
) -> dict[str, str]:
    """Train runs and write their lines; return the last words of those that failed, or could not begin, by name.

    Args:
        planned: what to train; half-done ones go on where they were stopped.
        out: folder of the runs, and of noise/, the labels they share.
        results: the file of lines.
        cells: all that a run may fill.
        bars: shows the progress.
        jobs: runs at a time.
        again: train anew what has a folder, and replace its line.
        slim: delete a run's checkpoints once it has its line.

    Raises:
        InputError: labels could be made for none of the runs.
    """
    configs: dict[str, RunConfig] = {}
    failed: dict[str, str] = {}
    for run in planned:
        try:
            configs[run.name] = with_noise_file(run.config, out / "noise", bars)
        except InputError as error:
            failed[run.name] = str(error)
    if failed and not configs:
        raise InputError(next(iter(failed.values())))
    for name in failed:
        bars.end_run(name, failed=True)

    def ended(name: str, problem: str | None) -> None:
        if problem is None:
            try:
                add_line(results, line_of(out / name, cells), again=again)
                if slim:
                    drop_checkpoints(out / name)
            except InputError as error:
                problem = str(error)
        if problem is not None:
            failed[name] = problem
        bars.end_run(name, failed=problem is not None)

    run_all(configs, out, bars, jobs, resume=not again, ended=ended)
    return failed


def with_noise_file(config: RunConfig, folder: Path, bars: GridBars | None = None) -> RunConfig:
    """Return a run that trains on a noise file in place of the noise it names; the file is made where there is none.

    One file for each data as it is read, noise, rate and seed, named by these and by the hash of its labels.
    """
    if config.noise is None:
        return config
    part = "" if config.subset is None else f"-{config.subset}"
    options, given = build(ReadOptions, config.read, "read"), reading(config)
    if given:
        part += f"-{digest(given)[:8]}"
    stem = f"{data_name(config.data)}{part}-{config.noise}{config.rate:g}-s{config.seed}"
    found = sorted(folder.glob(f"{stem}-*.npz"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(f"{folder}: several files of the same noise: {names}; keep one")
    if found:
        path = found[0]
        _, record = load_noise(path)
        if path.stem != f"{stem}-{record.sha256[:12]}":
            raise InputError(f"{path}: its labels have sha256 {record.sha256[:12]}, not the one in its name")
    else:
        if bars is not None:
            bars.note(f"{stem}: noisy labels are made")
        dataset = load_dataset(config.data, config.root, config.seed, options)
        if config.subset is not None:
            dataset = dataset.subset(config.subset, config.seed)
        noisy, record = make_noise(prepare(dataset, options)[0], config.noise, config.rate, config.seed)
        path = folder / f"{stem}-{record.sha256[:12]}.npz"
        save_noise(path, noisy.train.labels, record)
    return config.model_copy(update={"noise": None, "rate": 0.0, "noise_file": path.absolute()})


def drop_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a finished run; everything that its line was made of stays."""
    checkpoints = RunFolder(folder).last.parent
    shutil.rmtree(checkpoints, ignore_errors=True)
    checkpoints.mkdir(exist_ok=True)
