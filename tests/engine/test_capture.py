"""Captured steps: the numbers of plain ones, new draws at each replay, and a plain way out."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import toy
from labeltrace.data import ImageViews
from labeltrace.data.draws import Draws
from labeltrace.engine import Reporter, plan, train
from labeltrace.engine.capture import PLAIN, Recorder
from labeltrace.engine.compiled import CompiledViews
from labeltrace.engine.device import make_fabric
from labeltrace.engine.loop import EngineLoop
from labeltrace.learners import Outcome, learners
from labeltrace.models import build_model, default_model
from labeltrace.scoring.score import mean_prediction

SETTINGS = {"batch_size": 8}  # 192 samples: enough steps to be recorded, also where half of them are held clean
TRACE = {"start": 0, "ramp": 1, "k": 5, "score_batch": 16}


def run(folder, name, controller, **changes):
    changes |= {"trace": TRACE} if controller == "trace" else {}
    config = toy.config(name, controller=controller, precision="fp32", settings=SETTINGS, **changes)
    return train(config, folder, dataset=toy.pictures(count=192), overwrite=True)


def test_a_recorder_without_a_gpu_runs_every_step():
    done = []
    with Recorder(torch.device("cpu")).phase(lambda: done.append(1), 20) as step:
        for _ in range(20):
            step()
    assert len(done) == 20


@pytest.fixture
def one_order(monkeypatch):
    """Sums in one order: plain runs repeat themselves, so that a difference is the capture's."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
@pytest.mark.usefixtures("one_order")
@pytest.mark.parametrize("controller", ["coupled", "trace"])
@pytest.mark.parametrize("name", list(learners))
def test_captured_steps_give_the_numbers_of_plain_ones(tmp_path, name, controller):
    controller = controller if learners[name].refurbishes else None
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*without CUDA graphs.*")
        plain = run(tmp_path / "plain", name, controller, device="cuda", capture=False, epochs=2)
        captured = run(tmp_path / "captured", name, controller, device="cuda", epochs=2)
    for one, other in zip(plain.metrics, captured.metrics, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=0.02, abs=1e-3)
    assert torch.allclose(plain.judgement.confidence, captured.judgement.confidence, atol=0.05)


@pytest.mark.gpu
@pytest.mark.usefixtures("one_order")
@pytest.mark.parametrize("method", ["rolr+ct", "cores+ct", "disc+ct", "dividemix+snscl", "dividemix+l2b"])
def test_captured_steps_with_a_plugin_give_the_numbers_of_plain_ones(tmp_path, method):
    name, _, plugin = method.partition("+")
    options = {"device": "cuda", "plugin": plugin, "epochs": 5}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*without CUDA graphs.*")
        plain = run(tmp_path / "plain", name, "coupled", capture=False, **options)
        captured = run(tmp_path / "captured", name, "coupled", **options)
    for one, other in zip(plain.metrics, captured.metrics, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=0.05, abs=1e-3)


def loop_of(data, **options):
    fabric = make_fabric(toy.config(device="cuda", precision="fp32"))
    network = build_model(default_model(data.input_shape), data.num_classes, data.input_shape)
    network, optimizer = fabric.setup(network, torch.optim.SGD(network.parameters(), lr=0.0))
    parts = data.train, data.test, data.views
    trace = toy.config(trace=TRACE)
    loop = EngineLoop(
        fabric, [network], [optimizer], *parts, 0, plan(trace, data).trace, mean_prediction, Reporter(), **options
    )
    loop.begin(0)
    return loop


@pytest.mark.gpu
def test_draws_and_samples_differ_from_replay_to_replay():
    loop = loop_of(toy.pictures(count=192))
    seen = torch.zeros(24, 8, device="cuda")
    drawn = torch.zeros(24, 8, device="cuda")

    def step(batch):
        at = (batch.progress * 24).round().long()[None]
        seen.index_copy_(0, at, batch.index.float()[None])
        drawn.index_copy_(0, at, batch.draws.uniform(1).T)
        logits = loop.networks[0](loop.views.weak(batch.inputs, batch.draws)).logits
        return Outcome(F.cross_entropy(logits, batch.observed))

    loop.train(step, members=[0], batch_size=8, label="train")
    assert torch.equal(seen.flatten().sort().values.cpu(), torch.arange(192.0))
    assert len(drawn.flatten().unique()) > 185


@pytest.mark.gpu
def test_a_step_that_cannot_be_recorded_runs_plainly_with_one_warning():
    loop, calls = loop_of(toy.pictures(count=192)), []

    def step(batch):
        loss = F.cross_entropy(loop.networks[0](loop.views.plain(batch.inputs)).logits, batch.observed)
        calls.append(loss.item())
        return Outcome(loss)

    with pytest.warns(UserWarning, match="without CUDA graphs"):
        loop.train(step, members=[0], batch_size=8, label="train")
    assert len(calls) == 24
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.train(step, members=[0], batch_size=8, label="again")
    assert loop.logs["train"]["loss"] == pytest.approx(sum(calls[:24]) / 24, rel=1e-4)


@pytest.mark.gpu
def test_the_flag_switches_recording_off():
    loop, calls = loop_of(toy.pictures(count=192), capture=False), []

    def step(batch):
        calls.append(1)
        return Outcome(F.cross_entropy(loop.networks[0](loop.views.plain(batch.inputs)).logits, batch.observed))

    loop.train(step, members=[0], batch_size=8, label="train")
    assert len(calls) == 24 and not loop.recorder.active
    loop.recorder.active = True
    loop.train(step, members=[0], batch_size=8, label="again")
    assert len(calls) == 24 + PLAIN + 1


@pytest.mark.gpu
@pytest.mark.parametrize("policy", [None, "disc", "autoaugment"])
def test_compiled_views_are_the_same_views(policy):
    images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8, device="cuda")
    views, draws = ImageViews.from_images(images), Draws.at(torch.arange(64, device="cuda"), 3)
    compiled = CompiledViews(views)
    assert torch.allclose(compiled.plain(images), views.plain(images), atol=1e-6)
    assert torch.allclose(compiled.weak(images, draws), views.weak(images, draws), atol=1e-6)
    assert torch.allclose(compiled.strong(images, draws, policy), views.strong(images, draws, policy), atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "precision"), [("rolr", "fp32"), ("rolr", "bf16"), ("dividemix", "fp32")])
def test_a_compiled_run_ends_where_a_plain_one_does(tmp_path, name, precision):
    data = toy.pictures(count=192)
    asked = {"controller": "trace", "trace": TRACE, "settings": SETTINGS, "device": "cuda", "precision": precision}
    ends = []
    for way in ({"capture": False, "compile": False}, {"capture": True, "compile": True}):
        config = toy.config(name, epochs=3, **asked, **way)
        ends.append(train(config, tmp_path / str(way["compile"]), dataset=data))
    plain, compiled = (end.judgement for end in ends)
    assert float((plain.suggested == compiled.suggested).float().mean()) > 0.97
    assert float((plain.confidence - compiled.confidence).abs().mean()) < 0.05
