"""One pass over the training set: losses, clean posteriors, predictions, relation drift. Nothing else walks the data.

The pass is fed in any order whose neighbours are mixed (the engine uses a fixed random permutation). Drift is computed
in groups of `score_batch` samples, whatever the batch of the forward is; the last group is filled up with samples of
the first one, whose second scores are dropped, because rows of a smaller group are not comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from labeltrace.scoring.checks import check_classes, work
from labeltrace.scoring.posterior import loss_posterior
from labeltrace.scoring.relations import grouped_drift, pool, structure_confidence
from labeltrace.scoring.settings import StructureSettings


@dataclass(frozen=True)
class Scores:
    """What one pass says of N samples under M networks.

    Args:
        loss: [M, N] cross-entropy with the observed label.
        posterior: [M, N] clean posterior of each network's losses.
        drift: [M, N] relation drift, or None where the networks return no stage features.
        stability: [M, N] structure confidence of each network, or None.
        suggested: [N] class of the pseudo target.
        confidence: [N] max_c of the pseudo target.
        agree: [N] whether the first two networks name the same class; None for one network.
        probabilities: [M, N, C] predictions, or None where the pass does not keep them.
        embedding: [M, N, D] pooled features of the last stage, or None where the pass does not keep them.
    """

    loss: Tensor
    posterior: Tensor
    drift: Tensor | None
    stability: Tensor | None
    suggested: Tensor
    confidence: Tensor
    agree: Tensor | None
    probabilities: Tensor | None = None
    embedding: Tensor | None = None

    @property
    def clean(self) -> Tensor:
        """[N] clean posterior, averaged over the networks."""
        return self.posterior.mean(0)

    @property
    def structure(self) -> Tensor | None:
        """[N] structure confidence c̄^str, averaged over the networks."""
        return None if self.stability is None else self.stability.mean(0)

    def spread(self, index: Tensor, count: int) -> Scores:
        """Return scores of `count` samples of which these are the ones at `index`; NaN, class 0 and False elsewhere."""

        def wide(values: Tensor | None, axis: int) -> Tensor | None:
            if values is None:
                return None
            shape = [*values.shape[:axis], count, *values.shape[axis + 1 :]]
            empty = values.new_full(shape, math.nan if values.is_floating_point() else 0)
            return empty.index_copy(axis, index, values)

        flat = {"suggested", "confidence", "agree"}  # [N]; all others begin with a network each
        named = {f.name: wide(getattr(self, f.name), 0 if f.name in flat else 1) for f in fields(self)}
        return Scores(**named)  # type: ignore[arg-type]


def mean_prediction(probabilities: Tensor) -> Tensor:
    """Return the mean over networks, [M, B, C] → [B, C]: the pseudo target of a pass unless a learner has its own."""
    return probabilities.mean(0)


class ScorePass:
    """Collects a pass batch by batch and turns it into `Scores`; it holds a few numbers per sample.

    Args:
        settings: how drift becomes confidence.
        seed: of the mixture fit and of the fillers of the last group.
        pseudo: [M, B, C] probabilities → [B, C] pseudo target.
        keeps: which rows of every sample to keep besides its numbers, "probabilities" or "embedding".
        drift: `grouped_drift`, or the same compiled.
    """

    def __init__(
        self,
        settings: StructureSettings | None = None,
        *,
        seed: int = 0,
        pseudo: Callable[[Tensor], Tensor] = mean_prediction,
        keeps: Sequence[str] = (),
        drift: Callable[..., Tensor] = grouped_drift,
    ) -> None:
        self.settings = settings or StructureSettings()
        self.seed = seed
        self.pseudo, self.drift = pseudo, drift
        self._kept: dict[str, list[Tensor]] = {name: [] for name in keeps}
        self._index: list[Tensor] = []
        self._columns: dict[str, list[Tensor]] = {"loss": [], "suggested": [], "confidence": [], "agree": []}
        self._drift: list[Tensor] = []
        self._waiting: list[list[Tensor]] = []  # per network, per stage: features not yet in a full group
        self._first: list[list[Tensor]] = []  # the first group's features: they fill the last one

    @torch.no_grad()
    def add(self, index: Tensor, labels: Tensor, outputs: Sequence[tuple[Tensor, Sequence[Tensor]]]) -> None:
        """Add a batch: sample numbers [B], observed labels [B], and (logits, stage features) of each network."""
        logits = torch.stack([work(output[0]) for output in outputs])
        members, rows, classes = logits.shape
        for name, values in (("labels", labels), ("index", index)):
            if values.shape != (rows,):
                raise ValueError(f"{name}: shape {tuple(values.shape)}, expected [{rows}], one number per sample")
        check_classes("labels", labels, classes)
        loss = F.cross_entropy(logits.reshape(-1, classes), labels.repeat(members), reduction="none")
        probabilities = logits.softmax(2)
        pseudo = self.pseudo(probabilities)
        self._index.append(index)
        self._columns["loss"].append(loss.reshape(members, rows))
        self._columns["suggested"].append(pseudo.argmax(1)[None])
        self._columns["confidence"].append(pseudo.amax(1)[None])
        if members > 1:
            votes = probabilities.argmax(2)
            self._columns["agree"].append((votes[0] == votes[1])[None])
        if "probabilities" in self._kept:
            self._kept["probabilities"].append(probabilities)
        if "embedding" in self._kept:  # a network without stages is known by its logits
            last = [output[1][-1] if len(output[1]) else output[0] for output in outputs]
            self._kept["embedding"].append(torch.stack([pool(work(f), "gap") for f in last]))
        stages = [len(output[1]) for output in outputs]
        if 1 in stages:
            raise ValueError(
                f"outputs[{stages.index(1)}]: features of 1 stage, expected 2 or more (drift is a change), "
                "or none to be scored without structure"
            )
        if all(stages):
            self._group([[pool(work(f), self.settings.pooling) for f in output[1]] for output in outputs])

    @torch.no_grad()
    def fill(self, outputs: Sequence[tuple[Tensor, Sequence[Tensor]]]) -> None:
        """Take the first group's outputs, where this is a later part of a pass: they fill the last group."""
        self._first = [[pool(work(f), self.settings.pooling) for f in output[1]] for output in outputs]

    @torch.no_grad()
    def finish(
        self,
        posterior: Callable[..., Tensor] = loss_posterior,
        gather: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
    ) -> Scores:
        """Return the scores in sample order.

        Args:
            posterior: losses [N] → clean posteriors [N].
            gather: joins the parts of a pass that was shared out: each tensor [A, n, …] along its axis 1.
        """
        column = self._collected()
        if gather is not None:
            column = gather(column)
        index = column.pop("index")[0]
        self._check_complete(index)
        inverse = torch.empty_like(index).scatter_(0, index, torch.arange(len(index), device=index.device))
        column = {name: column.pop(name)[:, inverse] for name in list(column)}
        drift, stability = column.get("drift"), None
        if drift is not None:
            settings = self.settings
            stability = torch.stack([structure_confidence(d, settings.gamma, settings.drift_norm) for d in drift])
        return Scores(
            loss=column["loss"],
            posterior=torch.stack([posterior(loss, seed=self.seed) for loss in column["loss"]]),
            drift=drift,
            stability=stability,
            suggested=column["suggested"][0],
            confidence=column["confidence"][0],
            agree=column["agree"][0] if "agree" in column else None,
            **{name: column[name] for name in self._kept},
        )

    def _collected(self) -> dict[str, Tensor]:
        """Everything seen so far, in the order it was seen: tensors [A, n, …]; nothing where nothing was."""
        if not self._index:
            return {}
        index = torch.cat(self._index)
        column = {name: torch.cat(parts, 1) for name, parts in (self._columns | self._kept).items() if parts}
        if self._waiting:
            column["drift"] = self._all_drift(len(index))
        return {"index": index[None], **column}

    def _group(self, features: list[list[Tensor]]) -> None:
        """Cut the features seen so far into full groups, take their drift, keep the rest waiting."""
        if self._waiting:
            features = [
                [torch.cat(pair) for pair in zip(old, new, strict=True)]
                for old, new in zip(self._waiting, features, strict=True)
            ]
        size = self.settings.score_batch
        full = len(features[0][0]) // size * size
        if full:
            self._drift.append(self._drift_of([[stage[:full] for stage in stages] for stages in features], size))
            if not self._first:
                self._first = [[stage[:size].clone() for stage in stages] for stages in features]
        self._waiting = [[stage[full:] for stage in stages] for stages in features]

    def _all_drift(self, count: int) -> Tensor:
        rest = len(self._waiting[0][0])
        if rest and not self._first:  # fewer samples than one group: the set itself is the group
            self._drift.append(self._drift_of(self._waiting, rest))
        elif rest:
            size = self.settings.score_batch
            fillers = torch.from_numpy(np.random.default_rng(self.seed).permutation(size)[: size - rest])
            filled = [
                [torch.cat([stage, extra[fillers.to(extra.device)]]) for stage, extra in zip(*pair, strict=True)]
                for pair in zip(self._waiting, self._first, strict=True)
            ]
            self._drift.append(self._drift_of(filled, size))
        return torch.cat(self._drift, 1)[:, :count]

    def _drift_of(self, features: list[list[Tensor]], size: int) -> Tensor:
        """Per network, per stage [G·size, D] → [M, G·size]."""
        settings = self.settings
        return torch.stack(
            [
                self.drift([s.unflatten(0, (-1, size)) for s in stages], settings.k, settings.transitions).flatten()
                for stages in features
            ]
        )

    def _check_complete(self, index: Tensor) -> None:
        """Every sample once; looked at on the CPU, where it costs no synchronisation."""
        if index.device.type != "cpu":
            return
        counts = torch.bincount(index, minlength=len(index))
        wrong = (counts != 1).nonzero()
        if len(wrong):
            sample = int(wrong[0, 0])
            raise ValueError(
                f"loader: sample {sample} came {int(counts[sample])} times in a pass of {len(index)}; "
                "a pass gives every sample 0 … N−1 once (no drop_last, no sampler with replacement)"
            )


