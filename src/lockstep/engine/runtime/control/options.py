"""How an engine runs, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.engine.compute.port import BatchFigures
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.control.leadership import STANDBY
from lockstep.engine.runtime.output.spool import SpoolFill, WorkerProgress
from lockstep.engine.runtime.sequence.entries import SequencePosition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """How an engine runs; what it answers does not depend on any of this."""

    cluster: str = "local"
    shards: int = 1
    batch_events: int = 600_000
    entry_events: int = 50_000
    snapshot_every_s: float = 10.0
    buffer_blocks: int = 1_000_000
    buffer_bytes: int = 512 << 20
    """What may wait to be published, at a standby until the leader has done it; then no new batch begins."""
    name: str = ""
    """How this engine is called among those of its project; by default HOST-PID."""
    lease_s: float = 0.5
    """An engine that leads and is not heard for so long loses the lead to a standby."""
    preference: int = 0
    """Of several standbys the one with the lowest number takes over."""
    election: str = field(default="", repr=False)
    """The URL of what says which engine may try to lead, with its password; by default the group's log alone."""
    persist_to: Path | None = None
    """A folder, perhaps shared, for snapshots; an engine that starts begins with the newest one there."""
    persist_every_s: float | None = None
    """Have one written so often."""
    trim: bool = False
    """Let go of what no snapshot and no window needs any more."""
    runner: str = "spark"
    """Where windows are evaluated: `spark`, or `local` for this process, without a JVM."""
    master: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of your own; they win."""
    session: SparkSession | None = field(default=None, repr=False, compare=False)
    """Run in this session's Spark, which is yours to stop, instead of starting one."""
    warm_batches: int = 0
    """Empty micro-batches before it is ready: the first ones of a new JVM are slow, and events should not wait."""
    ticks: bool = True
    """Let the model's clock follow this machine's; without, it stands still."""
    verbose: bool = False
    """Let Spark's own words through."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """How far an engine is."""

    sequenced: SequencePosition
    published: int
    """The last block that is on the out streams."""
    published_events: int
    counts: Mapping[str, WindowCounts]
    bad: Mapping[str, int]
    busy_s: float
    """Seconds that workers spent on windows."""
    spark: Mapping[str, BatchFigures]
    role: str = STANDBY
    epoch: int = 0
    computed: WorkerProgress = field(default_factory=WorkerProgress)
    """What this engine itself has computed."""
    buffer: SpoolFill = field(default_factory=lambda: SpoolFill(0, 0, 0, 0))
    election: str = ""
    """What says whether it may try to lead, and what that says now; empty: the group's log alone."""

    @property
    def lag(self) -> int:
        """Blocks that are decided and not yet out."""
        return self.sequenced.block - self.published


OnStatus = Callable[[EngineStatus], None]


def silent(_: EngineStatus) -> None:
    """Say nothing."""
