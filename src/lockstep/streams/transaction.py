"""Several changes that happen together: records to many streams, small state, and a group's confirmation.

On a bus that can do it, a handler that confirms, publishes and keeps state in one transaction processes every record
exactly once: a kill at any moment leaves all of it or nothing. Nothing is locked while the handler works; everything
is written, and the group's ownership checked, in one short step at the end.
"""

from __future__ import annotations

from itertools import groupby
from types import TracebackType
from typing import Any, NamedTuple

from lockstep.core.group import Confirm
from lockstep.core.seats import Seat
from lockstep.errors import (
    BadArgument,
    BadOffset,
    Conflict,
    Fenced,
    IllegalState,
    StreamNotFound,
    UnsupportedByBackend,
)
from lockstep.log import port
from lockstep.log.batch import NO_PRODUCER, Batch, Headers, codec_by_name, pack
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime
from lockstep.streams import arguments
from lockstep.streams.grouplog import encode, holder
from lockstep.streams.record import Record
from lockstep.streams.shards import HeaderPairs, check_size, checked_bytes, checked_headers, logs_of, shard_of
from lockstep.streams.subscriber import Subscriber
from lockstep.streams.threads import Process

_STATE = b"state\0"


class _Planned(NamedTuple):
    log: Log
    value: bytes
    key: bytes | None
    headers: Headers
    created_ns: int | None


class Transaction:
    """Collects changes; leaving the with block writes them, leaving it by an exception drops them.

    with bus.transaction() as together:
        together.publish("debits", b"...")
        together.publish("credits", b"...")
    """

    def __init__(self, bus: Bus, runtime: Runtime, space: str = "") -> None:
        if not bus.promises.atomic:
            raise UnsupportedByBackend(bus=bus.url, feature="change several things in one step")
        self._bus, self._runtime = bus, runtime
        self._process = Process(bus.url)
        self._space = _STATE + space.encode() + b"\0"
        self._records: list[_Planned] = []
        self._logs: dict[str, list[Log]] = {}
        self._cells: dict[bytes, bytes | None] = {}
        self._expected: dict[bytes, bytes | None] = {}
        self._done = False
        self.offsets: list[int] = []
        """After the commit: the offsets of the published records, in order."""

    def publish(
        self,
        stream: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        created_ns: int | None = None,
    ) -> None:
        """Publish when the transaction commits."""
        value = checked_bytes("value", value, stream)
        key = None if key is None else checked_bytes("key", key, stream)
        created_ns = None if created_ns is None else arguments.time_ns("created_ns", created_ns)
        log = self._log_for(stream, key)
        checked = checked_headers(headers, stream)
        check_size(value, key, checked, log.config.max_record_bytes, stream)
        self._records.append(_Planned(log, value, key, checked, created_ns))

    def get(self, name: str) -> bytes | None:
        """State kept under a name, as this transaction leaves it.

        If it changes before the commit, the commit raises Conflict and writes nothing.
        """
        key = self._key(name)
        if key in self._cells:
            return self._cells[key]
        with self._bus.snapshot() as view:
            value = view.get(key)
        return self._expected.setdefault(key, value)

    def put(self, name: str, value: bytes | None) -> None:
        """Keep state under a name; None removes it."""
        self._cells[self._key(name)] = _checked_state(value)

    def expect(self, name: str, value: bytes | None) -> None:
        """Commit only if the state under a name is still this; else Conflict, and nothing is written."""
        self._expected[self._key(name)] = _checked_state(value)

    def _key(self, name: str) -> bytes:
        return self._space + arguments.text("name", name).encode()

    def commit(self) -> list[int]:
        """Write everything in one step; returns the offsets of the published records."""
        self._process.check()
        if self._done:
            raise IllegalState(what="A transaction", action="commit again", reason="it is over")
        self._done = True
        self.offsets = self._bus.atomic(self._write)
        return self.offsets

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and not self._done:
            self.commit()
        self._done = True

    def _write(self, changes: port.Transaction) -> list[int]:
        for cell, wanted in self._expected.items():
            if changes.get(cell) != wanted:
                raise Conflict(reason="The state that this transaction began with has changed; nothing was written.")
        offsets: list[int] = []
        for log, run in groupby(self._records, key=lambda record: record.log):
            if changes.identity(log.name) != log.identity:
                raise StreamNotFound(name=log.name, bus=self._bus.url)  # deleted, and made anew as another stream
            batch = self._pack(list(run), log)
            [base] = changes.append(log.name, [batch])
            offsets += range(base, base + batch.count)
        for key, cell_value in self._cells.items():
            changes.put(key, cell_value)
        return offsets

    def _log_for(self, stream: str, key: bytes | None) -> Log:
        """The stream's log, or that of the key's shard."""
        if stream not in self._logs:
            self._logs[stream] = logs_of(self._bus, stream)
        logs = self._logs[stream]
        if key is None:
            return logs[int(self._runtime.random() * len(logs))]
        return logs[shard_of(key, len(logs), logs[0].config.partitioner)]

    def _pack(self, records: list[_Planned], log: Log) -> Batch:
        now = self._runtime.wall_ns()
        return pack(
            [record.value for record in records],
            producer=NO_PRODUCER,
            sequence=0,
            codec=codec_by_name(log.config.compression),
            created_ns=[now if record.created_ns is None else record.created_ns for record in records],
            keys=[record.key for record in records] if any(record.key is not None for record in records) else None,
            headers=[record.headers for record in records] if any(record.headers for record in records) else None,
        )