def score(
    networks: nn.Module | Sequence[nn.Module],
    loader: Iterable[Sequence[Tensor]],
    settings: StructureSettings | None = None,
    *,
    seed: int = 0,
) -> Scores:
    """Score the whole training set once: loss, clean posterior, relation drift. For people with their own loop.

    Networks run in eval mode without gradient and get their mode back; a batch is moved to the networks' device.

    Args:
        networks: one or more modules that return (logits, stage features), such as `labeltrace.models.Staged`; a
            feature is [B, D], or a map [B, D, …] that is pooled. A module that returns logits alone is scored without
            structure.
        loader: batches (inputs, labels) in dataset order, or (inputs, labels, index) in any order. Classes must be
            mixed within 64 consecutive samples: a class-sorted set needs a shuffled loader that yields the index.
        settings: of structure confidence; a `TraceConfig` is one.
        seed: of the mixture fit.

    Raises:
        ValueError: an empty loader, one that need not go in order without index, a sample missing or twice, a
            class-sorted order, a label that is no class.

    >>> from labeltrace.models import build_model
    >>> network = build_model("mlp", num_classes=2, input_shape=(4,))
    >>> batch = torch.randn(8, 4), torch.tensor([0, 1] * 4)
    >>> score(network, [batch]).clean.shape
    torch.Size([8])
    """
    members = [networks] if isinstance(networks, nn.Module) else list(networks)
    if not members:
        raise ValueError("networks: none given, expected at least one")
    in_order = _in_order(loader)
    known = next(members[0].parameters(), None)
    device = torch.device("cpu") if known is None else known.device
    modes = [(module, module.training) for network in members for module in network.modules()]
    exact = torch.autocast(device.type, enabled=False)  # a caller's autocast is for the networks alone
    scoring, labels_seen, seen = ScorePass(settings, seed=seed), [], 0
    try:
        for network in members:
            network.eval()
        for batch in loader:
            if not isinstance(batch, (list, tuple)):
                raise ValueError(f"loader: it yields a {type(batch).__name__}, expected (inputs, labels[, index])")
            if len(batch) < 2:
                raise ValueError("loader: it yields one tensor a batch, expected (inputs, labels[, index])")
            if not in_order and len(batch) < 3:
                raise ValueError(
                    "loader: it shuffles, or has a sampler of its own, but yields (inputs, labels) only, so scores "
                    "cannot be put back in order; yield (inputs, labels, index) or pass shuffle=False"
                )
            inputs, labels = batch[0].to(device, non_blocking=True), batch[1].to(device, non_blocking=True).long()
            index = batch[2] if len(batch) > 2 else torch.arange(seen, seen + len(labels))
            with torch.no_grad():
                outputs = [_parts(network(inputs)) for network in members]
            with exact:
                scoring.add(index.to(device).long(), labels, outputs)
            labels_seen.append(labels)
            seen += len(labels)
    finally:
        for module, mode in modes:
            module.training = mode
    if not seen:
        raise ValueError("loader: it yields nothing")
    _check_mixed(torch.cat(labels_seen).cpu(), scoring.settings.score_batch)
    with exact:
        return scoring.finish()


