"""benchmarks/diagnostics.py: a stopped call goes on, parts come together, notes alone are enough."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow
PATH = Path(__file__).parents[2] / "benchmarks" / "diagnostics.py"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(PATH.parent)  # as when the script itself is started
    spec = importlib.util.spec_from_file_location("benchmark_of_diagnostics", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(benchmark, monkeypatch, tmp_path, *words):
    where = "--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["diagnostics.py", *words, *where])
    benchmark.main()


def test_a_stopped_call_goes_on_and_parts_come_together(benchmark, monkeypatch, tmp_path):
    words = "depth", "digits", "--epochs", "2", "--at", "1", "2"
    keep = benchmark.Snapshots._keep

    def stopped(self, epoch):
        raise ZeroDivisionError  # as a kill: after the checkpoint of the first epoch, before its snapshot

    monkeypatch.setattr(benchmark.Snapshots, "epoch", lambda self, record: stopped(self, record["epoch"] + 1))
    with pytest.raises(ZeroDivisionError):
        call(benchmark, monkeypatch, tmp_path, *words, "--rates", "0.2", "--part")
    monkeypatch.setattr(benchmark.Snapshots, "epoch", lambda self, record: keep(self, record["epoch"] + 1))
    call(benchmark, monkeypatch, tmp_path, *words, "--rates", "0.2", "--part")
    assert not (tmp_path / "results").exists()
    snapshots = sorted((tmp_path / "runs").glob("*.ckpt"))
    assert [torch.load(path, weights_only=True)["epoch"] for path in snapshots] == [1, 2]
    metrics = next((tmp_path / "runs").glob("*/metrics.jsonl")).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["epoch"] for line in metrics] == [0, 1]  # the first epoch was not trained again

    call(benchmark, monkeypatch, tmp_path, *words, "--rates", "0.2", "0.5")
    found = json.loads((tmp_path / "results" / "diagnostics_depth_digits.json").read_text(encoding="utf-8"))
    assert {(row["rate"], row["epoch"]) for row in found["rows"]} == {(r, e) for r in (0.2, 0.5) for e in (1, 2)}
    assert {rate: set(after) for rate, after in found["after"].items()} == {
        r: set(benchmark.AFTER) for r in ("0.2", "0.5")
    }
    page = (tmp_path / "results" / "diagnostics.md").read_text(encoding="utf-8")
    for epoch in (1, 2):
        assert f"diagnostics/depth_digits_epoch{epoch}.png" in page
        assert (tmp_path / "results" / "diagnostics" / f"depth_digits_epoch{epoch}.png").exists()

    for path in [*(tmp_path / "runs").glob("*.ckpt"), *(tmp_path / "runs").glob("*/samples.parquet")]:
        path.unlink()
    shutil.rmtree(tmp_path / "results")
    call(benchmark, monkeypatch, tmp_path, *words, "--rates", "0.2", "0.5")  # from the notes
    assert (tmp_path / "results" / "diagnostics.md").read_text(encoding="utf-8") == page


def test_strata_have_a_picture_for_each_pooling(benchmark, monkeypatch, tmp_path):
    call(benchmark, monkeypatch, tmp_path, "strata", "digits", "--epochs", "2")
    found = json.loads((tmp_path / "results" / "diagnostics_strata_digits.json").read_text(encoding="utf-8"))
    for pooling in ("gap", "flatten"):
        assert sum(row["n"] for row in found["rows"] if row["pooling"] == pooling) == 1347
        assert (tmp_path / "results" / "diagnostics" / f"strata_digits_{pooling}_rate0.5.png").exists()


def test_an_epoch_that_will_not_come_is_refused(benchmark, monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit):
        call(benchmark, monkeypatch, tmp_path, "depth", "digits", "--epochs", "2", "--at", "3")
    assert "--at: expected epochs from 1 to 2" in capsys.readouterr().err
