"""CT, Confidence Tracking (Pan, Wei, Zhu, Deng, AAAI 2025; arXiv 2504.17474): a rival plug-in for
labels that are right and hard to learn.

Once an epoch each sample's gaps p_label − p_c to every other class c are noted. Where the label's probability rises
against ALL of them (the weakest of the trends is significant, Mann–Kendall, one-sided), the label is held clean
whatever its loss says. Nothing is ever removed: what the learner held clean stays so. It has no loss of its own.

How it enters a learner, as the official code (Aliinton/ConfidenceTracking) has it:
  - DivideMix, f-DivideMix: the scoring pass is tracked, one tracker for each network; the clean posterior of a tracked
    sample becomes 1 after the mixture is fitted. RoLR is ours, in the same way: its posterior is used likewise;
  - CORES: the training forward is tracked; the sieve also keeps what was certain when the epoch began;
  - DISC: each view of the training forward has a tracker; a label certain in either view is clean, so not only hard.
Tracking begins with the first epoch, the choice counts once the learner's warm-up is over.
What we chose: a sample that an epoch leaves out has one observation less (the code notes a zero); the gaps are kept in
half precision unless asked otherwise, since they are most of what a run remembers: trackers × epochs × classes numbers
of each sample. A sample that stands twice in an epoch (several passes, a batch filled up) is noted the first time.
It leaves the pseudo target alone. With TRACE after it (ours, in neither paper) the raised score is TRACE's c^loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from labeltrace.learners import DISC, Cores, DivideMix, FDivideMix, Learner, Loop, RoLR
from labeltrace.learners.base import Batch
from labeltrace.learners.pair import Pair
from labeltrace.learners.settings import LearnerSettings, setting
from labeltrace.plugins.base import Plugin, PluginSettings, plugins
from labeltrace.plugins.trend import change_of_s, gaps, least, z_score
from labeltrace.scoring import Field, SampleMemory, Scores

CODE = "official code (Aliinton/ConfidenceTracking)"
PRECISIONS = {"half": torch.float16, "single": torch.float32}
ROWS = 1024  # samples whose series are compared at a time, where all are


@dataclass(frozen=True)
class CTSettings(PluginSettings):
    """Settings of Confidence Tracking."""

    alpha: float = setting(0.01, CODE + ": CIFAR (0.1 on WebVision and Food-101N, up to 0.5 with instance noise)")
    precision: str = setting("half", "ours: of the gaps; the code keeps them in single, its AUM variant in half")

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha: {self.alpha!r}, expected 0 < alpha < 1")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision: {self.precision!r}, expected one of {', '.join(PRECISIONS)}")


class Tracker:
    """The series of all samples, in the sample memory.

    Args:
        memory: that has the fields of `Tracker.fields`.
        settings: of Confidence Tracking.
    """

    def __init__(self, memory: SampleMemory, settings: CTSettings) -> None:
        self.memory, self.least = memory, least(settings.alpha)

    @staticmethod
    def fields(trackers: int, epochs: int, num_classes: int, settings: CTSettings) -> dict[str, Field]:
        """Gaps and S of each tracker, observations, the epoch of the last one, and what is certain."""
        return {
            "ct_gaps": Field((trackers, epochs, num_classes), PRECISIONS[settings.precision]),
            "ct_s": Field((trackers, num_classes), torch.int32),
            "ct_count": Field((trackers,), torch.int32),
            "ct_epoch": Field((trackers,), torch.int32, fill=-1),
            "ct_certain": Field((trackers,), torch.bool),
        }

    @torch.no_grad()
    def observe(self, tracker: int, index: Tensor, probabilities: Tensor, labels: Tensor, epoch: int) -> None:
        """Note the predictions [B, C] of samples `index` [B] with observed classes [B]; an epoch is noted once."""
        series, s, count, last = (self.memory[f"ct_{name}"] for name in ("gaps", "s", "count", "epoch"))
        now = gaps(probabilities.float(), labels).to(series.dtype)
        had, past = count[index, tracker], series[index, tracker]
        new = last[index, tracker] != epoch
        slot = had.clamp(max=series.shape[2] - 1).long()
        s[index, tracker] += torch.where(new[:, None], change_of_s(now, past, had), 0)
        before = past.gather(1, slot[:, None, None].expand(-1, 1, past.shape[2]))[:, 0]
        series[index, tracker, slot] = torch.where(new[:, None], now, before)
        count[index, tracker] = had + new
        last[index, tracker] = torch.full_like(had, epoch)  # that epoch already, where it is not new

    def observe_all(self, tracker: int, index: Tensor, probabilities: Tensor, labels: Tensor, epoch: int) -> None:
        """The same for many samples, some at a time: `probabilities` [N, C] and `labels` [N] are of all of them."""
        for part in index.split(ROWS):
            self.observe(tracker, part, probabilities[part], labels[part], epoch)

    @torch.no_grad()
    def decide(self, labels: Tensor) -> None:
        """Find the certain samples: those whose least S over the classes other than their label [N] is significant."""
        s = self.memory["ct_s"].clone()
        own = labels[:, None, None].expand(-1, s.shape[1], 1)
        lowest = s.scatter(2, own, torch.iinfo(s.dtype).max).amin(2)
        rival = s.shape[2] > 1  # a single class has no other
        self.memory["ct_certain"] = (z_score(lowest, self.memory["ct_count"]) > self.least) & rival

    @property
    def certain(self) -> Tensor:
        """[trackers, N] whether each tracker is certain of the label."""
        return self.memory["ct_certain"].T


class Tracked(Learner):
    """A learner with trackers; what goes before a learner's own class."""

    ct: ClassVar[CTSettings]
    trackers: ClassVar[int]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tracker = Tracker(self.memory, self.ct)

    @classmethod
    def fields(cls, settings: LearnerSettings, num_classes: int) -> dict[str, Field]:
        """The learner's, and those of its trackers."""
        tracked = Tracker.fields(cls.trackers, settings.epochs, num_classes, cls.ct)
        return super().fields(settings, num_classes) | tracked


