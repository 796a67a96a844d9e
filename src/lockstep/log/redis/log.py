"""One log on Redis."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from lockstep.errors import (
    AppendTooLarge,
    AppendUncertain,
    BadArgument,
    Forbidden,
    OffsetConflict,
    StoreFull,
    StreamNotFound,
    Trimmed,
    Unavailable,
)
from lockstep.log.batch import NO_PRODUCER, Batch
from lockstep.log.config import StreamConfig
from lockstep.log.port import READ_BYTES_DEFAULT, Bounds, Entry, Limits, Log
from lockstep.log.redis import scripts
from lockstep.log.redis.client import RedisClient
from lockstep.log.redis.errors import Unanswered
from lockstep.log.redis.layout import CatalogueEntry, Keys, stamp
from lockstep.log.redis.reader import Reader, Row
from lockstep.log.redis.scripts import Argument, Command

_HOLDER_BYTES_MAX = 500
_UNSURE_MAX = 10_000
_CONFIG_S = 1.0
"""How long a handle uses the configuration that it knows before it looks again."""


class LogOwner(Protocol):
    """What a log needs of its bus."""

    url: str
    keys: Keys
    client: RedisClient
    wait_replicas: int
    wait_ms: int

    def check_open(self) -> None:
        """Raise Closed after close."""

    def check_may_write(self) -> None:
        """The same, and IllegalState within a transaction of this thread."""

    def now_ns(self) -> int:
        """The wall clock, for append times."""

    def monotonic(self) -> float:
        """The monotonic clock."""

    def stored(self, name: str) -> CatalogueEntry:
        """The catalogue entry of a log."""


class RedisLog(Log):
    """A log in one Redis stream. Safe to share between threads."""

    def __init__(self, bus: LogOwner, name: str, identity: str, config: StreamConfig, limits: Limits) -> None:
        self.name, self.identity, self.config, self.limits = name, identity, config, limits
        self.keys = bus.keys.log(name)
        self._bus, self._client = bus, bus.client
        self._reader = Reader(bus.client, self.keys, name, identity)
        self._lock = threading.Lock()
        self._config_due = bus.monotonic() + _CONFIG_S
        self._unsure: set[tuple[bytes, int]] = set()

    def append(self, batches: Sequence[Batch], *, expected_next: int | None = None, wake: bool = True) -> list[int]:
        self._bus.check_may_write()
        with self._noting(batches):
            self._refresh()
        now_ns = self._bus.now_ns()
        sealed = [batch.seal(now_ns) for batch in batches]
        check_size(self, self._bus.url, sealed)
        channel = self.keys.channel if wake else ""
        arguments = (self.identity, "0", "1" if self._bus.wait_replicas else "0", channel, 0)
        command = scripts.APPEND.call(
            (self._bus.keys.changes, *self.keys.stored),
            (*arguments, *plan_arguments(self.config, batches, sealed, now_ns, expected_next)),
        )
        with self._noting(batches):
            reply = send_change(self._bus, self.name, command)
        self._settle(batches)
        return self._bases(reply, batches, expected_next)

    def read(self, offset: int, *, max_bytes: int = READ_BYTES_DEFAULT) -> list[Entry]:
        self._bus.check_open()
        row, found = self._reader.read(offset, max_bytes)
        self._check(row)
        if offset < row.first:
            raise Trimmed(offset=offset, stream=self.name, first=row.first)
        return found

    def reread(self, offset: int) -> Entry | None:
        """Every read asks the store."""
        return next(iter(self.read(offset, max_bytes=1)), None)

    def bounds(self) -> Bounds:
        self._bus.check_open()
        self._refresh()
        row = self._reader.row()
        self._check(row)
        return Bounds(row.first, row.next)

    def trim(self, before: int) -> None:
        self._bus.check_may_write()
        command = scripts.TRIM.call((self._bus.keys.changes, *self.keys.stored), (self.identity, before))
        while self._done(command) == b"MORE":
            pass

    def hold(self, holder: str, offset: int | None) -> None:
        self._bus.check_may_write()
        check_holder(holder)
        arguments = (self.identity, holder, "" if offset is None else offset)
        self._done(scripts.HOLD.call((self.keys.row, self.keys.holds), arguments))

    def close(self) -> None:
        """Does nothing: the connections belong to the bus."""

    def base(self, text: bytes, batch: Batch) -> int:
        """The base offset that a script names for a batch, or says how to find."""
        if text[:1] != b"c":
            return int(text)
        counted, before = map(int, text.split()[1:])
        return self._reader.base(batch, counted, before)

    def _refresh(self) -> None:
        """Look at the catalogue once a second, to use a configuration that others have changed."""
        if self._bus.monotonic() < self._config_due:
            return
        self._config_due = self._bus.monotonic() + _CONFIG_S
        stored = self._bus.stored(self.name)
        if stored.identity == self.identity:
            self.config = stored.config

    def _bases(self, reply: list[Any], batches: Sequence[Batch], expected_next: int | None) -> list[int]:
        if reply[0] == b"OK":
            pairs = zip(reply[1:], batches, strict=True)
            return [self.base(text, batch) for text, batch in pairs]
        if reply[0] == b"CONFLICT":
            assert expected_next is not None, "only who expects something can be wrong"
            raise OffsetConflict(stream=self.name, expected=expected_next - 1, actual=int(reply[1]) - 1)
        raise refused(reply[0], self.name, self.config, self._bus.url)

    def _done(self, command: Command) -> bytes:
        """Run a script that may be run twice. Raises StreamNotFound if the log is gone."""
        [reply] = self._client.ask(command, what=self.name)
        if reply == b"GONE":
            raise StreamNotFound(name=self.name, bus=self._bus.url)
        return bytes(reply)

    def _check(self, row: Row) -> None:
        if row.identity != self.identity:
            raise StreamNotFound(name=self.name, bus=self._bus.url)

    @contextmanager
    def _noting(self, batches: Sequence[Batch]) -> Iterator[None]:
        """Remember uncertain batches: they stay uncertain if they then can't be sent again."""
        try:
            yield
        except AppendUncertain:
            with self._lock:
                if len(self._unsure) > _UNSURE_MAX:
                    self._unsure.clear()  # their publishers have long given up
                self._unsure |= _origins(batches)
            raise
        except (Unavailable, Forbidden) as error:
            with self._lock:
                is_unsure = not self._unsure.isdisjoint(_origins(batches))
            if is_unsure:
                raise AppendUncertain(stream=self.name, reason=str(error)) from error
            raise

    def _settle(self, batches: Sequence[Batch]) -> None:
        """The server has answered whether they are stored."""
        if self._unsure:
            with self._lock:
                self._unsure -= _origins(batches)


