"""CIFAR-10 and CIFAR-100 from their official address: fetched in parts, checked, unpacked, put in place in one move.

Bytes are added to `<archive>.part`, so that a download that was cut short goes on where it stopped. A kill at any
moment leaves that file and no half of a dataset.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import shutil
import ssl
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal

from labeltrace.data.dataset import DatasetError, datasets
from labeltrace.data.sets.cifar import _CIFAR10, _CIFAR100
from labeltrace.data.sets.cifar_n import REPOSITORY

CHUNK = 1 << 20  # bytes read at a time
PAUSES = (1.0, 3.0, 10.0, 30.0)  # seconds before each new attempt; together less than a minute of outage
TIMEOUT = 30.0  # seconds without a byte after which a connection is given up
PASSING = (408, 425, 429)  # answers that may be another one later, besides 500 and above


@dataclass(frozen=True)
class Archive:
    """A published archive: where it is, how to know that it is the right one, and what it holds."""

    title: str
    url: str
    md5: str
    size: int  # bytes
    folder: str  # the only one at its top
    files: tuple[str, ...]  # in that folder, those without which the dataset cannot be read

    @property
    def file(self) -> str:
        """The archive's own name."""
        return self.url.rsplit("/", 1)[-1]


ARCHIVES = {
    name: Archive(
        official.title,
        f"https://www.cs.toronto.edu/~kriz/{official.archive}",
        md5,
        size,
        official.folder,
        tuple(official.train | official.test),
    )
    for name, official, md5, size in (
        ("cifar10", _CIFAR10, "c58f30108f718f92721af3b95e74349a", 170_498_071),
        ("cifar100", _CIFAR100, "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
    )
}
"""What can be downloaded, by the name of the dataset."""


Progress = Callable[[int, int, str], object]
"""Called with the bytes done, the bytes in all, and what is being done with them."""


@dataclass(frozen=True)
class Download:
    """Where a dataset lies now, and where it came from: "there" before, an "archive" on the disk, or a "url"."""

    folder: Path
    source: Literal["there", "archive", "url"]


def download_dataset(
    name: str,
    root: str | Path,
    *,
    url: str | None = None,
    keep_archive: bool = False,
    progress: Progress = lambda done, total, label: None,
    pauses: Sequence[float] = PAUSES,
    timeout: float = TIMEOUT,
) -> Download:
    """Put the dataset `name` under the folder `root`, ready for `load_dataset(name, root)`.

    Nothing is done where it is already there. An archive that lies in `root` is used instead of the network and is left
    there; a part of one, from a call that was stopped, is completed.

    Args:
        name: a key of `ARCHIVES`.
        root: the folder that will hold the dataset's own folder; it is made when it is missing.
        url: another address of the same archive, whose MD5 must be the official one all the same.
        keep_archive: whether to keep a downloaded archive after it has been unpacked.
        progress: called after every piece that is received, checked or unpacked; an exception from it stops the call.
        pauses: seconds to wait before each new attempt after a failure; every new byte begins them anew.
        timeout: seconds to wait for a connection, and for a byte.

    Raises:
        DatasetError: for a dataset that cannot be had this way, a network or a disk that fails (the message says how
            much is saved), a wrong MD5, an archive of more than its own folder, an incomplete folder in the way, or
            another process that downloads the same.
        InputError: for a name that is no dataset's.

    >>> download_dataset("digits", "data")
    Traceback (most recent call last):
    labeltrace.data.dataset.DatasetError: digits cannot be downloaded; these can: cifar10, cifar100...
    """
    archive = _archive(name)
    root = Path(root).expanduser()
    address, by_hand, part = url or archive.url, root / archive.file, _part(archive, root)
    with _disk(archive, root):
        if there := _there(archive, root):
            return Download(there, "there")
        root.mkdir(parents=True, exist_ok=True)
        with _held(archive, root):
            if there := _there(archive, root):  # another process has been quicker
                return Download(there, "there")
            if by_hand.is_file():
                _check(archive, by_hand, progress, "Move it away to download it, or put the official one there.")
                return Download(_unpack(archive, by_hand, root, progress), "archive")
            _fetch(archive, address, part, progress, pauses, timeout)
            try:
                _check(archive, part, progress, f"It came from {address} and is deleted; the same command starts anew.")
            except DatasetError:
                part.unlink()
                raise
            folder = _unpack(archive, part, root, progress)
            if keep_archive:
                part.replace(by_hand)
            else:
                part.unlink()
            return Download(folder, "url")


def _archive(name: str) -> Archive:
    if name in ARCHIVES:
        return ARCHIVES[name]
    if human := re.match(r"(cifar100?)n\b", name):
        raise DatasetError(
            f"{name}: its images can be downloaded, as {human[1]}, but not its human labels, which are CC BY-NC 4.0 "
            f"(no commercial use). Get them from the repository {REPOSITORY}, folder data/, by hand."
        )
    _ = datasets[name]  # an unknown name is told the nearest one
    raise DatasetError(
        f"{name} cannot be downloaded; these can: {', '.join(ARCHIVES)}. The others are made, or read from what is on "
        "the disk (labeltrace list datasets)."
    )


def _part(archive: Archive, root: Path) -> Path:
    return root / f"{archive.file}.part"


def _there(archive: Archive, root: Path) -> Path | None:
    """Return the folder that holds all files of the dataset: `root` itself or the archive's folder in it, if any.

    Raises:
        DatasetError: the archive's folder is in `root` with some other content.
    """
    target = root / archive.folder
    for folder in (target, root):
        if all((folder / file).is_file() for file in archive.files):
            return folder
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        lacking = ", ".join(file for file in archive.files if not (target / file).is_file())
        raise DatasetError(
            f"{archive.title}: {target} is there but lacks {lacking}. Move it away, and the same command puts a whole "
            "one there."
        )
    return None


def _saved(archive: Archive, root: Path) -> str:
    """Return how much of the archive is on the disk, and what that is good for."""
    part = _part(archive, root)
    if not part.is_file() or not part.stat().st_size:
        return f"Nothing is saved yet. Repeat the command, or put {archive.file} into {root} by hand."
    saved = f"{part.stat().st_size:,} of {archive.size:,} bytes"
    return f"{saved} are saved in {part}: the same command goes on from there."


@contextlib.contextmanager
def _disk(archive: Archive, root: Path) -> Iterator[None]:
    """Turn a disk that is full, or a folder that may not be written, into words; the network's failures have theirs."""
    try:
        yield
    except OSError as error:
        why = f"{archive.title}: cannot use {error.filename or root} ({error.strerror or error})"
        raise DatasetError(f"{why}. {_saved(archive, root)}") from error


@contextlib.contextmanager
def _held(archive: Archive, root: Path) -> Iterator[None]:
    """Hold the download for this process; the system lets go of it when the process ends, however that happens."""
    try:
        import fcntl
    except ImportError:  # Windows has no flock; two downloads into one folder are then the user's to avoid
        yield
        return
    path = root / f".{archive.file}.lock"
    with path.open("w") as file:
        ours = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last holder may have removed it just now, and somebody else may hold a new one.
            ours = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            ours = False
        except OSError:  # a file system without locks, as on some clusters: as on Windows
            pass
        if not ours:
            raise DatasetError(
                f"{archive.title}: another process is downloading it into {root}; wait for it or stop it"
            )
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


class _Dropped(Exception):
    """The network failed in a way that may pass."""


def _fetch(archive: Archive, url: str, part: Path, progress: Progress, pauses: Sequence[float], timeout: float) -> None:
    """Add to `part` until it is as long as the archive."""
    try:
        with part.open("ab") as file:
            if file.tell() > archive.size:
                _empty(file)
            failures, most = 0, file.tell()
            while file.tell() < archive.size:
                try:
                    _receive(archive, url, file, progress, timeout)
                except _Dropped as error:
                    if file.tell() > most:  # a bad connection that gets on is no reason to stop
                        failures, most = 0, file.tell()
                    if failures == len(pauses):
                        file.flush()
                        why = f"{archive.title}: no way to get {url}: {error} ({failures + 1} attempts in a row)"
                        raise DatasetError(f"{why}. {_saved(archive, part.parent)}") from error
                    time.sleep(pauses[failures])
                    failures += 1
    finally:
        if part.is_file() and not part.stat().st_size:
            part.unlink()


def _receive(archive: Archive, url: str, file: BinaryIO, progress: Progress, timeout: float) -> None:
    """Ask once for what `file` lacks and append what comes."""
    with _ask(archive, url, file, timeout) as response:
        if response.status == 206:
            place = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            _check_size(archive, url, int(place[2]) if place and place[2] != "*" else None)
            if not place or int(place[1]) != file.tell():
                _empty(file)
                raise _Dropped("it answered with other bytes than those asked for")
        else:
            _check_size(archive, url, response.length)
            _empty(file)  # all of it comes, whatever was asked for
        while lacking := archive.size - file.tell():
            try:
                piece = response.read1(min(CHUNK, lacking))  # what there is: `read` loses it when the rest is late
            except (OSError, HTTPException) as error:
                raise _Dropped(_reason(error)) from error
            if not piece:
                raise _Dropped("the connection ended early")
            file.write(piece)
            progress(file.tell(), archive.size, f"downloading {archive.file}")


def _ask(archive: Archive, url: str, file: BinaryIO, timeout: float) -> HTTPResponse:
    """Return the answer to a request for the bytes after those in `file`."""
    if not re.match("https?://", url):
        raise DatasetError(f"{archive.title}: an address that begins with https:// or http:// expected, found {url!r}")
    request = urllib.request.Request(url, headers={"User-Agent": "labeltrace"})
    if file.tell():
        request.add_header("Range", f"bytes={file.tell()}-")
    try:
        response: HTTPResponse = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            answer = f"it answered {error.code} {error.reason}"
            if error.code == 416 and file.tell():  # nothing after our bytes: it has another file, or knows no ranges
                total = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
                _check_size(archive, url, int(total[1]) if total else None)
                _empty(file)
            elif error.code < 500 and error.code not in PASSING:
                file.flush()
                saved = _saved(archive, Path(file.name).parent)
                raise DatasetError(f"{archive.title}: no way to get {url}: {answer}. {saved}") from error
            raise _Dropped(answer) from error
    except (OSError, HTTPException) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, ssl.SSLCertVerificationError):  # waiting does not help
            raise DatasetError(f"{archive.title}: {url} cannot be trusted: {_reason(error)}") from error
        raise _Dropped(_reason(error)) from error
    return response


