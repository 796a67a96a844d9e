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
from lockstep.errors import DataError
from lockstep.log.batch import Batch, BatchView, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus, Entry, Log
from lockstep.runtime import Runtime

PREFIX = "_group."
CONFIG = StreamConfig(capacity=None)
SNAPSHOT_EVERY = 2000
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
        members={name: Member(tuple(m["seats"]), m["beat_at"], m["lease"]) for name, m in fields["members"].items()},
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


class GroupLog:
    """One process's way to a group's log."""

    def __init__(self, bus: Bus, group: str, runtime: Runtime, *, create: bool = True) -> None:
        self.bus, self.group, self.name = bus, group, PREFIX + group
        self.log: Log = bus.create(self.name, CONFIG) if create else bus.open(self.name)
        self._producer, self._sequence = runtime.new_id(), 0
        self._runtime = runtime
        self.next = 0
        """Where to read on."""
        self._snapshot_at = 0

    def load(self) -> GroupState:
        """Everything the log says now, from its last usable snapshot on."""
        first = self.log.bounds().first
        found = list(self._read_from(first))
        self.next = found[-1][0] + 1 if found else first
        snapshots = [(at, record) for at, record in found if isinstance(record, Snapshot)]
        usable = [(at, snapshot) for at, snapshot in snapshots if snapshot.upto >= first - 1]
        if first > 0 and not usable:
            raise DataError(reason=f"The log of group {self.group!r} was trimmed below {first} without a snapshot.")
        state = GroupState()
        if usable:
            self._snapshot_at, snapshot = usable[-1]
            state = restore(snapshot)
        for at, record in found:
            state = fold(state, at, record)
        return state

    def read_new(self) -> list[tuple[int, Record]]:
        """Records not read yet."""
        found = list(self._read_from(self.next))
        if found:
            self.next = found[-1][0] + 1
        return found

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
        if state.upto - self._snapshot_at < SNAPSHOT_EVERY:
            return
        previous, self._snapshot_at = self._snapshot_at, state.upto
        self.append([Snapshot(state.upto, state)])
        if previous:
            self.log.trim(previous)

    def close(self) -> None:
        """Give the log back."""
        self.log.close()

    def _read_from(self, offset: int) -> Iterable[tuple[int, Record]]:
        while entries := self.log.read(offset):
            for at, record in records_of(entries, self.name):
                if at >= offset:
                    yield at, record
                    offset = at + 1
