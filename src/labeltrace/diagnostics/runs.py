"""The measurements on run folders: networks from checkpoints, data from the run's config, verdicts from its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from labeltrace.audit import class_names, read_samples
from labeltrace.data import Dataset, Split
from labeltrace.data.feed import Feed
from labeltrace.data.load import follow, moved
from labeltrace.diagnostics.cka import linear_cka
from labeltrace.diagnostics.gradients import BATCH, BATCHES, gradient_figures
from labeltrace.diagnostics.probe import linear_probe
from labeltrace.diagnostics.prototypes import prototype_attraction
from labeltrace.diagnostics.reliability import Row, Verdicts, verdicts
from labeltrace.diagnostics.separation import fisher_ratio
from labeltrace.diagnostics.stages import accuracy, pooled, stage_features, stage_names
from labeltrace.diagnostics.strata import drift_strata
from labeltrace.diagnostics.surgery import Surgery, surgery
from labeltrace.diagnostics.values import mean
from labeltrace.engine import Plan, Reporter, RunConfig, RunFolder, load_config, plan
from labeltrace.engine.checkpoint import read_checkpoint
from labeltrace.engine.device import make_fabric
from labeltrace.engine.start import check_data
from labeltrace.errors import InputError, nearest
from labeltrace.files import exists, is_file
from labeltrace.models import check_pooling
from labeltrace.scoring import score

FORWARD = 256  # samples of a forward
SCORES = ("observed_reliability", "clean")
NO_TRUTH = (
    "no true labels are known, which this needs: train with --truth-column NAME, or compare with labels of your own "
    "by --figure surrogate --labels truth.csv"
)

Progress = Callable[[str, int, int], None]  # what is measured, steps done, steps in all


class Run:
    """A finished run; data and networks are loaded when they are asked for.

    Args:
        path: its folder.
        dataset: for a run on data in memory.
        make_network: for a run with a network of its own.
        checkpoint: whose weights, "last", "best" or a checkpoint file of this run.
        device: where networks run: auto, cpu, cuda or cuda:N.
        root: folder that holds the dataset now, where it has moved; or own data itself, in its new place.
        reporter: hears of image files being read.

    Raises:
        InputError: no run there; data or a network that only Python can hand over.
    """

    def __init__(
        self,
        path: Path,
        *,
        dataset: Dataset | None = None,
        make_network: Callable[[], nn.Module] | None = None,
        checkpoint: str = "last",
        device: str = "auto",
        root: Path | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.folder = RunFolder.open(path)
        known = {"last": self.folder.last, "best": self.folder.best}
        self.checkpoint = known.get(checkpoint, Path(checkpoint))
        if checkpoint not in known and not is_file(self.checkpoint):
            raise InputError(f"unknown checkpoint {checkpoint!r}: {nearest(checkpoint, known)}, or the name of a file")
        config = load_config(self.folder.config, {"device": device})
        self.config = config if root is None else _moved(config, root)
        self._given = dataset, make_network, reporter

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.path.resolve().name

    @property
    def method(self) -> str:
        """Learner, controller and plug-in, e.g. "rolr+trace"; the base method stands alone."""
        return self.config.method

    @cached_property
    def plan(self) -> Plan:
        """The run resolved, with its dataset."""
        dataset, make_network, reporter = self._given
        own = self.config.own_files if dataset is None else None
        if own is not None and not exists(own):
            raise InputError(f"{own}: no such file or folder; --root says where the run's data is now")
        planned = plan(self.config, dataset, make_network, reporter)
        check_data(self.folder, planned)
        return planned

    @cached_property
    def device(self) -> torch.device:
        """Where its networks run."""
        return make_fabric(self.config).device

    @cached_property
    def samples(self) -> pa.Table:
        """The samples table."""
        return read_samples(self.folder.path)

    @property
    def classes(self) -> list[str]:
        """Names of the classes, from the table."""
        return class_names(self.samples)

    def column(self, name: str) -> Tensor:
        """Return a column of numbers of the samples table [N]; NaN where a value is missing."""
        if name not in self.samples.column_names:
            raise InputError(f"{self.folder.samples}: no column {name!r}")
        return torch.from_numpy(np.array(self.samples[name].to_numpy()))

    @cached_property
    def truth(self) -> Tensor:
        """True classes [N], −1 where unknown.

        Raises:
            InputError: none is known.
        """
        if "truth" not in self.samples.column_names or not bool((self.column("truth") >= 0).any()):
            raise InputError(f"{self.folder.path}: {NO_TRUTH}")
        return self.column("truth")

    def verdicts(self, score: str = "observed_reliability", truth: Tensor | None = None) -> Verdicts:
        """Return what its table says of the samples of known truth; `truth` [N] takes the place of the table's own."""
        if score not in SCORES:
            raise InputError(f"unknown score {score!r}: {nearest(score, SCORES)}")
        score_, confidence, suggested, observed = map(self.column, (score, "confidence", "suggested", "observed"))
        return verdicts(score_, confidence, suggested, observed, self.truth if truth is None else truth)

    def network(self, member: int = 0) -> nn.Module:
        """Return a network of the checkpoint, on the device, in eval mode."""
        if not self.checkpoint.exists():
            raise InputError(f"{self.checkpoint}: no such checkpoint; the run has not come so far, or has no test set")
        planned, state = self.plan, read_checkpoint(self.checkpoint)
        with torch.random.fork_rng(devices=[]):
            network = planned.extended(planned.make_network())
        try:
            network.load_state_dict(state["networks"][member])
        except (RuntimeError, IndexError) as error:
            raise InputError(f"{self.checkpoint}: does not fit this run ({' '.join(str(error).split())})") from None
        return network.to(self.device).eval()

    @property
    def train(self) -> Split:
        """The training data, as the run had it."""
        return self.plan.dataset.train

    @property
    def test(self) -> Split:
        """The test data."""
        if self.plan.dataset.test is None:
            raise InputError(f"{self.folder.path}: the run has no test set, which this needs")
        return self.plan.dataset.test

    @property
    def test_labels(self) -> Tensor:
        """Labels of the test set, the true ones where they are known."""
        labels, truth = self.test.labels, self.test.truth
        return labels if truth is None else torch.where(truth >= 0, truth, labels)

    def batches(self, split: Split, rows: list[Tensor] | None = None) -> Iterator[Tensor]:
        """Yield inputs as a network takes them, without augmentation: in order, or those of each of `rows`."""
        feed = Feed(split.inputs, self.device, self.plan.read.processes)
        try:
            order = list(torch.arange(len(split)).split(FORWARD)) if rows is None else rows
            for batch in feed.batches([row.to(self.device) for row in order]):
                yield self.plan.dataset.views.plain(batch)
        finally:
            feed.close()