def _check_size(archive: Archive, url: str, total: int | None) -> None:
    """Refuse another file before its bytes are mixed with ours: a sign-in page, an error page, another version."""
    if total is not None and total != archive.size:
        raise DatasetError(
            f"{archive.title}: {archive.size:,} bytes expected at {url}, found {total:,}: this is another file. Open "
            "the address in a browser to see what it is, or use another one."
        )


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    return str(cause) or type(cause).__name__


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _check(archive: Archive, path: Path, progress: Progress, remedy: str) -> None:
    """Refuse a file that is not the official archive."""
    digest, done, size = hashlib.md5(usedforsecurity=False), 0, path.stat().st_size
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            done += len(piece)
            progress(done, size, f"checking {archive.file}")
    if digest.hexdigest() != archive.md5:
        raise DatasetError(
            f"{archive.title}: {path} has MD5 {digest.hexdigest()}, the official archive {archive.md5}. {remedy}"
        )


def _unpack(archive: Archive, path: Path, root: Path, progress: Progress) -> Path:
    """Unpack the archive beside its place, then move its folder there; return that folder."""
    for leftover in root.glob(f".{archive.folder}.*.tmp"):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(dir=root, prefix=f".{archive.folder}.", suffix=".tmp"))
    try:
        _extract(archive, path, temporary, progress)
        lacking = [file for file in archive.files if not (temporary / archive.folder / file).is_file()]
        if lacking:
            raise DatasetError(f"{archive.title}: {path} lacks {archive.folder}/{lacking[0]}; nothing is unpacked")
        return (temporary / archive.folder).rename(root / archive.folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _extract(archive: Archive, path: Path, to: Path, progress: Progress) -> None:
    try:
        with tarfile.open(path, "r:gz") as tar:
            # Links, devices and paths that lead outside are refused by name and kind here, and once more by the
            # filter of Python versions that have one (3.10.12, 3.11.4 and later).
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            members = tar.getmembers()
            for member in members:
                parts = PurePosixPath(member.name).parts
                inside = parts[:1] == (archive.folder,) and ".." not in parts and "\\" not in member.name
                if not inside or not (member.isreg() or member.isdir()):
                    raise DatasetError(
                        f"{archive.title}: {path} holds {member.name!r}, which is no plain file in {archive.folder}/: "
                        "nothing is unpacked"
                    )
            done, total = 0, sum(member.size for member in members)
            for member in members:
                tar.extract(member, to)
                done += member.size
                progress(done, total, f"unpacking {archive.file}")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DatasetError(f"{archive.title}: {path} cannot be unpacked ({error}); nothing is unpacked") from error
