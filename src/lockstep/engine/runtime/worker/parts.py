"""Where shards on one machine leave pieces of input for each other, each read and divided by one of them.

Nothing here is needed: a piece that is not there, is damaged, or is not there in time is read from the logs by whoever
wants it, and the answer is the same.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from weakref import finalize

import msgpack

from lockstep.engine.events.schema import Schema
from lockstep.engine.kernels.sharding import InputShare
from lockstep.engine.runtime.output.spool import write_all
from lockstep.engine.runtime.sequence.position import Position
from lockstep.engine.runtime.sequence.reading import Range
from lockstep.engine.runtime.worker.partfile import encode_part, read_part
from lockstep.errors import DataError
from lockstep.runtime import Runtime, logger

FOLDER_BYTES = 128 << 20
"""What a folder of parts may hold; the oldest are removed first."""
_WAIT_S, _LOOKS = 0.005, 200
"""How long, and how often, a shard waits for a piece that another one reads, before it reads the logs itself."""
_TURN_LOOKS = 8
"""How many of these looks it waits for the shard whose turn it is, before it reads a piece in its place."""
_SLOTS = 16
"""Pieces that may be in work at once."""
_SUFFIX, _VERSION = ".part", 1


@dataclass(slots=True)
class PartCounts:
    """How many events came from where."""

    made: int = 0
    """Read from the logs, and left for the others."""
    found: int = 0
    """Taken from what another shard had left."""
    alone: int = 0
    """Read from the logs for itself."""


class PartFolder:
    """The folder of one machine, as one shard of several sees it."""

    def __init__(self, folder: Path, shard: int, shards: int, runtime: Runtime) -> None:
        self._folder, self._shard, self._shards, self._runtime = folder, shard, shards, runtime
        self.counts = PartCounts()
        self._others: list[int] = []
        self._is_here = False
        """Whether a file is locked as long as this shard is at work."""
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        self._come()

    def others_here(self) -> bool:
        """Whether another shard is at work on this machine: for oneself alone nothing need be divided."""
        if not self._is_here:
            self._come()
        others = (shard for shard in range(self._shards) if shard != self._shard)
        self._others = [shard for shard in others if self._is_here and _is_held(self._presence(shard))]
        return bool(self._others)

    def _come(self) -> None:
        try:
            descriptor = _locked(self._presence(self._shard))
        except OSError:
            return
        if descriptor is not None:
            self._is_here = True
            finalize(self, os.close, descriptor)

    def take(
        self,
        name: str,
        place: int,
        shares: Mapping[str, InputShare],
        schemas: Mapping[str, Schema],
        read: Callable[[], Range],
    ) -> Range:
        """A piece for this shard; if nobody has left it, and nobody else is about to, `read` it and leave it.

        Shards take turns by its `place`, so that none reads more than the others if all are at the same place.
        """
        path, patience = self._folder / f"{name}{_SUFFIX}", self._patience(place)
        waiter = self._runtime.waiter()
        for look in range(_LOOKS):
            found = self._load(path, shares, schemas)
            if found is not None:
                self.counts.found += _events(found)
                return found
            try:
                claim = self._claim(name) if look >= patience else None
            except OSError:
                break
            if claim is not None:
                try:
                    return self._load(path, shares, schemas) or self._make(path, shares, schemas, read)
                finally:
                    os.close(claim)
            waiter.wait(_WAIT_S)
        return self.alone(shares, read)

    def _patience(self, place: int) -> int:
        """How many looks it waits for the shard whose turn it is to read a piece."""
        here = sorted([self._shard, *self._others])
        return 0 if here[place % len(here)] == self._shard else _TURN_LOOKS

    def alone(self, shares: Mapping[str, InputShare], read: Callable[[], Range]) -> Range:
        """A piece that is read for this shard alone."""
        taken = read()
        self.counts.alone += _events(taken)
        return divided(taken, shares)

    def _load(self, path: Path, shares: Mapping[str, InputShare], schemas: Mapping[str, Schema]) -> Range | None:
        try:
            return read_part(path, shares, schemas)
        except FileNotFoundError:
            return None
        except (OSError, DataError) as error:
            logger.warning("A part of the input is read from the logs", extra={"action": "part", "reason": str(error)})
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return None

    def _make(
        self, path: Path, shares: Mapping[str, InputShare], schemas: Mapping[str, Schema], read: Callable[[], Range]
    ) -> Range:
        """Read a piece from the logs, and leave it; what is left is taken from there, so that no more is held."""
        taken = read()
        self.counts.made += _events(taken)
        temporary = path.with_suffix(f".{self._shard}.tmp")
        try:
            chunks = encode_part(taken, shares)
            self._make_room(sum(map(len, chunks)))
            with temporary.open("wb", buffering=0) as file:
                write_all(file, chunks)
            temporary.replace(path)
        except OSError as error:  # a full disk: everybody reads the logs
            logger.debug("A part was not written", extra={"action": "part", "reason": str(error)})
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            return divided(taken, shares)
        return self._load(path, shares, schemas) or divided(taken, shares)

    def _make_room(self, size: int) -> None:
        """Remove the oldest until another of this size fits."""
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):
                told = path.stat()
                found.append((told.st_mtime_ns, told.st_size, path))
        room = FOLDER_BYTES - size - sum(each for _, each, _ in found)
        for _, each, path in sorted(found):
            if room >= 0:
                break
            path.unlink(missing_ok=True)
            room += each

    def _claim(self, name: str) -> int | None:
        """A descriptor that is held while this shard reads a piece; None: another one does.

        Who is killed lets go of it.
        """
        slot = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "little") % _SLOTS
        return _locked(self._folder / f"{slot}.claim")

    def _presence(self, shard: int) -> Path:
        return self._folder / f"{shard}.here"


def divided(taken: Range, shares: Mapping[str, InputShare]) -> Range:
    """A range with no more than one shard needs."""
    inputs = {path: shares[path].of(batch) for path, batch in taken.span.inputs.items() if path in shares}
    return replace(taken, span=replace(taken.span, inputs=inputs))


def part_name(start: Position, last: int, digest: str, shares: Mapping[str, InputShare], fingerprint: str) -> str:
    """What a piece is called: by all that its content follows from."""
    plan = {
        path: (share.share.fields, share.share.shards, sorted(share.looked_at), sorted(share.needed))
        for path, share in sorted(shares.items())
    }
    told = msgpack.packb([_VERSION, fingerprint, plan, start.tree(), last, digest])
    return f"{start.number + 1}-{last}-{blake2b(told, digest_size=12).hexdigest()}"


def _events(taken: Range) -> int:
    return sum(map(len, taken.span.inputs.values()))


def _locked(path: Path) -> int | None:
    """The descriptor of a file that is locked as long as it is open; None if somebody else has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
