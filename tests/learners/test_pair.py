"""What learners with two networks share."""

import pytest
import torch
from sklearn.mixture import GaussianMixture

import toy
from labeltrace.learners import CrossSplit, DivideMix, FDivideMix, RoLR
from labeltrace.learners.pair import Pair, votes_of
from labeltrace.learners.terms import window_posterior
from labeltrace.scoring import Scores

N = 40


def losses(seed, count=N):
    """Clean and wrong losses [2, count] of two networks, which overlap."""
    g = torch.Generator().manual_seed(seed)
    wrong = (torch.arange(count) % 3 == 0).float()
    return torch.rand(2, count, generator=g) + wrong * (0.3 + torch.rand(2, count, generator=g))


def unit(loss):
    low, high = loss.amin(1, keepdim=True), loss.amax(1, keepdim=True)
    return (loss - low) / (high - low)


def published(mean):
    """The low component's posterior as the official codes fit it: the mean of the window as it is."""
    column = mean.double().numpy()[:, None]
    mixture = GaussianMixture(n_components=2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=0).fit(column)
    return torch.from_numpy(mixture.predict_proba(column)[:, mixture.means_.argmin()]).float()


@pytest.mark.parametrize("learner", [RoLR, DivideMix])
def test_the_mixture_sees_the_mean_of_the_last_losses_as_it_is(learner):
    taught = toy.learner(learner, size=N, loss_window=2)
    seen = [losses(seed) for seed in range(3)]
    for loss in seen:
        ones = torch.ones(2, N)
        scores = Scores(loss, ones, None, None, torch.zeros(N), ones[0], ones[0].bool())
        taught.remember(scores, torch.arange(N))
    mean = (unit(seen[1]) + unit(seen[2])) / 2
    wanted = torch.stack([published(row) for row in mean])
    assert torch.allclose(taught.memory["posterior"].T, wanted, atol=1e-4)
    stretched = torch.stack([published(row) for row in unit(mean)])
    assert not torch.allclose(wanted, stretched, atol=1e-3)  # so the two can be told apart


def test_a_window_of_equal_losses_counts_as_clean():
    history = torch.full((5, 2, 3), torch.nan)
    with pytest.warns(UserWarning, match="equal"):
        history, posterior = window_posterior(history, torch.ones(2, 5))
    assert posterior.eq(1).all() and history[:, :, 2].eq(0).all()


def test_pairs_share_their_warm_up():
    for learner in (RoLR, DivideMix, FDivideMix, CrossSplit):
        assert learner.warmup_step is Pair.warmup_step and learner.warm_up is Pair.warm_up


@pytest.mark.parametrize("classes", [2, 3])
def test_votes_say_whether_the_scoring_pass_agreed(classes):
    one, two = votes_of(torch.tensor([True, False]), classes)
    assert (one.argmax(1) == two.argmax(1)).tolist() == [True, False]
    assert one.shape == two.shape == (2, classes)


def test_with_one_class_everybody_agrees():
    one, two = votes_of(torch.tensor([True, False]), 1)
    assert torch.equal(one, two) and one.eq(1).all()