def gradient_batches(run: Run, count: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield random training batches (inputs, observed, truth), drawn by the run's seed."""
    split, truth = run.train, _train_truth(run)
    rng = np.random.default_rng(run.config.seed)
    size = min(BATCH, len(split))
    rows = [torch.from_numpy(np.sort(rng.choice(len(split), size, replace=False))) for _ in range(count)]
    for row, inputs in zip(rows, run.batches(split, rows), strict=True):
        yield inputs, split.labels[row].to(run.device), truth[row].to(run.device)


def depth_figures(
    run: Run, *, batches: int = BATCHES, probe_labels: str = "true", progress: Progress | None = None
) -> list[Row]:
    """Return a row per stage: gradient sensitivity, P9, flip rate, gap, probe accuracy, Fisher ratio.

    Prototypes are of the training set, the probe goes from there to the test set, the Fisher ratio is the test set's.

    Args:
        run: of known truth and with a test set.
        batches: random training batches that gradients are taken of.
        probe_labels: what the probe is fitted to, "true" or "observed" labels.
        progress: told after each step.
    """
    if probe_labels not in ("true", "observed"):
        raise InputError(f"unknown probe labels {probe_labels!r}: {nearest(probe_labels, ('true', 'observed'))}")
    network, truth, observed, tested = run.network(), _train_truth(run), run.train.labels, run.test_labels
    names, wrong = stage_names(network), mean((observed != truth)[truth >= 0])
    tell = _teller(run.name, 3 + len(names), progress)
    tell(0)
    gradients = gradient_figures(network, gradient_batches(run, batches))
    tell(1)
    train = stage_features(network, run.batches(run.train))
    tell(2)
    test = stage_features(network, run.batches(run.test))
    tell(3)
    rows: list[Row] = []
    labels = truth if probe_labels == "true" else observed
    for number, name in enumerate(names):
        attraction = prototype_attraction(train[number], observed, truth)
        seen, unseen = train[number].to(run.device), test[number].to(run.device)
        rows.append(
            {
                "model": str(run.config.model),
                "method": run.method,
                "wrong_labels": wrong,
                "stage": name,
                "gradient_sensitivity": gradients.sensitivity[name],
                "gradient_projection": gradients.projection[name],
                "gradient_orthogonal": gradients.orthogonal[name],
                "n_batches": gradients.batches - gradients.skipped,
                "flip_rate": attraction.flip,
                "prototype_gap": attraction.gap,
                "n_mislabelled": attraction.count,
                "probe_accuracy": linear_probe(seen, labels.to(run.device), unseen, tested.to(run.device)),
                "fisher_ratio": fisher_ratio(test[number], tested),
                "n_test": len(tested),
            }
        )
        tell(4 + number)
    return rows


def clean_figures(run: Run, clean: Run, progress: Progress | None = None) -> tuple[list[Row], Surgery]:
    """Return CKA of each stage with a network trained on clean labels, and what surgery with it recovers.

    Raises:
        InputError: the two runs have other test sets or networks.
    """
    if len(run.test) != len(clean.test) or not torch.equal(run.test_labels, clean.test_labels):
        raise InputError(f"{run.name} and {clean.name} were tested on different samples")
    noisy, reference, labels = run.network(), clean.network().to(run.device), run.test_labels
    tell = _teller(f"{run.name} beside {clean.name}", 2, progress)
    tell(0)
    pair = [
        [feature.to(run.device) for feature in stage_features(network, run.batches(run.test))]
        for network in (reference, noisy)
    ]
    tell(1)
    rows: list[Row] = [
        {"clean_run": clean.name, "stage": name, "cka": linear_cka(*stage), "n_test": len(labels)}
        for name, *stage in zip(stage_names(noisy), *pair, strict=True)
    ]
    operated = surgery(noisy, reference, lambda network: accuracy(network, run.batches(run.test), labels))
    tell(2)
    return rows, operated


def strata_figures(run: Run, pooling: str | None = None) -> list[Row]:
    """Return the drift strata of a run.

    Args:
        run: of known truth.
        pooling: None takes posterior and drift from the samples table, the posterior being the mean of the networks';
            "gap" or "flatten" scores the training set again with the first network alone, features pooled that way.
    """
    if pooling is None:
        clean, drift, observed, truth = run.column("clean"), run.column("drift"), run.column("observed"), run.truth
        if bool(drift.isnan().all()):
            raise InputError(f"{run.folder.samples}: no relation drift; its network returns no stage features")
    else:
        clean, drift = score_again(run, pooling)
        observed, truth = run.train.labels, _train_truth(run)
    known = truth >= 0
    return drift_strata(clean[known], drift[known], (observed == truth)[known])


def score_again(run: Run, pooling: str = "gap") -> tuple[Tensor, Tensor]:
    """Return loss posterior and relation drift [N] of the run's first network, from one pass in a random order."""
    split, network = run.train, run.network()
    settings = replace(run.plan.trace, pooling=check_pooling(pooling))
    order = torch.from_numpy(np.random.default_rng(run.config.seed).permutation(len(split)))
    rows = list(order.split(FORWARD))
    loader = ((inputs, split.labels[row], row) for row, inputs in zip(rows, run.batches(split, rows), strict=True))
    with pooled(network, pooling):
        scores = score(network, loader, settings, seed=run.config.seed)
    assert scores.drift is not None
    return scores.clean.cpu(), scores.drift[0].cpu()


def layer_mean(rows: list[Row], column: str) -> float:
    """Return the unweighted mean of a column over the stages, leaving out stages that have no value."""
    values = [float(row[column]) for row in rows if not math.isnan(float(row[column]))]
    return sum(values) / len(values) if values else math.nan


def _moved(config: RunConfig, root: Path) -> RunConfig:
    """Return a run with its data where it is now, and the files of labels and test samples that went with it."""
    old = config.own_files
    if old is None:
        return config.model_copy(update={"root": root})
    new = moved(old, root)
    files = {
        name: str(follow(Path(config.read[name]), old, new)) for name in ("labels", "test") if config.read.get(name)
    }
    noise = None if config.noise_file is None else follow(config.noise_file, old, new)
    return config.model_copy(update={"data": str(new), "read": {**config.read, **files}, "noise_file": noise})


def _train_truth(run: Run) -> Tensor:
    if run.train.truth is None or not bool((run.train.truth >= 0).any()):
        raise InputError(f"{run.folder.path}: {NO_TRUTH}")
    return run.train.truth


def _teller(what: str, steps: int, progress: Progress | None) -> Callable[[int], None]:
    return lambda done: None if progress is None else progress(what, done, steps)
