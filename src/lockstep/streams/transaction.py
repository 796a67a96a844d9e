"""Several changes that happen together: records to many streams, small state, and a group's confirmation.

On a bus that can do it, a handler that confirms, publishes and keeps state in one transaction processes every record
exactly once: a kill at any moment leaves all of it or nothing. Nothing is locked while the handler works; everything
is written, and the group's ownership checked, in one short step at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from lockstep.core.group import Confirm
from lockstep.core.seats import Seat
from lockstep.errors import BadRecord, Fenced, IllegalState, UnsupportedByBackend
from lockstep.log import port
from lockstep.log.batch import Headers, pack
from lockstep.log.port import Bus
from lockstep.runtime import Runtime
from lockstep.streams.grouplog import records_of
from lockstep.streams.record import Record
from lockstep.streams.subscriber import Subscriber

_STATE = b"state\0"


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
        self._space = _STATE + space.encode() + b"\0"
        self._records: list[tuple[str, bytes, bytes | None, Headers]] = []
        self._cells: dict[bytes, bytes | None] = {}
        self._done = False
        self.offsets: list[int] = []
        """After the commit: the offsets of the published records, in order."""

    def publish(
        self, stream: str, value: bytes, *, key: bytes | None = None, headers: Iterable[tuple[str, bytes]] = ()
    ) -> None:
        """Publish when the transaction commits."""
        if not isinstance(value, bytes):
            raise BadRecord(stream=stream, reason=f"its value is {type(value).__name__}, not bytes")
        self._records.append((stream, value, key, tuple(headers)))

    def get(self, name: str) -> bytes | None:
        """State kept under a name, as this transaction leaves it."""
        key = self._space + name.encode()
        if key in self._cells:
            return self._cells[key]
        with self._bus.snapshot() as view:
            return view.get(key)

    def put(self, name: str, value: bytes | None) -> None:
        """Keep state under a name; None removes it."""
        self._cells[self._space + name.encode()] = value

    def commit(self) -> list[int]:
        """Write everything in one step; returns the offsets of the published records."""
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
        offsets = []
        for stream, value, key, headers in self._records:
            batch = pack(
                [value], producer=self._runtime.new_id(), sequence=0, created_ns=self._runtime.wall_ns(),
                keys=None if key is None else [key], headers=[headers] if headers else None,
            )  # fmt: skip
            offsets += changes.append(stream, [batch])
        for key, cell in self._cells.items():
            changes.put(key, cell)
        return offsets


class GroupTransaction(Transaction):
    """A transaction that also confirms, and that only the group's present owner can commit."""

    def __init__(self, bus: Bus, runtime: Runtime, subscriber: Subscriber) -> None:
        if subscriber.member is None:
            raise IllegalState(what="A subscriber without a group", action="confirm", reason="it shares nothing")
        super().__init__(bus, runtime, subscriber.group or "")
        self._subscriber, self._member = subscriber, subscriber.member
        self._confirms: dict[str, Confirm] = {}

    def confirm(self, record: Record) -> None:
        """Everything up to this record is done when the transaction commits."""
        epoch = self._subscriber.epoch(record.stream)
        if epoch is None:
            self._refuse(record.stream, 0)
        assert epoch is not None
        seat = self._subscriber.seat(record.stream)
        self._confirms[record.stream] = Confirm(self._member.id, seat, epoch, record.offset)

    def _write(self, changes: port.Transaction) -> list[int]:
        if self._confirms:
            self._write_confirms(changes)
        return super()._write(changes)

    def _write_confirms(self, changes: port.Transaction) -> None:
        """Inside the transaction nobody else writes, so the end of the group's log says who owns what right now."""
        grouplog = self._member.grouplog
        state = self._member.group_state
        unread = records_of(changes.read(grouplog.name, state.upto + 1), grouplog.name)
        state = self._member.fold_in(unread, state)
        for stream, confirm in self._confirms.items():
            seat: Seat = state.seat(confirm.seat)
            if (seat.owner, seat.epoch) != (confirm.member, confirm.epoch):
                self._refuse(stream, confirm.epoch)
            log = self._member.log(confirm.seat)
            if log.config.protect:
                changes.hold(log.name, f"group:{grouplog.group}", confirm.offset + 1)
        changes.append(grouplog.name, [grouplog.pack(list(self._confirms.values()))])

    def _refuse(self, stream: str, epoch: int) -> None:
        reason = "another member owns the stream; nothing of the transaction was written"
        group = self._subscriber.group
        raise Fenced(member=self._member.id, group=group, stream=stream, epoch=epoch, reason=reason)