def _in_order(loader: object) -> bool:
    """Whether a loader is known to yield its samples in the order of its dataset; others than torch's are believed."""
    if not isinstance(loader, DataLoader):
        return True
    if isinstance(loader.dataset, IterableDataset):
        return loader.num_workers < 2  # several take turns, or each yields everything
    batches = loader.batch_sampler
    usual = batches is None or type(batches) is BatchSampler
    return usual and isinstance(getattr(batches, "sampler", loader.sampler), SequentialSampler)


def _parts(output: object) -> tuple[Tensor, Sequence[Tensor]]:
    """Logits and stage features of whatever a network returns."""
    if isinstance(output, Tensor):
        return output, ()
    if isinstance(output, tuple) and len(output) == 2:
        return output[0], output[1]
    raise ValueError(f"networks: one returned {type(output).__name__}, expected logits or (logits, stage features)")


def _check_mixed(labels: Tensor, size: int) -> None:
    """Raise where the order, not the set, is why scoring groups hold a single class."""

    def single_class(order: Tensor) -> float:
        groups = order[: len(order) // size * size].reshape(-1, size)
        return float((groups == groups[:, :1]).all(1).float().mean()) if len(groups) else 0.0

    shuffled = labels[torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))]
    if single_class(labels) > 0.01 >= single_class(shuffled):
        raise ValueError(
            f"loader: {single_class(labels):.0%} of its groups of {size} samples hold a single class, so relations "
            "inside them say nothing; shuffle it (fixed seed) and yield (inputs, labels, index)"
        )
