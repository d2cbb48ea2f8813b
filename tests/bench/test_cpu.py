"""labeltrace bench cpu: both loops do the work they are compared by, and every learner is measured twice."""

import json

import numpy as np
import pytest
import torch

from labeltrace import cli
from labeltrace.bench import cpu
from labeltrace.learners import learners

TINY = cpu.Problem("tiny", "small_cnn", (1, 8, 8), 1)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run the command with a tiny network in place of ResNet-18."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cpu, "PROBLEMS", {"tiny": TINY})

    def run(*words):
        capsys.readouterr()
        code = cli._main(["bench", "cpu", *map(str, words)])
        return code, *capsys.readouterr()

    return run


def test_json_has_every_run_and_the_environment(command, tmp_path):
    words = "--learner", "cross_entropy", "--learner", "selc", "--epochs", 2, "--batches", 1, "--repeats", 1
    code, out, err = command(*words, "--out", "cpu.json", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found == json.loads((tmp_path / "cpu.json").read_text(encoding="utf-8"))
    assert [record["run"] for record in found["digits"]] == ["cross_entropy", "selc", "selc+trace"]
    assert all(len(record["epochs"]) == 1 and record["seconds"] > 0 for record in found["digits"])
    assert [(r["problem"], r["way"]) for r in found["loops"]] == [("tiny", "plain"), ("tiny", "engine")]
    assert all(len(record["passes"]) == 1 for record in found["loops"])
    assert found["environment"]["cores"] >= 1 and found["threads"] == torch.get_num_threads()
    assert [path.name for path in tmp_path.iterdir()] == ["cpu.json"]


def test_ways_take_turns_and_the_median_counts(monkeypatch):
    speeds = iter([10.0, 20.0, 21.0, 11.0, 12.0, 22.0])
    seen = []
    monkeypatch.setattr(cpu, "PROBLEMS", {"tiny": TINY})
    monkeypatch.setattr(cpu, "images_per_second", lambda problem, way, batches: (seen.append(way), next(speeds))[1])
    found = cpu.bench_cpu([], epochs=2, repeats=3, batches=1, note=lambda *_: None)
    assert seen == ["plain", "engine", "engine", "plain", "plain", "engine"]
    plain, engine = found["loops"]
    assert (plain["images_per_second"], engine["images_per_second"]) == (11.0, 21.0)
    assert plain["passes"] == [10.0, 11.0, 12.0]


def test_an_unknown_learner_is_refused_before_anything_is_measured(command):
    code, out, err = command("--learner", "rorl")
    assert (code, out) == (2, "") and "rolr" in err and err.count("\n") == 1


@pytest.mark.parametrize("words", [("--epochs", 1), ("--repeats", 0), ("--batches", 0)])
def test_counts_are_checked(command, words):
    assert command(*words)[0] == 2


def test_every_learner_runs_as_published_and_with_trace():
    runs = cpu.digits_runs(list(learners))
    assert {run["learner"] for run in runs.values()} == set(learners)
    for name in learners:
        assert (f"{name}+trace" in runs) == learners[name].refurbishes
        assert runs[name].get("controller") != "trace"


@pytest.mark.parametrize("way", list(cpu.WAYS))
def test_both_loops_train_the_same_batches_for_two_epochs(way, monkeypatch):
    steps = []
    step = torch.optim.SGD.step
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self, *a, **k: (steps.append(self), step(self, *a, **k))[1])
    assert cpu.images_per_second(TINY, way, 3) > 0
    assert len(steps) == 2 * 3
    (group,) = steps[0].param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (cpu.LR, cpu.MOMENTUM, cpu.DECAY)
    assert all(p.dtype == torch.float32 for p in group["params"])


def test_the_plain_loop_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    images = np.zeros((64, 1, 8, 8), np.uint8)
    assert len(cpu._plain(TINY, images, np.arange(64) % 10)) == 2
    assert torch.equal(torch.get_rng_state(), before)


def test_tables_compare_with_the_plain_loop_and_the_base():
    result = {
        "digits": [
            {"run": "cross_entropy", "seconds": 0.25, "epochs": [0.25]},
            {"run": "rolr", "seconds": 0.5, "epochs": [0.5]},
            {"run": "rolr+trace", "seconds": 0.55, "epochs": [0.55]},
        ],
        "loops": [
            {"problem": "resnet18", "way": "plain", "images_per_second": 40.0, "passes": [30.0, 40.0, 50.0]},
            {"problem": "resnet18", "way": "engine", "images_per_second": 50.0, "passes": [50.0]},
        ],
        "batch": 64,
    }
    digits, loops = cpu.tables(result).values()
    assert digits[1] == [["cross_entropy", "0.250", "–", "–"], ["rolr", "0.500", "0.550", "+10 %"]]
    assert [row[2:] for row in loops[1]] == [["40", "30 to 50", "1.00×"], ["50", "50 to 50", "1.25×"]]
