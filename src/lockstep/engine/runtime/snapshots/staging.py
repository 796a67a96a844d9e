"""Hands persisted snapshots out: a worker puts one aside, and it counts once everything up to it is published."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from lockstep.engine.runtime.sequence.entries import PersistPoint, SequencePosition
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.store import SnapshotInfo, SnapshotStore, snapshot_name
from lockstep.runtime import Runtime, logger

KEPT = 2
_OUTCOMES = 8
"""Outcomes that are remembered, for who asked for a snapshot; and snapshots that are expected at a time."""


def failure_note(setup: EngineSetup, name: str) -> Path:
    """The file in which a worker says why it could not stage a snapshot."""
    return setup.staging / f"{name}.failed"


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


class SnapshotStaging:
    """One engine's staged snapshots.

    What is expected comes from the thread that follows the sequence log, while another one hands out; a third may have
    the engine begin anew.
    """

    def __init__(self, setup: EngineSetup, runtime: Runtime) -> None:
        self._setup, self._runtime = setup, runtime
        self._staged = SnapshotStore(setup.staging, setup.belongs, runtime)
        self._wanted: dict[str, _Expected] = {}
        self._handing_out = Lock()
        self.last: Persisted | None = None
        self.outcomes: dict[str, Mapping[str, Any]] = {}
        """What became of the last snapshots that this engine was to write, by the ids of their persist points."""

    def go_on(self, setup: EngineSetup) -> SnapshotStaging:
        """The persister of the same engine after it began anew: what was not written then never will be."""
        self.give_up("the engine began anew before it was written")
        other = SnapshotStaging(setup, self._runtime)
        other.last, other.outcomes = self.last, self.outcomes
        return other

    def expect(self, point: PersistPoint, position: SequencePosition) -> None:
        """A persist point was decided on; this engine's workers write it if it is theirs."""
        if point.by == self._setup.incarnation:
            self._wanted[snapshot_name(position.number, point.id)] = _Expected(point, position.block)

    def step(self, published: int) -> Persisted | None:
        """Hand out the next snapshot that may be used by others: all its output is out, and all shards wrote it."""
        with self._handing_out:
            for name in list(self._wanted)[:-_OUTCOMES]:
                self._fail(name, f"it was not written before {_OUTCOMES} others were asked for")
            for name, expected in list(self._wanted.items()):
                if (note := failure_note(self._setup, name)).exists():
                    self._fail(name, note.read_text() or "the disk of the state folder did not take it")
                elif expected.block <= published and self._is_staged(name):
                    return self._hand_out(self._staged.find(name, self._setup.shards), expected.point)
        return None

    def give_up(self, reason: str) -> None:
        """Let go of what could not be handed out, and remember why."""
        with self._handing_out:
            for name in list(self._wanted):
                self._fail(name, reason)
            shutil.rmtree(self._setup.staging, ignore_errors=True)

    def _fail(self, name: str, reason: str) -> None:
        self._note(self._wanted.pop(name).point, {"failed": reason})
        failure_note(self._setup, name).unlink(missing_ok=True)
        shutil.rmtree(self._setup.staging / name, ignore_errors=True)

    def _is_staged(self, name: str) -> bool:
        """Whether every shard has written its part: a file appears whole or not at all."""
        return len(list((self._setup.staging / name).glob("*.snapshot"))) == self._setup.shards

    def _hand_out(self, info: SnapshotInfo, point: PersistPoint) -> Persisted:
        target = SnapshotStore(Path(point.path), self._setup.belongs, self._runtime)
        for shard in range(info.shards):
            pages = self._staged.load(info, shard)
            head = pages.pop("head")
            target.write(name=info.name, shard=shard, shards=info.shards, head=head, pages=pages)
        target.find(info.name, info.shards)  # as it is in the folder, or an error
        target.prune(KEPT)
        shutil.rmtree(info.path)
        del self._wanted[info.name]
        self._note(point, {"block": info.block})
        self.last = Persisted(info.name, info.block, self._runtime.wall_ns(), Path(point.path))
        logger.info("Persisted block %d to %s", info.block, point.path, extra={"action": "persist"})
        return self.last

    def _note(self, point: PersistPoint, outcome: Mapping[str, Any]) -> None:
        self.outcomes = dict([*self.outcomes.items(), (point.id, outcome)][-_OUTCOMES:])
