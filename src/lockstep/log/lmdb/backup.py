"""Copying a store while processes use it: one consistent moment of all its streams, in a new folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import lmdb

from lockstep.errors import Forbidden, IllegalState, NotAStore, ParentMissing, StoreBroken, StoreNotFound
from lockstep.log.embedded.tables import TABLES
from lockstep.log.lmdb import settings
from lockstep.log.lmdb.environment import READERS_MAX, REGISTRY

_DATA = "data.mdb"


def backup(folder: Path, target: Path) -> int:
    """Copy the store in `folder` to a new or empty folder; return the bytes written.

    Writers and readers of other processes go on meanwhile. The copy is a store of its own, without replicas. Until it
    is complete it has no settings file, so that a part of one is never opened as a store.
    """
    if not folder.is_dir():
        raise StoreNotFound(path=folder)
    if REGISTRY.has(folder):
        raise IllegalState(what=f"The store {folder}", action="be copied", reason="this process has it open")
    stored = settings.load(folder)
    _make(target)
    try:
        with lmdb.open(
            str(folder), readonly=True, create=False, max_dbs=len(TABLES), max_readers=READERS_MAX,
            map_size=stored.map_bytes,  # else no more than is there now, and a writer may add to it at any moment
        ) as opened:  # fmt: skip
            opened.copy(str(target), compact=True)
    except lmdb.Error as error:
        raise StoreBroken(path=folder, reason=str(error)) from error
    _sync(target / _DATA)
    settings.save(target, replace(stored, replica=None, async_replica=None))
    return (target / _DATA).stat().st_size


def _make(target: Path) -> None:
    try:
        target.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError as error:
        raise ParentMissing(path=target, parent=target.parent) from error
    except PermissionError as error:
        raise Forbidden(path=target, action="made", reason=error.strerror) from error
    except FileExistsError as error:
        raise NotAStore(path=target, reason="it is not a folder") from error
    if any(target.iterdir()):
        raise NotAStore(path=target, reason="a backup needs a new or an empty folder")


def _sync(file: Path) -> None:
    file.chmod(0o600)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
