"""Co-learning: the unit facts of its page (part 10), its two steps written out, what each of them moves."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import toy
from labeltrace.data import ImageViews
from labeltrace.engine import train
from labeltrace.errors import InputError
from labeltrace.learners import CoLearning
from labeltrace.learners.co_learning import CoLearningSettings
from labeltrace.learners.contrastive import nt_xent
from labeltrace.learners.heads import Projected, behind_feature
from labeltrace.learners.mixing import permutation
from labeltrace.learners.settings import resolve
from labeltrace.learners.structural import structural_cross_entropy, structural_divergence
from labeltrace.models import Staged, build_model
from labeltrace.models.output import Output

make = partial(toy.learner, CoLearning, head_width=5)
batch = toy.random_batch
paper = partial(make, objective="paper")


def parameters(network):
    return {name: p.detach().clone() for name, p in network.named_parameters()}


def test_fact_1_contrast():
    views = torch.eye(2)
    assert float(nt_xent(views, views, CoLearningSettings().temperature)) == pytest.approx(0.239545, abs=1e-6)
    assert float(nt_xent(7 * views, views / 3, 0.5)) == pytest.approx(0.239545, abs=1e-6)
    collapsed = torch.ones(128, 4)
    assert float(nt_xent(collapsed, collapsed, 0.5)) == pytest.approx(5.541264, abs=1e-5)


class Fixed(nn.Module):
    """Says the same logits and projections of any batch."""

    def __init__(self, logits, projections):
        super().__init__()
        self.logits, self.projections = nn.Parameter(logits.clone()), nn.Parameter(projections.clone())

    def forward(self, x, branch="classify"):
        output = Output(self.logits, (self.logits,))
        return {"classify": output, "project": self.projections, "both": (self.logits, self.projections)}[branch]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [({}, 0.03045), ({"kernel": "student"}, 0.03582), ({"objective": "paper"}, -0.40937)],
)
def test_fact_2_structural_loss(settings, wanted):
    v = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    o = torch.tensor([[0.0, 0.0], [0.5, 0.0], [1.0, 1.0]])
    learner = make(networks=[Fixed(o, v)], classes=2, **settings)
    assert float(learner.structural(torch.zeros(3, 4)).detach()) == pytest.approx(wanted, abs=1e-5)


def test_fact_3_equal_logits_are_the_minimum():
    learner = make(networks=[Fixed(torch.full((8, 3), 2.0), torch.randn(8, 5))])
    outcome = learner.structural_step(batch())
    outcome.loss.backward()
    assert float(outcome.loss.detach()) == 0.0
    assert not learner.networks[0].logits.grad.any()


@pytest.mark.parametrize("dataset", [toy.blobs, toy.pictures])
def test_fact_4_the_structural_step_moves_the_classifier_alone(tmp_path, monkeypatch, dataset):
    """Through the engine: only the side's rate is left, then none."""
    whose = {"side": 2, "nobody": 0}
    found = {}
    for name, most in whose.items():

        def tune(self, optimizer, epoch, most=most):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 if len(group["params"]) <= most else 0.0

        monkeypatch.setattr(CoLearning, "tune", tune)
        trained = train(toy.config("co_learning", epochs=1), tmp_path / name, dataset=dataset())
        found[name] = parameters(trained.networks[0])
    names = set(found["side"])
    moved = {name for name in names if not torch.equal(found["side"][name], found["nobody"][name])}
    assert {name.split("body.")[-1] for name in moved} == {"fc.weight", "fc.bias"}
    assert any("project" in name for name in names)


@pytest.mark.parametrize("kind", [make, paper])
def test_fact_4_the_projection_gets_no_gradient_from_the_structure(kind):
    learner = kind()
    network = learner.networks[0].train()
    learner.structural(learner.raw(batch())).backward()
    assert all(p.grad is None for p in network.project.parameters())
    assert all(bool(p.grad.any()) for p in network.classifier_parameters())


def test_fact_5_mixup_with_weight_one_and_none():
    learner, b = make(), batch()
    network = learner.networks[0].eval()  # so that a forward more or less changes nothing
    logits, partner = network(learner.raw(b)).logits, permutation(b.once.fork(1), 8)
    assert not torch.equal(partner, torch.arange(8))
    for share, wanted in (
        (1.0, F.cross_entropy(logits, b.observed)),
        (0.0, F.cross_entropy(logits[partner], b.observed[partner])),
    ):
        learner.mixing_weight = lambda draws, share=share: torch.full((1,), share)
        assert float(learner.fit(learner.raw(b), b).detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)


