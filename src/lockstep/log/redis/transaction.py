"""Several logs and cells in one step.

All that a transaction looks at is as it was at one moment, that of its first look. Its changes are collected, and one
script makes them if everything it view at is still so; else the work is done again. Nothing is locked on the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lockstep.errors import (
    BadArgument,
    Conflict,
    IllegalState,
    LockstepError,
    OffsetConflict,
    StreamNotFound,
    Trimmed,
    UnsupportedByBackend,
)
from lockstep.log.batch import NO_PRODUCER, Batch
from lockstep.log.port import READ_BYTES_DEFAULT, Bounds, Entry, Transaction
from lockstep.log.redis import scripts
from lockstep.log.redis.layout import CatalogueEntry, decode_entry
from lockstep.log.redis.log import LogOwner, RedisLog, check_holder, check_size, plan_arguments, refused, send_change
from lockstep.log.redis.reader import Reader
from lockstep.log.redis.scripts import UNDO_MS, Argument

_KEY_BYTES_MAX = 511
_VIEW_S = UNDO_MS / 2000


class TransactionOwner(LogOwner, Protocol):
    """What a transaction needs of its bus."""

    def handle(self, name: str, stored: CatalogueEntry) -> RedisLog:
        """A log by what the catalogue says about it."""

    def monotonic(self) -> float:
        """The clock."""


class Stale(Exception):
    """Somebody changed what this transaction has read: run its work again."""


@dataclass(slots=True)
class _LogView:
    """A log as a transaction sees it, and what it is going to do to it."""

    log: RedisLog
    first: int
    next: int
    version: bytes
    batches: list[Batch] = field(default_factory=list)
    sealed: list[bytes] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    holds: dict[str, int | None] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The offset after the last record, with what is going to be appended."""
        ends = [base + batch.count for base, batch in zip(self.bases, self.batches, strict=True)]
        return max([self.next, *ends])

    def hold_arguments(self) -> list[Argument]:
        """The holds that change, for the scripts."""
        told: list[Argument] = [len(self.holds)]
        for holder, offset in self.holds.items():
            told += (holder, "" if offset is None else offset)
        return told


