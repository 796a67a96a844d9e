"""Snapshots to be written, counted and broken by the tests of their store."""

from __future__ import annotations

import os
from pathlib import Path

from lockstep.core.sequence import SequenceState
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.snapshots.format import Head, encode_head, seal
from lockstep.engine.runtime.snapshots.store import LEFTOVER_S, SnapshotStore, snapshot_name

OURS = "local.trades 5f"
PAGES = {"model": seal(b"clock"), "q/w:0": seal(b"rows" * 50)}


def head(number: int, *, fingerprint: str = "f", digest: str = "d", block: int | None = None) -> bytes:
    sequence = SequenceState(number=number, digest=digest)
    return encode_head(
        Head(fingerprint, SequencePosition(sequence, block=10 * number if block is None else block), (), {})
    )


def put(store: SnapshotStore, number: int, *, tag: str = "x", shards: int = 1, only: int | None = None, **more) -> str:
    name = snapshot_name(number, tag)
    for shard in range(shards) if only is None else [only]:
        store.write(name=name, shard=shard, shards=shards, head=head(number, **more), pages=PAGES)
    return name


def file_of(store: SnapshotStore, number: int, shard: int = 0, shards: int = 1, tag: str = "x") -> Path:
    return store.folder / snapshot_name(number, tag) / f"{shard:05d}-of-{shards:05d}.snapshot"


def numbers(store: SnapshotStore) -> list[int]:
    return [info.number for info in store.complete()]


def reasons(store: SnapshotStore, **more) -> list[str]:
    return [reason for _, reason in store.refused(**more)]


def make_old(*paths: Path) -> None:
    for path in paths:
        past = path.stat().st_mtime - LEFTOVER_S - 10
        os.utime(path, (past, past))
