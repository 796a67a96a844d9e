"""The crons of a shard in memory: their rows, and which of them tick in a span of time.

There may be very many. Their rows are kept in columns, as a row as an object takes four times as much.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lockstep.core.ticks import Policy
from lockstep.cron import Cron, Zone, parse
from lockstep.cron.table import CronTable, Seconds, Slots
from lockstep.errors import BadArgument, CronInvalid, ZoneUnknown
from lockstep.runtime import logger
from lockstep.schedule.rows import CronRow, cron_key
from lockstep.schedule.times import zone_of

_NEVER = -(1 << 63)
_NONE = CronRow(tenant="", id="", type="", expression="")


class CronColumns:
    """Crons by slot number. What most crons have in common, policy and zone and the like, is stored once."""

    def __init__(self) -> None:
        self._tenants: list[str] = []
        self._ids: list[str] = []
        self._expressions: list[str] = []
        self._rest: list[CronRow] = []
        """The other fields."""
        self._since, self._updated, self._executed = array("q"), array("q"), array("q")

    def put(self, slot: int, row: CronRow) -> None:
        """Set the row of a slot: one that is there, or the next."""
        if slot == len(self._ids):
            self._append(row)
            return
        self._tenants[slot], self._ids[slot] = sys.intern(row.tenant), row.id
        self._expressions[slot], self._rest[slot] = sys.intern(row.expression), _rest_of(row)
        self._since[slot], self._updated[slot] = row.since, row.updated
        self._executed[slot] = _NEVER if row.executed is None else row.executed

    def _append(self, row: CronRow) -> None:
        self._tenants.append(sys.intern(row.tenant))
        self._ids.append(row.id)
        self._expressions.append(sys.intern(row.expression))
        self._rest.append(_rest_of(row))
        self._since.append(row.since)
        self._updated.append(row.updated)
        self._executed.append(_NEVER if row.executed is None else row.executed)

    def row(self, slot: int) -> CronRow:
        """Return the row of a slot."""
        rest, executed = self._rest[slot], self._executed[slot]
        return CronRow(
            tenant=self._tenants[slot], id=self._ids[slot], type=rest.type, expression=self._expressions[slot],
            tz=rest.tz, dst=rest.dst, policy=rest.policy, jitter_s=rest.jitter_s, paused=rest.paused,
            payload=rest.payload, form=rest.form, log_granularity=rest.log_granularity, retention=rest.retention,
            retention_units=rest.retention_units, since=self._since[slot], updated=self._updated[slot],
            executed=None if executed == _NEVER else executed, caught_up=rest.caught_up, running=rest.running,
            fired=rest.fired,
        )  # fmt: skip

    def ticks_like(self, slot: int, row: CronRow) -> bool:
        """Whether the row of a slot ticks in the same seconds as another."""
        rest = self._rest[slot]
        return (self._expressions[slot], rest.tz, rest.dst) == (row.expression, row.tz, row.dst)

    def since(self, slot: int) -> int:
        """Return the second up to which the cron of a slot has no ticks."""
        return self._since[slot]

    def clear(self, slot: int) -> None:
        """Drop the row of a slot."""
        self.put(slot, _NONE)


def _rest_of(row: CronRow) -> CronRow:
    if row.payload is None and row.running is None and not row.caught_up and not row.fired:
        return _usual_rest(
            row.type, row.tz, row.dst, row.policy, row.jitter_s, row.paused, row.log_granularity, row.retention,
            row.retention_units,
        )  # fmt: skip
    return CronRow(
        tenant="", id="", type=row.type, expression="", tz=row.tz, dst=row.dst, policy=row.policy,
        jitter_s=row.jitter_s, paused=row.paused, payload=row.payload, form=row.form,
        log_granularity=row.log_granularity, retention=row.retention, retention_units=row.retention_units,
        caught_up=row.caught_up, running=row.running, fired=row.fired,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _usual_rest(
    kind: str, tz: str, dst: str, policy: Policy, jitter_s: int, paused: bool, log: str | None, retention: int,
    units: str,
) -> CronRow:  # fmt: skip
    return CronRow(
        tenant="", id="", type=kind, expression="", tz=tz, dst=dst, policy=policy, jitter_s=jitter_s, paused=paused,
        log_granularity=log, retention=retention, retention_units=units,
    )  # fmt: skip


class DueCron(NamedTuple):
    """A cron that ticks: its row key, its row, and its nominal seconds in order."""

    key: bytes
    row: CronRow
    seconds: list[int]


class Crons:
    """The crons of a shard by row key, and by the seconds in which they tick."""

    def __init__(self, rows: Iterable[CronRow] = ()) -> None:
        self._columns = CronColumns()
        self._slots: dict[bytes, int] = {}
        self._keys: list[bytes | None] = []
        crons: list[tuple[Cron, Zone]] = []
        for row in rows:
            read = _read(row)
            if read is not None:
                self._remember(cron_key(row.tenant, row.id, row.type), len(crons), row)
                crons.append(read)
        self._table = CronTable.of(crons)

    def __len__(self) -> int:
        """The number of crons."""
        return len(self._slots)

    def get(self, key: bytes) -> CronRow | None:
        """Return the cron with a row key."""
        slot = self._slots.get(key)
        return None if slot is None else self._columns.row(slot)

    def named(self, tenant: str, name: str) -> CronRow | None:
        """Return the cron of a tenant and a name."""
        own, _, kind = name[len(tenant) + 1 :].rpartition("/")
        return self.get(cron_key(tenant, own, kind))

    def rows(self) -> Iterator[tuple[bytes, CronRow]]:
        """Yield all crons with their row keys."""
        for key, slot in self._slots.items():
            yield key, self._columns.row(slot)

    def first_since(self) -> int:
        """Return the second before which no cron has ticks; there must be a cron."""
        return min(map(self._columns.since, self._slots.values()))

    def put(self, row: CronRow) -> None:
        """Add a cron, or replace it."""
        key = cron_key(row.tenant, row.id, row.type)
        slot = self._slots.get(key)
        if slot is not None and self._columns.ticks_like(slot, row):
            self._columns.put(slot, row)
            return
        cron, zone = parse(row.expression, row.type), zone_of(row)
        if slot is None:
            slot = self._table.add(cron, zone)
        else:
            self._table.replace(slot, cron, zone)
        self._remember(key, slot, row)

    def drop(self, key: bytes) -> None:
        """Remove a cron, if there is one."""
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._table.remove(slot)
            self._columns.clear(slot)
            self._keys[slot] = None

    def due(self, start: int, stop: int, most: int = sys.maxsize) -> tuple[int, Iterator[DueCron]]:
        """Return the crons that tick after second `start` and up to `stop`; once there are `most` ticks, up to earlier.

        The first part of the answer is the second up to which all ticks are there.
        """
        slots, seconds, reached = self._table.due_up_to(start, stop, most)
        return reached, self._by_cron(slots, seconds)

    def _by_cron(self, slots: Slots, seconds: Seconds) -> Iterator[DueCron]:
        """Ticks by cron; the cron whose first tick is the earliest comes first."""
        order = np.argsort(slots, kind="stable")
        slots, seconds = slots[order], seconds[order]
        begins = np.flatnonzero(np.diff(slots, prepend=-1))
        ends = np.append(begins[1:], len(slots))
        for place in np.argsort(seconds[begins], kind="stable").tolist():
            slot = int(slots[begins[place]])
            key = self._keys[slot]
            assert key is not None
            yield DueCron(key, self._columns.row(slot), seconds[begins[place] : ends[place]].tolist())

    def _remember(self, key: bytes, slot: int, row: CronRow) -> None:
        self._columns.put(slot, row)
        self._slots[key] = slot
        if slot == len(self._keys):
            self._keys.append(key)
        self._keys[slot] = key


def _read(row: CronRow) -> tuple[Cron, Zone] | None:
    """A stored cron's expression and zone; None if this version knows them no longer, or not yet."""
    try:
        return parse(row.expression, row.type), zone_of(row)
    except (BadArgument, CronInvalid, ZoneUnknown) as error:
        logger.error(
            "Cron %s does not tick here, as it is not understood; set it up again: %s", row.name, error,
            extra={"action": "cron_not_understood", "cron": row.name},
        )  # fmt: skip
        return None
