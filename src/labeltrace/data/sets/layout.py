"""The folder of a published dataset as it is read: lists, counts, and one sentence for each thing that is wrong.

A folder is read by one function, whoever asks: loading stops at the first finding, checking collects them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from labeltrace.data.dataset import DatasetError

T = TypeVar("T")

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
NAMED = 3  # examples that a message gives when many things are wrong in the same way


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a dataset on disk; as text it is what the loader would have said.

    >>> print(Finding("Pets train", Path("cat.jpg"), "no such image", "Unpack pets.zip again."))
    Pets train: cat.jpg: no such image. Unpack pets.zip again.

    Attributes:
        where: the dataset and the part of it; empty when `problem` is a whole message.
        path: of the file or folder.
        problem: what was expected and what was found.
        remedy: what to obtain and where to put it; empty when `problem` ends with it.
    """

    where: str
    path: Path
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.path}: {self.problem}" if self.where else self.problem
        return f"{text}. {self.remedy}" if self.remedy else text


Report = Callable[[Finding], None]

checks: dict[str, Callable[[Path | None], list[Finding]]] = {}
"""By the name of a dataset: a folder → all that is wrong with it. For `labeltrace.data.sets.check`."""


def refuse(finding: Finding) -> None:
    """Stop at a finding: how a loader takes it."""
    raise DatasetError(str(finding))


def attempt(findings: list[Finding], path: Path, read: Callable[[], T]) -> T | None:
    """Return what `read` returns, or None and one finding more: how a check takes a reader that raises.

    >>> findings = []
    >>> attempt(findings, Path("a.txt"), lambda: 1), findings
    (1, [])
    """
    try:
        return read()
    except DatasetError as error:
        where, found, problem = str(error).partition(f": {path}: ")
        findings.append(Finding(where, path, problem) if found else Finding("", path, str(error)))
        return None


def found_in(folder: Path) -> str:
    """Return in words what is in a folder, for a message about what is not.

    >>> found_in(Path("no-such-folder"))
    'no folder no-such-folder'
    """
    if not folder.is_dir():
        return f"a file at {folder}" if folder.exists() else f"no folder {folder}"
    inside = sorted(entry.name for entry in folder.iterdir())
    found = ", ".join(inside[:8]) + (", …" if len(inside) > 8 else "") if inside else "nothing"
    return f"{found} in {folder}"


class Folder:
    """A dataset's folder: reads its lists and reports what is wrong, then goes on with what is there.

    Args:
        title: of the dataset, in messages.
        root: the folder.
        remedy: what to obtain and where to put it.
        report: what to do with a finding.
        strict: whether counts must be the official ones.
    """

    def __init__(self, title: str, root: Path, remedy: str, report: Report = refuse, strict: bool = True) -> None:
        self.title, self.root, self.remedy, self.report, self.strict = title, root, remedy, report, strict

    def wrong(self, part: str, path: Path, problem: str, remedy: str | None = None) -> None:
        """Report that something is wrong at `path`, in this part of the dataset."""
        self.report(Finding(f"{self.title} {part}", path, problem, remedy or self.remedy))

    def file(self, part: str, name: str, places: Sequence[str] = ("",)) -> Path | None:
        """Return the file `name` out of the first of `places` that has it; report it where none has."""
        for place in places:
            if (self.root / place / name).is_file():
                return self.root / place / name
        path = self.root / name
        also = f" there, in {'/ or in '.join(places[1:])}/" if len(places) > 1 else ""
        self.wrong(part, path, f"no such file{also}; found {found_in(path.parent)}")
        return None

    def lines(self, part: str, path: Path | None, header: str | None = None) -> list[str]:
        """Return the lines of a text file that are not blank, less its first if that starts with `header`."""
        if path is None:  # reported before
            return []
        try:
            text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
        except OSError as error:
            self.wrong(part, path, f"cannot be read ({error.strerror})")
            return []
        lines = [line for line in map(str.strip, text.split("\n")) if line]
        return lines[1:] if header is not None and lines and lines[0].startswith(header) else lines

    def labelled(self, part: str, path: Path | None, num_classes: int) -> list[tuple[str, int]]:
        """Return the pairs of a file with lines `name label`, labels 0..C-1; lines of another form are reported."""
        pairs, bad = [], []
        for line in self.lines(part, path):
            name, label = line.rsplit(None, 1) if len(line.split(None, 1)) == 2 else (line, "")
            if label.isdecimal() and int(label) < num_classes:
                pairs.append((name, int(label)))
            else:
                bad.append(line)
        if bad and path is not None:
            expected = f"`name label` with a label 0..{num_classes - 1}"
            self.wrong(part, path, f"lines {expected} expected, {len(bad):,} others found, {_examples(bad)}")
        return pairs

    def images(self, part: str, folder: Path) -> list[str]:
        """Return the names of the image files in a folder, sorted: the order on disk is no order."""
        if not folder.is_dir():
            self.wrong(part, folder, f"no such folder; found {found_in(folder.parent)}")
            return []
        names = (entry.name for entry in folder.iterdir())
        return sorted(name for name in names if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith("."))

    def count(self, part: str, path: Path | None, what: str, found: int, expected: int, remedy: str = "") -> None:
        """Report a number that is not the official one."""
        if self.strict and path is not None and found != expected:
            self.wrong(part, path, f"{expected:,} {what} expected, {found:,} found", remedy or None)

    def each_class(self, part: str, path: Path | None, labels: Sequence[int], classes: Sequence[str], n: int) -> None:
        """Report the classes that have not `n` images each."""
        counts = Counter(labels)
        others = [f"{name} {counts[i]:,}" for i, name in enumerate(classes) if counts[i] != n]
        if self.strict and path is not None and others:
            self.wrong(part, path, f"{n:,} images of each class expected, {len(others)} differ, {_examples(others)}")

    def unknown(self, part: str, path: Path | None, what: str, names: Sequence[str]) -> None:
        """Report names in a list that another file should have and has not."""
        if names and path is not None:
            self.wrong(part, path, f"{len(names):,} {what}, {_examples(names)}")


def _examples(entries: Sequence[str]) -> str:
    first = ", ".join(repr(entry) for entry in entries[:NAMED])
    return f"the first: {first}" if len(entries) > NAMED else first
