"""The folder of a run: what lies where, written so that a kill at any moment leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labeltrace.engine.config import RunConfig, read_yaml
from labeltrace.errors import InputError
from labeltrace.files import is_file, write_atomically

NO_RUN = "no run here (no config.yaml); labeltrace train --data DATA --out RUN makes one"


class RunFolder:
    """runs/<name>: config.yaml, metrics.jsonl, checkpoints/, samples.parquet, environment.json.

    Besides, where there is something to put in them: noise.npz, bad_images.csv, tensorboard/, report.html,
    review.sqlite.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.parquet"
        self.environment = path / "environment.json"
        self.noise = path / "noise.npz"
        self.bad_images = path / "bad_images.csv"
        self.tensorboard = path / "tensorboard"
        self.report = path / "report.html"
        self.review = path / "review.sqlite"
        self.lock = path / ".labeltrace.lock"
        self.last = path / "checkpoints" / "last.ckpt"
        self.best = path / "checkpoints" / "best.ckpt"

    @classmethod
    def create(cls, path: Path, *, overwrite: bool = False) -> RunFolder:
        """Make an empty run folder; one that holds a run is refused unless `overwrite`.

        Raises:
            InputError: the folder is taken, or holds something that is no run (never deleted).
        """
        folder = cls(path)
        if folder.is_taken(overwrite=overwrite):
            with folder.locked():  # nobody is training it; without config.yaml it was killed before it began
                shutil.rmtree(path)
        try:
            folder.last.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path}: cannot be made ({error.strerror}); choose another --out") from None
        return folder

    def is_taken(self, *, overwrite: bool = False) -> bool:
        """Whether there is something in the folder that a new run may delete; raises as `create` where it may not."""
        path = self.path
        if is_file(path):
            raise InputError(f"{path}: a file is in the way; choose another --out")
        try:
            str(path).encode("utf-8")
            taken = path.exists() and any(path.iterdir())
        except OSError as error:
            raise InputError(f"{path}: cannot be made ({error.strerror}); choose another --out") from None
        except UnicodeEncodeError:
            raise InputError(f"{path}: the name is not UTF-8; choose another --out") from None
        if taken:
            if self.review.exists():
                raise InputError(f"{path}: holds decisions of people ({self.review.name}); choose another --out")
            if not self._is_run():
                raise InputError(f"{path}: not empty and not a run; choose another --out")
            if self.config.exists() and not overwrite:
                raise InputError(f"{path}: holds a run; --resume it, --overwrite it or choose another --out")
        return taken

    def _is_run(self) -> bool:
        """Whether a run of ours wrote this folder and nothing else is in it: nobody else's files are deleted.

        Many programs keep a config.yaml. Without one, what a run leaves when it is killed before it began.
        """
        ours = {path.name for path in vars(self).values() if path.parent == self.path} | {"checkpoints"}
        if any(entry.name not in ours and not entry.name.endswith(".tmp") for entry in self.path.iterdir()):
            return False
        if not self.config.exists():
            return self.lock.exists() and not self.last.exists() and not self.metrics.exists()
        try:
            keys = set(read_yaml(self.config))
        except InputError:
            return False
        return bool(keys) and keys <= set(RunConfig.model_fields) and self.last.parent.is_dir()

    def clear_leftovers(self) -> None:
        """Delete the temporary files of writings that a kill cut short."""
        for file in self.path.rglob(".*.tmp"):
            file.unlink(missing_ok=True)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return the folder of a run that was started before."""
        folder = cls(path)
        if not is_file(folder.config):
            raise InputError(f"{path}: {NO_RUN}")
        return folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process; the system lets go of it when the process ends, however that happens.

        Raises:
            InputError: another process is training this run.
        """
        try:
            import fcntl
        except ImportError:  # Windows has no flock; two processes on one run are then the user's to avoid
            yield
            return
        with self.lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{self.path}: another process is training this run; wait for it or stop it") from None
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # also for workers, who were born with the file open

    def read_environment(self) -> dict[str, Any]:
        """Return what the run wrote at its start: versions, device, hashes of its data.

        Raises:
            InputError: the file is damaged.
        """
        try:
            found = json.loads(self.environment.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict) or "labels_sha256" not in found:
            raise InputError(f"{self.environment}: damaged; it says on which labels the run began, put it back")
        return found

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add one epoch's line."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl; a last line cut short by a kill is left out."""
        if not self.metrics.exists():
            return []
        records = []
        for line in self.metrics.read_bytes().splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:  # no JSON, or a character cut in two
                break
        return records

    def read_metrics_of(self, epochs: int) -> list[dict[str, Any]]:
        """Return the lines of the first `epochs` epochs."""
        return [record for record in self.read_metrics() if record["epoch"] < epochs]

    def keep_metrics(self, epochs: int) -> list[dict[str, Any]]:
        """Drop the lines of epochs that a resumed run will train again; return the rest."""
        kept = self.read_metrics_of(epochs)
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
        write_atomically(self.metrics, lambda path: path.write_text(text, encoding="utf-8"))
        return kept


def code_revision() -> str | None:
    """Return the git revision of the package's own checkout, "+" appended where files differ from it.

    Where there is no checkout, as in a container, it is $LABELTRACE_REVISION, or None.
    """
    here = Path(__file__).resolve().parent
    try:
        command = ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--abbrev=12", "--match="]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        tracked = ["git", "-C", str(here), "ls-files", "--error-unmatch", __file__]
        subprocess.run(tracked, capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("LABELTRACE_REVISION") or None
    return done.stdout.strip()


def finite(value: Any) -> Any:
    """Return nested values with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
