"""A group's log: records as JSON, loading from the last snapshot, and trimming what a snapshot made needless."""

from __future__ import annotations

import json
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
from lockstep.errors import DataError, GroupNotFound, TimedOut, Trimmed
from lockstep.log.batch import Batch, BatchView, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus, Entry, Log, Transaction
from lockstep.runtime import Runtime

PREFIX = "_group."
CONFIG = StreamConfig(capacity=None)
SNAPSHOT_EVERY = 2000
_LOAD_TRIES = 8
_KINDS = {kind.__name__.lower(): kind for kind in (Beat, Claim, Confirm, Leave, Release, Reset, Snapshot)}


def encode(record: Record) -> bytes:
    """One record as JSON."""
    return json.dumps({"kind": type(record).__name__.lower(), **asdict(record)}, separators=(",", ":")).encode()


def decode(data: bytes) -> Record:
    """Back from JSON."""
    fields: dict[str, Any] = json.loads(data)
    kind = fields.pop("kind")
    if kind not in _KINDS:
        raise DataError(reason=f"A group log holds a record of unknown kind {kind!r}; a newer version wrote it.")
    if kind == "snapshot":
        return Snapshot(fields["upto"], _decode_state(fields["group"]))
    if kind == "beat":
        fields["seats"] = tuple(fields["seats"])
    made: Record = _KINDS[kind](**fields)
    return made


def _decode_state(fields: dict[str, Any]) -> GroupState:
    return GroupState(
        seats={name: Seat(**seat) for name, seat in fields["seats"].items()},
        members={name: Member(**{**m, "seats": tuple(m["seats"])}) for name, m in fields["members"].items()},
        resets=tuple(fields["resets"]),
        upto=fields["upto"],
    )


def records_of(entries: Iterable[Entry], name: str) -> Iterable[tuple[int, Record]]:
    """Offsets and records of stored batches."""
    for entry in entries:
        view = BatchView(entry.base, entry.data, name)
        for index, value in enumerate(view.values()):
            yield view.base + index, decode(value)


def _is_news(record: Record) -> bool:
    """Whether somebody may have to act at once: a member came, a seat became free or changed hands."""
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

    def load(self) -> GroupState:
        """Everything the log says now, from its last usable snapshot on."""
        for _ in range(_LOAD_TRIES):
            first = self.log.bounds().first
            try:
                found = list(self._read_from(first))
            except Trimmed:  # by another member, between the two
                continue
            self._note(found)
            self.next = found[-1][0] + 1 if found else first
            return self._state_of(found, first)
        raise TimedOut(what=f"Reading the log of group {self.group!r}", seconds=0.0)

    def read_new(self) -> list[tuple[int, Record]]:
        """Records not read yet."""
        found = list(self._read_from(self.next))
        if found:
            self.next = found[-1][0] + 1
            self._note(found)
        return found

    def state_in(self, changes: Transaction, known: GroupState) -> GroupState:
        """What the log says within a transaction, where nobody else writes: the truth at the commit."""
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

    def append(self, records: list[Record]) -> None:
        """Add records in one step. Only news wakes the others: beats and confirmations are found soon enough."""
        self.log.append([self.pack(records)], wake=any(map(_is_news, records)))

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
