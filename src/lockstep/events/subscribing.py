"""Subscribing to a window: exactly the blocks that count, each once, whoever wrote them and however often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType

from lockstep.engine.errors import BlocksMissing, HistoryTrimmed
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event
from lockstep.engine.events.shaping import shaped
from lockstep.engine.model.graph import Node
from lockstep.engine.runtime.sequence.beats import Beat, last_beat
from lockstep.errors import BadArgument
from lockstep.events.holding import HeldRows
from lockstep.events.positions import Position
from lockstep.events.rows import Row, row_of
from lockstep.events.tailing import OutTail, begin_of
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime

_LOOK_S = 0.5
"""A wait is never longer: a bell may be missed, and beats have none."""
BEGIN = ("now", "start")


@dataclass(frozen=True, kw_only=True, slots=True)
class SubscribeOptions:
    """What a subscriber wants to see, and where it begins."""

    snapshot: bool = False
    """First the rows that the window holds now, as inserts, then what follows."""
    collapse: bool = False
    """An update is one event U, not UB and D."""
    rmretdel: bool = False
    """Deletes caused by retention are left out."""
    begin: str = "now"
    """Without a position: `now`, with what comes from now on, or `start`, with everything on the stream."""
    patience_s: float = 10.0
    """How long a block that is missing may take to appear before that is an error."""

    def __post_init__(self) -> None:
        if self.begin not in BEGIN:
            raise BadArgument(name="begin", value=self.begin, reason=f"choose {' or '.join(BEGIN)}")
        if self.patience_s <= 0:
            raise BadArgument(name="patience_s", value=self.patience_s, reason="it must be above 0")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a window, or its rows at the beginning, and the position behind it."""

    number: int
    batch: EventBatch = field(repr=False)
    position: Position
    is_snapshot: bool = False

    def events(self) -> list[Event]:
        """Its events."""
        return self.batch.events()

    def rows(self) -> list[Row]:
        """Its events by field name."""
        return [row_of(event, self.number, self.batch.schema) for event in self.events()]


@dataclass(frozen=True, slots=True)
class OutSource:
    """The out stream of a window, and the log that says what was published to it."""

    bus: Bus
    log: Log
    control: Log | None
    node: Node

    def beat(self) -> Beat:
        """The newest fact."""
        return Beat() if self.control is None else last_beat(self.control)

    def known_end(self) -> Position:
        """The newest place on the stream of which a beat tells, else its start."""
        beat, bounds, path = self.beat(), self.log.bounds(), self.node.path
        offset = beat.offsets.get(path)
        if offset is None or not bounds.first <= offset <= bounds.next:
            return begin_of(self.log)
        out, name, identity = beat.out(path), self.log.name, self.log.identity
        if out.part:  # the place is within a block, of which the rest comes later
            return begin_of(self.log)
        return Position(stream=name, identity=identity, offset=offset, last=out.last, digest=out.digest)


