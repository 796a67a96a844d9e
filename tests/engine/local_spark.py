"""Spark without Spark: micro-batches with an offset log, a commit log and a state store, and the engine's own code."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from local_machine import Killed, Machine, MachineBus

from lockstep.engine.run.beats import last_beat
from lockstep.engine.run.outages import BUS_AWAY
from lockstep.engine.run.position import Position
from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.run.snapshot import HEAD
from lockstep.engine.spark import hot
from lockstep.engine.spark.computing import Computing
from lockstep.engine.spark.listener import BatchFigures
from lockstep.engine.spark.orders import OrderReader
from lockstep.engine.spark.tail import Ahead, SequenceTail
from lockstep.errors import LockstepError
from lockstep.runtime import Task

POLL_S, AWAY_S = 0.02, 0.2


@contextmanager
def files_up_to(size: int | None) -> Iterator[None]:
    """No file may be larger: a write takes what still fits, says how much that was, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, before if size is None else (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@dataclass
class Checkpoint:
    """What Spark keeps on disk for one shard: the state, and how far batches were planned and committed."""

    pages: dict[str, bytes] = field(default_factory=dict)
    planned: dict[str, Any] | None = None
    committed: dict[str, Any] | None = None


@dataclass
class Disk:
    """The disk of one engine: its folder, and the checkpoint that stands for what Spark has in it."""

    folder: Path
    shards: dict[int, Checkpoint] = field(default_factory=dict)
    room: int | None = None
    """How large a file may become; None: there is room enough."""

    def checkpoint(self, shard: int) -> Checkpoint:
        """The checkpoint of a shard; a new one if its folder was removed."""
        place = self.folder / "checkpoint" / str(shard)
        if not place.exists():
            place.mkdir(parents=True)
            self.shards[shard] = Checkpoint()
        return self.shards[shard]


class LocalComputing(Computing):
    """See Computing. Each shard is background work of its machine; `slow_s` is what a batch takes."""

    def __init__(
        self, setup: EngineSetup, project: str, divided: frozenset[str], machine: Machine, bus: MachineBus, disk: Disk
    ) -> None:
        super().__init__(setup, project, divided)
        self._machine, self._bus, self._disk = machine, bus, disk
        self._running: list[Task] = []
        self._failed: BaseException | None = None
        self._batches, self._begun = 0, dict[int, float]()
        self.slow_s = 0.0

    def start_spark(self, *, master: str | None, own: Mapping[str, str], inherit: Sequence[int], verbose: bool) -> None:
        hot._buses[self.setup.url] = self._bus

    def start(self) -> None:
        for shard in range(self.setup.shards):
            query = Query(self, shard)
            waiter = self._machine.waiter()
            self._running.append(self._machine.spawn(f"spark-{shard}", query.step, waiter, self._ended))

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def figures(self) -> Mapping[str, BatchFigures]:
        return {}

    def batches_done(self) -> int:
        return self._batches

    def stop_queries(self) -> None:
        for task in self._running:
            task.stop()
        self._running = []

    def stop(self) -> None:
        self.stop_queries()
        self.forget()

    def forget(self) -> None:
        """The processes are gone, and with them what they held hot."""
        for shard in range(self.setup.shards):
            hot._workers.pop((self.setup.folder, shard), None)
        hot._buses.pop(self.setup.url, None)

    def order_reader(self, shard: int) -> OrderReader:
        """The engine's own, on the machine's bus."""
        setup, reader = self.setup, OrderReader(self.setup.text(), shard)
        streams = setup.streams(setup.graph())
        newest = last_beat(self._bus.open(streams.control)).position
        positions = [Position.of(tree) if tree else None for tree in (newest, setup.known)]
        reader._ahead = Ahead(setup, shard, SequenceTail(self._bus.open(streams.sequence), *positions))
        return reader

    def must_wait(self, shard: int) -> bool:
        """Whether a batch that has begun is still computing."""
        if not self.slow_s:
            return False
        now = self._machine.monotonic()
        if now - self._begun.setdefault(shard, now) < self.slow_s:
            return True
        del self._begun[shard]
        return False

    def checkpoint(self, shard: int) -> Checkpoint:
        return self._disk.checkpoint(shard)

    @property
    def room(self) -> int | None:
        return self._disk.room

    def counted(self) -> None:
        self._batches += 1

    def _ended(self, error: BaseException) -> None:
        """What came first is the reason: after that the others find nothing to work with."""
        if not isinstance(error, Killed):
            self._failed = self._failed or error


class Query:
    """The streaming query of one shard."""

    def __init__(self, computing: LocalComputing, shard: int) -> None:
        self._computing, self._shard = computing, shard
        self._setup = replace(computing.setup)
        self._reader: OrderReader | None = None

    def step(self) -> float:
        """Plan a batch, run it, commit it; while the bus is away a task waits, and without room it is tried again."""
        try:
            return self._step()
        except BUS_AWAY:
            return AWAY_S
        except OSError:
            if self._computing.room is None:
                raise
            return AWAY_S

    def _step(self) -> float:
        """A batch that was planned and not committed runs again after a restart."""
        if self._reader is None:
            self._reader = self._computing.order_reader(self._shard)
        reader, kept = self._reader, self._computing.checkpoint(self._shard)
        if kept.committed is None:
            kept.committed = kept.planned = reader.initialOffset()
        if kept.planned == kept.committed:
            kept.planned = reader.latestOffset(kept.committed, None)
            if kept.planned == kept.committed:
                return POLL_S
        if self._computing.must_wait(self._shard):
            return POLL_S
        self._run(kept)
        return 0.0

    def _run(self, kept: Checkpoint) -> None:
        assert kept.committed is not None
        assert kept.planned is not None
        order = (kept.committed["number"], kept.planned["number"])
        try:
            with files_up_to(self._computing.room):
                pages = hot.run_orders(
                    self._setup, self._shard, [order], lambda: dict(kept.pages), lambda: kept.pages.get(HEAD)
                )
        except BUS_AWAY:
            raise
        except LockstepError:
            self._computing.forget()
            raise
        kept.pages = {name: page for name, page in {**kept.pages, **pages}.items() if page is not None}
        kept.committed = kept.planned
        self._computing.counted()
