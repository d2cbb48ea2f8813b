"""The loop of an epoch: what a pass visits and in which order, who is trained, when the set is scored."""

import math

import pytest
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric

import toy
from labeltrace.control import TraceConfig
from labeltrace.engine import Reporter
from labeltrace.engine.history import LossNotFinite
from labeltrace.engine.loop import EngineLoop, run_seed
from labeltrace.learners import Outcome
from labeltrace.models import build_model, default_model
from labeltrace.scoring import ScorePass
from labeltrace.scoring.score import mean_prediction

N = 21


def make_loop(data=None, *, seed=0, members=2, reporter=None, side=None, **options):
    data = data or toy.blobs(count=N)
    fabric = Fabric(accelerator="cpu", devices=1)
    torch.manual_seed(0)
    networks, optimizers, sides = [], [], []
    for _ in range(members):
        network = build_model(default_model(data.input_shape), data.num_classes, data.input_shape)
        both = torch.optim.SGD(network.parameters(), lr=0.1), *([] if side is None else [side(network)])
        network, optimizer, *others = fabric.setup(network, *both)
        networks.append(network)
        optimizers.append(optimizer)
        sides += others
    structure = TraceConfig(k=4, score_batch=8)
    parts = data.train, data.test, data.views
    told = reporter or Reporter()
    loop = EngineLoop(
        fabric, networks, optimizers, *parts, seed, structure, mean_prediction, told, sides=sides, **options
    )
    loop.begin(0)
    return loop


def states(loop):
    return [{name: value.clone() for name, value in network.state_dict().items()} for network in loop.networks]


def unchanged(before, after):
    return all(torch.equal(before[name], after[name]) for name in before)


def watched(loop, member=0, **options):
    """Train with cross-entropy; return the batches that were seen."""
    batches = []

    def step(batch):
        batches.append(batch)
        return Outcome(F.cross_entropy(loop.networks[member](loop.views.plain(batch.inputs)).logits, batch.observed))

    loop.train(step, **{"members": [member], "batch_size": 8, "label": "train", **options})
    return batches


def order(batches):
    return torch.cat([batch.index for batch in batches])


@pytest.mark.parametrize("size", [1, 2, 7, 8, 20, 21])
def test_a_pass_visits_every_sample_and_fills_the_last_batch(size):
    size = max(size, 2)  # batch normalisation of features needs two
    batches = watched(make_loop(), batch_size=size)
    assert {len(batch.index) for batch in batches} == {size}
    assert len(batches) == math.ceil(N / size)
    visits = torch.bincount(order(batches), minlength=N)
    assert visits.min() == 1 and visits.max() <= 2
    assert torch.equal(order(batches)[:N].sort().values, torch.arange(N))  # only the fillers come twice


