"""Hands persisted snapshots out: a worker puts one aside, and it counts once everything up to it is published."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lockstep.engine.run.decisions import PersistPoint
from lockstep.engine.run.persisting import SnapshotInfo, SnapshotStore
from lockstep.engine.run.setup import EngineSetup
from lockstep.runtime import Runtime, logger

KEPT = 2


@dataclass(frozen=True, slots=True)
class Persisted:
    """A snapshot that is complete: what it is of, and where it is."""

    name: str
    block: int
    made_ns: int
    place: Path


class Persister:
    """One engine's staged snapshots. Not to be shared between threads."""

    def __init__(self, setup: EngineSetup, runtime: Runtime) -> None:
        self._setup, self._runtime = setup, runtime
        self._staged = SnapshotStore(setup.staging, setup.belongs, runtime)
        self._wanted: dict[str, PersistPoint] = {}
        self.last: Persisted | None = None

    def expect(self, point: PersistPoint) -> None:
        """A persist point was decided on; this engine's workers write it if it is theirs."""
        if point.by == self._setup.incarnation:
            self._wanted[point.name] = point

    def step(self, published: int) -> Persisted | None:
        """Hand out the next snapshot that may be used by others."""
        if not self._wanted:
            return None
        for info in self._staged.complete():
            point = self._wanted.get(info.name)
            if point is not None and info.block <= published:
                return self._hand_out(info, point)
        return None

    def _hand_out(self, info: SnapshotInfo, point: PersistPoint) -> Persisted:
        target = SnapshotStore(Path(point.path), self._setup.belongs, self._runtime)
        for shard in range(info.shards):
            pages = self._staged.load(info, shard)
            head = pages.pop("head")
            target.write(name=info.name, shard=shard, shards=info.shards, head=head, pages=pages)
        target.prune(KEPT)
        shutil.rmtree(info.path)
        del self._wanted[info.name]
        self.last = Persisted(info.name, info.block, self._runtime.wall_ns(), Path(point.path))
        logger.info("Persisted block %d to %s", info.block, point.path, extra={"action": "persist"})
        return self.last
