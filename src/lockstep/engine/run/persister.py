"""Hands persisted snapshots out: a worker puts one aside, and it counts once everything up to it is published."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lockstep.engine.run.decisions import PersistPoint
from lockstep.engine.run.persisting import SnapshotInfo, SnapshotStore, snapshot_name
from lockstep.engine.run.position import Position
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


@dataclass(frozen=True, slots=True)
class _Expected:
    point: PersistPoint
    block: int


class Persister:
    """One engine's staged snapshots. Not to be shared between threads."""

    def __init__(self, setup: EngineSetup, runtime: Runtime) -> None:
        self._setup, self._runtime = setup, runtime
        self._staged = SnapshotStore(setup.staging, setup.belongs, runtime)
        self._wanted: dict[str, _Expected] = {}
        self.last: Persisted | None = None

    def expect(self, point: PersistPoint, position: Position) -> None:
        """A persist point was decided on; this engine's workers write it if it is theirs."""
        if point.by == self._setup.incarnation:
            self._wanted[snapshot_name(position.number, point.id)] = _Expected(point, position.block)

    def step(self, published: int) -> Persisted | None:
        """Hand out the next snapshot that may be used by others: all its output is out, and all shards wrote it."""
        for name, expected in self._wanted.items():
            if expected.block <= published and self._is_staged(name):
                return self._hand_out(self._staged.find(name, self._setup.shards), expected.point)
        return None

    def give_up(self) -> None:
        """Let go of what could not be handed out."""
        self._wanted.clear()
        shutil.rmtree(self._setup.staging, ignore_errors=True)

    def _is_staged(self, name: str) -> bool:
        """Whether every shard has written its part: a file appears whole or not at all."""
        return len(list((self._setup.staging / name).glob("*.snapshot"))) == self._setup.shards

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
