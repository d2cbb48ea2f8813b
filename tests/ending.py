"""The command in this process as a shell would see it, and what must be true of every outcome."""

import contextlib
import csv
import io
import json
import logging
import os
import re
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from labeltrace import cli
from labeltrace.audit import read_samples
from labeltrace.audit.samples import class_names
from labeltrace.engine import load_config

LONGEST = 1200  # characters of one line that a person would still read
_DUMP = re.compile(r"Traceback|<[\w.]+ object at|<class '|[A-Z]\w+(Error|Exception)\(|pydantic|For further information")


@dataclass(frozen=True)
class Outcome:
    """How the command ended and what it wrote, byte for byte as it would reach a terminal."""

    code: int
    out: str
    err: str


def command(words, folder):
    """Run the command in `folder`; warnings, logging and what C libraries print all count as its stderr."""
    before, root = Path.cwd(), logging.getLogger()
    handlers, root.handlers = root.handlers, []  # pytest's own would swallow what a terminal would show
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
    with tempfile.TemporaryFile() as file:
        err = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="", write_through=True)
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
                warnings.resetwarnings()
                warnings.showwarning = _shown
                code = cli._main([str(word) for word in words])
                out.flush()
        finally:
            os.chdir(before)
            os.dup2(kept, 2)
            os.close(kept)
            root.handlers = handlers
        file.seek(0)
        return Outcome(code, out.buffer.getvalue().decode(), file.read().decode())


def _shown(message, category, filename, lineno, file=None, line=None):
    """Show a warning as Python does; under a test runner it would be collected instead."""
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | ImportWarning | ResourceWarning):
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def contents(folder):
    """Every entry below a folder by its path, with the bytes of files."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        found[name] = path.read_bytes() if path.is_file() else path.readlink() if path.is_symlink() else None
    return found


def check_refusal(outcome):
    """A refusal is one line that a person can read."""
    assert outcome.code == 2, outcome
    assert outcome.out == "", outcome
    assert outcome.err.startswith("labeltrace: ") and outcome.err.endswith("\n"), outcome
    line = outcome.err[:-1]
    assert len(line.splitlines()) == 1, outcome
    assert len("labeltrace: x") < len(line) <= LONGEST, outcome
    assert not _DUMP.search(line), outcome


def check_run(folder):
    """A run left everything that its own files say; return its table, its classes and the images left out."""
    config = load_config(folder / "config.yaml", {})
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    table = read_samples(folder)
    classes = class_names(table)
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    assert config.epochs == 1 and len((folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 1
    assert table.num_rows == environment["train_samples"] > 0
    assert classes == environment["classes"] and len(set(classes)) == len(classes) > 1
    assert all(isinstance(name, str) and name for name in classes)
    for column in ("observed", "suggested"):
        assert all(0 <= code < len(classes) for code in table[column].to_pylist())
    assert table["index"].to_pylist() == list(range(table.num_rows))
    assert len(set(table["id"].to_pylist())) == table.num_rows
    skipped = []
    if (folder / "bad_images.csv").exists():
        with (folder / "bad_images.csv").open(newline="", encoding="utf-8") as file:
            skipped = list(csv.DictReader(file))
        assert skipped and all(row["part"] in ("train", "test") and row["name"] and row["reason"] for row in skipped)
    assert len(skipped) == environment["bad_images"]
    return table, classes, skipped


def settled(words, folder, out="run"):
    """Run the command in `folder` and check what it came to: True for a whole run, False for a refusal.

    Whatever it came to, no file that was there has changed, and nothing but `out` is new.
    """
    before = contents(folder)
    outcome = command(words, folder)
    after = contents(folder)
    new = after.keys() - before.keys()
    assert {name: after[name] for name in after if name not in new} == before, outcome
    if outcome.code != 0:
        check_refusal(outcome)
        assert not new, outcome
        return False
    assert all(f"{name}/".startswith(f"{out}/") or f"{out}/".startswith(f"{name}/") for name in new), outcome
    if (folder / out).is_dir():
        check_run(folder / out)
    return True
