"""What a project's logs may let go of: what lies below the second newest snapshot and below every window's past."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lockstep.core.snapshots import Reach, Snapshot, trimmable
from lockstep.engine.runtime.sequence.decisions import Decision, Statement, TrimPoint, counted
from lockstep.engine.runtime.sequence.position import Position
from lockstep.engine.runtime.snapshots.persisting import SnapshotInfo, SnapshotStore
from lockstep.engine.runtime.snapshots.snapshot import HEAD, decode_head
from lockstep.log.port import Log

FIRST_SHARD = 0


def trim_point(
    folder: Path, belongs: str, sequence: Log, sources: Sequence[str], decided: Position, published: Position
) -> TrimPoint | None:
    """The offsets below which nobody needs the sequence log and the inputs, or None: too few snapshots to say.

    Kept are the entry that states the model in force, the one that states the model of what is published, from where
    an engine starts, and everything behind them.
    """
    store = SnapshotStore(folder, belongs)
    found = [_snapshot(store, info) for info in store.complete() if _is_of_model_in_force(store, info, sequence)]
    reach = trimmable(found)
    if not reach.sequence and not any(reach.inputs.values()):
        return None
    stated_at = min(decided.stated_at, published.stated_at)
    return TrimPoint(max(0, min(reach.sequence, stated_at)), input_offsets(reach, sources, decided))


def input_offsets(reach: Reach, sources: Sequence[str], decided: Position) -> dict[str, int]:
    """The offset of each source's input below which nothing is needed: never behind what is decided."""
    return {path: min(reach.inputs.get(path, 0), decided.ends.get(path, 0)) for path in sources}


def _is_of_model_in_force(store: SnapshotStore, info: SnapshotInfo, sequence: Log) -> bool:
    """Whether no other model was stated behind a snapshot: rebuilding its windows may need all there ever was."""
    head = decode_head(store.load(info, FIRST_SHARD)[HEAD], info.fingerprint, info.name)
    states = Statement(head.model, tuple(sorted(head.publish)))
    later = (Decision.of(entry).states for _, entry in counted(sequence, head.position.sequence))
    return all(each in (None, states) for each in later)


def _snapshot(store: SnapshotStore, info: SnapshotInfo) -> Snapshot:
    """Where an engine that begins with this snapshot reads on: in its windows' past, if they have one."""
    reaches = [_reach(store.load(info, shard)[HEAD], info) for shard in range(info.shards)]
    paths = {path for reach in reaches for path in reach.inputs}
    inputs = {path: min(reach.inputs.get(path, 0) for reach in reaches) for path in paths}
    return Snapshot(info.name, info.number, Reach(min(reach.sequence for reach in reaches), inputs))


def _reach(page: bytes, info: SnapshotInfo) -> Reach:
    head = decode_head(page, info.fingerprint, info.name)
    first = head.marks[0] if head.marks else head.position
    return Reach(first.sequence.upto + 1, first.ends)
