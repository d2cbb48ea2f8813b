"""The GPU's bench: what it measures is right in its parts; a machine without a GPU is told so."""

import pytest
import torch

from labeltrace.bench import gpu
from labeltrace.cli import _main

small = ("small_cnn", "cpu")


@pytest.fixture(scope="module")
def data():
    return gpu.pictures(256, 32)


def test_half_of_the_labels_are_wrong_and_the_classes_can_be_told_apart():
    data = gpu.pictures(2000, 400)
    means = torch.stack([data.test.inputs[data.test.labels == c].float().mean(0) for c in range(10)])
    apart = torch.cdist(data.train.inputs.float().flatten(1), means.flatten(1)).argmin(1)
    assert float((apart == data.train.labels).float().mean()) == pytest.approx(0.5, abs=0.05)
    assert data.train.truth is None  # an epoch is timed without figures that only a study needs


def test_a_record_tells_the_steps_and_the_batch(data):
    record = gpu.bench_epoch(gpu.config_of("cross_entropy", None, "plain", *small), data, 1)
    assert record["samples"] == 256 and record["seconds"] > 0
    assert record["steps"] * record["batch_size"] >= 256
    assert not record["captured"] and record["waits"] is None


def test_operations_of_a_step_grow_with_its_batch(data):
    def flops(batch):
        settings = {"batch_size": batch, "passes": 1}
        config = gpu.RunConfig(learner="cross_entropy", model="small_cnn", device="cpu", settings=settings)
        return gpu.step_flops(config, data)

    assert flops(64) == pytest.approx(2 * flops(32))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_gpu_the_command_says_so(capsys):
    assert _main(["bench", "gpu"]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_an_unknown_way_is_refused(capsys):
    assert _main(["bench", "gpu", "--way", "compild"]) == 2
    assert "compiled" in capsys.readouterr().err


@pytest.mark.gpu
def test_captured_steps_do_not_wait_for_the_device():
    config = gpu.config_of("rolr", "trace", "captured", "small_cnn")
    record = gpu.bench_epoch(config, gpu.pictures(8000, 200), 1)
    assert record["captured"] and record["waits"] == 0