class Subscription:
    """Reads a window's blocks. Iterate for rows, or for blocks if that was asked for. Not to be shared by threads.

    `position` lies behind the last block that was handed out whole: save it together with what you did with it.
    """

    def __init__(
        self,
        source: OutSource,
        runtime: Runtime,
        options: SubscribeOptions,
        *,
        after: Position | None = None,
        blocks: bool = False,
        timeout: float | None = None,
    ) -> None:
        self._source, self._runtime, self._options = source, runtime, options
        self._blocks_wanted, self._timeout = blocks, timeout
        self._waiter = source.bus.waiter()
        self._waiter.watch(source.log)
        self._waiting: list[Block] = []
        self._behind_since: float | None = None
        self._tail = self._open(after)
        self.position = self._tail.position
        self._found = iter(())  # type: Iterator[EventBatch]

    @property
    def node(self) -> Node:
        """The window."""
        return self._source.node

    @property
    def stream(self) -> str:
        """Its out stream."""
        return self._source.log.name

    def next_block(self, timeout: float | None = None) -> Block | None:
        """The next block, or None if none came within `timeout` seconds (None: wait as long as it takes)."""
        end = None if timeout is None else self._runtime.monotonic() + timeout
        while True:
            block = self._next()
            if block is not None:
                self._behind_since = None
                self.position = block.position
                return block
            self._check_published()
            left = _LOOK_S if end is None else min(_LOOK_S, end - self._runtime.monotonic())
            if left <= 0:
                self.position = self._tail.position  # what lies there without a block was read too
                return None
            self._waiter.wait(left)

    def is_published(self, block: int) -> bool:
        """Whether everything up to a block was published, and of this window's blocks was handed out."""
        beat, last = self._source.beat(), self._tail.position.last or 0
        return last >= block or (beat.published >= block and last >= min(beat.last.get(self.node.path, 0), block))

    def is_at_end(self) -> bool:
        """Whether every whole block of this window that the newest beat knows of was handed out."""
        out, last = self._source.beat().out(self.node.path), self._tail.position.last
        return last is None or out.part != 0 or last >= out.last

    def __iter__(self) -> Iterator[Row | Block]:
        while True:
            before = self.position
            block = self.next_block(self._timeout)
            if block is None:
                return
            if self._blocks_wanted:
                yield block
                continue
            rows = block.rows()
            self.position = before  # not all of it was handed out yet
            yield from rows[:-1]
            self.position = block.position
            yield from rows[-1:]

    def close(self) -> None:
        """Let go."""
        self._waiter.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _open(self, after: Position | None) -> OutTail:
        log = self._source.log
        if after is not None:
            after.check(log)
            return self._tail_at(after)
        if self._options.snapshot:
            return self._held()
        if self._options.begin == "start":
            return self._tail_at(begin_of(log))
        tail = self._tail_at(self._source.known_end())
        for _ in tail.read():  # what came since then is not new
            pass
        return tail

    def _tail_at(self, position: Position) -> OutTail:
        first = self._source.log.bounds().first
        if position.offset < first:
            raise HistoryTrimmed(what="The position", stream=self.stream, needed=position.offset, first=first)
        return OutTail(
            self._source.log,
            self.node.schema,
            position,
            patience_s=self._options.patience_s,
            monotonic=self._runtime.monotonic,
        )

    def _held(self) -> OutTail:
        """The rows that the window holds now; a window that keeps none has none."""
        start = begin_of(self._source.log)
        if start.last is None:
            raise HistoryTrimmed(what="A snapshot of the rows", stream=self.stream, needed=0, first=start.offset)
        tail, rows = self._tail_at(start), HeldRows(self.node.schema)
        for block in tail.read():
            if self.node.is_indexed:
                rows.take(block)
        number = tail.position.last or 0
        batch = rows.batch(number)
        if len(batch):
            self._waiting.append(Block(number, batch, tail.position, is_snapshot=True))
        return tail

    def _next(self) -> Block | None:
        if self._waiting:
            return self._waiting.pop(0)
        for fresh in range(2):
            for found in self._found:
                return self._block(found)
            if not fresh:
                self._found = self._tail.read()
        return None

    def _block(self, found: EventBatch) -> Block:
        options = self._options
        batch = shaped(found, collapse=options.collapse, no_retention_deletes=options.rmretdel)
        return Block(int(found.block[-1]), batch, self._tail.position)

    def _check_published(self) -> None:
        """A block that was published and does not come is missing."""
        out, last = self._source.beat().out(self.node.path), self._tail.position.last
        self._tail.compare(out)
        wanted = 0 if out.part else out.last
        now = self._runtime.monotonic()
        if last is None or last >= wanted:  # without a past nobody knows what to expect
            self._behind_since = None
            return
        self._behind_since = now if self._behind_since is None else self._behind_since
        if now - self._behind_since >= self._options.patience_s:
            seconds = self._options.patience_s
            raise BlocksMissing(stream=self.stream, last=last, wanted=wanted, seconds=seconds)