class View(Transaction):
    """A transaction that reads."""

    def __init__(self, bus: TransactionOwner) -> None:
        self._bus = bus
        self._logs: dict[str, _LogView] = {}
        self._cells: dict[bytes, bytes | None] = {}
        self._moment: tuple[bytes, bytes] | None = None
        self._began = 0.0

    def read(self, log: str, offset: int) -> Iterator[Entry]:
        view = self._look(log)
        if offset < view.first:
            raise Trimmed(offset=offset, stream=log, first=view.first)
        return self._entries(view, offset)

    def identity(self, log: str) -> str:
        return self._look(log).log.identity

    def bounds(self, log: str) -> Bounds:
        view = self._look(log)
        return Bounds(min(view.first, view.end), view.end)

    def get(self, key: bytes) -> bytes | None:
        _check_key(key)
        if key not in self._cells:
            self._cells[key] = self._look_into(key)
        return self._cells[key]

    def append(self, log: str, batches: Sequence[Batch], *, expected_next: int | None = None) -> list[int]:
        del log, batches, expected_next
        raise IllegalState(what="A snapshot", action="append", reason="it is for reading")

    def hold(self, log: str, holder: str, offset: int | None) -> None:
        del log, holder, offset
        raise IllegalState(what="A snapshot", action="hold", reason="it is for reading")

    def scan(self, prefix: bytes, start: bytes | None = None, *, down: bool = False) -> Iterator[tuple[bytes, bytes]]:
        del prefix, start, down
        raise UnsupportedByBackend(bus=self._bus.url, feature="read cells in the order of their keys")

    def put(self, key: bytes, value: bytes | None) -> None:
        del key, value
        raise IllegalState(what="A snapshot", action="put", reason="it is for reading")

    def outdated(self) -> Exception:
        """What to raise if the moment is too long ago to be read."""
        return Conflict(reason="The bus changed too much while the view was open; look again.")

    def _look(self, name: str) -> _LogView:
        if name not in self._logs:
            self._logs[name] = self._look_at(name)
        return self._logs[name]

    def _look_at(self, name: str) -> _LogView:
        keys = self._bus.keys
        log_keys = keys.log(name)
        since = b"" if self._moment is None else self._moment[0]
        command = scripts.LOOK.call(
            (keys.changes, keys.undo, keys.catalogue, log_keys.row, log_keys.sizes), (name, since)
        )
        [reply] = self._bus.client.ask(command, what=name)
        self._begin(reply[1], reply[2])
        if reply[0] == b"PAST":
            raise self.outdated()
        if reply[0] == b"GONE":
            raise StreamNotFound(name=name, bus=self._bus.url)
        entry, identity, first, after, version = reply[3:]
        stored = decode_entry(entry)
        if stored.identity != identity.decode():
            raise StreamNotFound(name=name, bus=self._bus.url)
        return _LogView(self._bus.handle(name, stored), int(first), int(after), version)

    def _look_into(self, key: bytes) -> bytes | None:
        if self._moment is not None and self._bus.monotonic() - self._began > _VIEW_S:
            raise self.outdated()
        keys = self._bus.keys
        since = b"" if self._moment is None else self._moment[1]
        [reply] = self._bus.client.ask(scripts.CELL.call((keys.changes, keys.undo, keys.cells), (key, since)))
        self._begin(reply[0], reply[1])
        value: bytes | None = reply[2]
        return value

    def _begin(self, change: bytes, undone: bytes) -> None:
        if self._moment is None:
            self._moment, self._began = (change, undone), self._bus.monotonic()

    def _entries(self, view: _LogView, offset: int) -> Iterator[Entry]:
        reader, at = Reader(self._bus.client, view.log.keys, view.log.name, view.log.identity), offset
        while at < view.next:
            row, found = reader.read(at, READ_BYTES_DEFAULT)
            if row.identity != view.log.identity or at < row.first:
                raise self.outdated()
            for entry in found:
                if entry.base < view.next:
                    yield entry
            if reader.goes_on_at <= at:
                break
            at = reader.goes_on_at


