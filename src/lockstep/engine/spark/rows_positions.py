"""How far a query has read: a position for each log, as the JSON that Spark keeps in its checkpoint, and as a group.

{"orders/0": {"identity": "5f...", "begin": 0, "next": 170, "lost": 0}, "orders/1": ...}

`identity` notices a log that was deleted and made anew. `begin` is where the query began: Spark does not keep that, and
would ask again when it runs the very first batch once more, when "latest" means something else. `lost` counts offsets
that were gone before they were read. Spark compares positions as text, so the order of names never changes.

As a group a query is seen where all groups are seen, and protected streams keep what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lockstep.core.group import Record, Reset, fold
from lockstep.engine.errors import RowsLost
from lockstep.engine.spark.rows_options import Edge
from lockstep.errors import BadOffset, GroupBusy, Trimmed
from lockstep.log.batch import peek
from lockstep.log.port import Bus, Entry, Log
from lockstep.runtime import Runtime, logger
from lockstep.streams.cursor import first_at
from lockstep.streams.grouplog import GroupLog, holder
from lockstep.streams.member import seat_name

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far one log was read: everything below `next`."""

    identity: str
    begin: int
    next: int
    lost: int = 0


def to_json(positions: Mapping[str, LogPosition]) -> Json:
    """As Spark keeps them."""
    return {name: asdict(position) for name, position in positions.items()}


def from_json(stored: Json) -> dict[str, LogPosition]:
    """Back from what Spark kept."""
    return {name: LogPosition(**fields) for name, fields in stored.items()}


def place(edge: Edge, log: Log) -> int:
    """The offset an edge means on a log now."""
    if edge.time_ns is not None:
        return first_at(log, edge.time_ns)
    bounds, wanted = log.bounds(), edge.place_on(log.name)
    if not isinstance(wanted, int):
        return bounds.first if wanted == "earliest" else bounds.next
    if wanted > bounds.next:
        reason = f"{edge.option} lies beyond the end of the stream, {bounds.next}"
        raise BadOffset(offset=wanted, stream=log.name, reason=reason)
    return wanted


def begin(edge: Edge, logs: Sequence[Log]) -> dict[str, LogPosition]:
    """Where a query begins."""
    edge.check_logs([log.name for log in logs])
    return {log.name: LogPosition(log.identity, at := place(edge, log), at) for log in logs}


def range_start(start: LogPosition | None, end: LogPosition) -> int:
    """Where the rows up to `end` begin, from nothing but the two: a batch that is run again gets the same rows."""
    if start is None or start.identity != end.identity:  # a log that was not there before, or was made anew
        return end.begin
    return end.begin if start.next == start.begin else start.next


def ends(logs: Sequence[Log]) -> dict[str, int]:
    """Where each log ends now."""
    return {log.name: log.bounds().next for log in logs}


def caught_up(log: Log, start: LogPosition | None, *, fail: bool) -> LogPosition:
    """The position to read on from, after what is gone was refused or counted."""
    bounds = log.bounds()
    if start is None:
        return LogPosition(log.identity, bounds.first, bounds.first)
    if start.identity != log.identity:
        _lose(log, start.next, start.next, "the stream was deleted and made anew since they were planned", fail=fail)
        return LogPosition(log.identity, bounds.first, bounds.first, start.lost)
    if start.next < bounds.first:
        _lose(log, start.next, bounds.first, f"they were trimmed, the first one left is {bounds.first}", fail=fail)
        return replace(start, next=bounds.first, lost=start.lost + bounds.first - start.next)
    if start.next > bounds.next:
        _lose(log, bounds.next, start.next, "the stream ends before them; was an old copy restored?", fail=fail)
        return replace(start, next=bounds.next)
    return start


def check_listed(logs: Sequence[Log], known: Mapping[str, LogPosition], *, fail: bool) -> None:
    """Raise RowsLost if a log was read before and is no longer listed: what comes there would be left out."""
    listed = {log.name for log in logs}
    for name in known.keys() - listed if fail else ():
        at = known[name].next
        raise RowsLost(first=at, last=at, stream=name, reason="this checkpoint has read it, and it is no longer listed")


