"""An engine's folder, which is locked while the engine lives, and the plain values that its workers must know."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep.engine.errors import EngineRunning, ModelMismatch, SnapshotDamaged
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import parse_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.runtime import Runtime


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSetup:
    """One engine of one project.

    `folder` holds what belongs to this engine alone: Spark's checkpoint, the spool, a lock. `host` is where it is.
    """

    url: str
    cluster: str
    model: str
    """The project as YAML."""
    wanted: tuple[str, ...]
    """Paths of the windows whose blocks are published."""
    folder: str
    host: str
    incarnation: str
    shards: int = 1
    batch_events: int = 600_000
    """A micro-batch takes about this many events at most."""
    snapshot_every_s: float = 10.0
    buffer_blocks: int = 1_000_000
    buffer_bytes: int = 512 << 20
    """What may wait to be published; then nothing new is computed until some is."""
    belongs: str = ""
    """The identity of the sequence log: snapshots of another one are refused."""
    seed: str | None = None
    """The persisted snapshot to begin with if Spark has no state: FOLDER/NAME."""
    first: int = 0
    """The entry after which a new checkpoint begins."""
    known: Mapping[str, Any] | None = None
    """The position of the state that this engine has, as plain values: its orders begin there or later."""
    is_history: bool = False
    """A batch job over everything: nothing counts as published, and no snapshots are taken."""

    def graph(self) -> Graph:
        """The model, compiled."""
        return compile_project(parse_yaml(self.model, "the engine's model"))

    def streams(self, graph: Graph) -> ProjectStreams:
        """Where its events come from and go to."""
        return ProjectStreams(cluster=self.cluster, project=graph.project.name)

    def spool(self, shard: int) -> Path:
        """Where a shard leaves its output; nobody reuses what an earlier process left."""
        return Path(self.folder) / "spool" / self.incarnation / str(shard)

    @property
    def parts(self) -> Path:
        """Where shards that are on this machine leave pieces of input for each other."""
        return Path(self.folder) / "spool" / self.incarnation / f"parts-{socket.gethostname()}"

    def end_orders(self) -> None:
        """Let no batch of this incarnation begin any more; the process that plans them looks at the disk."""
        with suppress(OSError):  # a full disk: what runs is stopped all the same
            self._ended.parent.mkdir(parents=True, exist_ok=True)
            self._ended.touch()

    def orders_ended(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._ended.exists()

    @property
    def _ended(self) -> Path:
        return Path(self.folder) / "spool" / self.incarnation / "ended"

    @property
    def staging(self) -> Path:
        """Where workers put whole snapshots that wait until everything up to them is published."""
        return Path(self.folder) / "staging" / self.incarnation

    def text(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> EngineSetup:
        """Back from JSON."""
        fields = json.loads(text)
        return cls(**{**fields, "wanted": tuple(fields["wanted"])})


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