class Changes(View):
    """A transaction that writes."""

    def __init__(self, bus: TransactionOwner) -> None:
        super().__init__(bus)
        self.is_stale = False
        self._puts: dict[bytes, bytes | None] = {}
        self._now_ns = bus.now_ns()
        self._half_done: Exception | None = None

    def read(self, log: str, offset: int) -> Iterator[Entry]:
        stored = super().read(log, offset)
        view = self._look(log)
        return self._with_added(stored, view, offset)

    def get(self, key: bytes) -> bytes | None:
        return self._puts[key] if key in self._puts else super().get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        _check_key(key)
        self._puts[key] = value

    def hold(self, log: str, holder: str, offset: int | None) -> None:
        check_holder(holder)
        self._look(log).holds[holder] = offset

    def append(self, log: str, batches: Sequence[Batch], *, expected_next: int | None = None) -> list[int]:
        view = self._look(log)
        if expected_next is not None and expected_next != view.end:
            raise OffsetConflict(stream=log, expected=expected_next - 1, actual=view.end - 1)
        try:
            return self._add(view, batches)
        except Exception as error:
            self._half_done = error
            raise

    def outdated(self) -> Exception:
        """The work is done again."""
        self.is_stale = True
        return Stale()

    def check_whole(self) -> None:
        """Raise what stopped an append half way, even if the work caught it: half an append must not be committed."""
        if self._half_done is not None:
            raise self._half_done

    def commit(self) -> bool:
        """Make the changes; False if somebody else changed what they are based on."""
        touched = [view for view in self._logs.values() if view.batches or view.holds]
        if not touched and not self._puts and not self._bus.wait_replicas:
            return True  # all that was read was so at one moment; but a replica may not have it yet
        names = ", ".join(view.log.name for view in self._logs.values()) or "cells"
        reply = send_change(self._bus, names, self._command())
        if reply[0] == b"STALE":
            return False
        if reply[0] != b"OK":
            raise self._refused(reply)
        return True

    def _command(self) -> scripts.Command:
        keys, logs = self._bus.keys, list(self._logs.values())
        told: list[Argument] = [len(logs)]
        for view in logs:
            told += (view.log.identity, view.version, *view.hold_arguments())
            told += self._append_arguments(view)
        told.append(len(self._cells))
        for key, value in self._cells.items():
            told += (key, "0" if value is None else "1", b"" if value is None else value)
        told.append(len(self._puts))
        for key, value in self._puts.items():
            told += (key, "0" if value is None else "1", b"" if value is None else value)
        told.append("1" if self._bus.wait_replicas else "0")
        stored = [key for view in logs for key in view.log.keys.stored]
        return scripts.COMMIT.call((keys.changes, keys.cells, keys.undo, *stored), told)

    def _append_arguments(self, view: _LogView) -> list[Argument]:
        if not view.batches:
            return ["0"]
        plan = plan_arguments(view.log.config, view.batches, view.sealed, self._now_ns, None)
        return ["1", view.log.keys.channel, *plan]

    def _refused(self, reply: list[bytes]) -> LockstepError:
        view = list(self._logs.values())[int(reply[1]) - 1]
        return refused(reply[0], view.log.name, view.log.config, self._bus.url)

    def _add(self, view: _LogView, batches: Sequence[Batch]) -> list[int]:
        sealed = [batch.seal(self._now_ns) for batch in batches]
        check_size(view.log, self._bus.url, [*view.sealed, *sealed])
        bases = self._bases(view, batches)
        view.batches += batches
        view.sealed += sealed
        view.bases += bases
        return bases

    def _bases(self, view: _LogView, batches: Sequence[Batch]) -> list[int]:
        """Where batches will go. If none can be a copy and there is always room, that is at the end."""
        if not view.log.config.protect and all(batch.producer == NO_PRODUCER for batch in batches):
            bases, at = list[int](), view.end
            for batch in batches:
                bases.append(at)
                at += batch.count
            return bases
        together = [*view.batches, *batches]
        plan = plan_arguments(view.log.config, together, [b""] * len(together), self._now_ns, None)
        command = scripts.APPEND.call(
            (self._bus.keys.changes, *view.log.keys.stored),
            (view.log.identity, "1", "0", "", *view.hold_arguments(), *plan),
        )
        [reply] = self._bus.client.ask(command, what=view.log.name)
        if reply[0] == b"GONE":
            raise self.outdated()
        if reply[0] != b"OK":
            raise refused(reply[0], view.log.name, view.log.config, self._bus.url)
        told = reply[1 + len(view.batches) :]
        return [_base(view, text, batch) for text, batch in zip(told, batches, strict=True)]

    def _with_added(self, stored: Iterator[Entry], view: _LogView, offset: int) -> Iterator[Entry]:
        yield from stored
        at = max(offset, view.next)
        for base, data, batch in zip(view.bases, view.sealed, view.batches, strict=True):
            if base + batch.count > at:  # else it is a copy of what came already
                yield Entry(base, data)
                at = base + batch.count


def _base(view: _LogView, text: bytes, batch: Batch) -> int:
    """Where a batch will go, or where the one is that it is a copy of."""
    for base, earlier in zip(view.bases, view.batches, strict=True):
        if (earlier.producer, earlier.sequence) == (batch.producer, batch.sequence) != (NO_PRODUCER, 0):
            return base
    return view.log.base(text, batch)


def _check_key(key: bytes) -> None:
    if not 0 < len(key) <= _KEY_BYTES_MAX:
        raise BadArgument(name="key", value=key[:40], reason=f"it must have 1 to {_KEY_BYTES_MAX} bytes")
