"""labeltrace reproduce: the plan, refusals, and the whole way on a small table of one's own."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import toy
from labeltrace.cli import main
from labeltrace.experiments import TABLES
from labeltrace.experiments.results import read_lines

TABLE = """
title: Digits
label: none
about: For tests.
measure: best
run: {data: digits, subset: 80, model: small_cnn, noise: symmetric, rate: 0.4}
recipes: [small]
columns: {Best: {}, Count: {measure: all.n}}
rows:
  Cross-Entropy: {run: {learner: cross_entropy}, published: 50.0 80}
  Broken: {run: {learner: cross_entropy, rate: 0.3, model: inception_resnet_v2}}
  Elsewhere: {published: 1.0 2}
"""


def call(*words):
    with pytest.raises(SystemExit) as ending:
        main(["reproduce", *map(str, words)])
    return ending.value.code or 0


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(TABLE, encoding="utf-8")
    return tmp_path / "mine.yaml"


def test_tables_are_listed(capsys):
    assert call("--list", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [table["name"] for table in found] == list(TABLES)
    assert call("--list") == 0
    said = capsys.readouterr().out
    assert all(f"\n{name} " in said for name in TABLES)


def test_a_plan_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("ablation", "--dry-run", "--epochs", 100, "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["runs"]) == 7 * 3 and {run["epochs"] for run in plan["runs"]} == {100}
    assert plan["seconds"] is None and plan["without_estimate"] == 21
    shared = [run for run in plan["runs"] if "ablation/Refined s_obs only/Best" in run["cells"]]
    assert all("ablation/Coupled null (b = 1 − s_obs)/Last" in run["cells"] for run in shared) and len(shared) == 3
    assert [run["seed"] for run in plan["runs"][::7]] == [0, 42, 1027]
    assert list(tmp_path.iterdir()) == []
    assert call("ablation", "--dry-run") == 0
    assert "no estimate" in capsys.readouterr().out


def test_a_plan_knows_how_long_it_takes(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    records = [{"run": "rolr", "way": "captured", "seconds": 36.0}]
    (tmp_path / "results" / "bench_gpu.json").write_text(json.dumps({"epochs": records}), encoding="utf-8")
    words = (
        "main",
        "--only",
        "RoLR",
        "--only",
        "RoLR + TRACE",
        "--only",
        "CIFAR-10 sym 50 %",
        "--seeds",
        "0 1",
        "--dry-run",
    )
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert call(*words, "--epochs", 100) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 runs: 4 to do; 2.0 h one after another, 2 without an estimate" in said
    assert call(*words, "--device", "cpu") == 0
    assert "no estimate" in capsys.readouterr().out
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert call(*words) == 0
    assert "no estimate" in capsys.readouterr().out


def test_a_plan_says_what_is_not_run_and_why(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("main", "cifar-n", "--seeds", 0, "--dry-run")
    assert call(*words, "--only", "RankMatch", "--only", "RoLR", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["runs"]) == 16
    absent = "RankMatch: this method is not in the package"
    assert plan["refused"] == [f"main: {absent}", f"cifar-n: {absent}"]
    assert call(*words, "--only", "RankMatch", "--only", "RoLR", "--only", "Worst") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not run: cifar-n: RankMatch: this method is not in the package 1 run: 1 to do" in said
    assert "not run: main" not in said


def test_a_plan_says_where_trace_never_starts(capsys, tmp_path, monkeypatch):
    """RoLR has 15 epochs of warm-up in 515, and TRACE starts 30 later."""
    monkeypatch.chdir(tmp_path)
    words = ("ablation", "--only", "RoLR (base)", "--only", "TRACE", "--seeds", 0, "--dry-run", "--epochs")
    for epochs, idle in ((515, False), (100, False), (2, True)):
        assert call(*words, epochs) == 0
        assert ("in 1 of these runs TRACE never starts" in capsys.readouterr().out) == idle


@pytest.mark.parametrize(
    "words, message",
    [
        ((), "name a table"),
        (("ablashun",), "did you mean 'ablation'?"),
        (("main", "--only", "nobody"), "no such row or column of main"),
        (("main", "--only", "RankMatch"), "nothing to run: main: RankMatch: this method is not in the package"),
        (("pseudo-summary", "--only", "Gain"), "differences of others"),
        (("main", "cifar-n", "--only", "nobody"), "no such row or column of main, cifar-n"),
        (("sensitivity", "--only", "ρ = 0.5"), "ρ ≥ 1"),
        (("main", "--seeds", "0,x"), "--seeds '0,x': expected numbers"),
        (("main", "--epochs", "0"), "--epochs 0"),
        (("main", "--jobs", "0"), "--jobs 0"),
        (("plugins", "--only", "Clothing1M"), "give --weights"),
        (("--collect", "nowhere"), "nowhere: no run here"),
        (("mine.yaml", "main"), "goes alone"),
        (("absent.yaml",), "absent.yaml: No such file"),
        (("main", "--only", "RoLR", "--only", "CIFAR-10 sym 50 %", "--root", "nowhere"), "nowhere"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys, table):
    assert call(*words) == 2
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if line.startswith("labeltrace:")]) == 1 and message in said[-1]


def test_from_a_table_to_its_lines(table, capsys):
    """Two runs in processes of their own: one ends, one cannot begin; a second call leaves the first alone."""
    words = (table, "--epochs", 1, "--seeds", 3, "--jobs", 2, "--out", "runs", "--device", "cpu", "--slim", "--json")
    assert call(*words) == 1
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert (answer["runs"], answer["trained"], len(answer["failed"])) == (2, 1, 1)
    (failed,) = answer["failed"]
    assert "75" in answer["failed"][failed] and failed in said.err
    (line,) = read_lines(table.with_suffix(".jsonl"))
    assert line["cells"] == ["mine/Cross-Entropy/Best", "mine/Cross-Entropy/Count"] and line["seed"] == 3
    (folder,) = [path for path in (table.parent / "runs").iterdir() if (path / "config.yaml").exists()]
    assert list((folder / "checkpoints").iterdir()) == []
    assert call(*words, "--only", "Cross-Entropy") == 0
    assert json.loads(capsys.readouterr().out)["trained"] == 0
    results = table.with_suffix(".jsonl")
    whole = results.read_text(encoding="utf-8")
    results.write_text(whole[:100], encoding="utf-8")
    assert call(*words, "--only", "Cross-Entropy") == 2 and "line 1 is no record" in capsys.readouterr().err
    results.write_text("", encoding="utf-8")
    assert call(*words, "--only", "Cross-Entropy") == 0  # its folder has all that the line is made of
    assert results.read_text(encoding="utf-8") == whole
    capsys.readouterr()
    assert call("--collect", folder, "--results", table.parent / "others.jsonl", "--json") == 0
    collected = json.loads(capsys.readouterr().out)
    assert collected["added"] == [] and "fills no cell" in collected["left_out"][str(folder)]
    assert call("--collect", folder, table, "--results", table.parent / "others.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out)["added"] == [line["id"]]
    assert call("--collect", table) == 2 and "name the folders of runs" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["own.npz", "sub/own.npz", "{here}/own.npz"])
def test_a_table_over_own_data(table, where, capsys, tmp_path):
    path = tmp_path / where.format(here=tmp_path)
    path.parent.mkdir(exist_ok=True)
    data = toy.blobs(noise=0)
    rows = {"train": data.train, "test": data.test}
    np.savez(
        path,
        **{f"x_{name}": part.inputs.numpy() for name, part in rows.items()},
        **{f"y_{name}": part.labels.numpy() for name, part in rows.items()},
    )
    words = TABLE.replace("data: digits, subset: 80, model: small_cnn", f"data: {where.format(here=tmp_path)}, MODEL")
    words = words.replace("model: inception_resnet_v2", "model: mlp")
    asked = (table, "--only", "Cross-Entropy", "--epochs", 1, "--seeds", 3, "--out", "runs", "--device", "cpu")
    table.write_text(words.replace(", MODEL", ""), encoding="utf-8")
    assert call(*asked) == 2 and "mine/Cross-Entropy/Best: names no network" in capsys.readouterr().err
    table.write_text(words.replace("MODEL", "model: mlp"), encoding="utf-8")
    assert call(*asked) == 0
    (line,) = read_lines(table.with_suffix(".jsonl"))
    assert line["data"] == "own.npz" and line["cells"][0] == "mine/Cross-Entropy/Best"
    assert [path.name[:24] for path in (tmp_path / "runs" / "noise").iterdir()] == ["own.npz-symmetric0.4-s3-"]
    capsys.readouterr()
    assert call(*asked, "--json") == 0 and json.loads(capsys.readouterr().out)["trained"] == 0


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(table):
    words = [
        str(table),
        "--epochs",
        "40",
        "--seeds",
        "0",
        "--only",
        "Cross-Entropy",
        "--out",
        "runs",
        "--device",
        "cpu",
    ]
    command = [sys.executable, "-m", "labeltrace", "reproduce", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, start_new_session=True) as process:
        until = time.monotonic() + 240
        while time.monotonic() < until and not any(
            path.read_text(encoding="utf-8").count("\n") > 1 for path in table.parent.glob("runs/*/metrics.jsonl")
        ):
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and to its runs
        _, words_said = process.communicate(timeout=120)
    assert process.returncode == 130 and b"the same command goes on" in words_said
    (metrics,) = table.parent.glob("runs/*/metrics.jsonl")
    assert 0 < len(metrics.read_text(encoding="utf-8").splitlines()) < 40
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
    (line,) = read_lines(table.with_suffix(".jsonl"))
    assert len(line["test_accuracy"]) == 40
