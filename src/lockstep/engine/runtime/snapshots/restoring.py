"""What an engine begins with: its own state, or a newer snapshot that somebody persisted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from lockstep.engine.errors import SnapshotRefused
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.kept import forget_kept, kept_position
from lockstep.engine.runtime.snapshots.persisting import SnapshotInfo, SnapshotStore
from lockstep.engine.runtime.snapshots.snapshot import HEAD, decode_head
from lockstep.runtime import logger


def begin_with_newest(setup: EngineSetup, folder: Path | None, *, throw_away: bool = False) -> EngineSetup:
    """The setup of an engine that starts. A snapshot that is newer than its own state goes into a fresh checkpoint.

    A snapshot names its model, which may have been replaced since: the sequence log says so behind it. With
    `throw_away` its own state does not count.
    """
    own = Path(setup.folder)
    kept = kept_position(own, setup.shards)
    if folder is None or not folder.exists():
        return replace(setup, known=kept.tree() if kept else None)
    store = SnapshotStore(folder, setup.belongs)
    found = store.newest(None, setup.shards)
    if found is None or (kept is not None and kept.number >= found.number and not throw_away):
        return replace(setup, known=kept.tree() if kept else None)
    forget_kept(own)  # first: a note without the state that it is about would be believed
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
