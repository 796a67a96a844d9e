"""An engine's folder: locked while anything of the engine lives, and bound to one model and one sequence log."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from lockstep.engine.errors import EngineRunning, ModelMismatch, SnapshotDamaged
from lockstep.runtime import Runtime

_LOCK_WAIT_S = 15.0
"""The JVM of an engine that was killed takes a moment to notice."""
_CLOSED = -1


class EngineFolder:
    """Holds the lock from `open` to `close`. `descriptor` may be given to child processes: they hold it with us."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor

    @classmethod
    def open(cls, path: Path, runtime: Runtime, *, wait_s: float = _LOCK_WAIT_S) -> EngineFolder:
        """Lock the folder, making it if it is missing: it holds rows, so only its owner may look into it."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        waiter, end = runtime.waiter(), runtime.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if runtime.monotonic() >= end:
                    pid = os.pread(descriptor, 20, 0).decode(errors="replace") or "unknown"
                    os.close(descriptor)
                    raise EngineRunning(pid=pid, place=path) from None
                waiter.wait(0.05)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return cls(path, descriptor)

    def bind(self, identity: Mapping[str, str]) -> None:
        """Remember what the folder's state belongs to, or refuse another; what earlier starts left is removed."""
        told, mine = self.path / "belongs.json", dict(identity)
        if told.exists():
            known = _read(told)
            if known != mine:
                differ = [name for name in mine if known.get(name) != mine[name]]
                found = ", ".join(f"{name} {known.get(name)}" for name in differ)
                raise ModelMismatch(
                    place=self.path, found=found, wanted=", ".join(f"{name} {mine[name]}" for name in differ)
                )
        else:
            fresh = told.with_suffix(".tmp")
            fresh.write_text(json.dumps(mine))
            fresh.replace(told)
        for name in ("spool", "staging"):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def close(self) -> None:
        """Let go of the lock; processes that inherited it may still hold it. May be called again."""
        descriptor, self.descriptor = self.descriptor, _CLOSED
        if descriptor != _CLOSED:  # its number may be that of another file by now
            os.close(descriptor)


def _read(path: Path) -> dict[str, str]:
    """What a folder's state belongs to, as it was written down."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:  # neither JSON nor text
        raise SnapshotDamaged(place=path, reason=f"it does not say whose state it is: {error}") from error
    if not isinstance(found, dict):
        raise SnapshotDamaged(place=path, reason="it does not say whose state it is")
    return found