def _origins(batches: Sequence[Batch]) -> set[tuple[bytes, int]]:
    return {(batch.producer, batch.sequence) for batch in batches if batch.producer != NO_PRODUCER}


def plan_arguments(
    config: StreamConfig, batches: Sequence[Batch], sealed: Sequence[bytes], now_ns: int, expected_next: int | None
) -> list[Argument]:
    """The arguments of the scripts for an append."""
    age_ns = None if config.retain_age_s is None else int(config.retain_age_s * 1e9)
    ceiling = config.protect_bytes if config.protect else None
    limits = (expected_next, config.capacity, config.retain_bytes, age_ns, ceiling)
    told: list[Argument] = [stamp(now_ns), *("" if limit is None else limit for limit in limits), len(batches)]
    for batch, data in zip(batches, sealed, strict=True):
        producer = b"" if batch.producer == NO_PRODUCER else batch.producer
        told += (batch.count, producer, batch.sequence, batch.size, data)
    return told


def send_change(bus: LogOwner, stream: str, command: Command) -> list[Any]:
    """Run a script that must not be run twice; AppendUncertain if it may have been, or too few replicas have it."""
    commands = [command]
    if bus.wait_replicas:
        commands.append(("WAIT", bus.wait_replicas, bus.wait_ms))
    try:
        replies = bus.client.change(*commands, what=stream)
    except Unanswered as lost:
        raise AppendUncertain(stream=stream, reason=f"{bus.client.name}: {lost}") from lost
    reply: list[Any] = replies[0]
    if bus.wait_replicas and reply[0] == b"OK":
        _check_replicas(bus, stream, replies[1])
    return reply


def _check_replicas(bus: LogOwner, stream: str, count: Any) -> None:
    if not isinstance(count, int):
        raise AppendUncertain(stream=stream, reason=f"{bus.client.name} has stored it, but can't wait: {count}")
    if count < bus.wait_replicas:
        have = f"{count} of {bus.wait_replicas} replicas have it after {bus.wait_ms} ms"
        raise AppendUncertain(stream=stream, reason=f"{bus.client.name} has stored it, but {have}")


def refused(code: bytes, name: str, config: StreamConfig, bus: str) -> StreamNotFound | StoreFull:
    """The error for the reply of a script."""
    if code == b"FULL":
        reason = f"groups have not confirmed enough to stay below protect_bytes = {config.protect_bytes}"
        return StoreFull(stream=name, reason=reason)
    return StreamNotFound(name=name, bus=bus)


def check_size(log: RedisLog, bus: str, sealed: Sequence[bytes]) -> None:
    """Raise AppendTooLarge for what the server would not take."""
    size, limit = sum(map(len, sealed)), log.limits.append_bytes
    if limit is not None and size > limit:
        raise AppendTooLarge(
            size=f"{size} bytes", stream=log.name, bus=bus, limit=f"{limit} bytes", setting=log.limits.append_setting
        )


def check_holder(holder: str) -> None:
    """Raise BadArgument for a name that is too long."""
    if len(holder.encode()) > _HOLDER_BYTES_MAX:
        raise BadArgument(name="holder", value=holder[:40], reason="it is too long")