def advance(
    logs: Sequence[Log], at: Mapping[str, LogPosition], until: Mapping[str, int], rows: int | None
) -> list[int]:
    """The next offset of each log after at most `rows` rows, none of them at or beyond `until`."""
    starts = [at[log.name].next for log in logs]
    stops = [max(until.get(log.name, start), start) for log, start in zip(logs, starts, strict=True)]
    if rows is None:
        return stops
    shares = share(rows, [stop - start for start, stop in zip(starts, stops, strict=True)])
    plan = zip(logs, starts, stops, shares, strict=True)
    return [after(log, start, stop, count) for log, start, stop, count in plan]


def share(rows: int, waiting: Sequence[int]) -> list[int]:
    """Divide rows by what waits in each log; what is left over goes where most waits, so that no log starves."""
    total = sum(waiting)
    if total <= rows:
        return list(waiting)
    shares = [rows * count // total for count in waiting]
    by_need = sorted(range(len(waiting)), key=lambda index: shares[index] - waiting[index])
    for index in by_need[: rows - sum(shares)]:
        shares[index] += 1
    return shares


def after(log: Log, start: int, stop: int, rows: int) -> int:
    """The offset after `rows` rows from `start`, at most `stop`. Offsets may have gaps, so stored rows are counted."""
    if stop - start <= rows:
        return stop
    at, left = start, rows
    while left and at < stop:
        before = at
        for entry in _entries(log, at):
            first = max(entry.base, at)
            taken = min(entry.base + peek(entry.data)[0] - first, left)
            at, left = first + taken, left - taken
            if not left:
                break
        if at == before:
            return min(max(log.bounds().first, at), stop)  # trimmed meanwhile: the task that reads it decides
    return min(at, stop)


def _entries(log: Log, offset: int) -> list[Entry]:
    try:
        return log.read(offset)
    except Trimmed:
        return []


def _lose(log: Log, first: int, resumed: int, reason: str, *, fail: bool) -> None:
    if fail:
        raise RowsLost(first=first, last=max(resumed - 1, first), stream=log.name, reason=reason)
    logger.warning(
        "Rows are gone before they were read",
        extra={"action": "rows_lost", "stream": log.name, "first": first, "count": resumed - first, "reason": reason},
    )


class QueryGroup:
    """Keeps a group's positions for a query. The group is the query's alone: it has no members.

    Spark's checkpoint alone decides where the query goes on; this is for those who look, and for retention.
    """

    def __init__(self, bus: Bus, group: str, runtime: Runtime) -> None:
        self._log, self._runtime = GroupLog(bus, group, runtime), runtime
        self._state = self._log.load()
        self._held: set[str] = set()

    def begin(self, logs: Sequence[Log], positions: Mapping[str, LogPosition]) -> None:
        """Keep what comes before the first confirmation too."""
        for log, at in _known(logs, positions):
            self._check_alone(log)
            if log.identity not in self._held:
                self._hold(log, at.next)

    def confirm(self, logs: Sequence[Log], positions: Mapping[str, LogPosition]) -> None:
        """Everything below the positions is done."""
        moved: list[Record] = []
        for log, at in _known(logs, positions):
            self._check_alone(log)
            if self._state.seat(seat_name(log)).resume != at.next:
                moved.append(Reset(seat_name(log), at.next, self._runtime.new_id().hex()))
                self._hold(log, at.next)
        if moved:
            self._log.append(moved)
            self._read()
            self._log.tidy(self._state)

    def _check_alone(self, log: Log) -> None:
        self._read()
        owner = self._state.seat(seat_name(log)).owner
        if owner is not None:  # it would lose the stream with every batch of the query
            raise GroupBusy(group=self._log.group, stream=log.name, member=owner)

    def _read(self) -> None:
        for offset, record in self._log.read_new():
            self._state = fold(self._state, offset, record)

    def _hold(self, log: Log, offset: int) -> None:
        if log.config.protect:
            log.hold(holder(self._log.group), offset)
        self._held.add(log.identity)


def _known(logs: Sequence[Log], positions: Mapping[str, LogPosition]) -> list[tuple[Log, LogPosition]]:
    found = [(log, positions[log.name]) for log in logs if log.name in positions]
    return [(log, at) for log, at in found if at.identity == log.identity]
