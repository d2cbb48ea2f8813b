"""Several ranks of a run on one machine, as torchrun would start them, and what their processes do in tests."""

import atexit
import contextlib
import hashlib
import importlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import toy
from labeltrace.engine import Diverged, Interrupted, Reporter, train
from labeltrace.engine.update import present
from labeltrace.learners import Outcome, learners
from labeltrace.models import Output
from labeltrace.runs import run
from labeltrace.scoring import Field, SampleMemory

TRACE = {"start": 0, "ramp": 1, "k": 5, "score_batch": 20}
EPOCHS, STOP, LONG = 4, 2, 8  # epochs of a run, after which of them some are stopped, and of one that learns
COUNT = 90  # samples: batches of 16 and groups of 20 are both filled up
ROWS = [[0, 1, 2, 3], [4, 5, 0, 6], [3, 1, 6, 2]]  # of eight samples; two columns a rank


def start(words, size=2):
    """Start the ranks of `python WORDS`; return their processes."""
    port = unused_port()
    together = {
        "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "tests", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return [
        subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **together, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(size)
    ]


def unused_port():
    """A port that is free and stays so: below those that the system hands out by itself, as other tests ask it to."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


#: every learner, and a plug-in where its trackers are fed by passes, by steps, and by both views of them
METHODS = [*learners, "rolr+ct", "dividemix+ct", "cores+ct", "disc+ct"]


class Plain(nn.Module):
    """A network without batch statistics: its output for a sample depends on no other sample."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x):
        """Return logits and two stages."""
        first = torch.tanh(self.one(x))
        second = torch.tanh(self.two(first))
        return Output(self.head(second), (x, first, second))


def plain(folder, **options):
    """A run of cross-entropy with that network."""
    config = toy.config("cross_entropy", epochs=EPOCHS, trace={})
    return run(config, folder, dataset=toy.blobs(count=COUNT), make_network=Plain, **options)


def learner(name, folder, network=None, epochs=2):
    """A run of a learner, with its plug-in, or TRACE where it takes it; the default network has batch statistics."""
    name, _, plugin = name.partition("+")
    trace = TRACE if learners[name].refurbishes and not plugin else {}
    config = toy.config(
        name, epochs=epochs, trace=trace, controller="coupled" if plugin else None, plugin=plugin or None
    )
    return run(config, folder, dataset=toy.blobs(count=COUNT, seed=7), make_network=network)


def resume(folder):
    """Go on with a run of `plain`."""
    config = toy.config("cross_entropy")
    return run(config, folder, dataset=toy.blobs(count=COUNT), make_network=Plain, resume=True)


class Stops(Reporter):
    """Asks its own process to stop after some epochs, as a scheduler does; without ranks, as Ctrl-C does."""

    def __init__(self, alone=False):
        self.alone = alone

    def epoch(self, record):
        """Hear of an epoch's end."""
        if record["epoch"] + 1 == STOP:
            if self.alone:
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGTERM)


def stopped(folder, alone=False):
    """The first epochs of a run; return whether it was stopped and how many epochs it says are saved."""
    try:
        plain(folder, reporter=Stops(alone))
    except Interrupted as error:
        return error.epoch
    return None


def digests(training, trained):
    """A hash of each thing that must be the same on all ranks."""
    parts = {
        "networks": [network.state_dict() for network in training.networks],
        "optimizers": [one.state_dict()["state"] for one in present(training.optimizers, training.sides)],
        "memory": training.memory.state_dict(),
        "companions": {name: module.state_dict() for name, module in training.learner.companions().items()},
        "posterior": trained.judgement.scores.posterior,
        "stability": trained.judgement.scores.stability,
        "verdict": [trained.judgement.clean, trained.judgement.suggested, trained.judgement.weight],
        "metrics": [{k: v for k, v in record.items() if k not in ("seconds", "notes")} for record in trained.metrics],
    }
    return {name: hashlib.sha256(repr(list(_flat(part))).encode()).hexdigest() for name, part in parts.items()}


def _flat(value):
    if isinstance(value, torch.Tensor):
        yield value.shape
        yield value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, dict):
        for key in value:
            yield key
            yield from _flat(value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def main(out):
    """What each rank of the tests' session does; it leaves rankR.pt with what it came to."""
    seen, module = [], importlib.import_module("labeltrace.engine.train")
    atexit.register(lambda: (out / f"left{os.environ['RANK']}").write_text(str(not dist.is_initialized())))

    class Kept(module.Training):
        def __init__(self, *args):
            super().__init__(*args)
            seen.append(self)

    module.Training = Kept
    found = {"equal": {}}
    plain(out / "plain")
    found["stopped"] = stopped(out / "two then two"), stopped(out / "two then one")
    for folder in ("two then two", "one then two"):
        resume(out / folder)
    for name in METHODS:
        trained, _ = learner(name, out / f"{name} state")
        found["equal"][name] = digests(seen[-1], trained)
        learner(name, out / name, Plain, LONG)
    found["refused"], found["diverged"] = refusal(out), divergence(out)
    found["exchange"] = exchanged(seen[0].ranks)
    torch.save(found, out / f"rank{os.environ['RANK']}.pt")


def dies_and_lingers(out):
    """Rank 1 dies, but a child of it keeps its connections open, so that no collective of rank 0 ever fails."""
    module = importlib.import_module("labeltrace.engine.train")
    epoch = module.Training.epoch

    def dying(self, number):
        if number == STOP and not self.ranks.first:
            if os.fork() == 0:
                os.closerange(0, 3)  # who reads what this rank says need not wait
                time.sleep(60)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        return epoch(self, number)

    module.Training.epoch = dying
    plain(out / "run")


def exchanged(mine):
    """The numbers of the ranks that wrote samples, after an exchange."""
    memory = SampleMemory(8, {"writer": Field(dtype=torch.int16, fill=-1)})
    rows = torch.tensor(ROWS)
    memory["writer"][rows[:, 2 * mine.rank : 2 * mine.rank + 2].flatten()] = mine.rank
    mine.exchange(memory, rows, torch.arange(4) // 2)
    return memory["writer"]


def refusal(out):
    """What every rank is told about a batch that does not divide."""
    try:
        train(toy.config("rolr", settings={"batch_size": 15}), out / "refused", dataset=toy.blobs())
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return None


def divergence(out):
    """What every rank is told when the loss of rank 1 alone turns NaN."""
    kind, rank = learners["cross_entropy"], int(os.environ["RANK"])
    step = kind.step

    def spoilt(self, batch):
        outcome = step(self, batch)
        return Outcome(outcome.loss * float("nan")) if rank and batch.progress > 0.5 else outcome

    kind.step = spoilt
    try:
        plain(out / "diverged")
    except Diverged as error:
        return str(error)
    finally:
        kind.step = step
    return None


if __name__ == "__main__":
    torch.set_num_threads(1)
    (dies_and_lingers if sys.argv[2:] else main)(Path(sys.argv[1]))
