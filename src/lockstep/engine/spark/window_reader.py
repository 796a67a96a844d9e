"""Reading a window as Spark does it: ranges planned in the driver, the out stream read by the executors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from lockstep.core.outputs import OutState
from lockstep.engine.errors import HistoryTrimmed, OutputBroken, RowsLost
from lockstep.engine.events.columns import EventBatch, Int64s, concat, shaped
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Node
from lockstep.engine.runtime.output.event_streams import OutFold, WholeBlocks
from lockstep.engine.runtime.sequence.beats import Beats
from lockstep.engine.spark import window_positions as positions
from lockstep.engine.spark.sources import OpenBus, bounds_of, check_host, open_shared, opened, this_host
from lockstep.engine.spark.window_columns import checked_schema, own_columns, to_arrow
from lockstep.engine.spark.window_options import WindowReadOptions
from lockstep.engine.spark.window_positions import Json, OutPosition, Place, Walk
from lockstep.errors import BadConfig
from lockstep.log.port import Bus, Log
from lockstep.runtime import logger

_WAITING_MIN = 1 << 18
"""Events that wait before they are folded; more if more rows are held, so that each is looked at a few times."""


class HeldColumns:
    """Takes whole blocks; then has the last row of each key that was not deleted, in the order of these changes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._held = EventBatch.empty(schema), np.array([], np.int64)
        self._waiting: list[tuple[EventBatch, Int64s]] = []
        self._later: list[pa.Table] | None = None
        self._events = 0

    def take(self, batch: EventBatch, times_ns: Int64s) -> None:
        """Apply whole blocks; `times_ns` says for each event when the bus took it."""
        self._waiting.append((batch, times_ns))
        self._events += len(batch)
        if self._events >= max(_WAITING_MIN, len(self._held[0])):
            self._fold()

    def drop(self, later: EventBatch) -> None:
        """Let go of the rows whose keys are in what comes after all blocks that were taken: another task has them."""
        if self._later is None:
            self._fold()
            self._later = []
        self._later.append(_keys_of(later))
        self._events += len(later)
        if self._events >= max(_WAITING_MIN, len(self._held[0])):
            self._drop()

    def rows(self) -> tuple[EventBatch, Int64s]:
        """The rows as normal inserts, each with the block and the time of its last change."""
        self._fold()
        self._drop()
        return self._held

    def _drop(self) -> None:
        later, self._later, self._events = self._later, [], 0
        batch, times = self._held
        if not later or not len(batch):
            return
        last = _last_of_each(pa.concat_tables([_keys_of(batch), *later]))
        kept = last[last < len(batch)]
        self._held = batch.take(kept), times[kept]

    def _fold(self) -> None:
        parts, self._waiting, self._events = [self._held, *self._waiting], [], 0
        batch = concat([part for part, _ in parts])
        times = np.concatenate([part for _, part in parts])
        if len(batch):
            rows = np.flatnonzero(~_old_halves(batch))
            last = rows[_last_of_each(_keys_of(batch.take(rows)))]
            kept = last[batch.opcode[last] != Opcode.DELETE]
            self._held = _as_inserts(batch.take(kept)), times[kept]


def _as_inserts(batch: EventBatch) -> EventBatch:
    """What is held is no longer a change: the delete of a later block is not the old half of an update in it."""
    size = len(batch)
    return replace(batch, opcode=np.full(size, Opcode.INSERT, np.uint8), flags=np.full(size, Flag.NORMAL, np.uint8))


def _old_halves(batch: EventBatch) -> npt.NDArray[np.bool_]:
    """Which events are the old half of an update: the delete directly after the new row."""
    is_old = np.zeros(len(batch), bool)
    is_old[1:] = (batch.opcode[:-1] == Opcode.UPDATE_BLOCK) & (batch.opcode[1:] == Opcode.DELETE)
    return is_old


def _keys_of(batch: EventBatch) -> pa.Table:
    names = [batch.schema.names[place] for place in batch.schema.keys]
    return pa.table({name: _groupable(batch.column(name)) for name in names})