def test_both_labels_of_a_mixture_count_in_proportion():
    learner, b = make(), batch()
    network = learner.networks[0].eval()
    share, partner = float(learner.mixing_weight(b.once.fork(0))), permutation(b.once.fork(1), 8).tolist()
    raw, total = learner.raw(b), 0.0
    for i, j in enumerate(partner):
        log_p = network((share * raw[i] + (1 - share) * raw[j])[None]).logits[0].detach().log_softmax(0)
        total -= share * float(log_p[b.observed[i]]) + (1 - share) * float(log_p[b.observed[j]])
    assert float(learner.fit(raw, b).detach()) == pytest.approx(total / 8, rel=1e-5)


def test_the_mixing_weight_is_not_the_larger_half():
    learner = make()
    drawn = torch.cat([learner.mixing_weight(batch(draws=seed).once.fork(0)) for seed in range(2000)])
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(drawn.var()) == pytest.approx(0.0227, abs=0.003)  # of Beta(5, 5)
    assert len(learner.mixing_weight(batch().once)) == 1  # one for the batch


def seen_by(learner, *steps):
    """What passes through the network: branch, inputs, whether a gradient is wanted."""
    seen, network = [], learner.networks[0]
    forward = network.forward

    def watching(x, branch="classify"):
        seen.append((branch, x.clone(), torch.is_grad_enabled()))
        return forward(x, branch)

    network.forward = watching
    outcomes = [step(batch()) for step in steps]
    del network.forward
    return seen, outcomes


def test_the_forwards_of_a_batch_as_released():
    learner = make()
    b, network = batch(), learner.networks[0].train()
    seen, _ = seen_by(learner, learner.structural_step, learner.step)
    assert [(branch, wanted) for branch, _, wanted in seen] == [
        ("both", True), ("project", True), ("project", True), ("classify", False), ("classify", True),
    ]  # fmt: skip
    raw, one, two, again, mixed = (inputs for _, inputs, _ in seen)
    assert torch.equal(raw, learner.views.weak(b.inputs, b.draws.fork(0))) and torch.equal(raw, again)
    share, partner = learner.mixing_weight(b.once.fork(0)), permutation(b.once.fork(1), 8)
    assert torch.allclose(mixed, share * raw + (1 - share) * raw[partner])
    assert not torch.equal(one, two) and not torch.equal(one, raw)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm1d)]
    assert norms and all(int(norm.num_batches_tracked) == 5 for norm in norms)


def test_the_forwards_of_a_batch_as_in_the_paper():
    learner = paper()
    learner.networks[0].train()
    seen, _ = seen_by(learner, learner.step)
    assert [branch for branch, _, _ in seen] == ["both", "project", "project", "classify"]
    assert all(wanted for _, _, wanted in seen)


