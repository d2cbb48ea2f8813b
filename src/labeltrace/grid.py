"""Several runs side by side: each in its own process on its share of the cores, watched through its run folder."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labeltrace.engine import RunConfig, RunFolder, load_config
from labeltrace.engine.config import dump_config
from labeltrace.errors import InputError
from labeltrace.progress import Bars, state_of

PATHS = {"data", "root", "noise_file", "foreign_root", "weights"}  # made absolute in a run's config.yaml
POLL = 0.5  # seconds between two looks at the run folders


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
    configs: Mapping[str, RunConfig], out: Path, bars: Bars, jobs: int | None = None, *, resume: bool = False
) -> None:
    """Train every run into `out`/<name>, a few at a time; an earlier run there is replaced, or gone on with.

    Args:
        configs: name → run.
        out: folder of the runs.
        bars: shows their progress.
        jobs: runs at a time; None means one per core.
        resume: leave finished runs alone and go on with half-done ones.

    Raises:
        InputError: a run failed; the message is its own. Runs still going are stopped and can be resumed.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: {jobs}, expected at least one run at a time")
    cores = os.cpu_count() or 2
    jobs = min(jobs or cores, len(configs))
    threads = str(max(1, cores // jobs))
    waiting = [(name, config) for name, config in configs.items() if not (resume and _is_done(out / name, config))]
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
                    if code:
                        raise InputError(f"{job.name}: {_last_line(job.errors)}")
                time.sleep(POLL)
        finally:
            for job in going:
                job.process.terminate()  # the run saves itself, as on Ctrl-C
            for job in going:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.process.wait(timeout=30)


def _is_done(folder: Path, config: RunConfig) -> bool:
    """Whether the folder holds this very run, finished.

    Raises:
        InputError: it holds another one.
    """
    found = RunFolder(folder)
    if not found.config.exists():
        return False
    there = load_config(found.config, {})
    for key in config.model_fields_set - {"settings", "trace", "read"}:
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
        words = ["--resume", str(folder)]
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
