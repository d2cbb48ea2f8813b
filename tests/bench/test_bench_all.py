"""labeltrace bench all: every measurement that this machine can make, each in its own file."""

import json

import pytest
import torch

from labeltrace import cli
from labeltrace.bench.environment import write_result
from labeltrace.commands import bench


@pytest.fixture
def measured(monkeypatch):
    """Replace the measurements by ones that note where they write."""
    seen = {}
    for name in ("gpu", "cpu", "growth", "data"):

        def measurement(out=None, name=name):
            seen[name] = out
            if out is not None:
                write_result({"of": name}, out)

        measurement.__name__ = name
        monkeypatch.setattr(bench, name, measurement)
    return seen


@pytest.mark.parametrize("gpu", [True, False])
def test_what_the_machine_can_do_is_measured_into_a_folder(measured, monkeypatch, tmp_path, capsys, gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert cli._main(["bench", "all", "--out", str(tmp_path / "new")]) == 0
    names = ["gpu", "cpu", "growth", "data"] if gpu else ["cpu", "growth", "data"]
    assert list(measured) == names
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(f"bench_{n}.json" for n in names)
    assert json.loads((tmp_path / "new" / "bench_cpu.json").read_text()) == {"of": "cpu"}
    assert ("no CUDA device" in capsys.readouterr().out) == (not gpu)


def test_without_a_folder_nothing_is_written(measured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli._main(["bench", "all"]) == 0
    assert not any(measured.values()) and not list(tmp_path.iterdir())


def test_a_file_is_no_folder(measured, tmp_path, capsys):
    (tmp_path / "results").write_text("mine")
    assert cli._main(["bench", "all", "--out", str(tmp_path / "results")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "expected a folder" in err and not measured
