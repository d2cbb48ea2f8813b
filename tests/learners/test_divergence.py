"""CrossSplit's divergence: the definition in slow loops, numbers of its page (part 10, fact 1), limits, invariances."""

import math

import pytest
import torch

from labeltrace.learners.divergence import class_normalised, class_ranges, label_divergence

ABOUT = {"abs": 1e-5}


def jensen_shannon(p, q):
    """½KL(p‖m) + ½KL(q‖m) as the paper writes it, with 0 ln 0 = 0."""
    total = 0.0
    for a, b in zip(p, q, strict=True):
        m = (a + b) / 2
        total += sum(x * math.log(x / m) for x in (a, b) if x > 0) / 2
    return total


def draw(rows=40, classes=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    p = torch.randn(rows, classes, generator=g).mul(2).softmax(1)
    return p, torch.randint(classes, (rows,), generator=g)


@pytest.mark.parametrize(("a", "expected"), [(0.7, 0.11728), (0.1, 0.52560), (1.0, 0.0), (0.0, 0.69315)])
def test_fact_1(a, expected):
    assert float(label_divergence(torch.tensor(a))) == pytest.approx(expected, **ABOUT)


def test_it_is_the_jensen_shannon_divergence_of_label_and_prediction():
    p, y = draw()
    found = label_divergence(p.gather(1, y[:, None])[:, 0])
    for i, row in enumerate(p.double().tolist()):
        label = [float(c == int(y[i])) for c in range(5)]
        assert float(found[i]) == pytest.approx(jensen_shannon(label, row), abs=1e-6)


def test_a_loss_says_as_much_as_the_whole_prediction():
    p, y = draw()
    loss = torch.nn.functional.cross_entropy(p.log(), y, reduction="none")
    assert torch.allclose(label_divergence(torch.exp(-loss)), label_divergence(p.gather(1, y[:, None])[:, 0]))


def test_it_falls_as_the_label_gains_and_stays_in_range():
    found = label_divergence(torch.linspace(0, 1, 1001))
    assert (found.diff() < 0).all() and found[-1] == 0 and found.max() <= math.log(2)
    assert label_divergence(torch.tensor([0.5], dtype=torch.bfloat16)).dtype == torch.float32


def test_ranges_are_those_of_a_slow_loop():
    p, y = draw(classes=6)
    y[y == 4] = 3  # class 4 has no sample
    divergence = torch.stack([label_divergence(p[:, c]) for c in (0, 1)])
    found = class_ranges(divergence, y, 6)
    assert found.shape == (2, 2, 6)
    for member in (0, 1):
        for c in (0, 1, 2, 3, 5):
            of_class = [float(divergence[member, i]) for i in range(len(y)) if int(y[i]) == c]
            assert found[member, :, c].tolist() == [min(of_class), max(of_class)]
    assert (found[:, 0, 4] > found[:, 1, 4]).all()


def test_normalised_values_are_those_of_a_slow_loop():
    p, y = draw(rows=60)
    divergence = label_divergence(p.gather(1, y[:, None])[:, 0])
    low, high = class_ranges(divergence[None], y, 5)[0][:, y]
    found = class_normalised(divergence, low, high)
    for i in range(60):
        same = [float(divergence[j]) for j in range(60) if y[j] == y[i]]
        wanted = (float(divergence[i]) - min(same)) / (max(same) - min(same))
        assert float(found[i]) == pytest.approx(wanted, abs=1e-5)
    for c in range(5):  # each class from 0 to 1
        assert float(found[y == c].min()) == 0 and float(found[y == c].max()) == 1


def test_normalising_does_not_care_for_the_order_or_the_names_of_classes():
    p, y = draw()
    divergence = label_divergence(p.gather(1, y[:, None])[:, 0])

    def normalised(divergence, y):
        low, high = class_ranges(divergence[None], y, 5)[0][:, y]
        return class_normalised(divergence, low, high)

    order, names = torch.randperm(40), torch.tensor([3, 1, 4, 0, 2])
    assert torch.equal(normalised(divergence, y)[order], normalised(divergence[order], y[order]))
    assert torch.equal(normalised(divergence, y), normalised(divergence, names[y]))


def test_beyond_the_range_is_cut_and_no_range_is_half():
    low, high = torch.tensor([0.2, 0.2, 0.2, 0.5, math.log(2)]), torch.tensor([0.4, 0.4, 0.4, 0.5, 0.0])
    found = class_normalised(torch.tensor([0.1, 0.5, 0.3, 0.6, 0.3]), low, high)
    assert found.tolist() == pytest.approx([0, 1, 0.5, 0.5, 0.5])


def test_no_sample_at_all():
    empty = class_ranges(torch.empty(2, 0), torch.empty(0, dtype=torch.int64), 3)
    assert empty.shape == (2, 2, 3) and (empty[:, 0] > empty[:, 1]).all()
