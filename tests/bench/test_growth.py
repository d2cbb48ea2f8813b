"""labeltrace bench growth: every part is measured, memory is what the types say, a scoring pass lets features go."""

import json
import math

import pytest
import torch

from labeltrace import cli
from labeltrace.bench.growth import FEWEST, NETWORKS, PARTS, bench_growth, exponents, measure_here, tables
from labeltrace.learners import learners
from labeltrace.scoring import ScorePass


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder, all parts in this process; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("labeltrace.bench.growth._measure", measure_here)

    def run(*words):
        capsys.readouterr()
        code = cli._main(["bench", "growth", *map(str, words)])
        return code, *capsys.readouterr()

    return run


def test_json_has_every_part_and_size_and_the_environment(command, tmp_path):
    code, out, err = command("--samples", "1e2", "--samples", 300, "--out", "growth.json", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found == json.loads((tmp_path / "growth.json").read_text(encoding="utf-8"))
    assert {(r["part"], r["samples"]) for r in found["records"]} == {(p, n) for p in PARTS for n in (100, 300)}
    assert all(r["seconds"] > 0 and r["result_bytes"] > 0 and len(r["passes"]) >= 1 for r in found["records"])
    assert set(found["exponents"]) == set(PARTS) and set(found["memory"]) == set(learners)
    assert found["environment"]["torch"] == torch.__version__ and found["threads"] == torch.get_num_threads()


def test_the_table_names_every_part_and_size(command):
    code, out, _ = command("--samples", 100, "--samples", 1000)
    assert code == 0
    assert all(part.about in out for part in PARTS.values()) and "1 k" in out
    assert all(name in out for name in learners)


@pytest.mark.parametrize("size", ["99", "1.5", "many", "inf", "nan", "-1e4"])
def test_a_wrong_size_is_refused_in_one_line(command, size, tmp_path):
    code, out, err = command("--samples", 100, "--samples", size, "--out", "growth.json")
    assert (code, out) == (2, "") and err.count("\n") == 1 and repr(size) in err
    assert not list(tmp_path.iterdir())


def test_a_part_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr("labeltrace.bench.growth.PARTS", {"fit_torch": PARTS["fit_torch"]})
    seen = []
    found = bench_growth([FEWEST], lambda *what: seen.append(what))
    assert [record["part"] for record in found["records"]] == ["fit_torch"]
    assert found["exponents"] == {"fit_torch": None}  # a line through one point has no slope
    assert [done for done, _, _ in seen] == [0, 1]


def test_a_part_that_fails_is_named_with_its_reason(command, monkeypatch):
    monkeypatch.undo()  # the real process
    monkeypatch.setattr("labeltrace.bench.growth.PARTS", {"nothing": PARTS["fit"]})
    assert cli._main(["bench", "growth", "--samples", "100"]) == 2


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_exponents_are_the_slope(power):
    records = [{"part": "a", "samples": n, "seconds": 3e-5 * n**power} for n in (10**4, 10**5, 10**6, 10**7)]
    assert exponents(records) == {"a": pytest.approx(power, abs=1e-3)}


def test_what_a_sample_costs_is_what_the_types_say():
    # loss, posterior, drift and structure confidence of two networks, class, confidence, agreement
    assert measure_here("score", 640)["result_bytes"] == 640 * (NETWORKS * 4 * 4 + 8 + 4 + 1)
    assert measure_here("fit", 640)["result_bytes"] == 640 * 4
    # the two posteriors and the structure confidence of RoLR
    assert measure_here("memory_rolr", 640)["result_bytes"] == 640 * 3 * 4


def test_tables_hold_the_figures():
    records = [
        {"part": "fit", "samples": n, "seconds": n / 1e6, "passes": [], "result_bytes": 4 * n, "peak_bytes": 150 * n}
        for n in (1000, 2000)
    ]
    result = {"records": records, "exponents": {"fit": 1.0}, "memory": {"rolr": 12}, "threads": 2}
    seconds, memory, remembered = tables(result).values()
    about = PARTS["fit"].about
    assert seconds == (["", "1 k", "2 k", "µs", "exponent"], [[about, "0.001", "0.002", "1", "1.00"]])
    assert memory == (["", "1 k", "2 k", "result"], [[about, "150", "150", "4"]])
    assert remembered[1] == [["rolr", "12"]]


def held_bytes(scoring):
    """Bytes of all storages that a pass holds, each counted once."""
    found, waiting = {}, list(vars(scoring).values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
    return sum(found.values())


@pytest.mark.parametrize("batch", [48, 64, 256])
def test_a_pass_lets_features_go_whatever_the_batch_of_the_forward(batch):
    width, classes, batches = 400, 4, 40
    scoring, sizes = ScorePass(), []
    for number in range(batches):
        features = [torch.rand(batch, width) for _ in range(2)]
        index = torch.arange(number * batch, (number + 1) * batch)
        scoring.add(index, index % classes, [(torch.rand(batch, classes), features)])
        sizes.append(held_bytes(scoring))
    # index, loss, class, confidence and drift of each sample; features of one batch, of what waits and of one group
    numbers = 8 + 4 + 8 + 4 + 4
    most = 2 * (batch + 2 * 64) * width * 4
    assert all(size <= (number + 1) * batch * numbers + most for number, size in enumerate(sizes))
    # and they are what it would cost to keep them: many times as much
    assert math.prod((batches, batch, 2, width, 4)) > 3 * sizes[-1]
