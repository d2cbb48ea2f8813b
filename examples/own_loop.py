"""TRACE in your own training loop: a plain PyTorch co-training loop on digits with 40 % wrong labels.

The plug-in is the four lines marked (1) to (4); everything else is ordinary PyTorch.
Run: python examples/own_loop.py [epochs]
"""

import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import labeltrace
from labeltrace.models import Staged

WARM_UP = 10  # epochs of plain cross-entropy before the labels are judged


def network() -> nn.Module:
    body = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    return Staged(body, ["1", "3", "5"])  # any module: name the stages whose outputs are the features


def main(epochs: int = 60) -> tuple[float, float]:
    assert epochs > WARM_UP, f"{epochs} epochs: labels are judged after the first {WARM_UP}"
    torch.manual_seed(0)
    digits = load_digits()
    order = torch.randperm(len(digits.target))
    x = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
    truth = torch.tensor(digits.target)[order]
    y = truth.clone()
    wrong = torch.rand(len(y)) < 0.4
    y[wrong] = (y[wrong] + torch.randint(1, 10, (int(wrong.sum()),))) % 10
    train, test = slice(0, 1347), slice(1347, None)

    networks = [network(), network()]
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4) for n in networks]
    data = TensorDataset(x[train], y[train], torch.arange(1347))  # the third entry is the sample's number
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
    in_order = DataLoader(data, batch_size=512)

    trace = labeltrace.Trace(start=0, ramp=5)  # (1)
    for epoch in range(epochs):
        if epoch >= WARM_UP:
            scores = labeltrace.score(networks, in_order)  # (2) once an epoch
        for inputs, labels, index in loader:
            with torch.no_grad():
                p1, p2 = (n(inputs).logits.softmax(1) for n in networks)
            for n, optimizer in zip(networks, optimizers, strict=True):
                noisy = inputs + 0.1 * torch.randn_like(inputs)
                logits = n(noisy).logits
                if epoch < WARM_UP:
                    loss = F.cross_entropy(logits, labels)
                else:
                    evidence = labeltrace.Evidence(  # (3)
                        observed=labels, pseudo=(p1 + p2) / 2, clean=scores.clean[index],
                        structure=scores.structure[index], votes=(p1, p2), epoch=epoch - WARM_UP,
                    )  # fmt: skip
                    loss = trace(evidence).loss(logits)  # (4)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        predicted = sum(n.eval()(x[test]).logits for n in networks).argmax(1)
    accuracy = float((predicted == truth[test]).float().mean())
    found = float((scores.suggested == truth[train]).float().mean())
    given = float((y[train] == truth[train]).float().mean())
    print(f"test accuracy {accuracy:.1%}; suggested labels right {found:.1%}, given labels {given:.1%}")
    return accuracy, found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
