"""The port through which an engine evaluates what is decided. Results go to spools, from where they are published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lockstep.engine.runtime.output.publisher import merge_counts
from lockstep.engine.runtime.output.spool import Spool, SpoolFill, WorkerProgress
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.errors import IllegalState

STATE_FILE = "state.lmdb"
"""In the checkpoint folder of a shard: what batches in this process keep."""


@dataclass(slots=True)
class BatchFigures:
    """Micro-batches so far: how many, and how long the parts of the last ones took, in milliseconds."""

    batches: int = 0
    last_ms: dict[str, int] = field(default_factory=dict)
    total_ms: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0
    first_ms: dict[str, int] = field(default_factory=dict)
    """The parts of the first one, in which code is loaded."""


class Compute(ABC):
    """Evaluates the sequence log in micro-batches, each shard on its own, and keeps the state of windows.

    Output is a pure function of the log, so it does not matter how batches are cut, or that one runs twice.
    """

    def __init__(self, setup: EngineSetup, project: str, divided: frozenset[str]) -> None:
        self.setup, self.project, self.divided = setup, project, divided
        """`divided`: the windows of the model in force whose rows are divided over shards."""
        self.spools = self._new_spools()
        self.started_s: dict[str, float] = {}
        """Seconds that parts of the start took, by name."""

    @abstractmethod
    def open(self, inherit: Sequence[int]) -> None:
        """Start what evaluates; before there are threads. `inherit` are descriptors that it holds while it lives."""

    @abstractmethod
    def start(self) -> None:
        """Begin to evaluate."""

    @abstractmethod
    def works_here(self) -> bool:
        """Whether all workers are on this machine, so that it learns of their files at once."""

    @abstractmethod
    def check(self) -> None:
        """Raise what stopped it, if anything did."""

    @abstractmethod
    def figures(self) -> Mapping[str, BatchFigures]:
        """Figures of the micro-batches of each shard."""

    @abstractmethod
    def batches_done(self) -> int:
        """Micro-batches that every shard has finished since the start."""

    @abstractmethod
    def stop_queries(self) -> None:
        """Begin no new batches, let those that run come to their end, and stop."""

    @abstractmethod
    def stop(self) -> None:
        """Stop, and let go of everything."""

    def restart(self, incarnation: str) -> None:
        """Throw hot state away and evaluate again from the last snapshot, into new spools."""
        self.stop_queries()
        self.setup = replace(self.setup, incarnation=incarnation)
        self.spools = self._new_spools()
        self.start()

    def computed(self) -> WorkerProgress | None:
        """How far all shards are; None before each of them has said so."""
        found = [spool.progress() for spool in self.spools]
        if not all(progress.fingerprint for progress in found):
            return None
        slowest = min(found, key=lambda progress: progress.number)
        counts = merge_counts([progress.counts for progress in found], self.divided)
        return replace(slowest, counts={path: one.dump() for path, one in counts.items()})

    def buffer(self) -> SpoolFill:
        """What waits to be published, over all shards."""
        fills = [spool.fill() for spool in self.spools]
        used = [fill for fill in fills if fill.files]
        first, last = min((fill.first for fill in used), default=0), max((fill.last for fill in used), default=0)
        return SpoolFill(first, last, sum(fill.files for fill in used), sum(fill.size for fill in used))

    def _new_spools(self) -> list[Spool]:
        return [Spool(self.setup.spool(shard)) for shard in range(self.setup.shards)]


def check_runner(folder: Path, runner: str) -> None:
    """Raise IllegalState if an engine folder holds state that another kind of compute has written."""
    written = {"spark": "checkpoint/*/offsets", "local": f"checkpoint/*/{STATE_FILE}"}
    for other, pattern in written.items():
        if other != runner and any(folder.glob(pattern)):
            reason = f"it holds the state of an engine that ran with --runner {other}; name another --state folder"
            raise IllegalState(what=f"The folder {folder}", action="be used", reason=reason)


ComputeFactory = Callable[[EngineSetup, str, frozenset[str]], Compute]
"""Makes the compute of an engine: from its setup, the name of its project, and the windows that are divided."""
