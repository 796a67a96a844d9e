"""What a project's logs may let go of: what lies below the second newest snapshot and below every window's past."""

from __future__ import annotations

from pathlib import Path

from lockstep.core.snapshots import Reach, Snapshot, trimmable
from lockstep.engine.run.decisions import TrimPoint
from lockstep.engine.run.persisting import SnapshotInfo, SnapshotStore
from lockstep.engine.run.position import Position
from lockstep.engine.run.snapshot import HEAD, decode_head

FIRST_SHARD = 0


def trim_point(folder: Path, belongs: str, sources: list[str], decided: Position) -> TrimPoint | None:
    """The offsets below which nobody needs the sequence log and the inputs, or None: too few snapshots to say.

    The entry that states the model in force is kept, and so is everything behind it.
    """
    store = SnapshotStore(folder, belongs)
    found = [_snapshot(store, info, sources) for info in store.complete()]
    reach = trimmable(found)
    if not reach.sequence and not any(reach.inputs.values()):
        return None
    inputs = tuple(reach.inputs.get(name, 0) for name in sources)
    return TrimPoint(max(0, min(reach.sequence, decided.stated_at)), inputs)


def _snapshot(store: SnapshotStore, info: SnapshotInfo, sources: list[str]) -> Snapshot:
    """Where somebody who begins with this snapshot reads on: in its windows' past, if they have one."""
    reaches = [_reach(store.load(info, shard)[HEAD], info, sources) for shard in range(info.shards)]
    inputs = {name: min(reach.inputs[name] for reach in reaches) for name in sources}
    return Snapshot(info.name, info.number, Reach(min(reach.sequence for reach in reaches), inputs))


def _reach(page: bytes, info: SnapshotInfo, sources: list[str]) -> Reach:
    head = decode_head(page, info.fingerprint, info.name)
    first = head.marks[0] if head.marks else head.position
    ends = first.ends if len(first.ends) == len(sources) else tuple(0 for _ in sources)
    return Reach(first.sequence.upto + 1, dict(zip(sources, ends, strict=True)))
