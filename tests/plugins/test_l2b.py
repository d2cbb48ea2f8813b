"""L2B: its weights by the numbers of its page, its derivative against differences, and its step on DivideMix."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric

import toy
from labeltrace import Coupled
from labeltrace.engine import train
from labeltrace.engine.parallel import check_plugin
from labeltrace.errors import InputError
from labeltrace.learners import DivideMix, learners
from labeltrace.models import build_model
from labeltrace.models.output import Output
from labeltrace.plugins import LearningToBootstrap
from labeltrace.plugins.l2b import L2BSettings, gains, look, tangent_of, weights_of


class Linear(torch.nn.Module):
    """logits = x W."""

    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)

    def forward(self, x):
        return Output(x @ self.weight, (x,))


class Shared(torch.nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        feature = self.second(self.first(x).tanh()).tanh()
        return Output(self.last(feature), (feature, feature))


class Attending(torch.nn.Module):
    """Samples of two tokens that attend to each other, by torch's kernel for it."""

    def __init__(self):
        super().__init__()
        self.attend, self.last = torch.nn.MultiheadAttention(2, 1, batch_first=True), torch.nn.Linear(4, 3)

    def forward(self, x):
        tokens = x.unflatten(1, (2, 2))
        feature = self.attend(tokens, tokens, tokens, need_weights=False)[0].flatten(1)
        return Output(self.last(feature), (feature, feature))


class Dropping(torch.nn.Module):
    """A network with dropout, each of whose forwards leaves out other units; by `frozen` with a part that stays."""

    def __init__(self, width=4, frozen=False):
        super().__init__()
        self.first, self.last, self.drop = torch.nn.Linear(width, 16), torch.nn.Linear(16, 3), torch.nn.Dropout(0.5)
        self.first.requires_grad_(not frozen)

    def forward(self, x):
        feature = self.drop(self.first(x).relu())
        return Output(self.last(feature), (x, feature))


class Gradients:
    """In place of the engine's loop: differentiates."""

    def gradient(self, loss, parameters):
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def direction_of(network, inputs, labels):
    loss = F.cross_entropy(look(network, dict(network.named_parameters()), inputs), labels)
    return Gradients().gradient(loss, list(network.parameters()))


def gained(network, inputs, labels, meta_inputs, meta_labels, rate=0.1):
    """u [2, B] of a batch: of its labels, and of what the network says."""
    logits, tangent = tangent_of(network, inputs, direction_of(network, meta_inputs, meta_labels))
    classes = logits.shape[1]
    targets = torch.stack([F.one_hot(labels, classes), F.one_hot(logits.argmax(1), classes)])
    return rate * gains(logits, tangent, targets.to(logits.dtype))


def made(name="dividemix", **settings):
    return toy.learner(LearningToBootstrap(L2BSettings(**settings)).attach(learners[name]), Coupled())


def judged_batch(learner, beside=True):
    """A step's batch with unlabelled samples beside it and others to be judged by."""
    first, second, third = (toy.random_batch(seed=seed, first=6 * seed) for seed in range(3))
    learner.memory["posterior"].fill_(0.5)
    return replace(first, beside=second if beside else None, meta=third)


def test_fact_1_a_wrong_label_gets_nothing_and_its_pseudo_label_a_third():
    network, eye = Linear(0.5 * torch.eye(2)), torch.eye(2)
    u = gained(network, eye, torch.tensor([0, 0]), eye, torch.tensor([0, 1]))
    assert torch.allclose(u, torch.tensor([[0.014254, -0.023500], [0.014254, 0.014254]]), atol=1e-6)
    assert torch.allclose(weights_of(u), torch.tensor([[1, 0], [1, 1]]) / 3, atol=1e-6)


@pytest.mark.parametrize("kind", ["rectified", "softmax", "sigmoid"])
def test_fact_2_weights_are_no_less_than_zero_and_sum_to_one(kind):
    for seed in range(5):
        weights = weights_of(torch.randn(2, 7, generator=torch.Generator().manual_seed(seed)), kind)
        assert weights.min() >= 0 and float(weights.sum()) == pytest.approx(1)


def test_fact_2_where_nothing_is_gained_nothing_weighs():
    assert torch.equal(weights_of(-torch.rand(2, 7)), torch.zeros(2, 7))


def test_fact_3_the_rate_cancels():
    u = torch.randn(2, 7, generator=torch.Generator().manual_seed(0))
    for rate in (1e-3, 0.1, 50.0):
        assert torch.allclose(weights_of(rate * u), weights_of(u), atol=1e-6)


