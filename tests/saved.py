"""What a run left in its folder, for tests that compare runs."""

import json

import torch


def checkpoint(folder, name="last"):
    """A checkpoint of a run, read as a stranger would: with torch alone."""
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)


def same(one, two):
    """Whether nested dicts and lists hold equal values, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and torch.equal(one, two)
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


def finite(state):
    """Whether all weights of a checkpoint are numbers."""
    return all(torch.isfinite(value).all() for network in state["networks"] for value in network.values())


def metrics(folder):
    """The lines of metrics.jsonl without the time they took."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def files(folder):
    """Every file under a folder, by its path from there, but for the lock that a run holds while it trains."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".labeltrace.lock"
    }
