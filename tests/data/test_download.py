from __future__ import annotations

import errno
import os
import signal
import socket
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import archive_server
from archive_server import FOLDER, NAME, Server, member, packed
from labeltrace.data import DatasetError, datasets, load_dataset
from labeltrace.data.sets import download as module
from labeltrace.data.sets.download import ARCHIVES, Download, download_dataset
from labeltrace.errors import InputError

OFFICIAL = archive_server.official()
SIZE = len(OFFICIAL)
FILE = "cifar-10-python.tar.gz"
fetch = partial(download_dataset, pauses=(0.0, 0.01), timeout=2.0)


@pytest.fixture(autouse=True)
def small_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARCHIVES, NAME, archive_server.entry(OFFICIAL))
    monkeypatch.setattr(module, "CHUNK", 8192)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[Server]:
    with archive_server.serving(OFFICIAL) as server:
        yield server


def listed(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


WHOLE = {FOLDER, *(f"{FOLDER}/{file}" for file in archive_server.files())}


def check(root: Path, *others: str) -> None:
    """The dataset is there to the last byte, and nothing else but `others`."""
    assert listed(root) == {*WHOLE, *others}
    for file, content in archive_server.files().items():
        assert (root / FOLDER / file).read_bytes() == content


def broken(message: str, root: Path, server: Server | None = None, **options: Any) -> str:
    with pytest.raises(DatasetError, match=message) as caught:
        fetch(NAME, root, url=server.url if server else "http://127.0.0.1:1/none", **options)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("CIFAR-10: ")
    return str(caught.value)


# The table


def test_every_archive_is_of_a_registered_dataset() -> None:
    for name, archive in ARCHIVES.items():
        assert name in datasets and archive.file in archive.url and len(archive.md5) == 32
    assert ARCHIVES["cifar100"].url == "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    assert ARCHIVES["cifar100"].files == ("train", "test") and ARCHIVES["cifar100"].folder == "cifar-100-python"


@pytest.mark.parametrize("name", [name for name in datasets if name not in ARCHIVES] + ["cifar10n", "cifar100n"])
def test_others_cannot_be_downloaded(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        fetch(name, tmp_path / "new")
    message = str(caught.value)
    if name.startswith("cifar"):
        assert "CC BY-NC" in message and "UCSC-REAL/cifar-10-100n" in message and f"as {name.split('n')[0]}," in message
    else:
        assert message.startswith(f"{name} cannot be downloaded; these can: cifar10, cifar100.")
    assert listed(tmp_path) == set()


def test_an_unknown_name_is_told_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown dataset 'cifar1O': did you mean 'cifar10'"):
        fetch("cifar1O", tmp_path)


# When all goes well


def test_download(server: Server, tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    done = fetch(NAME, tmp_path / "a" / "b", url=server.url, progress=lambda *call: calls.append(call))
    assert done == Download(tmp_path / "a" / "b" / FOLDER, "url")
    check(tmp_path / "a" / "b")
    assert server.asked == [None] and server.sent == [SIZE]
    labels = list(dict.fromkeys(label for _, _, label in calls))
    assert labels == [f"downloading {FILE}", f"checking {FILE}", f"unpacking {FILE}"]
    for label in labels:
        counts = [count for count, _, other in calls if other == label]
        (total,) = {total for _, total, other in calls if other == label}
        assert counts == sorted(counts) and counts[-1] == total
    assert calls[0][1] == SIZE


def test_what_is_there_is_left_alone(server: Server, tmp_path: Path) -> None:
    fetch(NAME, tmp_path, url=server.url)
    (tmp_path / FOLDER / "test_batch").write_bytes(b"mine")
    for root in (tmp_path, str(tmp_path), tmp_path / FOLDER):
        assert fetch(NAME, root, url=server.url) == Download(tmp_path / FOLDER, "there")
    assert len(server.asked) == 1 and (tmp_path / FOLDER / "test_batch").read_bytes() == b"mine"
    assert listed(tmp_path) == WHOLE


def test_the_loader_reads_what_was_downloaded(
    fake_cifar: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_cifar()
    content = packed(*(member(f"{FOLDER}/{path.name}", path.read_bytes()) for path in fake.folder.iterdir()))
    monkeypatch.setitem(ARCHIVES, NAME, archive_server.entry(content))
    with archive_server.serving(content) as server:
        fetch(NAME, tmp_path / "new", url=server.url)
    with pytest.raises(DatasetError, match="10,000 images expected, 6 found"):  # found, opened and read
        load_dataset(NAME, tmp_path / "new")


@pytest.mark.parametrize("keep", [False, True])
def test_the_archive_is_kept_on_request(keep: bool, server: Server, tmp_path: Path) -> None:
    fetch(NAME, tmp_path, url=server.url, keep_archive=keep)
    check(tmp_path, *([FILE] if keep else []))


def test_an_archive_put_there_by_hand_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(OFFICIAL)
    assert fetch(NAME, tmp_path, url="http://127.0.0.1:1/none") == Download(tmp_path / FOLDER, "archive")
    check(tmp_path, FILE)  # it is not ours to remove


def test_a_wrong_archive_put_there_by_hand_is_not_deleted(server: Server, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"another one")
    broken(rf"{FILE} has MD5 \w{{32}}, the official archive \w{{32}}\. Move it away", tmp_path, server)
    assert listed(tmp_path) == {FILE} and (tmp_path / FILE).read_bytes() == b"another one"
    assert server.asked == []


@pytest.mark.parametrize("fault", ["redirect", "no-length", ""])
def test_ways_to_answer(fault: str, server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(OFFICIAL[:1000])
    server.faults = [fault]
    fetch(NAME, tmp_path, url=server.url)
    check(tmp_path)
    assert set(server.asked) == {"bytes=1000-"} and sum(server.sent) == SIZE - 1000


# A part of the archive


def test_a_stopped_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    def stop(done: int, total: int, label: str) -> None:
        if done >= 50_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(NAME, tmp_path, url=server.url, progress=stop)
    assert listed(tmp_path) == {f"{FILE}.part"}
    saved = (tmp_path / f"{FILE}.part").read_bytes()
    assert 50_000 <= len(saved) < SIZE and OFFICIAL.startswith(saved)
    first: list[int] = []
    fetch(NAME, tmp_path, url=server.url, progress=lambda done, *_: first.append(done))
    assert first[0] > len(saved)
    assert server.asked[1:] == [f"bytes={len(saved)}-"] and server.sent[1] == SIZE - len(saved)
    check(tmp_path)


@pytest.mark.parametrize("during", ["checking", "unpacking"])
def test_a_stop_after_the_last_byte_needs_no_network_to_go_on(during: str, server: Server, tmp_path: Path) -> None:
    def stop(done: int, total: int, label: str) -> None:
        if label.startswith(during):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(NAME, tmp_path, url=server.url, progress=stop)
    assert listed(tmp_path) == {f"{FILE}.part"}
    fetch(NAME, tmp_path, url="http://127.0.0.1:1/none")
    check(tmp_path)


@pytest.mark.filterwarnings("ignore:.*fork")  # it only sends and writes
def test_a_kill_leaves_nothing_half_written(server: Server, tmp_path: Path) -> None:
    """No exception, no clean-up: the process is gone while it unpacks."""

    def stop(done: int, total: int, label: str) -> None:
        if label.startswith("unpacking"):
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            fetch(NAME, tmp_path, url=server.url, progress=stop)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / FOLDER).exists() and (tmp_path / f"{FILE}.part").stat().st_size == SIZE
    fetch(NAME, tmp_path, url=server.url)
    check(tmp_path)  # its lock and its temporary folder are gone too
    assert len(server.asked) == 1


def test_a_server_that_ignores_ranges_sends_all_of_it(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(OFFICIAL[:1000])
    server.faults = ["ignore-range"]
    fetch(NAME, tmp_path, url=server.url)
    assert server.asked == ["bytes=1000-"] and server.sent == [SIZE]
    check(tmp_path)


@pytest.mark.parametrize("fault", ["other-range", "status 416"])
def test_a_server_that_answers_ranges_badly_is_asked_for_all(fault: str, server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(OFFICIAL[:1000])
    server.faults = [fault]
    fetch(NAME, tmp_path, url=server.url)
    assert server.asked == ["bytes=1000-", None]
    check(tmp_path)


def test_a_part_that_is_too_long_is_begun_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(OFFICIAL + b"more")
    fetch(NAME, tmp_path, url=server.url)
    assert server.asked == [None]
    check(tmp_path)


@pytest.mark.parametrize(("saved", "size"), [(0, 500), (1000, 500), (1000, 1000), (1000, SIZE - 1), (1000, SIZE + 1)])
def test_another_size_is_refused_and_the_part_kept(saved: int, size: int, tmp_path: Path) -> None:
    part = tmp_path / f"{FILE}.part"
    if saved:
        part.write_bytes(OFFICIAL[:saved])
    with archive_server.serving((OFFICIAL + b"x")[:size]) as server:
        broken(f"{SIZE:,} bytes expected at http.*, found {size:,}: this is another file", tmp_path, server)
        assert len(server.asked) == 1
    assert listed(tmp_path) == ({part.name} if saved else set())
    assert not saved or part.read_bytes() == OFFICIAL[:saved]


def test_a_sign_in_page_does_not_cost_the_part(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(OFFICIAL[:1000])
    with archive_server.serving(b"<html>") as server:
        server.faults = ["ignore-range"]
        broken("found 6: this is another file", tmp_path, server)
    assert (tmp_path / f"{FILE}.part").read_bytes() == OFFICIAL[:1000]


def test_wrong_bytes_are_deleted(tmp_path: Path) -> None:
    with archive_server.serving(bytes(SIZE)) as server:
        message = broken("has MD5 .* is deleted; the same command starts anew", tmp_path, server)
        assert ARCHIVES[NAME].md5 in message and server.url in message
    assert listed(tmp_path) == set()


def test_a_spoilt_part_is_found_and_deleted(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(bytes(1000))
    broken("has MD5 .* is deleted", tmp_path, server)
    fetch(NAME, tmp_path, url=server.url)
    assert server.asked == ["bytes=1000-", None]
    check(tmp_path)


# A network that fails


@pytest.mark.parametrize(
    "fault", ["drop 50000", "reset 50000", "stall 50000", "status 500", "status 503", "status 429"]
)
def test_what_passes_is_tried_again(fault: str, server: Server, tmp_path: Path) -> None:
    server.faults = [fault]
    fetch(NAME, tmp_path, url=server.url, timeout=0.2)
    check(tmp_path)
    assert len(server.asked) == 2
    if fault.startswith(("drop", "stall")):  # a reset may lose what was on its way
        assert server.asked[1] == "bytes=50000-" and sum(server.sent) == SIZE


def test_a_connection_that_gets_on_is_not_given_up(server: Server, tmp_path: Path) -> None:
    server.faults = ["drop 9000"] * 12
    fetch(NAME, tmp_path, url=server.url, pauses=(0.0,))
    assert server.asked == [None, *(f"bytes={9000 * n}-" for n in range(1, 13))] and sum(server.sent) == SIZE
    check(tmp_path)


def test_a_server_that_begins_anew_each_time_is_given_up(server: Server, tmp_path: Path) -> None:
    server.faults = ["drop 9000"] + ["ignore-range 8000"] * 9
    broken(rf"ended early \(3 attempts in a row\)\. 8,000 of {SIZE:,} bytes are saved", tmp_path, server)
    assert len(server.asked) == 3


def test_giving_up_says_how_much_is_saved(server: Server, tmp_path: Path) -> None:
    server.faults = ["drop 9000"] + ["status 500"] * 9
    message = broken(
        r"it answered 500 .* \(3 attempts in a row\)\. .*: the same command goes on from there", tmp_path, server
    )
    assert f"9,000 of {SIZE:,} bytes are saved in {tmp_path / FILE}.part" in message
    assert len(server.asked) == 3 and listed(tmp_path) == {f"{FILE}.part"}
    server.faults = []
    fetch(NAME, tmp_path, url=server.url)
    assert sum(server.sent) == SIZE
    check(tmp_path)


def test_pauses_grow(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    server.faults = ["status 500"] * 9
    with pytest.raises(DatasetError, match="5 attempts"):
        download_dataset(NAME, tmp_path, url=server.url)
    assert slept == sorted(slept) == list(module.PAUSES)


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_what_does_not_pass_is_not_tried_again(status: int, server: Server, tmp_path: Path) -> None:
    server.faults = [f"status {status}"]
    broken(f"it answered {status} .* Nothing is saved yet. Repeat the command, or put {FILE} into", tmp_path, server)
    assert len(server.asked) == 1 and listed(tmp_path) == set()


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with pytest.raises(DatasetError) as caught:
        fetch(NAME, tmp_path)
    assert "\n" not in str(caught.value) and "Name or service not known" in str(caught.value)
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz" in str(caught.value)
    assert listed(tmp_path) == set()


def test_nobody_listens(tmp_path: Path) -> None:
    broken("[Rr]efused.*Nothing is saved yet", tmp_path)
    assert listed(tmp_path) == set()


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a", "file:///etc/passwd", "a.tar.gz"])
def test_only_web_addresses(url: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="begins with https://"):
        fetch(NAME, tmp_path, url=url)
    assert listed(tmp_path) == set()


# A disk that fails, a folder in the way, another process


def test_a_full_disk_while_receiving(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes 20,000 bytes and then no more."""

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, piece: bytes) -> None:
            if self.file.tell() > 20_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.file.write(piece)

    usual = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, mode="r": Full(usual(path, mode)) if mode == "ab" else usual(path, mode)
    )
    message = broken(r"cannot use .* \(No space left on device\)", tmp_path, server)
    saved = (tmp_path / f"{FILE}.part").read_bytes()
    assert OFFICIAL.startswith(saved) and f"{len(saved):,} of {SIZE:,} bytes are saved" in message
    monkeypatch.undo()
    monkeypatch.setitem(ARCHIVES, NAME, archive_server.entry(OFFICIAL))
    fetch(NAME, tmp_path, url=server.url)
    assert server.asked[1] == f"bytes={len(saved)}-"
    check(tmp_path)


def test_a_full_disk_while_unpacking(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = tarfile.TarFile.extract

    def extract(tar: tarfile.TarFile, info: tarfile.TarInfo, to: Path) -> None:
        if info.name.endswith("data_batch_3"):
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(tar, info, to)

    monkeypatch.setattr(tarfile.TarFile, "extract", extract)
    broken(rf"No space left on device\)\. {SIZE:,} of {SIZE:,} bytes are saved", tmp_path, server)
    assert listed(tmp_path) == {f"{FILE}.part"}


def test_a_root_that_cannot_be(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    broken("cannot use .*file", tmp_path / "file", server)
    broken("cannot use .*file", tmp_path / "file" / "deeper", server)
    assert server.asked == [] and listed(tmp_path) == {"file"}


def test_an_incomplete_folder_is_not_touched(server: Server, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    for file in ARCHIVES[NAME].files:
        if file not in ("data_batch_2", "test_batch"):
            (tmp_path / FOLDER / file).write_text("mine")
    before = listed(tmp_path)
    broken(f"{FOLDER} is there but lacks data_batch_2, test_batch. Move it away", tmp_path, server)
    assert server.asked == [] and listed(tmp_path) == before


def test_an_empty_folder_is_filled(server: Server, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    fetch(NAME, tmp_path, url=server.url)
    check(tmp_path)


def test_two_at_a_time(server: Server, tmp_path: Path) -> None:
    """The second is sent away while the first is going; the first is not disturbed."""
    answers: list[str] = []

    def meanwhile(done: int, total: int, label: str) -> None:
        if len(answers) < 3:
            answers.append(broken("another process is downloading it into", tmp_path, server))

    fetch(NAME, tmp_path, url=server.url, progress=meanwhile)
    assert len(answers) == 3 and len(server.asked) == 1
    check(tmp_path)


def test_the_lock_of_a_dead_process_does_not_hold(server: Server, tmp_path: Path) -> None:
    (tmp_path / f".{FILE}.lock").touch()
    fetch(NAME, tmp_path, url=server.url)
    check(tmp_path)


# An archive that is not what it should be, though its MD5 were right


def link(name: str, to: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    info, content = member(name)
    info.type, info.linkname = kind, to
    return info, content


BAD = {
    "parent": member("../evil", b"x"),
    "parent inside": member(f"{FOLDER}/../../evil", b"x"),
    "absolute": member("/tmp/labeltrace-evil", b"x"),
    "other folder": member("elsewhere/evil", b"x"),
    "top": member("evil", b"x"),
    "similar folder": member(f"{FOLDER}-2/evil", b"x"),
    "backslash": member(f"{FOLDER}/..\\..\\evil", b"x"),
    "symlink": link(f"{FOLDER}/data_batch_1", "/etc/passwd", tarfile.SYMTYPE),
    "hard link": link(f"{FOLDER}/data_batch_1", f"{FOLDER}/test_batch", tarfile.LNKTYPE),
    "device": link(f"{FOLDER}/null", "", tarfile.CHRTYPE),
    "pipe": link(f"{FOLDER}/pipe", "", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("has_filter", [True, False])
def test_members_that_lead_elsewhere(
    bad: str, has_filter: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Python itself would let them through."""
    if not has_filter:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    good = [member(f"{FOLDER}/{file}", content) for file, content in archive_server.files(10).items()]
    content = packed(*good, BAD[bad])
    monkeypatch.setitem(ARCHIVES, NAME, archive_server.entry(content))
    root = tmp_path / "in" / "side"
    root.mkdir(parents=True)
    (root / FILE).write_bytes(content)
    message = broken("which is no plain file in cifar-10-batches-py/: nothing is unpacked", root)
    assert repr(BAD[bad][0].name) in message
    assert listed(tmp_path) == {"in", "in/side", f"in/side/{FILE}"}
    assert not Path("/tmp/labeltrace-evil").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive", "cannot be unpacked"),
        (OFFICIAL[: SIZE // 2], "cannot be unpacked"),
        (OFFICIAL[:5000] + bytes(100) + OFFICIAL[5100:], "(cannot be unpacked|lacks)"),
        (packed(), "lacks cifar-10-batches-py/data_batch_1"),
        (packed(member(f"{FOLDER}/readme.html")), "lacks cifar-10-batches-py/data_batch_1"),
    ],
)
def test_an_archive_that_is_none(content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARCHIVES, NAME, archive_server.entry(content))
    (tmp_path / FILE).write_bytes(content)
    broken(f"{message}.*nothing is unpacked", tmp_path)
    assert listed(tmp_path) == {FILE}