def test_facts_4_and_5_on_a_network():
    torch.manual_seed(0)
    network = build_model("mlp", num_classes=3, input_shape=(4,)).eval()  # batch normalisation would tie the samples
    g = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(6, 4, generator=g), torch.arange(6) % 3
    u = gained(network, inputs, labels, inputs[:1], labels[:1])
    assert u[0, 0] > 0  # judged by itself, its own label
    same = network(inputs).logits.argmax(1) == labels
    assert same.any() and torch.equal(u[0, same], u[1, same])


@pytest.mark.parametrize("fabric", [False, True])
@pytest.mark.parametrize(
    ("make", "shape"),
    [(lambda: build_model("resnet18", 3, (3, 8, 8)), (3, 8, 8)), (Shared, (4,)), (Attending, (4,))],
    ids=["resnet18", "shared", "attending"],
)
@pytest.mark.parametrize("mode", [True, False])
def test_the_change_is_that_of_a_small_step(mode, make, shape, fabric):
    """Central differences in double precision, batch statistics included; a shared weight moves in both places."""
    torch.manual_seed(0)
    plain = make().double().train(mode)
    network = Fabric(accelerator="cpu", devices=1).setup(plain) if fabric else plain
    g = torch.Generator().manual_seed(1)
    inputs = torch.randn(4, *shape, generator=g, dtype=torch.float64)
    direction = [torch.randn(p.shape, generator=g, dtype=p.dtype) for p in network.parameters()]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    logits, tangent = tangent_of(network, inputs, direction)
    after = network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)  # running statistics among them
    found, small = [], 1e-9
    for sign in (1, -1):
        moved = {n: p + sign * small * d for (n, p), d in zip(plain.named_parameters(), direction, strict=True)}
        found.append(torch.func.functional_call(plain, moved, (inputs,)).logits.detach())
    assert torch.allclose(tangent.double(), (found[0] - found[1]) / (2 * small), rtol=1e-3, atol=1e-4)
    assert torch.allclose(logits.double(), found[0], atol=1e-4)


def test_logits_and_their_change_are_of_one_forward():
    """By the loss of each sample under the same units left out; another draw of them would be another loss."""
    torch.manual_seed(0)
    network, inputs, labels = Dropping().train(), torch.randn(8, 4), torch.arange(8) % 3
    direction = [torch.randn(p.shape) for p in network.parameters()]
    torch.manual_seed(5)
    logits, tangent = tangent_of(network, inputs, direction)
    torch.manual_seed(5)
    losses = F.cross_entropy(network(inputs).logits, labels, reduction="none")
    wanted = []
    for loss in losses:
        steps = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
        wanted.append(sum(float((step * along).sum()) for step, along in zip(steps, direction, strict=True)))
    assert gains(logits, tangent, F.one_hot(labels, 3)[None])[0].tolist() == pytest.approx(wanted, abs=1e-5)


def test_u_is_the_gradient_of_the_weights_through_a_virtual_step():
    """By differentiating twice, as the paper writes it."""
    torch.manual_seed(0)
    network = build_model("mlp", num_classes=3, input_shape=(4,))
    g = torch.Generator().manual_seed(0)
    inputs, meta = torch.randn(6, 4, generator=g), torch.randn(5, 4, generator=g)
    labels, right, rate = torch.arange(6) % 3, torch.arange(5) % 3, 0.1
    u = gained(network, inputs, labels, meta, right, rate)
    parameters = dict(network.named_parameters())
    logits = look(network, parameters, inputs)
    losses = torch.stack([F.cross_entropy(logits, t, reduction="none") for t in (labels, logits.argmax(1))])
    epsilon = torch.zeros_like(losses, requires_grad=True)
    steps = torch.autograd.grad((epsilon * losses).sum(), list(parameters.values()), create_graph=True)
    moved = {name: p - rate * step for (name, p), step in zip(parameters.items(), steps, strict=True)}
    (wanted,) = torch.autograd.grad(F.cross_entropy(look(network, moved, meta), right), epsilon)
    assert torch.allclose(u, -wanted, atol=1e-6)


@pytest.mark.parametrize("beside", [True, False])
def test_the_second_step_weighs_both_views_of_all_samples(beside):
    torch.manual_seed(0)
    learner = made()
    batch = judged_batch(learner, beside)
    learner._rate = 0.1
    main = learner.step(0, 5, batch)
    views, targets = [list(one) for one in learner._views], list(learner._targets)
    state = {name: value.clone() for name, value in learner.networks[0].state_dict().items()}
    found = learner.bootstrap(Gradients(), batch)
    learner.networks[0].load_state_dict(state)
    count = 32 if beside else 16
    inputs = torch.cat([view for both in views[::-1] for view in both])
    assert len(inputs) == count and torch.equal(inputs[:8], learner.views.weak(batch.inputs, batch.draws.fork(0)))
    network, target = learner.networks[0], torch.cat(targets)
    meta = learner.views.weak(batch.meta.inputs, batch.meta.draws)
    _, tangent = tangent_of(network, inputs, direction_of(network, meta, batch.meta.observed))
    log = network(inputs).logits.log_softmax(1)
    said = F.one_hot(log.argmax(1), 3)
    weights = weights_of(torch.stack([((log.exp() - t) * tangent).sum(1) for t in (target, said)])).detach()
    wanted = -(weights[0] * (target * log).sum(1) + weights[1] * (said * log).sum(1)).sum()
    assert float(found.loss.detach()) == pytest.approx(float(wanted.detach()), rel=1e-4)
    assert float(found.logs["said"]) == pytest.approx(float(weights[1].sum()), abs=1e-5)
    assert found.clip == 0.8 and main.clip is None


