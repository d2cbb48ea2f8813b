"""SNSCL on DivideMix: its Gaussian, what a step adds, and that the learner's own part stays as it is."""

import math
from copy import deepcopy

import pytest
import torch

import toy
from labeltrace import Coupled
from labeltrace.engine import train
from labeltrace.engine.parallel import check_plugin
from labeltrace.errors import InputError
from labeltrace.learners import DivideMix, learners
from labeltrace.plugins import SNSCL
from labeltrace.plugins.snscl import SNSCLSettings

LEARNERS = list(SNSCL.attached)


def made(name="dividemix", **settings):
    attached = SNSCL(SNSCLSettings(**{"width": 8, "slots": 4} | settings)).attach(learners[name])
    return toy.learner(attached, Coupled())


def halves(learner):
    """A step's batch: labelled samples, and others beside them."""
    from dataclasses import replace

    first, second = toy.random_batch(), toy.random_batch(seed=1)
    learner.memory["posterior"].fill_(0.5)
    return replace(first, beside=second)


def test_fact_3_the_gaussians_distance():
    learner = made()
    network = learner.networks[0]
    feature = torch.randn(5, 128, generator=torch.Generator().manual_seed(0))
    for layer in (network.mean, network.log_variance):
        torch.nn.init.zeros_(layer.weight), torch.nn.init.zeros_(layer.bias)
    noise = torch.randn(5, 128, generator=torch.Generator().manual_seed(1))
    drawn, distance = learner.sample(network, feature, noise)
    assert float(distance.detach()) == 0.0 and torch.equal(drawn, noise)
    torch.nn.init.ones_(network.mean.bias)
    drawn, distance = learner.sample(network, feature, noise)
    assert float(distance.detach()) == pytest.approx(128 / 2) and torch.allclose(drawn, noise + 1)


def test_the_distance_is_that_of_torch():
    learner = made()
    feature = torch.randn(6, 128, generator=torch.Generator().manual_seed(2))
    _, distance = learner.sample(learner.networks[0], feature, torch.zeros(6, 128))
    mean, log_variance = learner.networks[0](feature, branch="gaussian")
    given = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    wanted = torch.distributions.kl_divergence(given, torch.distributions.Normal(0.0, 1.0)).sum(1).mean()
    assert float(distance.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)


def test_a_step_is_dividemixs_plus_its_own_terms():
    torch.manual_seed(0)
    learner = made()
    batch = halves(learner)
    state = {name: value.clone() for name, value in learner.networks[0].state_dict().items()}
    found = learner.step(0, 5, batch)
    learner.networks[0].load_state_dict(state)
    base = DivideMix.step(learner, 0, 5, batch)  # of the class before the plug-in: its views and guesses alone
    s = learner.snscl
    extra = s.weight * found.logs["contrast"] + s.kl_weight * found.logs["kl"]
    assert float(found.loss.detach()) == pytest.approx(float((base.loss + extra).detach()), rel=1e-5)
    assert float(found.logs["contrast"]) > 0


