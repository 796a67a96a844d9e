"""A query as a group: how far it got is seen where all groups are seen, and protected streams keep what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.core.group import Record, Reset, fold
from lockstep.engine.spark.rows_positions import Position
from lockstep.errors import GroupBusy
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime
from lockstep.streams.grouplog import GroupLog, holder
from lockstep.streams.member import seat_name


class QueryGroup:
    """Keeps a group's positions for a query. The group is the query's alone: it has no members.

    Spark's checkpoint alone decides where the query goes on; this is for those who look, and for retention.
    """

    def __init__(self, bus: Bus, group: str, runtime: Runtime) -> None:
        self._log, self._runtime = GroupLog(bus, group, runtime), runtime
        self._state = self._log.load()
        self._held: set[str] = set()

    def begin(self, logs: Sequence[Log], positions: Mapping[str, Position]) -> None:
        """Keep what comes before the first confirmation too."""
        for log, at in _known(logs, positions):
            self._check_alone(log)
            if log.identity not in self._held:
                self._hold(log, at.next)

    def confirm(self, logs: Sequence[Log], positions: Mapping[str, Position]) -> None:
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


def _known(logs: Sequence[Log], positions: Mapping[str, Position]) -> list[tuple[Log, Position]]:
    found = [(log, positions[log.name]) for log in logs if log.name in positions]
    return [(log, at) for log, at in found if at.identity == log.identity]
