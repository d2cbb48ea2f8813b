"""The worked example of Co-teaching and JoCoR: logits of two networks on four samples of two classes."""

import math

import torch
from torch import nn

import toy
from labeltrace.models.output import Output

Z1 = torch.tensor([[2.0, 0], [0, 1], [1.5, 0], [0, 3]])
Z2 = torch.tensor([[0, 1.0], [0, 2], [3, 0], [1, 0]])
Y = torch.tensor([0, 1, 0, 0])


class Says(nn.Module):
    """A network whose logits are its parameters, row by row of a batch."""

    def __init__(self, logits, dtype=None):
        super().__init__()
        self.logits, self.dtype = nn.Parameter(logits.clone()), dtype

    def forward(self, x):
        """Return the logits of the first rows."""
        return Output(self.logits[: len(x)].to(self.dtype), (x, x))


def learner(kind, one=Z1, two=Z2, **settings):
    """A learner over two such networks."""
    dtype = settings.pop("dtype", None)
    networks = [Says(one, dtype), Says(two, dtype)]
    return toy.learner(kind, classes=one.shape[1], networks=networks, **settings)


def batch(observed=Y):
    """The samples, whose inputs nobody looks at."""
    return toy.batch(torch.arange(len(observed)), torch.zeros(len(observed), 4), observed)


def drawn(rows=9, classes=4, seed=0):
    """Logits of two networks and labels of another such batch."""
    g = torch.Generator().manual_seed(seed)
    one, two = 3 * torch.randn(2, rows, classes, generator=g)
    return one, two, torch.randint(classes, (rows,), generator=g)


def probabilities(row):
    """The softmax of a row of logits, written out."""
    powers = [math.exp(float(z) - max(row.tolist())) for z in row]
    return [power / sum(powers) for power in powers]


def easiest(losses, count):
    """The places of the smallest losses."""
    return sorted(range(len(losses)), key=lambda i: losses[i])[:count]