def test_the_terms_of_a_step_are_those_of_a_slow_loop():
    """Part by part and anchor by anchor, in eval mode; the copy moves before either part, the queues after it."""
    learner, g = made(decay=0.9), torch.Generator().manual_seed(0)
    network, copy = learner.networks[0].eval(), learner.following[0].module.eval()
    learner.networks[1].eval()
    with torch.no_grad():
        for value in network.parameters():
            value += 0.05 * torch.randn(value.shape, generator=g)
    batch = halves(learner)
    learner.memory["posterior"] = torch.rand(20, 2, generator=g)
    followed, queues = deepcopy(copy), [list(kept.clone()) for kept in learner.queues[0].kept]
    pointer, contrast, distance = [0] * learner.num_classes, 0.0, 0.0
    logs = learner.step(0, 5, batch).logs
    parts = [(batch, batch.observed, torch.ones(8))]
    parts.append((batch.beside, learner._guessed, learner.memory["posterior"][batch.beside.index, 1]))
    for part, labels, weight in parts:
        with torch.no_grad():
            for mine, its in zip(followed.parameters(), network.parameters(), strict=True):
                mine.copy_(0.9 * mine + 0.1 * its)
            rows = []
            for body, view, fork in ((network, 0, 10), (followed, 1, 11)):  # queries, keys
                feature = body(learner.views.weak(part.inputs, part.draws.fork(view)), branch="feature")
                mean, log_variance = network.mean(feature), network.log_variance(feature)
                noise = part.draws.fork(fork).normal(feature.shape[1])
                drawn = mean + log_variance.exp().sqrt() * noise
                distance += float(0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum()) / 8
                projected = body.project(torch.cat([feature, drawn]))
                rows.append(projected / projected.norm(dim=1, keepdim=True))
        for i, (query, key) in enumerate(zip(*rows, strict=True)):
            own = int(labels[i % 8])
            alike = [key, *queues[own]]
            others = [slot for c, kept in enumerate(queues) if c != own for slot in kept]
            log_p = (torch.stack([query @ row for row in alike + others]) / 0.07).log_softmax(0)
            contrast += sum(math.log(1 / len(alike)) - float(log_p[j]) for j in range(len(alike))) / len(alike) / 16
        for i, key in enumerate(rows[1]):
            own, draw = int(labels[i % 8]), part.draws.fork(12 + i // 8).uniform(1)[i % 8]
            if draw < weight[i % 8]:
                queues[own][pointer[own]] = key
                pointer[own] = (pointer[own] + 1) % 4
    assert float(logs["contrast"]) == pytest.approx(contrast, rel=1e-5)
    assert float(logs["kl"]) == pytest.approx(distance, rel=1e-5)
    assert learner.queues[0].pointer.tolist() == pointer
    assert torch.allclose(learner.queues[0].kept, torch.stack([torch.stack(kept) for kept in queues]), atol=1e-5)
    for mine, its in zip(copy.parameters(), followed.parameters(), strict=True):
        assert torch.allclose(mine, its, atol=1e-6)


def test_fact_5_the_copy_follows_and_takes_no_gradient():
    learner = made(decay=0.9)
    learner.following[0].copy(learner.networks[0])
    learner.step(0, 5, halves(learner)).loss.backward()
    own, copied = (dict(m.named_parameters()) for m in (learner.networks[0], learner.following[0].module))
    for name, value in copied.items():
        assert value.grad is None and torch.allclose(value, own[name], atol=1e-6)  # equal stays equal
    assert all(own[f"{name}.weight"].grad.abs().sum() > 0 for name in ("project", "mean", "log_variance"))
    with torch.no_grad():
        for value in own.values():
            value += 1.0
    learner.following[0].update(learner.networks[0])
    for name, value in copied.items():
        assert torch.allclose(value, own[name] - 0.9, atol=1e-5)


def test_labels_that_are_not_believed_do_not_enter_the_queues():
    learner = made()
    batch = halves(learner)
    learner.memory["posterior"].zero_()
    learner.step(0, 5, batch)
    labelled = torch.bincount(batch.observed, minlength=learner.num_classes) * 2  # a key and one drawn around it
    assert learner.queues[0].pointer.tolist() == (labelled % 4).tolist()
    assert learner.queues[1].pointer.tolist() == [0] * learner.num_classes
    learner = made()
    batch = halves(learner)
    learner.memory["posterior"].fill_(1.0)  # above every draw
    learner.step(0, 5, batch)
    guessed = torch.bincount(learner._guessed, minlength=learner.num_classes) * 2
    assert learner.queues[0].pointer.tolist() == ((labelled + guessed) % 4).tolist()


def test_its_terms_are_logged(tmp_path):
    config = toy.config("dividemix", controller="coupled", plugin="snscl", plugin_settings={"width": 8, "slots": 4})
    metrics = train(config, tmp_path / "run", dataset=toy.blobs()).metrics
    assert {"contrast", "kl"} <= metrics[-1]["phases"]["train A"].keys()


def test_several_ranks_are_refused():
    check_plugin("snscl", 1)
    check_plugin("ct", 2)
    check_plugin(None, 2)
    with pytest.raises(InputError, match="snscl keeps what ranks do not share; run it in one process, not in 2"):
        check_plugin("snscl", 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("weight", -1.0), ("kl_weight", -1.0), ("width", 0), ("slots", 0), ("temperature", 0.0), ("decay", 1.0)],
)
def test_wrong_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        SNSCLSettings(**{name: value})