def _last_of_each(keys: pa.Table) -> npt.NDArray[np.intp]:
    """The place of the last one of each key, in rising order."""
    numbered = keys.append_column("", pa.array(np.arange(len(keys))))
    found = numbered.group_by(keys.column_names).aggregate([("", "max")]).column("_max").to_numpy()
    return np.sort(found)


def _groupable(column: pa.Array) -> pa.Array:
    """A column whose equal values are the same to Arrow: a key may be -0.0 or 0.0, or a list."""
    if pa.types.is_floating(column.type):
        return pc.add(column, 0.0)
    if pa.types.is_list(column.type):
        return pa.array([None if item is None else repr(item) for item in column.to_pylist()], pa.string())
    return column


ROWS_PER_BATCH = 10_000
BYTES_PER_TASK = 64 << 20
"""About so many stored bytes of a window are read by one task of a batch job."""
TASKS_OF_CURRENT = 4
"""Current rows are read by so many tasks at most: each looks at the keys in all that comes after its own changes."""


@dataclass(frozen=True)
class BlockRange(InputPartition):
    """The blocks between two places on an out stream: one task of Spark's.

    For the current rows those whose last change is there, up to the place `last`.
    """

    log: str
    identity: str
    start: Place
    end: Place
    host: str
    last: Place


class BlockReader:
    """Reads ranges. Nothing but its options and the window's schema travels to the workers."""

    def __init__(
        self, options: WindowReadOptions, node: Node, asked: StructType, open_url: OpenBus = open_shared
    ) -> None:
        self.options, self.path, self.fields, self.open_url = options, node.path, node.schema, open_url
        self.schema: pa.Schema = checked_schema(asked, node.schema, integers=options.integers)
        self.first, self.end = options.first_block, options.end

    def read(self, part: BlockRange) -> Iterator[pa.RecordBatch]:
        """The blocks of a range as Arrow batches."""
        with opened(self.open_url, self.options.place.url) as bus:
            check_host(bus, part.host)
            log = bus.open(part.log)
            if log.identity != part.identity:
                self._lose(part, "the stream was deleted and made anew since they were planned")
                return
            found = self._held(log, part) if self.options.current else self._changes(log, part)
            for batch, times in found:
                for at in range(0, len(batch), ROWS_PER_BATCH):
                    piece = batch.slice(at, min(at + ROWS_PER_BATCH, len(batch)))
                    yield to_arrow(piece, times[at : at + len(piece)], self.schema, self.path)

    def _changes(self, log: Log, part: BlockRange) -> Iterator[tuple[EventBatch, Int64s]]:
        wanted = frozenset(self.schema.names) & frozenset(self.fields.names)
        for batch, times in self._blocks(log, part, wanted):
            chosen = self._within(batch)
            found = shaped(batch.slice(chosen.start, chosen.stop), collapse=self.options.collapse)
            yield found, times[: len(found)]

    def _held(self, log: Log, part: BlockRange) -> Iterator[tuple[EventBatch, Int64s]]:
        keys = {self.fields.names[place] for place in self.fields.keys}
        wanted = frozenset(self.schema.names) & frozenset(self.fields.names) | keys
        rows = HeldColumns(self.fields)
        for batch, times in self._blocks(log, part, wanted):
            chosen = self._within(batch)
            rows.take(batch.slice(chosen.start, chosen.stop), times[chosen])
        later = replace(part, start=part.end, end=part.last)
        if later.start != later.end:
            for batch, _ in self._blocks(log, later, frozenset(keys)):
                chosen = self._within(batch)
                rows.drop(batch.slice(chosen.start, chosen.stop))
        yield rows.rows()

    def _within(self, batch: EventBatch) -> slice:
        """The events of blocks that are wanted."""
        start = int(np.searchsorted(batch.block, self.first))
        stop = len(batch) if self.end is None else int(np.searchsorted(batch.block, self.end))
        return slice(start, max(start, stop))

    def _blocks(self, log: Log, part: BlockRange, wanted: frozenset[str]) -> Iterator[tuple[EventBatch, Int64s]]:
        """Whole blocks, each once, with the time of each event; OutputBroken if the range does not end as planned."""
        start = part.start
        while True:
            fold = OutFold(log.name, self.fields, start.state(), columns=wanted)
            try:
                yield from self._folded(log, fold, start.offset, part.end.offset)
            except HistoryTrimmed:
                first = min(log.bounds().first, part.end.offset)
                self._lose(part, f"they were trimmed, the first one left is {first}")
                start = Place(first, None)
                continue
            if start is part.start and fold.last != part.end.last:
                self._lose(part, f"block {part.end.last} was there when they were planned, and the last is {fold.last}")
            return

    def _folded(self, log: Log, fold: OutFold, start: int, stop: int) -> Iterator[tuple[EventBatch, Int64s]]:
        blocks = WholeBlocks(fold)
        for record in positions.records_between(log, start, stop):
            try:
                batch = blocks.take(record.offset, record.value)
            except OutputBroken:  # as the plan went past it
                continue
            if len(batch):
                yield batch, np.full(len(batch), record.append_ns, np.int64)

    def _lose(self, part: BlockRange, reason: str) -> None:
        if self.options.fail_on_data_loss:
            last = max(part.end.offset - 1, part.start.offset)
            raise RowsLost(first=part.start.offset, last=last, stream=part.log, reason=reason)
        extra = {"action": "rows_lost", "stream": part.log, "first": part.start.offset, "reason": reason}
        logger.warning("Blocks are gone before they were read", extra=extra)