@pytest.mark.parametrize("size", [2, 7, 8, 20, 21])
def test_a_pass_that_drops_the_last_batch_has_full_ones_only(size):
    batches = watched(make_loop(), batch_size=size, drop_last=True)
    assert [len(batch.index) for batch in batches] == [size] * (N // size)
    assert len(order(batches).unique()) == N // size * size


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_batch_larger_than_the_set_is_the_set(drop_last):
    (batch,) = watched(make_loop(), batch_size=448, drop_last=drop_last)
    assert torch.equal(batch.index.sort().values, torch.arange(N))


def test_a_batch_holds_the_inputs_and_labels_of_its_samples():
    data = toy.blobs(count=N)
    for batch in watched(make_loop(data)):
        assert torch.equal(batch.inputs, data.train.inputs[batch.index])
        assert torch.equal(batch.observed, data.train.labels[batch.index])


def test_each_pass_visits_every_sample_anew():
    batches = watched(make_loop(), passes=3)
    assert len(batches) == 9
    passes = [order(batches[start : start + 3])[:N] for start in (0, 3, 6)]
    for one in passes:
        assert torch.equal(one.sort().values, torch.arange(N))
    assert not torch.equal(passes[0], passes[1]) and not torch.equal(passes[1], passes[2])


def first_order(seed=0, epoch=0, phases=0, passes=1):
    """The order of the last pass of the phase after `phases` others."""
    loop = make_loop(seed=seed)
    loop.begin(epoch)
    for _ in range(phases):
        watched(loop)
    return order(watched(loop, passes=passes)[-3:])


def test_the_order_belongs_to_seed_epoch_phase_and_pass():
    one = first_order()
    assert torch.equal(one, first_order())
    others = [first_order(seed=1), first_order(epoch=1), first_order(phases=1), first_order(passes=2)]
    for other in others:
        assert not torch.equal(one, other)
    for i, other in enumerate(others):
        assert not any(torch.equal(other, third) for third in others[:i])


def test_the_order_does_not_depend_on_what_was_drawn_before():
    loop = make_loop()
    torch.rand(5)
    watched(loop)
    loop.begin(1)  # phases are counted anew
    torch.rand(5)
    assert torch.equal(order(watched(loop)), first_order(epoch=1))


def drawn(loop, **options):
    """Sample → the numbers it draws in the only pass."""
    numbers = {}
    for batch in watched(loop, **options):
        for index, values in zip(batch.index.tolist(), batch.draws.uniform(3), strict=True):
            assert torch.equal(numbers.setdefault(index, values), values)  # a filler draws what it drew before
    return torch.stack([numbers[i] for i in range(N)])


def test_a_sample_draws_the_same_in_any_batch_and_other_numbers_in_any_other_pass():
    one = drawn(make_loop())
    assert torch.equal(one, drawn(make_loop(), batch_size=5))
    loop = make_loop()
    watched(loop)
    later_phase = drawn(loop)
    loop.begin(1)
    later_epoch = drawn(loop)
    for other in (later_phase, later_epoch, drawn(make_loop(seed=1))):
        assert not (one == other).any()


@pytest.mark.parametrize("member", [0, 1])
def test_members_train_and_the_others_only_look_on(member):
    loop, modes = make_loop(), []
    before = states(loop)

    def step(batch):
        modes.append([network.training for network in loop.networks])
        inputs = loop.views.plain(batch.inputs)
        loss = sum(network(inputs).logits.square().mean() for network in loop.networks)
        return Outcome(loss)

    loop.train(step, members=[member], batch_size=8, label="train")
    assert modes == [[member == 0, member == 1]] * 3
    after = states(loop)
    assert not unchanged(before[member], after[member])
    assert unchanged(before[1 - member], after[1 - member])  # neither weights nor running statistics


def test_both_members_can_be_trained_together():
    loop = make_loop()
    before = states(loop)

    def step(batch):
        assert all(network.training for network in loop.networks)
        return Outcome(sum(n(loop.views.plain(batch.inputs)).logits.square().mean() for n in loop.networks))

    loop.train(step, members=[0, 1], batch_size=8, label="train")
    assert not any(map(unchanged, before, states(loop)))


def test_gradients_of_one_step_do_not_reach_the_next():
    """Plain gradient descent by hand, from the same start."""
    loop, by_hand = make_loop(), make_loop()
    network, optimizer = by_hand.networks[0], by_hand.optimizers[0]
    network.train()
    for batch in watched(loop):
        optimizer.zero_grad()
        F.cross_entropy(network(by_hand.views.plain(batch.inputs)).logits, batch.observed).backward()
        optimizer.step()
    assert unchanged(states(loop)[0], states(by_hand)[0])


def test_several_steps_take_the_same_batch_one_after_the_other():
    """Plain gradient descent by hand, from the same start."""
    loop, by_hand, batches = make_loop(), make_loop(), []

    def first(batch):
        batches.append(batch)
        return Outcome(F.cross_entropy(loop.networks[0](loop.views.plain(batch.inputs)).logits, batch.observed))

    def second(batch):
        assert batch is batches[-1]
        return Outcome(
            loop.networks[0](loop.views.plain(batch.inputs)).logits.square().mean(), {"extra": torch.ones(1)[0]}
        )

    loop.train([first, second], members=[0], batch_size=8, label="train")
    network, optimizer = by_hand.networks[0], by_hand.optimizers[0]
    network.train()
    losses = []
    for batch in batches:
        for loss in (lambda x, b=batch: F.cross_entropy(x, b.observed), lambda x: x.square().mean()):
            optimizer.zero_grad()
            losses.append(loss(network(by_hand.views.plain(batch.inputs)).logits))
            losses[-1].backward()
            optimizer.step()
    assert unchanged(states(loop)[0], states(by_hand)[0])
    assert loop.logs["train"]["loss"] == pytest.approx(float(sum(losses).detach()) / 3)
    assert loop.logs["train"]["extra"] == 1


def test_a_clipped_gradient_moves_no_further_than_its_norm():
    moved = []
    for clip in (None, 1e-3):
        loop = make_loop()
        before = [p.detach().clone() for p in loop.networks[0].parameters()]

        def step(batch, loop=loop, clip=clip):
            logits = loop.networks[0](loop.views.plain(batch.inputs)).logits
            return Outcome(F.cross_entropy(logits, batch.observed), clip=clip)

        loop.train(step, members=[0], batch_size=N, label="train")  # one step at rate 0.1
        after = loop.networks[0].parameters()
        moved.append(float(torch.cat([(p - q).flatten() for p, q in zip(after, before, strict=True)]).detach().norm()))
    assert moved[0] > 1e-3 and moved[1] == pytest.approx(1e-4, rel=0.01)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_gradient_is_told_and_moves_nothing(frozen):
    """Of a parameter that is not trained it is 0."""
    loop, found = make_loop(), []
    first = next(loop.networks[0].parameters()).requires_grad_(not frozen)

    def step(batch):
        network = loop.networks[0]
        logits = network(loop.views.plain(batch.inputs)).logits
        parameters = list(network.parameters())
        told = loop.gradient(logits[:, 0].sum(), parameters)
        trained = [p for p in parameters if p is not first or not frozen]
        wanted = torch.autograd.grad(network(loop.views.plain(batch.inputs)).logits[:, 0].sum(), trained)
        assert not (frozen and told.pop(0).any())
        assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(told, wanted, strict=True))
        assert all(p.grad is None for p in parameters)
        found.append(told)
        return Outcome(0 * network(loop.views.plain(batch.inputs)).logits.sum())

    before = [p.detach().clone() for p in loop.networks[0].parameters()]
    loop.train(step, members=[0], batch_size=8, label="train")
    assert len(found) == 3
    assert all(torch.equal(p, q) for p, q in zip(loop.networks[0].parameters(), before, strict=True))