def test_images_have_crops_of_their_own_in_every_view():
    learner = make()
    learner.views = ImageViews((0.5,), (0.5,), rounds=0, cutout=0)
    images = torch.randint(0, 256, (8, 1, 16, 16), dtype=torch.uint8)
    b = toy.batch(torch.arange(8), images, torch.zeros(8).long())
    shown = [learner.raw(b), *(learner.views.strong(images, b.draws.fork(number)) for number in (1, 2))]
    assert not any(torch.equal(shown[i], shown[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize("pairs", ["sum", "mean"])
def test_the_objectives_are_the_sums_of_their_terms(pairs):
    b = batch()
    terms = {}
    for name, learner in (("released", make()), ("paper", paper(pairs=pairs))):
        network = learner.networks[0].eval()
        raw = learner.raw(b)
        one, two = (network(learner.views.strong(b.inputs, b.draws.fork(n)), branch="project") for n in (1, 2))
        logits, projections = network(raw, branch="both")
        fit, intrinsic = float(learner.fit(raw, b).detach()), float(nt_xent(one, two, 0.5).detach())
        outcome = learner.step(b)
        terms[name] = outcome.logs
        assert float(outcome.logs["fit"]) == pytest.approx(fit) and fit > 0
        assert float(outcome.logs["intrinsic"]) == pytest.approx(intrinsic) and intrinsic > 0
        if name == "released":
            assert float(outcome.loss.detach()) == pytest.approx(fit + intrinsic)
            first = learner.structural_step(b)
            wanted = float(structural_cross_entropy(projections, logits).detach())
            assert float(first.loss.detach()) == float(first.logs["structural"]) == pytest.approx(wanted)
        else:
            wanted = float(structural_divergence(projections, logits, 0.5, pairs).detach())
            assert float(outcome.logs["structural"]) == pytest.approx(wanted)
            assert float(outcome.loss.detach()) == pytest.approx(fit + intrinsic + wanted)
    assert terms["released"].keys() == {"fit", "intrinsic"}  # the engine adds what the step before logs


def test_in_the_paper_the_structure_reaches_the_encoder():
    learner = paper()
    learner.structural(learner.raw(batch())).backward()
    assert all(bool(p.grad.any()) for p in learner.networks[0].body.parameters())


def test_an_epoch_asks_for_both_steps_or_for_one():
    plain = {"members": [0], "batch_size": 8, "label": "train", "passes": 1, "drop_last": True}
    for learner in (make(), paper()):
        loop = toy.Loop()
        learner.epoch(loop, 0)
        before = {} if learner.settings.objective == "paper" else {"before": learner.structural_step}
        assert loop.calls == [plain | before]


@pytest.mark.parametrize("objective", ["released", "paper"])
def test_a_set_smaller_than_a_batch_trains(tmp_path, objective):
    settings = {"batch_size": 64, "objective": objective}
    trained = train(toy.config("co_learning", settings=settings), tmp_path / "run", dataset=toy.pictures(count=12))
    assert [record["phases"]["train"]["steps"] for record in trained.metrics] == [2] * 4
    assert torch.isfinite(toy.weights(trained)).all()
    assert trained.metrics[0]["phases"]["train"].keys() >= {"loss", "structural", "fit", "intrinsic"}


def test_a_short_last_batch_is_dropped(tmp_path):
    trained = train(toy.config("co_learning", epochs=1), tmp_path / "run", dataset=toy.blobs(count=40))
    assert trained.metrics[0]["phases"]["train"]["steps"] == 4  # two passes of two batches of 16


@pytest.mark.parametrize("objective", ["released", "paper"])
@pytest.mark.parametrize("size", [1, 2, 8])
def test_small_batches_of_one_class_stay_finite(objective, size):
    learner = make(objective=objective, networks=[image_network()])
    images = torch.randint(0, 256, (size, 1, 8, 8), dtype=torch.uint8)
    learner.views = ImageViews.from_images(images)
    b = toy.batch(torch.arange(size), images, torch.zeros(size).long())
    steps = [learner.step] if objective == "paper" else [learner.structural_step, learner.step]
    for step in steps:
        outcome = step(b)
        outcome.loss.backward()
        assert torch.isfinite(outcome.loss.detach())
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in learner.networks[0].parameters())


def image_network():
    settings = CoLearningSettings(head_width=5)
    return CoLearning.extend(settings, build_model("small_cnn", 3, (1, 8, 8)), torch.zeros(2, 1, 8, 8))


def test_half_precision_trains(tmp_path):
    config = toy.config("co_learning", precision="bf16", epochs=2)
    trained = train(config, tmp_path / "run", dataset=toy.blobs())
    assert all(math.isfinite(record["loss"]) for record in trained.metrics)


# The two heads and the two optimizers


@pytest.mark.parametrize(
    ("name", "last"), [("small_cnn", "fc"), ("preact_resnet18", "linear"), ("resnet18", "fc"), ("mobilenet_v2", "fc")]
)
def test_the_classifier_is_found_in_networks(name, last):
    shape = (3, 32, 32)
    width, classifier = behind_feature(build_model(name, 4, shape), torch.zeros(2, *shape))
    assert {f"{last}.weight", f"{last}.bias"} <= set(classifier)
    assert all(parameter.startswith((last, "last")) for parameter in classifier)  # MobileNet's last layer before it
    assert width > 1


def test_the_classifier_of_a_network_of_ones_own_is_what_follows_its_last_stage():
    body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 7), nn.Linear(7, 3))
    width, classifier = behind_feature(Staged(body, ["1", "3"]), torch.zeros(2, 6))
    assert width == 8 and [name.removeprefix("module.") for name in classifier] == [
        "4.weight", "4.bias", "5.weight", "5.bias",
    ]  # fmt: skip