class WindowReader(DataSourceReader):
    """`spark.read.format("lockstep")` of a window: its changes in a range of blocks, or the rows that it holds."""

    def __init__(
        self, options: WindowReadOptions, node: Node, asked: StructType, open_url: OpenBus = open_shared
    ) -> None:
        if options.current and not node.is_indexed:
            reason = f"{node.path} has no index, so it holds no rows; read its changes"
            raise BadConfig(field="rows", value="current", reason=reason)
        self._options, self._node, self._open_url = options, node, open_url
        self._blocks = BlockReader(options, node, asked, open_url)

    def partitions(self) -> list[BlockRange]:  # type: ignore[override, unused-ignore]
        """Ranges of about the same size."""
        with opened(self._open_url, self._options.place.url) as bus:
            window = WindowLog(bus, self._options, self._node)
            log, out = window.log, window.out()
            places = self._places(log)
            if self._blocks.end is None:
                positions.check_published(log, places[-1], out)
            name, identity, host = log.name, log.identity, this_host()
        pairs = itertools.pairwise(places)
        return [BlockRange(name, identity, start, end, host, places[-1]) for start, end in pairs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, as Arrow batches."""
        assert isinstance(partition, BlockRange)
        return self._blocks.read(partition)

    def _places(self, log: Log) -> list[Place]:
        """Where the range begins, the places where it is cut, and where it ends."""
        start, first, end = positions.earliest(log), self._blocks.first, self._blocks.end
        if self._options.current and start.last is None:
            raise HistoryTrimmed(what="The current rows", stream=log.name, needed=0, first=start.offset)
        if self._options.first_block and self._options.fail_on_data_loss:
            positions.check_kept(log, self._options.first_block)
        cuts, size = [start, start], 0
        for step in Walk(log, self._node.schema, start).steps(log.bounds().next):
            last = step.at.last or 0
            if last < first:
                cuts, size = [step.at, step.at], step.size
                continue
            cuts[-1] = step.at
            if end is not None and last >= end - 1:
                break
            if step.size - size >= BYTES_PER_TASK:
                cuts.append(step.at)
                size = step.size
        return _some_of(cuts, TASKS_OF_CURRENT) if self._options.current else cuts


def _some_of(cuts: list[Place], most: int) -> list[Place]:
    """Cuts for at most so many ranges, of about the same size."""
    ranges = len(cuts) - 1
    return cuts if ranges <= most else [cuts[ranges * number // most] for number in range(most + 1)]


class PushingWindowReader(WindowReader):
    """Reads no more than conditions on the number of the block ask for."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Conditions on the number of the block say which part of the stream is read; Spark checks them all again."""
        if not self._options.current:
            first, end = bounds_of(filters, own_columns(self._node.schema)[0])
            self._blocks.first = max(self._blocks.first, first)
            self._blocks.end = min((one for one in (self._blocks.end, end) if one is not None), default=None)
        yield from filters


class WindowLog:
    """The out stream of a window on an open bus, and what engines say of it."""

    def __init__(self, bus: Bus, options: WindowReadOptions, node: Node) -> None:
        streams = options.place.streams
        self._path, self._bus, self._name = node.path, bus, streams.output(node)
        control = streams.control
        self._beats = Beats(bus.open(control)) if control in set(bus.names()) else None

    @property
    def log(self) -> Log:
        """Opened by name each time, so that a stream made anew is noticed."""
        return self._bus.open(self._name)

    def out(self) -> OutState:
        """How far an engine has published it."""
        return OutState() if self._beats is None else self._beats.last().out(self._path)

    def told(self, log: Log) -> Place:
        """The newest place on it that an engine tells of."""
        return (
            positions.earliest(log) if self._beats is None else positions.told_by(self._beats.last(), log, self._path)
        )


class WindowStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("lockstep")` of a window: its changes. One process makes the plans of a query."""

    def __init__(
        self, options: WindowReadOptions, node: Node, asked: StructType, open_url: OpenBus = open_shared
    ) -> None:
        self._options, self._node, self._open_url = options, node, open_url
        self._blocks = BlockReader(options, node, asked, open_url)
        self._bus: Bus | None = None
        self._window: WindowLog | None = None
        self._initial: Json | None = None
        self._target: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many bytes as the options allow for each trigger."""
        size = self._options.max_bytes
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def initialOffset(self) -> Json:
        """Where the query begins; "latest" means the same however often it is asked."""
        if self._initial is None:
            window = self._opened()
            log, wanted = window.log, self._options.start
            if wanted == "latest":
                begin = positions.walked(log, self._node.schema, window.told(log), log.bounds().next)
            else:
                begin = self._before(log, self._options.first_block)
            self._initial = OutPosition(log.name, log.identity, begin, begin).to_json()
        return self._initial

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """How far the next batch goes: to the end of a block."""
        window = self._opened()
        log, out = window.log, window.out()
        at = positions.caught_up(log, OutPosition.from_json(start), fail=self._options.fail_on_data_loss)
        end = log.bounds().next
        stop = end if self._target is None else min(end, self._target)
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        found = positions.walked(log, self._node.schema, at.at, stop, size=size)
        if found == at.at and stop == end:
            positions.check_published(log, found, out)
        return OutPosition(log.name, log.identity, found, at.begin).to_json()

    def reportLatestOffset(self) -> Json:
        """Where the window ends now, so that Spark can tell how far behind the query is."""
        window = self._opened()
        log = window.log
        return {"stream": log.name, "offset": log.bounds().next, "last": window.out().last}

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing new is there."""
        self._target = self._opened().log.bounds().next

    def partitions(self, start: Json, end: Json) -> list[BlockRange]:  # type: ignore[override, unused-ignore]
        """One range; from the two positions alone, whatever was published since."""
        to = OutPosition.from_json(end)
        begin = positions.range_start(OutPosition.from_json(start), to)
        if begin.offset >= to.at.offset:
            return []
        return [BlockRange(to.stream, to.identity, begin, to.at, this_host(), to.at)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, as Arrow batches."""
        assert isinstance(partition, BlockRange)
        return self._blocks.read(partition)

    def commit(self, end: Json) -> None:
        """Nothing is kept: where the query goes on is decided by its checkpoint."""

    def stop(self) -> None:
        """Close the bus. Spark does not always ask for it; then it is closed with the process."""
        if self._bus is not None:
            self._bus.close()
            self._bus = self._window = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a copy without the open bus."""
        return {**self.__dict__, "_bus": None, "_window": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _before(self, log: Log, block: int) -> Place:
        """The last place before a block; block 0: the earliest."""
        if block and self._options.fail_on_data_loss:
            positions.check_kept(log, block)
        stop = log.bounds().next if block else 0
        return positions.walked(log, self._node.schema, positions.earliest(log), stop, block=block)

    def _opened(self) -> WindowLog:
        if self._window is None:
            self._bus = self._open_url(self._options.place.url)
            self._window = WindowLog(self._bus, self._options, self._node)
        return self._window
