"""labeltrace data download: the words around `download_dataset`, which has tests of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import typer
from rich.console import Console

import archive_server
from archive_server import FOLDER, NAME, Server
from labeltrace import cli
from labeltrace.commands import download as module
from labeltrace.data.sets import download as library
from labeltrace.errors import InputError

OFFICIAL = archive_server.official()
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command alone, in an empty folder, without pauses; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setitem(library.ARCHIVES, NAME, archive_server.entry(OFFICIAL))
    monkeypatch.setattr(library, "download_dataset", partial(library.download_dataset, pauses=(0.0,), timeout=2.0))
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(module.download)
    monkeypatch.setattr(cli, "app", app)

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli._main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def server() -> Iterator[Server]:
    with archive_server.serving(OFFICIAL) as server:
        yield server


def test_download_and_again(command: Run, server: Server, tmp_path: Path) -> None:
    code, out, err = command(NAME, "my data", "--url", server.url)
    assert code == 0
    assert f"my data/{FOLDER}  downloaded\n" in out and "labeltrace train --data cifar10 --root 'my data'\n" in out
    for doing in ("downloading", "checking", "unpacking"):
        assert f"{doing} cifar-10-python.tar.gz: " in err  # no terminal: a line for each
    assert {path.name for path in (tmp_path / "my data").iterdir()} == {FOLDER}
    code, out, err = command(NAME, "my data", "--url", server.url)
    assert (code, err) == (0, "") and "is already there, nothing to do" in out
    assert len(server.asked) == 1


def test_as_json(command: Run, server: Server) -> None:
    for source in ("url", "there"):
        code, out, err = command(NAME, "data", "--url", server.url, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out) == {"data": NAME, "folder": f"data/{FOLDER}", "source": source}


def test_the_archive_is_kept_on_request_and_used(command: Run, server: Server, tmp_path: Path) -> None:
    assert command(NAME, "data", "--url", server.url, "--keep-archive")[0] == 0
    assert (tmp_path / "data" / "cifar-10-python.tar.gz").read_bytes() == OFFICIAL
    (tmp_path / "data" / FOLDER).rename(tmp_path / "elsewhere")
    code, out, _ = command(NAME, "data", "--url", server.url)
    assert code == 0 and "unpacked from the archive" in out and len(server.asked) == 1


def test_no_network_is_one_line(command: Run) -> None:
    code, out, err = command(NAME, "data", "--url", "http://127.0.0.1:1/none")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("labeltrace: CIFAR-10: no way to get http://127.0.0.1:1/none")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cifar10n-worst", "data"], "UCSC-REAL/cifar-10-100n"),
        (["digits", "data"], "cannot be downloaded"),
        (["cifar11", "data"], "did you mean 'cifar10'"),
        ([NAME], "DIR"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    words: list[str], expected: str, command: Run, tmp_path: Path
) -> None:
    code, out, err = command(*words)
    assert (code, out, err.count("\n")) == (2, "", 1) and expected in err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_says_that_it_goes_on(
    command: Run, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(bar: module._Bar, done: int, total: int, label: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module._Bar, "__call__", stop)
        code, out, err = command(NAME, "data", "--url", server.url)
    assert (code, out) == (130, "")
    assert err == "labeltrace: stopped; what has arrived is saved, and the same command goes on from there\n"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-python.tar.gz.part"]
    assert command(NAME, "data", "--url", server.url)[0] == 0
    assert server.asked[1] is not None


def test_help_has_an_example(command: Run) -> None:
    code, out, _ = command("--help")
    assert code == 0 and "Example: labeltrace data download cifar10 ~/data" in out


def test_the_bar_shows_bytes_and_speed() -> None:
    console = Console(force_terminal=True, width=200)
    with console.capture() as shown, module._Bar(console) as bar:
        for done in (1_000_000, 2_000_000, 4_000_000):
            bar(done, 4_000_000, "downloading it")
        bar(7, 7, "checking it")
    text = shown.get()
    assert "downloading it" in text and "4.0/4.0 MB" in text and "checking it" in text and "7/7 bytes" in text


def test_a_mistake_stops_the_bar() -> None:
    console = Console(force_terminal=True, width=100)
    with console.capture(), pytest.raises(InputError), module._Bar(console) as bar:
        bar(1, 2, "downloading it")
        raise InputError("no")
    assert bar.progress.live.is_started is False
