"""The compute of an engine in virtual time: micro-batches with an offset log, a commit log and a state store."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_machine import Killed, Machine, MachineBus

from lockstep.engine.compute import local
from lockstep.engine.compute.local import LocalCompute
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.format import HEAD, Pages
from lockstep.runtime import Waiter

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
    """What an engine keeps on disk for one shard: the state, and how far batches were planned and committed."""

    stored: dict[str, bytes] = field(default_factory=dict)
    planned: dict[str, Any] | None = None
    committed: dict[str, Any] | None = None

    def pages(self) -> dict[str, bytes]:
        return dict(self.stored)

    def head(self) -> bytes | None:
        return self.stored.get(HEAD)

    def plan(self, offset: dict[str, Any]) -> None:
        self.planned = offset

    def commit(self, pages: Pages) -> None:
        self.stored = {name: page for name, page in {**self.stored, **pages}.items() if page is not None}
        self.committed = self.planned

    def close(self) -> None:
        """It is on the disk."""


@dataclass
class Disk:
    """The disk of one engine: its folder, and the checkpoints in it."""

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


class MachineCompute(LocalCompute):
    """See LocalCompute. Its checkpoints are on the disk of a machine; `slow_s` is what a batch takes."""

    def __init__(
        self, setup: EngineSetup, project: str, divided: frozenset[str], machine: Machine, bus: MachineBus, disk: Disk
    ) -> None:
        super().__init__(setup, project, divided, bus, machine)
        self._machine, self._disk = machine, disk
        self._begun = dict[int, float]()
        self.slow_s = 0.0

    def step(self, shard: int) -> float:
        """A batch that was planned runs when it has taken its time; without room it is tried again."""
        try:
            return min(super().step(shard), POLL_S)
        except Waits:
            return POLL_S
        except OSError:
            if self._disk.room is None:
                raise
            return AWAY_S

    def evaluate(self, shard: int, kept: local.Checkpoint) -> None:
        if self._must_wait(shard):
            raise Waits
        with files_up_to(self._disk.room):
            super().evaluate(shard, kept)

    def checkpoint(self, shard: int) -> local.Checkpoint:
        return self._disk.checkpoint(shard)

    def _must_wait(self, shard: int) -> bool:
        """Whether a batch that has begun is still computing."""
        if not self.slow_s:
            return False
        now = self._machine.monotonic()
        if now - self._begun.setdefault(shard, now) < self.slow_s:
            return True
        del self._begun[shard]
        return False

    def forget(self) -> None:
        """The process is gone, and with it what it held hot."""
        self._workers.forget(self.setup.folder)

    def _waiter(self) -> Waiter:
        return self._machine.waiter()

    def _ended(self, error: BaseException) -> None:
        if not isinstance(error, Killed):
            super()._ended(error)


class Waits(Exception):
    """A batch is still computing."""