class TrackedPair(Tracked, Pair):
    """RoLR, DivideMix, f-DivideMix: the clean posterior of a certain sample is 1."""

    trackers = 2

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Track the pass that looks back on the epoch before, then train."""
        if epoch:
            scores, chosen = loop.score(self.score_view), loop.chosen()
            assert scores.probabilities is not None
            for member, probabilities in enumerate(scores.probabilities):
                self.tracker.observe_all(member, chosen, probabilities, loop.labels, epoch)
            self.tracker.decide(loop.labels)
        super().epoch(loop, epoch)  # type: ignore[safe-super]  # the learner's own, which comes after this class

    def posterior(self, scores: Scores, chosen: Tensor) -> Tensor:
        """Return [2, n] how clean each network holds the labels, 1 where it is certain."""
        return torch.where(self.tracker.certain[:, chosen], 1.0, super().posterior(scores, chosen))

    def cleanliness(self, scores: Scores) -> Tensor:
        """Return [N] the mean of both."""
        return torch.where(self.tracker.certain, 1.0, self.posteriors(scores)).mean(0)


class TrackedCores(Tracked, Cores):
    """CORES: the sieve lets certain samples through."""

    trackers = 1
    _epoch = 0

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Decide on what the epochs before have shown, then train."""
        self.tracker.decide(loop.labels)
        self._epoch = epoch
        super().epoch(loop, epoch)

    def margin(self, logits: Tensor, batch: Batch) -> Tensor:
        """As CORES, and beyond every margin where the label is certain; the batch is tracked."""
        certain = self.tracker.certain[0, batch.index]
        self.tracker.observe(0, batch.index, logits.softmax(1), batch.observed, self._epoch)
        return torch.where(certain, torch.inf, super().margin(logits, batch))

    def cleanliness(self, scores: Scores) -> Tensor:
        """As CORES, and 1 where the label is certain."""
        return torch.where(self.tracker.certain[0], 1.0, super().cleanliness(scores))


class TrackedDISC(Tracked, DISC):
    """DISC: a label that is certain in either view is clean."""

    trackers = 2

    def epoch(self, loop: Loop, epoch: int) -> None:
        """Remember which samples this epoch is about."""
        self._now = epoch, loop.chosen()
        super().epoch(loop, epoch)

    @torch.no_grad()
    def choose(self, observed: Tensor) -> None:
        """Track both views, choose as DISC, and hold certain labels clean."""
        m, (epoch, chosen) = self.memory, self._now
        for view, name in enumerate(("weak", "strong")):
            self.tracker.observe_all(view, chosen, m[name], observed, epoch)
        super().choose(observed)
        self.tracker.decide(observed)
        certain = self.tracker.certain.any(0)
        m["selecting"] = torch.where(certain, 2, m["selecting"])
        m["purified"] = m["purified"] & ~certain
        m["label"] = torch.where(certain, observed, m["label"])
        m["clean"] = torch.where(certain, 1.0, m["clean"])


@plugins.register("ct", "Confidence Tracking: a label whose probability rises against every other class is held clean")
class ConfidenceTracking(Plugin):
    """Attach trackers to a learner."""

    name = "ct"
    settings_type = CTSettings
    attached: ClassVar[Mapping[str, type]] = {
        RoLR.name: TrackedPair,
        DivideMix.name: TrackedPair,
        FDivideMix.name: TrackedPair,
        Cores.name: TrackedCores,
        DISC.name: TrackedDISC,
    }

    def extras(self, learner: type[Learner]) -> dict[str, Any]:
        """The settings, and what a tracked scoring pass must keep."""
        keeps = dict.fromkeys((*learner.keeps, *(("probabilities",) if issubclass(learner, Pair) else ())))
        return {"ct": self.settings, "keeps": tuple(keeps)}
