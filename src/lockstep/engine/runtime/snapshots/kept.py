"""A note beside Spark's checkpoint of where the state in it stands, for those who can't look into it.

A leader decides from there on, so the note has a checksum. Without a note an engine starts at what is published, or at
the first entry, and comes to the same position by reading the log.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgpack

from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.runtime.sequence.position import Position
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.snapshot import seal, unseal
from lockstep.runtime import logger


def note_kept(setup: EngineSetup, shard: int, position: Position) -> None:
    """Say where the state is that Spark has committed."""
    final = _place(setup.folder, shard)
    temporary = final.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(seal(msgpack.packb(position.tree())))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(final)


def kept_position(folder: Path, shards: int) -> Position | None:
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
        found.append(Position.of(msgpack.unpackb(note, strict_map_key=False)))
    return min(found, key=lambda position: position.number)


def forget_kept(folder: Path) -> None:
    """Spark's state is thrown away."""
    for place in folder.glob("kept-*.msgpack"):
        place.unlink()


def _place(folder: str, shard: int) -> Path:
    return Path(folder) / f"kept-{shard}.msgpack"
