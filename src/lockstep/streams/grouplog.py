"""A group's log: records as JSON, loading from the last snapshot, and trimming what a snapshot made needless."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from lockstep.core.group import (
    Beat,
    Claim,
    Confirm,
    GroupState,
    Leave,
    Member,
    Record,
    Release,
    Reset,
    Snapshot,
    fold,
    restore,
)
from lockstep.core.seats import Seat
from lockstep.errors import DataError, GroupNotFound, TakenBack, TimedOut, Trimmed
from lockstep.log.batch import Batch, BatchView, pack
from lockstep.log.config import GROUP_LOG_PREFIX, StreamConfig
from lockstep.log.port import Bus, Entry, Log, Transaction
from lockstep.runtime import Runtime, logger

PREFIX = GROUP_LOG_PREFIX
CONFIG = StreamConfig(capacity=None)
SNAPSHOT_EVERY = 500
"""Records between two snapshots: bounds what a group keeps, also of the room that is reserved for groups."""
_LOAD_TRIES = 8
_KINDS = {kind.__name__.lower(): kind for kind in (Beat, Claim, Confirm, Leave, Release, Reset, Snapshot)}


_NOTHING = Leave("", -1)
"""Stands for a record that is not valid: no member leaves, so applying it changes nothing."""


def encode(record: Record) -> bytes:
    """One record as JSON."""
    return json.dumps({"kind": type(record).__name__.lower(), **asdict(record)}, separators=(",", ":")).encode()


def decode(data: bytes) -> Record:
    """Back from JSON; DataError for what no member may have written."""
    fields: dict[str, Any] = json.loads(data)
    kind = fields.pop("kind")
    if kind not in _KINDS:
        raise DataError(reason=f"A group log holds a record of unknown kind {kind!r}; a newer version wrote it.")
    if kind == "snapshot":
        return Snapshot(fields["upto"], _decode_state(fields["group"]))
    if kind == "beat":
        fields["seats"] = tuple(fields["seats"])
    made: Record = _KINDS[kind](**_known(_KINDS[kind], fields))
    return made


def _known(kind: type[Any], fields: dict[str, Any]) -> dict[str, Any]:
    if unknown := fields.keys() - kind.__dataclass_fields__.keys():
        names = ", ".join(sorted(unknown))
        raise DataError(reason=f"A record of a group log says {names}, which a newer version wrote.")
    return fields


def is_valid(record: Record) -> bool:
    """Whether its offset is an integer. Earlier versions wrote whatever confirm() was given, and that stops a group."""
    match record:
        case Confirm(_, _, _, offset):
            return type(offset) is int and offset >= 0
        case Claim(_, _, _, _, start):
            return start is None or type(start) is int
        case Reset(_, start, _):
            return type(start) is int
        case _:
            return True


def _decode_seat(fields: dict[str, Any]) -> Seat:
    """A snapshot may hold a confirmation that is no integer: then what lies below it is confirmed."""
    for name in ("start", "confirmed"):
        if isinstance(fields.get(name), float):
            fields = {**fields, name: math.floor(fields[name])}
    return Seat(**_known(Seat, fields))


def _decode_state(fields: dict[str, Any]) -> GroupState:
    return GroupState(
        seats={name: _decode_seat(seat) for name, seat in fields["seats"].items()},
        members={
            name: Member(**_known(Member, {**m, "seats": tuple(m["seats"])})) for name, m in fields["members"].items()
        },
        resets=tuple(fields["resets"]),
        upto=fields["upto"],
    )


def records_of(entries: Iterable[Entry], name: str) -> Iterable[tuple[int, Record]]:
    """Offsets and records of stored batches."""
    for entry in entries:
        view = BatchView(entry.base, entry.data, name)
        for index, value in enumerate(view.values()):
            record, at = decode(value), view.base + index
            if not is_valid(record):
                logger.error(
                    "Record %d of %s is not valid and counts for nothing: %r", at, name, record,
                    extra={"action": "group_record_invalid", "stream": name, "offset": at},
                )  # fmt: skip
                record = _NOTHING
            yield at, record


def _is_news(record: Record) -> bool:
    """Whether a member may have to act at once: a member came, a seat became free or changed hands."""
    return not isinstance(record, (Beat, Confirm)) or (isinstance(record, Beat) and record.number == 1)


def holder(group: str) -> str:
    """The name under which a group holds what it needs of a protected stream."""
    return f"group:{group}"


class GroupLog:
    """One process's way to a group's log."""

    def __init__(self, bus: Bus, group: str, runtime: Runtime, *, create: bool = True) -> None:
        self.bus, self.group, self.name = bus, group, PREFIX + group
        self.log: Log = bus.create(self.name, CONFIG) if create else bus.open(self.name)
        self._producer, self._sequence = runtime.new_id(), 0
        self._runtime = runtime
        self.next = 0
        """Where to read on."""
        self._snapshot_upto = -1
        """How far the newest snapshot reaches that was read."""
        self._unsure: dict[int, Record] = {}
        """Records that decide who owns something, read since the last look whether they are still there; and the last
        ones from before."""
        self._has_lost = False

    def load(self) -> GroupState:
        """Everything the log says now, from its last usable snapshot on."""
        for _ in range(_LOAD_TRIES):
            first = self.log.bounds().first
            try:
                found = list(self._read_from(first))
            except Trimmed:  # by another member, between the two
                continue
            self._snapshot_upto, self._unsure, self._has_lost = -1, {}, False
            self._note(found)
            self._unsure = self._newest(self._unsure)
            self.next = found[-1][0] + 1 if found else first
            return self._state_of(found, first)
        raise TimedOut(what=f"Reading the log of group {self.group!r}", seconds=0.0)

    def read_new(self) -> list[tuple[int, Record]]:
        """Records not read yet; none if the bus says that it lost some of those that were: see has_lost."""
        try:
            found = list(self._read_from(self.next))
        except TakenBack:
            self._has_lost = True
            return []
        if found:
            self.next = found[-1][0] + 1
            self._note(found)
        return found

    def has_lost(self, *, look: bool) -> bool:
        """Whether the bus lost records that were read here; `look` asks it, else only what appends have told counts.

        What was made of such records is worth nothing: `load` again.
        """
        if look and not self._has_lost:
            self._has_lost = not all(self._is_there(at, record) for at, record in self._unsure.items())
            self._unsure = self._newest(self._unsure)
        return self._has_lost

    def _is_there(self, at: int, record: Record) -> bool:
        """Whether a record stands where it was read: the store says so, and not what this handle has fetched."""
        try:
            stored = self.log.reread(at)
        except TakenBack:
            return False
        return stored is not None and (at, record) in records_of([stored], self.name)

    def _newest(self, known: dict[int, Record]) -> dict[int, Record]:
        """The last record, and the last that decides who owns something."""
        deciding = [at for at, record in known.items() if _is_news(record)]
        return {at: known[at] for at in sorted({*deciding[-1:], *list(known)[-1:]})}

    def state_in(self, changes: Transaction, known: GroupState) -> GroupState:
        """What the log says within a transaction, where no one else can write: this holds at the commit."""
        if changes.identity(self.name) != self.log.identity:
            raise GroupNotFound(name=self.group, bus=self.bus.url)
        first = changes.bounds(self.name).first
        if known.upto + 1 < first:
            return self._state_of(list(records_of(changes.read(self.name, first), self.name)), first)
        for at, record in records_of(changes.read(self.name, known.upto + 1), self.name):
            known = fold(known, at, record)
        return known

    def _state_of(self, found: list[tuple[int, Record]], first: int) -> GroupState:
        usable = [record for _, record in found if isinstance(record, Snapshot) and record.upto >= first - 1]
        if first > 0 and not usable:
            raise DataError(reason=f"The log of group {self.group!r} was trimmed below {first} without a snapshot.")
        state = restore(usable[-1]) if usable else GroupState()
        for at, record in found:
            state = fold(state, at, record)
        return state

    def _note(self, found: list[tuple[int, Record]]) -> None:
        reached = [record.upto for _, record in found if isinstance(record, Snapshot)]
        self._snapshot_upto = max([self._snapshot_upto, *reached])
        deciding = {at: record for at, record in found if _is_news(record)}
        self._unsure = {**self._unsure, **deciding, **dict(found[-1:])}

    def append(self, records: list[Record]) -> None:
        """Add records in one step. Only news wakes the others: beats and confirmations are found soon enough."""
        [base] = self.log.append([self.pack(records)], wake=any(map(_is_news, records)))
        self._has_lost |= base < self.next

    def pack(self, records: list[Record]) -> Batch:
        """Records as a batch, numbered so that a copy is known as one."""
        batch = pack(
            [encode(record) for record in records],
            producer=self._producer,
            sequence=self._sequence,
            created_ns=self._runtime.wall_ns(),
        )
        self._sequence += len(records)
        return batch

    def tidy(self, state: GroupState) -> None:
        """Now and then write a snapshot, and trim what stands before the previous one."""
        if (state.upto - self._snapshot_upto) // self.log.limits.stride < SNAPSHOT_EVERY:
            return
        previous = self._snapshot_upto
        self.append([Snapshot(state.upto, state)])
        if previous >= 0:
            self.log.trim(previous)  # the snapshot before the new one stays readable, with all that it does not hold

    def close(self) -> None:
        """Give the log back."""
        self.log.close()

    def _read_from(self, offset: int) -> Iterable[tuple[int, Record]]:
        while entries := self.log.read(offset):
            for at, record in records_of(entries, self.name):
                if at >= offset:
                    yield at, record
                    offset = at + 1
