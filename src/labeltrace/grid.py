"""Several runs side by side: each in its own process on its share of the cores, watched through its run folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from labeltrace.engine import RunConfig, RunFolder, load_config
from labeltrace.engine.config import WHERE, dump_config
from labeltrace.errors import InputError
from labeltrace.progress import Bars, state_of

PATHS = {"data", "root", "noise_file", "foreign_root", "weights"}  # made absolute in a run's config.yaml
POLL = 0.5  # seconds between two looks at the run folders
GRACE = 5.0  # seconds for runs that heard Ctrl-C themselves, before they are told
SAVING = 30.0  # seconds for runs that were told


class GridBars(Bars):
    """One bar for the epochs of all runs, and one for each run that is going.

    Args:
        console: where to draw.
        epochs: name → length of the run.
    """

    def __init__(self, console: Console, epochs: Mapping[str, int]) -> None:
        super().__init__(console)
        self._lengths, self._done = dict(epochs), dict.fromkeys(epochs, 0)
        self._ended, self._failed = 0, 0

    def show(self, name: str, total: int, done: int, state: str, unit: str = "epochs") -> None:
        """Set the bar of a run, and move that of all runs."""
        super().show(name, total, done, state, unit)
        if name in self._done:
            self._done[name] = done
            self._all()

    def end_run(self, name: str, failed: bool = False) -> None:
        """Take the bar of a run away; a failed one is no longer waited for."""
        self._ended, self._failed = self._ended + 1, self._failed + failed
        self._done[name] = self._lengths[name]
        task = self._tasks.pop(name, None)
        if task is not None:
            self.progress.remove_task(task)
        self._all()

    def _all(self) -> None:
        state = f"{self._ended} of {len(self._lengths)} runs" + (f", {self._failed} failed" if self._failed else "")
        super().show("all runs", sum(self._lengths.values()), sum(self._done.values()), state)


@dataclass
class _Job:
    """One run in its own process."""

    name: str
    folder: RunFolder
    process: subprocess.Popen[bytes]
    errors: Path
    started: float
    epochs: int = 0
    shown: int = -1

    def show(self, bars: Bars) -> None:
        """Move the run's bar to what its folder says, once the run has replaced what was there."""
        config = self.folder.config
        if not self.epochs and config.exists() and config.stat().st_mtime >= self.started:
            self.epochs = load_config(config, {}).epochs or 0
        records = self.folder.read_metrics() if self.epochs else []
        if self.epochs and len(records) != self.shown:
            self.shown = len(records)
            bars.show(self.name, self.epochs, self.shown, state_of(records[-1]) if records else "")


def run_all(
    configs: Mapping[str, RunConfig],
    out: Path,
    bars: Bars,
    jobs: int | None = None,
    *,
    resume: bool = False,
    ended: Callable[[str, str | None], None] | None = None,
) -> None:
    """Train every run into `out`/<name>, a few at a time; an earlier run there is replaced, or gone on with.

    Args:
        configs: name → run.
        out: folder of the runs.
        bars: shows their progress.
        jobs: runs at a time; None means one per core.
        resume: leave finished runs alone and go on with half-done ones.
        ended: told of every run that ends, with its last words where it failed; the others then go on.

    Raises:
        InputError: a run failed and nobody is told; the message is its own. Runs still going are stopped and can be
            resumed.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: {jobs}, expected at least one run at a time")
    cores = os.cpu_count() or 2
    jobs = min(jobs or cores, len(configs))
    threads = str(max(1, cores // max(jobs, 1)))

    def end(name: str, problem: str | None) -> None:
        if ended is not None:
            ended(name, problem)
        elif problem is not None:
            raise InputError(f"{name}: {problem}")

    waiting: list[tuple[str, RunConfig]] = []
    for name, config in configs.items():
        try:
            done = resume and _is_done(out / name, config)
        except InputError as error:
            end(name, str(error))
            continue
        if done:
            end(name, None)
        else:
            waiting.append((name, config))
    going: list[_Job] = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            while waiting or going:
                while waiting and len(going) < jobs:
                    name, config = waiting.pop(0)
                    going.append(_start(name, config, out, Path(scratch), threads, resume))
                for job in list(going):
                    code = job.process.poll()
                    job.show(bars)
                    if code is not None:
                        going.remove(job)
                        end(job.name, _last_line(job.errors) if code else None)
                time.sleep(POLL if going else 0)
        except KeyboardInterrupt:
            _wait(going, GRACE)  # a terminal sends it to the runs too, and twice would cut their saving short
            raise
        finally:
            for job in going:
                job.process.terminate()  # the run saves itself, as on Ctrl-C
            _wait(going, SAVING)


def _wait(jobs: list[_Job], seconds: float) -> None:
    """Wait until all have ended, but no longer than that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(job.process.poll() is None for job in jobs):
        time.sleep(0.05)


def _is_done(folder: Path, config: RunConfig) -> bool:
    """Whether the folder holds this very run, finished.

    Raises:
        InputError: it holds another one.
    """
    found = RunFolder(folder)
    if not found.config.exists():
        return False
    there = load_config(found.config, {})
    for key in config.model_fields_set - {"settings", "trace", "plugin_settings", "read"} - WHERE:
        asked = getattr(config, key)
        if asked is not None and key not in PATHS and getattr(there, key) != asked:
            raise InputError(f"{folder}: holds a run with {key} {getattr(there, key)!r}, not {asked!r}; choose another")
    return found.samples.exists()


def _start(name: str, config: RunConfig, out: Path, scratch: Path, threads: str, resume: bool) -> _Job:
    asked, errors = scratch / f"{name}.yaml", scratch / f"{name}.err"
    asked.write_text(dump_config(config), encoding="utf-8")
    folder = out / name
    started = time.time() - 0.1  # file times are coarser than the clock
    words = [str(asked), "--out", str(folder), "--overwrite"]
    if resume and RunFolder(folder).config.exists():
        words = ["--resume", str(folder), "--device", config.device]
        started = 0.0  # what is there is the run's own
    command = [sys.executable, "-m", "labeltrace", "train", *words, "--json"]
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            env={**os.environ, "OMP_NUM_THREADS": threads},
        )  # fmt: skip
    return _Job(name, RunFolder(folder), process, errors, started)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("labeltrace: ") if lines else "the run ended without a word"
