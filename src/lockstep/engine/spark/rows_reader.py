"""Reading as Spark does it: a plan of ranges made in one process, each range read in another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from lockstep.engine.errors import RowsLost
from lockstep.engine.spark import rows_positions as positions
from lockstep.engine.spark.rows_columns import arrow_schema, to_arrow
from lockstep.engine.spark.rows_options import ReadOptions
from lockstep.engine.spark.rows_positions import Json, LogPosition, QueryGroup, from_json, to_json
from lockstep.engine.spark.sources import OpenBus, all_logs, bounds_of, check_host, open_shared, opened, this_host
from lockstep.errors import BadConfig, BadOffset, Trimmed
from lockstep.log.port import Bus, Log
from lockstep.runtime import ThreadRuntime, logger
from lockstep.streams.cursor import Cursor
from lockstep.streams.record import Segment

ROWS_PER_BATCH = 10_000
BYTES_PER_READ = 4 << 20


@dataclass(frozen=True)
class RowRange(InputPartition):
    """The rows of one log from `start` up to, not including, `stop`: one task of Spark's."""

    log: str
    identity: str
    start: int
    stop: int
    host: str


def spread(parts: Sequence[RowRange], least: int) -> list[RowRange]:
    """At least so many ranges, if there are that many offsets: long ones are cut, in pieces of about one length."""
    total = sum(part.stop - part.start for part in parts)
    if len(parts) >= least or not total:
        return list(parts)
    found: list[RowRange] = []
    for part in parts:
        length = part.stop - part.start
        pieces = max(1, min(length, -(-least * length // total)))
        cuts = [part.start + length * at // pieces for at in range(pieces + 1)]
        found += [replace(part, start=start, stop=stop) for start, stop in pairwise(cuts)]
    return found


class RangeReader:
    """Reads ranges. Nothing but its options travels to the workers."""

    def __init__(self, options: ReadOptions, schema: StructType, open_url: OpenBus = open_shared) -> None:
        self.options, self.open_url = options, open_url
        self.schema: pa.Schema = arrow_schema(schema)

    def read(self, part: RowRange) -> Iterator[pa.RecordBatch]:
        """The rows of a range as Arrow batches."""
        with opened(self.open_url, self.options.url) as bus:
            check_host(bus, part.host)
            log = bus.open(part.log)
            if log.identity != part.identity:
                self._lose(part, part.start, part.stop, "the stream was deleted and made anew since they were planned")
                return
            cursor = Cursor(log, part.start, on_gap="fail", dedupe=not bus.promises.dedupe)
            while cursor.position < part.stop:
                segments = self._next(cursor, part)
                if segments is None:
                    return
                if segments:
                    yield to_arrow(segments, part.log, self.schema)

    def _next(self, cursor: Cursor, part: RowRange) -> list[Segment] | None:
        """The next rows within the range; None at its end."""
        before = cursor.position
        try:
            segments, _ = cursor.read(min(ROWS_PER_BATCH, part.stop - cursor.position), BYTES_PER_READ)
        except Trimmed:
            resumed = min(cursor.log.bounds().first, part.stop)
            self._lose(part, cursor.position, resumed, f"they were trimmed, the first one left is {resumed}")
            cursor.seek(resumed)
            return []
        except BadOffset:
            self._check_end(cursor, part)
            return None
        if cursor.position == before:
            self._check_end(cursor, part)
            return None
        return [cut for segment in segments if (cut := _below(segment, part.stop)) is not None]

    def _check_end(self, cursor: Cursor, part: RowRange) -> None:
        if cursor.log.bounds().next < part.stop:
            self._lose(part, cursor.position, part.stop, "the stream ends before them; was an old copy restored?")

    def _lose(self, part: RowRange, first: int, resumed: int, reason: str) -> None:
        if self.options.fail_on_data_loss:
            raise RowsLost(first=first, last=resumed - 1, stream=part.log, reason=reason)
        logger.warning(
            "Rows are gone before they were read",
            extra={"action": "rows_lost", "stream": part.log, "first": first, "count": resumed - first},
        )


def _below(segment: Segment, stop: int) -> Segment | None:
    kept = min(segment.stop, stop - segment.view.base)
    return Segment(segment.view, segment.start, kept) if kept > segment.start else None


class RowReader(DataSourceReader):
    """`spark.read.format("lockstep")`: a range of offsets or times, fixed when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType, open_url: OpenBus = open_shared) -> None:
        self._options, self._open_url = options, open_url
        self._ranges = RangeReader(options, schema, open_url)

    def partitions(self) -> list[RowRange]:  # type: ignore[override, unused-ignore]
        """One range for each log."""
        start, end = self._options.start, self._options.end
        with opened(self._open_url, self._options.url) as bus:
            logs = all_logs(bus, self._options.streams)
            names = [log.name for log in logs]
            start.check_logs(names)
            end.check_logs(names)
            planned = [self._pushed(self._range(log)) for log in logs]
        full = [part for part in planned if part.start < part.stop]
        return spread(full or planned[:1], self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, as Arrow batches."""
        assert isinstance(partition, RowRange)
        return self._ranges.read(partition)

    def _range(self, log: Log) -> RowRange:
        start, stop = positions.place(self._options.start, log), positions.place(self._options.end, log)
        asked = self._options.end
        if start > stop and asked.time_ns is None and isinstance(asked.place_on(log.name), int):
            reason = f"it ends {log.name} at {stop}, before it begins at {start}"
            raise BadConfig(field=asked.option, value=stop, reason=reason)
        return RowRange(log.name, log.identity, start, stop, this_host())

    def _pushed(self, part: RowRange) -> RowRange:
        """As much of a range as conditions ask for; here there are none."""
        return part


class PushingRowReader(RowReader):
    """Reads no more than conditions on the offset ask for."""

    _bounds: tuple[int, int | None] = (0, None)

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Conditions on the offset say which part of each log is read; Spark checks them all again."""
        self._bounds = bounds_of(filters, "offset")
        yield from filters

    def _pushed(self, part: RowRange) -> RowRange:
        first, end = self._bounds
        start = max(part.start, first)
        stop = part.stop if end is None else min(part.stop, end)
        return replace(part, start=start, stop=max(start, stop))


class RowStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("lockstep")`. Its plans are made in one process that lives as long as the query."""

    def __init__(self, options: ReadOptions, schema: StructType, open_url: OpenBus = open_shared) -> None:
        self._options, self._open_url = options, open_url
        self._ranges = RangeReader(options, schema, open_url)
        self._bus: Bus | None = None
        self._group: QueryGroup | None = None
        self._initial: Json | None = None
        self._target: dict[str, int] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many rows as the options allow for each trigger."""
        rows = self._options.max_records
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def initialOffset(self) -> Json:
        """Where the query begins; "latest" means the same however often it is asked."""
        if self._initial is None:
            self._initial = to_json(positions.begin(self._options.start, self._logs()))
        return self._initial

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """How far the next batch goes."""
        logs, before = self._logs(), from_json(start)
        positions.check_listed(logs, before, fail=self._options.fail_on_data_loss)
        if (group := self._query_group()) is not None:
            group.begin(logs, before)
        fail = self._options.fail_on_data_loss
        at = {log.name: positions.caught_up(log, before.get(log.name), fail=fail) for log in logs}
        until = positions.ends(logs) if self._target is None else self._target
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        stops = positions.advance(logs, at, until, rows)
        found = {log.name: _moved(at[log.name], stop) for log, stop in zip(logs, stops, strict=True)}
        return to_json(before | found)  # with logs that are no longer listed: they may be again

    def reportLatestOffset(self) -> Json:
        """Where the streams end now, so that Spark can tell how far behind the query is."""
        logs = self._logs()
        return to_json({log.name: LogPosition(log.identity, (at := log.bounds()).first, at.next) for log in logs})

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing new is there."""
        self._target = positions.ends(self._logs())

    def partitions(self, start: Json, end: Json) -> list[RowRange]:  # type: ignore[override, unused-ignore]
        """One range for each log with something new; from the two positions alone, whatever was appended since."""
        before = from_json(start)
        ranges = [
            RowRange(name, to.identity, positions.range_start(before.get(name), to), to.next, this_host())
            for name, to in from_json(end).items()
        ]
        return spread([part for part in ranges if part.start < part.stop], self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, as Arrow batches."""
        assert isinstance(partition, RowRange)
        return self._ranges.read(partition)

    def commit(self, end: Json) -> None:
        """Spark is done with everything below `end`. It says so when the next batch begins, so the last one waits."""
        if (group := self._query_group()) is not None:
            group.confirm(self._logs(), from_json(end))

    def stop(self) -> None:
        """Close the bus. Spark does not always ask for it; then it is closed with the process."""
        if self._bus is not None:
            self._bus.close()
            self._bus = self._group = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a copy without the open bus."""
        return {**self.__dict__, "_bus": None, "_group": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _logs(self) -> list[Log]:
        """Opened by name each time, so that a stream made anew is noticed."""
        return all_logs(self._opened_bus(), self._options.streams)

    def _query_group(self) -> QueryGroup | None:
        if self._group is None and self._options.group is not None:
            self._group = QueryGroup(self._opened_bus(), self._options.group, ThreadRuntime())
        return self._group

    def _opened_bus(self) -> Bus:
        if self._bus is None:
            self._bus = self._open_url(self._options.url)
        return self._bus


def _moved(position: LogPosition, stop: int) -> LogPosition:
    return LogPosition(position.identity, position.begin, stop, position.lost)
