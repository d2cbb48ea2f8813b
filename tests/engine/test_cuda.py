"""The engine on a GPU: the same run as on the CPU within rounding, and a resumed one like an uninterrupted one."""

import pytest
import torch

import toy
from labeltrace.engine import train

pytestmark = pytest.mark.gpu


def run(tmp_path, name, **changes):
    changes = {"controller": "trace", "trace": {"start": 0, "ramp": 1, "k": 5, "score_batch": 16}, **changes}
    return train(toy.config(**changes), tmp_path / name, dataset=toy.pictures(), overwrite=True)


def test_float32_run_equals_the_cpu_within_rounding(tmp_path):
    cpu = run(tmp_path, "cpu", device="cpu", epochs=2)
    gpu = run(tmp_path, "gpu", device="cuda", precision="fp32", epochs=2)
    first = [record["phases"] for record in (cpu.metrics[0], gpu.metrics[0])]
    assert first[1]["warm-up A"]["loss"] == pytest.approx(first[0]["warm-up A"]["loss"], rel=1e-3)
    assert torch.allclose(cpu.judgement.clean, gpu.judgement.clean.cpu(), atol=0.05)
    assert torch.equal(cpu.judgement.scores.suggested, gpu.judgement.scores.suggested.cpu())


def test_bf16_run_resumes(tmp_path):
    whole = run(tmp_path, "whole", device="cuda", precision="bf16")
    from labeltrace.learners import RoLR

    with toy.killed_in(RoLR, 2):
        run(tmp_path, "cut", device="cuda", precision="bf16", checkpoint_seconds=0.0)
    resumed = train(toy.config(device="cuda", precision="bf16"), tmp_path / "cut", dataset=toy.pictures(), resume=True)
    for a, b in zip(whole.metrics, resumed.metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=0.02)
    wanted, found = (t.judgement.scores.confidence.cpu() for t in (whole, resumed))
    assert torch.allclose(wanted, found, atol=0.05)
