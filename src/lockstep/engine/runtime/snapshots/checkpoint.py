"""Where an engine's own state stands, and whether it begins with that or with a newer snapshot.

The state is in a checkpoint that only its compute can read, so a note beside it says where it stands. A leader decides
from there on, so the note has a checksum. Without a note an engine starts at what is published, or at the first entry,
and comes to the same position by reading the log.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import msgpack

from lockstep.engine.errors import SnapshotDamaged, SnapshotRefused
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.format import HEAD, decode_head, seal, unseal
from lockstep.engine.runtime.snapshots.store import SnapshotInfo, SnapshotStore
from lockstep.runtime import logger


def note_checkpoint_position(setup: EngineSetup, shard: int, position: SequencePosition) -> None:
    """Say where the state is that Spark has committed."""
    final = _place(setup.folder, shard)
    temporary = final.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(seal(msgpack.packb(position.tree())))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(final)


def checkpoint_position(folder: Path, shards: int) -> SequencePosition | None:
    """The earliest of all shards; None if one of them has said nothing, or its note is damaged."""
    found = []
    for shard in range(shards):
        place = _place(str(folder), shard)
        if not place.exists():
            return None
        try:
            note = unseal(place.read_bytes(), str(place))
        except SnapshotDamaged:
            words = "%s fails its checksum: where the state stands is found out from the log"
            logger.warning(words, place, extra={"action": "buffer"})
            return None
        found.append(SequencePosition.of(msgpack.unpackb(note, strict_map_key=False)))
    return min(found, key=lambda position: position.number)


def forget_checkpoint_position(folder: Path) -> None:
    """Spark's state is thrown away."""
    for place in folder.glob("kept-*.msgpack"):
        place.unlink()


def _place(folder: str, shard: int) -> Path:
    return Path(folder) / f"kept-{shard}.msgpack"


def begin_with_newest(setup: EngineSetup, folder: Path | None, *, throw_away: bool = False) -> EngineSetup:
    """The setup of an engine that starts. A snapshot that is newer than its own state goes into a fresh checkpoint.

    A snapshot names its model, which may have been replaced since: the sequence log says so after it. With
    `throw_away` its own state does not count.
    """
    own = Path(setup.folder)
    kept = checkpoint_position(own, setup.shards)
    if folder is None or not folder.exists():
        return replace(setup, known=kept.tree() if kept else None)
    store = SnapshotStore(folder, setup.belongs)
    found = store.newest(None, setup.shards)
    if found is None or (kept is not None and kept.number >= found.number and not throw_away):
        return replace(setup, known=kept.tree() if kept else None)
    forget_checkpoint_position(own)  # first: a note without the state that it is about would be believed
    shutil.rmtree(own / "checkpoint", ignore_errors=True)
    logger.info("Restoring block %d from %s", found.block, found.path, extra={"action": "persist"})
    return _seeded(setup, store, found)


def _seeded(setup: EngineSetup, store: SnapshotStore, found: SnapshotInfo) -> EngineSetup:
    head = decode_head(store.load(found, 0)[HEAD], found.fingerprint, str(found.path))
    return replace(setup, seed=str(found.path), first=found.number, known=head.position.tree())


def check_restorable(setup: EngineSetup, folder: Path) -> SnapshotInfo:
    """The snapshot that would be begun with; an error that says why if there is none."""
    store = SnapshotStore(folder, setup.belongs)
    found = store.newest(None, setup.shards)
    if found is None:
        reasons = [f"{place.name}: {reason}" for place, reason in store.refused()]
        raise SnapshotRefused(place=folder, reason="; ".join(reasons) or "there is none")
    return found