@pytest.mark.parametrize("name", ["beside", "meta"])
@pytest.mark.parametrize("count", [10, 14, 3])
def test_a_list_beside_the_first_starts_anew_only_when_it_is_used_up(name, count):
    """Two passes of two steps of five; the list goes on from one pass to the next."""
    batches = watched(make_loop(), index=torch.arange(10), batch_size=5, passes=2, **{name: torch.arange(count)})
    rows = [getattr(batch, name).index for batch in batches]
    assert len(rows) == 4 and all(len(row) == 5 for row in rows)
    full = -(-count // 5)  # rows until it is used up
    for start in range(0, 4 - full + 1, full):
        assert set(torch.cat(rows[start : start + full]).tolist()) == set(range(count))
    if count == 10:
        assert not torch.equal(torch.cat(rows[:2]), torch.cat(rows[2:]))


@pytest.mark.parametrize("beside", [None, [], [4, 9, 11]])
def test_a_list_to_be_judged_by_comes_in_batches_of_the_same_size(beside):
    data = toy.blobs(count=N)
    others = None if beside is None else torch.tensor(beside, dtype=torch.int64)
    batches = watched(make_loop(data), beside=others, meta=torch.arange(5), passes=2)
    for batch in batches:
        assert (batch.beside is None) == (not beside)
        assert len(batch.meta.index) == 8 and int(batch.meta.index.max()) < 5
        assert torch.equal(batch.meta.inputs, data.train.inputs[batch.meta.index])
        assert torch.equal(batch.meta.observed, data.train.labels[batch.meta.index])
    draws = torch.stack([batch.meta.draws.uniform(1) for batch in batches])
    assert len(draws.unique()) > draws.numel() // 2  # a sample draws anew in every step
    if beside:
        assert {int(i) for batch in batches for i in batch.beside.index} == set(beside)
        assert not any(torch.equal(b.beside.draws.keys, b.meta.draws.keys) for b in batches)


def test_logs_hold_the_means_of_a_phase():
    loop, values = make_loop(), iter([1.0, 2.0, 6.0])

    def step(batch):
        value = next(values)
        anchor = 0 * loop.networks[0](loop.views.plain(batch.inputs)).logits.sum()
        return Outcome(anchor + value, {"twice": torch.tensor(2 * value)})

    loop.train(step, members=[0], batch_size=8, label="some phase")
    assert loop.logs == {"some phase": {"loss": 3.0, "steps": 3, "twice": 6.0}}
    loop.begin(1)
    assert loop.logs == {}


def test_the_reporter_hears_of_every_step():
    heard = []

    class Listen(Reporter):
        def step(self, label, fraction, loss):
            heard.append((label, fraction, loss()))

    watched(make_loop(reporter=Listen()), passes=2, label="some phase")
    assert [label for label, _, _ in heard] == ["some phase"] * 6
    assert [fraction for _, fraction, _ in heard] == pytest.approx([i / 6 for i in range(1, 7)])
    assert all(math.isfinite(loss) for _, _, loss in heard)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_named_before_it_reaches_the_weights(bad):
    loop, before = make_loop(), []

    def step(batch):
        loss = F.cross_entropy(loop.networks[0](loop.views.plain(batch.inputs)).logits, batch.observed)
        before.append({name: value.clone() for name, value in loop.networks[0].named_parameters()})
        return Outcome(loss * bad if len(before) == 5 else loss)

    with pytest.raises(LossNotFinite, match=r"train B, batch 5$") as caught:
        loop.train(step, members=[0], batch_size=8, passes=2, label="train B")
    assert (caught.value.label, caught.value.batch) == ("train B", 5)  # counted from 1 over the passes
    assert unchanged(before[-1], dict(loop.networks[0].named_parameters()))


def scored(loop, monkeypatch):
    """Count the passes from here on, with the order of each."""
    orders = []
    add = ScorePass.add

    def spy(self, index, labels, outputs):
        if not self._index:
            orders.append([])
        orders[-1] += index.tolist()
        add(self, index, labels, outputs)

    monkeypatch.setattr(ScorePass, "add", spy)
    return orders


def test_an_epoch_is_scored_once(monkeypatch):
    loop = make_loop()
    orders = scored(loop, monkeypatch)
    scores = loop.score()
    watched(loop)  # training in between changes nothing
    assert loop.score() is scores
    assert len(orders) == 1
    loop.begin(1)
    assert loop.score() is not scores
    assert len(orders) == 2


def test_the_order_of_scoring_is_random_but_fixed_for_the_run(monkeypatch):
    loop = make_loop()
    orders = scored(loop, monkeypatch)
    for epoch in range(3):
        loop.begin(epoch)
        watched(loop)
        loop.score()
    make_loop(seed=1).score()
    assert orders[0] == orders[1] == orders[2] != orders[3]
    assert sorted(orders[0]) == list(range(N)) != orders[0]


def test_scoring_reads_in_eval_mode_and_changes_nothing():
    loop = make_loop()
    watched(loop)  # leaves the first network in train mode
    assert loop.networks[0].training
    before, generator = states(loop), torch.get_rng_state()
    scores = loop.score()
    assert all(map(unchanged, before, states(loop)))
    assert torch.equal(generator, torch.get_rng_state())
    assert not scores.loss.requires_grad
    data = toy.blobs(count=N)
    with torch.no_grad():
        logits = [network.eval()(data.views.plain(data.train.inputs)).logits for network in loop.networks]
    for member in (0, 1):
        loss = F.cross_entropy(logits[member], data.train.labels, reduction="none")
        assert torch.allclose(scores.loss[member], loss, atol=1e-5)


@pytest.mark.parametrize(("view", "same"), [("plain", True), ("weak", False)])
def test_weak_scores_differ_between_epochs_and_plain_ones_do_not(view, same):
    """With frozen weights, so that nothing but the view can differ."""
    loop = make_loop(toy.pictures(count=20))
    losses = []
    for epoch in (0, 1, 0):
        loop.begin(epoch)
        losses.append(loop.score(view).loss)
    assert torch.equal(losses[0], losses[1]) is same
    assert torch.equal(losses[0], losses[2])  # the view belongs to the epoch


def test_logits_of_the_test_set_are_those_of_eval_mode():
    data = toy.blobs(count=N)
    loop = make_loop(data)
    loop.forward_batch = 10  # 24 samples in three parts
    watched(loop)
    logits = loop.test_logits()
    assert logits.shape == (2, 24, 3)
    with torch.no_grad():
        expected = torch.stack([n.eval()(data.views.plain(data.test.inputs)).logits for n in loop.networks])
    assert torch.allclose(logits, expected, atol=1e-5)


def test_a_run_seed_belongs_to_its_words_alone():
    """Networks (seed, member), scoring (seed, phase) and passes (seed, epoch, phase, pass) share one function."""
    words = [(0,), (1,), (2**32,), (2**32 + 1,)]
    words += [(seed, member) for seed in range(3) for member in range(3)]
    words += [
        (seed, epoch, phase, number) for seed in range(3) for epoch in range(3) for phase in (0, 1) for number in (0, 1)
    ]
    seeds: dict[int, tuple[int, ...]] = {}
    for word in words:
        seed = run_seed(*word)
        assert 0 <= seed < 2**63
        assert seeds.setdefault(seed, word) == word


# An epoch of some samples


def test_an_epoch_of_some_samples_draws_them_alike_from_all_classes_and_anew():
    data = toy.blobs(count=60)
    loop = make_loop(data, epoch_samples=12)
    chosen = []
    for epoch in range(4):
        loop.begin(epoch)
        seen = torch.cat([batch.index for batch in watched(loop, batch_size=6)])
        assert sorted(seen.tolist()) == loop.chosen().tolist()
        assert torch.bincount(data.train.labels[loop.chosen()]).tolist() == [4, 4, 4]
        chosen.append(tuple(loop.chosen().tolist()))
    assert len(set(chosen)) == 4


def test_scores_of_some_samples_stand_at_their_places():
    data = toy.blobs(count=60)
    loop = make_loop(data, epoch_samples=24)
    scores, seen = loop.score(), loop.chosen()
    with torch.no_grad():
        logits = loop.networks[0].eval()(data.views.plain(data.train.inputs)).logits
    loss = F.cross_entropy(logits, data.train.labels, reduction="none")
    assert torch.allclose(scores.loss[0, seen], loss[seen], atol=1e-5)
    others = torch.ones(60, dtype=torch.bool)
    others[seen] = False
    for values in (scores.loss, scores.posterior, scores.drift, scores.clean, scores.structure):
        assert torch.isfinite(values[..., seen]).all()
        assert torch.isnan(values[..., others]).all()


def test_an_epoch_of_more_samples_than_there_are_is_all_of_them():
    loop = make_loop(toy.blobs(count=20), epoch_samples=50)
    assert loop.chosen().tolist() == list(range(20))


# A step before the main one


def head(network):
    """An optimizer of the last layer alone."""
    return torch.optim.SGD(network.fc.parameters(), lr=0.5)


def logits_of(loop, batch, member=0):
    return loop.networks[member](loop.views.plain(batch.inputs)).logits


def two_steps(loop, *, seen=lambda name, batch: None, spoil=1.0):
    """Train with a step that shrinks logits before cross-entropy; `seen` looks at each step as it begins."""

    def before(batch):
        seen("before", batch)
        loss = logits_of(loop, batch).square().mean() * spoil
        return Outcome(loss, {"size": loss.detach()})

    def step(batch):
        seen("step", batch)
        loss = F.cross_entropy(logits_of(loop, batch), batch.observed)
        return Outcome(loss, {"fit": loss.detach()})

    loop.train(step, before=before, members=[0], batch_size=8, label="train")


def test_a_step_before_moves_what_its_optimizer_holds_and_leaves_no_gradient():
    loop, seen = make_loop(side=head), []

    def look(name, batch):
        assert all(p.grad is None for p in loop.networks[0].parameters())
        seen.append((name, {key: value.clone() for key, value in loop.networks[0].named_parameters()}))

    two_steps(loop, seen=look)
    assert [name for name, _ in seen] == ["before", "step"] * 3
    for (_, early), (_, late) in zip(seen[::2], seen[1::2], strict=True):
        for name in early:
            assert torch.equal(early[name], late[name]) is not (".fc." in name)
    assert not any(torch.equal(seen[1][1][name], seen[2][1][name]) for name in seen[1][1])  # the main step: everything


def test_both_steps_get_one_batch_with_the_same_draws():
    batches = []
    two_steps(make_loop(side=head), seen=lambda name, batch: batches.append(batch))
    for early, late in zip(batches[::2], batches[1::2], strict=True):
        assert torch.equal(early.index, late.index) and early.progress == late.progress
        assert torch.equal(early.draws.uniform(2), late.draws.uniform(2))
        assert torch.equal(early.once.uniform(2), late.once.uniform(2))
    assert torch.equal(order(batches[::2]), order(watched(make_loop())))


def test_two_updates_of_a_batch_are_those_made_by_hand():
    loop, by_hand, batches = make_loop(side=head), make_loop(side=head), []
    two_steps(loop, seen=lambda name, batch: batches.append(batch))
    network = by_hand.networks[0].train()
    for batch in batches[::2]:
        loss = logits_of(by_hand, batch).square().mean()
        gradients = torch.autograd.grad(loss, list(network.fc.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.fc.parameters(), gradients, strict=True):
                parameter -= 0.5 * gradient
        loss = F.cross_entropy(logits_of(by_hand, batch), batch.observed)
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
    wanted, found = states(by_hand)[0], states(loop)[0]
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-5, atol=1e-6)


def test_losses_of_both_steps_are_logged_as_one_sum_and_their_numbers_side_by_side():
    loop = make_loop(side=head)
    two_steps(loop)
    logged = loop.logs["train"]
    assert list(logged) == ["loss", "steps", "size", "fit"]
    assert logged["loss"] == pytest.approx(logged["size"] + logged["fit"]) and logged["steps"] == 3


def test_other_members_and_their_sides_stay():
    loop = make_loop(side=head)
    before = states(loop)[1]
    two_steps(loop)
    assert unchanged(before, states(loop)[1])


def test_a_phase_without_a_step_before_does_not_touch_the_side():
    with_side, without = make_loop(side=head), make_loop()
    watched(with_side)
    watched(without)
    assert unchanged(states(with_side)[0], states(without)[0])


def test_a_step_before_without_an_optimizer_for_it_is_refused():
    with pytest.raises(ValueError, match="no network in members has a side optimizer"):
        two_steps(make_loop())


def test_a_loss_before_that_is_no_number_does_not_reach_the_weights():
    loop = make_loop(side=head)
    before = [p.clone() for p in loop.networks[0].parameters()]
    with pytest.raises(LossNotFinite, match=r"train, batch 1$"):
        two_steps(loop, spoil=math.nan)
    assert all(map(torch.equal, before, loop.networks[0].parameters()))


def test_ranks_average_the_gradients_of_both_steps_and_there_are_no_others():
    loop, asked = make_loop(side=head), []
    everything, average = list(loop.networks[0].parameters()), loop.ranks.average

    def watching(parameters, loss):
        asked.append({id(p) for p in parameters})
        assert asked[-1] == {id(p) for p in everything if p.grad is not None}
        return average(parameters, loss)

    loop.ranks.average = watching
    two_steps(loop)
    last = {id(p) for p in loop.networks[0].fc.parameters()}
    assert asked == [last, {id(p) for p in everything}] * 3


def test_a_restart_clears_both_states():
    def adam(network):
        return torch.optim.Adam(network.fc.parameters())

    loop = make_loop(side=adam)
    fresh = states(loop)
    loop.fresh = lambda member, number: fresh[member]
    two_steps(loop)
    assert loop.sides[0].state
    loop.restart(1)
    assert not loop.sides[0].state and not loop.optimizers[0].state
    assert unchanged(fresh[0], states(loop)[0])