def test_looking_for_the_classifier_leaves_the_network_as_it_was():
    network = build_model("small_cnn", 3, (1, 8, 8)).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    behind_feature(network, torch.rand(2, 1, 8, 8))
    assert network.training and all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())


def test_a_network_whose_classifier_cannot_be_told_apart_is_refused():
    class Blind(nn.Module):
        """Without stages: its logits are its feature."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return Output(self.layer(x), ())

    with pytest.raises(InputError, match="objective: paper"):
        CoLearning.extend(CoLearningSettings(), Blind(), torch.zeros(2, 4))
    network = CoLearning.extend(CoLearningSettings(objective="paper", head_width=5), Blind(), torch.zeros(2, 4))
    assert network(torch.zeros(2, 4), branch="project").shape == (2, 5)


def test_the_projection_is_as_published():
    network = CoLearning.extend(CoLearningSettings(), build_model("mlp", 3, (4,)), torch.zeros(2, 4))
    first, middle, last = network.project
    assert (first.in_features, first.out_features, first.bias) == (128, 128, None)
    assert isinstance(middle, nn.ReLU)
    assert (last.in_features, last.out_features) == (128, 512) and last.bias is not None
    with pytest.raises(ValueError, match="unknown branch 'predict'"):
        network(torch.zeros(2, 4), branch="predict")


def test_a_copy_names_its_own_classifier():
    from copy import deepcopy

    network = image_network()
    copy = deepcopy(network)
    assert isinstance(copy, Projected)
    mine, theirs = network.classifier_parameters(), copy.classifier_parameters()
    assert all(torch.equal(a, b) and a is not b for a, b in zip(mine, theirs, strict=True))


def test_the_side_holds_the_classifier_and_the_main_optimizer_everything():
    network = image_network()
    main = CoLearning.optimizer(CoLearningSettings(), network.parameters())
    side = CoLearning.side_optimizer(CoLearningSettings(), network)
    assert [id(p) for p in side.param_groups[0]["params"]] == [id(p) for p in network.body.fc.parameters()]
    assert len(main.param_groups[0]["params"]) == len(list(network.parameters()))
    assert isinstance(main, torch.optim.Adam) and isinstance(side, torch.optim.Adam)
    assert CoLearning.side_optimizer(CoLearningSettings(objective="paper"), network) is None


# Settings


def test_rate_and_first_moment_fall_as_published():
    learner = make()
    for optimizer in (torch.optim.Adam([torch.zeros(1)]), torch.optim.Adam([torch.zeros(2)])):
        for epoch in (0, 79, 80, 81, 140, 199):
            learner.tune(optimizer, epoch)
            (group,) = optimizer.param_groups
            wanted = 1e-3 if epoch < 80 else 1e-3 * (200 - epoch) / 120
            assert group["lr"] == pytest.approx(wanted)
            assert group["betas"] == (0.9 if epoch < 80 else 0.1, 0.999)
            assert group["lr"] == learner.learning_rate(epoch)


def test_a_shorter_run_falls_in_proportion():
    for preset, epochs, wanted in (("cifar", 50, 20), ("small", 20, 8), ("large", 10, 4)):
        settings, _ = resolve(CoLearningSettings, CoLearning.presets[preset], {}, epochs)
        assert (settings.epochs, settings.lr_fall) == (epochs, wanted)
    one, _ = resolve(CoLearningSettings, CoLearning.presets["small"], {}, 1)
    assert make(epochs=1, lr_fall=one.lr_fall).learning_rate(0) > 0


@pytest.mark.parametrize(
    "given",
    [
        {"objective": "both"}, {"kernel": "cauchy"}, {"kernel": "student", "objective": "paper"}, {"pairs": "all"},
        {"sigma": 0.0}, {"temperature": 0.0}, {"mix_alpha": -1.0}, {"head_width": 0}, {"passes": 0}, {"lr_fall": -1},
        {"momentum": 1.0}, {"momentum_late": 1.0}, {"lr": -1.0},
    ],
    ids=str,
)  # fmt: skip
def test_settings_out_of_range_are_named(given):
    with pytest.raises(ValueError, match=f"^{next(iter(given))}: .*expected"):
        CoLearningSettings(**given)
