"""The README's Python runs as it stands, and its commands exist."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from sklearn.datasets import load_iris

import labeltrace
from labeltrace.cli import app
from labeltrace.models import build_model

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARRAYS, LOOP, REPORT = re.findall(r"```python\n(.*?)```", README, re.S)


def test_own_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (30, 12, 12, 3), dtype=np.uint8)
    names = {"images": images, "labels": np.array(["cat", "dog", "owl"] * 10)}
    exec(ARRAYS.replace("epochs=20", "epochs=2"), names)
    assert names["relabel"].column_names[:4] == ["index", "id", "observed", "suggested"]
    assert (tmp_path / "runs" / "mine" / "samples.parquet").exists()


@pytest.mark.filterwarnings("ignore:k = ")
def test_own_loop():
    networks = [build_model("mlp", num_classes=3, input_shape=(4,)) for _ in range(2)]
    x, y, i = torch.randn(20, 4), torch.arange(20) % 3, torch.arange(20)
    p1, p2 = (network(x).logits.softmax(1).detach() for network in networks)
    names = {"labeltrace": labeltrace, "networks": networks, "loader": [(x, y)], "y": y, "q": (p1 + p2) / 2, "i": i}
    names |= {"p1": p1, "p2": p2, "t": 40, "logits": networks[0](x).logits}
    exec(LOOP, names)
    names["loss"].backward()
    assert torch.isfinite(names["loss"])


def test_the_two_commands_come_first_and_exist():
    commands = re.findall(r"^    (make \S+)$", README, re.M)[:2]
    assert commands == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{command.split()[1]}:", makefile, re.M) for command in commands)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_linked_file_exists():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.filterwarnings("ignore:k = ")
def test_report_and_estimator():
    X, y = load_iris(return_X_y=True)
    names = {"labeltrace": labeltrace, "X": X, "y": y}
    exec(REPORT, names)
    assert len(names["report"]) == 150 and names["model"].predict(X).shape == (150,)


def test_every_command_in_it_exists():
    named = set(re.findall(r"^    \.venv/bin/labeltrace ([a-z]+)", README, re.M))
    assert named and named <= set(typer.main.get_command(app).commands)