def _checked_state(value: bytes | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise BadArgument(name="value", value=value, reason=f"state must be bytes or None, not {type(value).__name__}")


class GroupTransaction(Transaction):
    """A transaction that also confirms, and that only the group's present owner can commit.

    The commit is refused with Fenced unless the member still owns the streams whose records it confirms; without a
    confirm, unless it still owns every stream that it owned when the transaction began.
    """

    def __init__(self, bus: Bus, runtime: Runtime, subscriber: Subscriber) -> None:
        if subscriber._member is None:
            raise IllegalState(what="A subscriber without a group", action="confirm", reason="it shares nothing")
        super().__init__(bus, runtime, subscriber.group or "")
        self._subscriber, self._member = subscriber, subscriber._member
        self._confirms: dict[str, Confirm] = {}
        self._held = self._member.held()
        """What the member owned when the transaction began; without a confirm it must own all of it at the commit."""

    def confirm(self, record: Record) -> None:
        """Everything up to this record is done when the transaction commits.

        A transaction for a record that is confirmed already changes nothing: the record was processed.
        """
        epoch = self._subscriber.epoch(record.stream)
        last = self._subscriber.last_read_offset(record.stream)
        if epoch is None or last is None or record.offset > last:  # read before the stream was lost or reset
            self._refuse(record.stream, epoch or 0)
        assert epoch is not None
        seat = self._subscriber._seat(record.stream)
        self._confirms[record.stream] = Confirm(self._member.id, seat, epoch, record.offset)

    def _write(self, changes: port.Transaction) -> list[int]:
        if not self._confirms:
            self._check_owner(changes)
        elif not self._write_confirms(changes):
            return []
        return super()._write(changes)

    def _check_owner(self, changes: port.Transaction) -> None:
        state = self._member.grouplog.state_in(changes, self._member.group_state)
        if not self._held:
            self._refuse("any stream", 0)
        for name, epoch in self._held.items():
            seat = state.seat(name)
            if (seat.owner, seat.epoch) != (self._member.id, epoch):
                self._refuse(self._member.log(name).name, epoch)

    def _write_confirms(self, changes: port.Transaction) -> bool:
        """Inside the transaction nobody else writes, so the end of the group's log says who owns what right now.

        False if this was committed before: after a lost answer it can be tried again, and counts once.
        """
        grouplog = self._member.grouplog
        state = grouplog.state_in(changes, self._member.group_state)
        for stream, confirm in self._confirms.items():
            seat: Seat = state.seat(confirm.seat)
            if (seat.owner, seat.epoch) != (confirm.member, confirm.epoch):
                self._refuse(stream, confirm.epoch)
        if all(state.seat(confirm.seat).confirmed == confirm.offset for confirm in self._confirms.values()):
            return False
        for stream, confirm in self._confirms.items():
            confirmed = state.seat(confirm.seat).confirmed
            if confirmed is not None and confirm.offset <= confirmed:
                reason = (
                    f"everything up to {confirmed} is confirmed already, and nothing of the transaction was written"
                )
                raise BadOffset(offset=confirm.offset, stream=stream, reason=reason)
            log = self._member.log(confirm.seat)
            if log.config.protect:
                changes.hold(log.name, holder(grouplog.group), confirm.offset + 1)
        confirms = [encode(confirm) for confirm in self._confirms.values()]
        batch = pack(confirms, producer=NO_PRODUCER, sequence=0, created_ns=self._runtime.wall_ns())
        changes.append(grouplog.name, [batch])
        return True

    def _refuse(self, stream: str, epoch: int) -> None:
        reason = "another member owns the stream; nothing of the transaction was written"
        group = self._subscriber.group
        raise Fenced(member=self._member.id, group=group, stream=stream, epoch=epoch, reason=reason)