def test_the_main_step_is_dividemixs():
    torch.manual_seed(0)
    learner = made()
    batch = judged_batch(learner)
    state = {name: value.clone() for name, value in learner.networks[0].state_dict().items()}
    found = learner.step(0, 5, batch)
    learner.networks[0].load_state_dict(state)
    assert torch.equal(found.loss, DivideMix.step(learner, 0, 5, batch).loss)


def test_with_dropout_weights_are_of_the_virtual_forward_and_losses_of_the_real_one():
    torch.manual_seed(0)
    networks = [Dropping().train(), Dropping().eval()]
    learner = toy.learner(LearningToBootstrap(L2BSettings()).attach(DivideMix), Coupled(), networks=networks)
    batch = judged_batch(learner)
    learner.step(0, 5, batch)
    learner._rate, network, target = 0.1, networks[0], torch.cat(learner._targets)
    torch.manual_seed(1)
    found = learner.bootstrap(Gradients(), batch).loss
    torch.manual_seed(1)
    direction = direction_of(network, batch.meta.inputs, batch.meta.observed)
    inputs = torch.cat([view for views in learner._views[::-1] for view in views])
    tried, tangent = tangent_of(network, inputs, direction)
    real = network(inputs).logits
    then, now = (torch.stack([target, F.one_hot(z.argmax(1), 3)]) for z in (tried, real))
    weights = weights_of(gains(tried, tangent, then))
    wanted = -(weights * (now * real.log_softmax(1)).sum(2)).sum()
    assert not torch.equal(then, now)
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), rel=1e-4)


def test_running_statistics_see_the_real_forward_alone():
    """Four guesses and the mixture of DivideMix's step, then one; neither the one that judges nor the virtual one."""
    learner = made()
    norms = [[m for m in n.modules() if isinstance(m, torch.nn.BatchNorm1d)] for n in learner.networks]
    learner.networks[0].train(), learner.networks[1].eval()
    batch = judged_batch(learner)
    learner.step(0, 5, batch)
    assert {int(norm.num_batches_tracked) for norm in norms[0]} == {5}
    learner.bootstrap(Gradients(), batch)
    assert {int(norm.num_batches_tracked) for norm in norms[0]} == {6}
    assert {int(norm.num_batches_tracked) for norm in norms[1]} == {0}


def test_only_the_first_network_takes_it(tmp_path):
    config = toy.config("dividemix", controller="coupled", plugin="l2b")
    phases = train(config, tmp_path / "run", dataset=toy.blobs()).metrics[-1]["phases"]
    assert {"bootstrap", "said"} <= phases["train A"].keys() and 0 <= phases["train A"]["said"] <= 1
    assert "bootstrap" not in phases["train B"]


def test_a_network_with_a_part_that_stays_trains(tmp_path):
    config = toy.config("dividemix", controller="coupled", plugin="l2b", epochs=3)
    network = partial(Dropping, width=6, frozen=True)
    trained = train(config, tmp_path / "run", dataset=toy.blobs(), make_network=network)
    assert "bootstrap" in trained.metrics[-1]["phases"]["train A"]
    assert torch.isfinite(toy.weights(trained)).all()


def test_no_clip_where_none_is_wanted():
    torch.manual_seed(0)
    learner = made(clip=0.0)
    batch = judged_batch(learner)
    learner.step(0, 5, batch)
    assert learner.bootstrap(Gradients(), batch).clip is None


def test_several_ranks_are_refused():
    with pytest.raises(InputError, match="l2b keeps what ranks do not share"):
        check_plugin("l2b", 2)


@pytest.mark.parametrize(("name", "value"), [("weights", "none"), ("temperature", 0.0), ("clip", -1.0)])
def test_wrong_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        L2BSettings(**{name: value})


def test_bf16_trains(tmp_path):
    config = toy.config("dividemix", controller="coupled", plugin="l2b", precision="bf16", epochs=2)
    assert torch.isfinite(toy.weights(train(config, tmp_path / "run", dataset=toy.pictures()))).all()
