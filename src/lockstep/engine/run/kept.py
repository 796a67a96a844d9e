"""A note beside Spark's checkpoint of where the state in it stands, for those who can't look into it."""

from __future__ import annotations

from pathlib import Path

import msgpack

from lockstep.engine.run.position import Position
from lockstep.engine.run.setup import EngineSetup


def note_kept(setup: EngineSetup, shard: int, position: Position) -> None:
    """Say where the state is that Spark has committed."""
    final = _place(setup.folder, shard)
    temporary = final.with_suffix(".tmp")
    temporary.write_bytes(msgpack.packb(position.tree()))
    temporary.replace(final)


def kept_position(folder: Path, shards: int) -> Position | None:
    """The earliest of all shards; None if one of them has said nothing."""
    found = []
    for shard in range(shards):
        place = _place(str(folder), shard)
        if not place.exists():
            return None
        found.append(Position.of(msgpack.unpackb(place.read_bytes(), strict_map_key=False)))
    return min(found, key=lambda position: position.number)


def forget_kept(folder: Path) -> None:
    """Spark's state is thrown away."""
    for place in folder.glob("kept-*.msgpack"):
        place.unlink()


def _place(folder: str, shard: int) -> Path:
    return Path(folder) / f"kept-{shard}.msgpack"
