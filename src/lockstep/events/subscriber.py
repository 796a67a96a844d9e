"""Subscribing to a window: whole blocks that count, each once, with positions after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType

from lockstep.core.outputs import OutState, agree
from lockstep.engine.errors import BlocksMissing, HistoryTrimmed, LogTooShort, OutputBroken, OutputDiffers
from lockstep.engine.events.columns import EventBatch, shaped
from lockstep.engine.events.event import Event
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Node
from lockstep.engine.runtime.output.event_streams import OutFold, WholeBlocks
from lockstep.engine.runtime.output.outlet import cut_of
from lockstep.engine.runtime.sequence.beats import Beat, last_beat
from lockstep.engine.runtime.sequence.outages import LengthCheck
from lockstep.engine.runtime.sequence.reader import head_of, values_between
from lockstep.errors import BadArgument, Trimmed
from lockstep.events.positions import HeldRows, Position
from lockstep.events.rows import Row, row_of, single_blocks
from lockstep.log.batch import BatchView
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
    """Where to begin without a position: `now` for new events only, `start` for everything on the stream."""
    patience_s: float = 10.0
    """How long a block that is missing may take to appear before that is an error."""

    def __post_init__(self) -> None:
        if self.begin not in BEGIN:
            raise BadArgument(name="begin", value=self.begin, reason=f"choose {' or '.join(BEGIN)}")
        if self.patience_s <= 0:
            raise BadArgument(name="patience_s", value=self.patience_s, reason="it must be above 0")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a window, or its rows at the beginning, and the position after it."""

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

    `position` is after the last block that was returned whole: save it together with the results of processing it.
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
        """Close the subscriber."""
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
        """Raise BlocksMissing if a block that was published does not arrive in time."""
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


class OutTail:
    """Reads on from a position. A block that is written in pieces is returned once it is whole.

    A gap may be filled by a later write; if it is not within `patience_s`, it is an error. So is a stream
    that stays shorter than what was read from it, and at once a block of another sequence than those before it. While
    nothing comes, the last block is read again every `patience_s`: a stream that lost it may be as long as before.
    """

    def __init__(
        self, log: Log, schema: Schema, start: Position, *, patience_s: float, monotonic: Callable[[], float]
    ) -> None:
        self.position = start
        self._log, self._patience_s, self._monotonic = log, patience_s, monotonic
        last = None if start.last is None else OutState(start.last, 0, start.digest)
        self._fold = OutFold(log.name, schema, last)
        self._length = LengthCheck(log, monotonic, patience_s)
        self._blocks = WholeBlocks(self._fold)
        self._at = start.offset
        self._gap_since: float | None = None
        self._look_again = monotonic()
        self._missed: int | None = None
        """Where the last block was not found at the last look."""

    def read(self) -> Iterator[EventBatch]:
        """Yield the blocks not read yet; `position` is then after the last of them."""
        gap: tuple[int, OutputBroken] | None = None
        for offset, value in self._values():
            try:
                batch = self._blocks.take(offset, value)
            except OutputBroken as error:
                gap = gap or (offset, error)
                continue
            self._at = offset + 1 if gap is None else gap[0]
            if not len(batch):
                self._note_copy(offset, value)
            if len(batch):
                if gap is not None:  # the gap was filled: read again what comes after it
                    yield from self._whole(batch, offset, gap[0])
                    self._gap_since = None
                    return
                yield from self._whole(batch, offset, offset + 1)
            elif not self._blocks.is_waiting and gap is None:
                self.position = self._position(offset + 1)
        self._judge(gap)
        self._check_last()

    def _note_copy(self, offset: int, value: bytes) -> None:
        """The last block may stand on the stream again: where it stood first may be lost, and nothing with it."""
        known = self.position
        is_later = known.record is not None and offset > known.record
        if is_later and known.last is not None and _holds_block(value, known.last, known.digest):
            self.position = replace(known, record=offset)

    def compare(self, out: OutState) -> None:
        """Compare with what an engine says to be out; OutputDiffers if it is the output of another sequence."""
        known = self.position
        if known.last == out.last and not agree(known.digest, out.digest):
            raise OutputDiffers(block=out.last, stream=self._log.name, found=out.digest, known=known.digest)

    def _values(self) -> Iterator[tuple[int, bytes]]:
        bounds = self._log.bounds()
        self._length.check(self._at, self._fold.last, bounds)
        try:
            yield from values_between(self._log, self._at, bounds.next)
        except (LogTooShort, Trimmed) as error:
            first = self._log.bounds().first
            raise HistoryTrimmed(what="A reader", stream=self._log.name, needed=self._at, first=first) from error

    def _whole(self, batch: EventBatch, offset: int, then: int) -> Iterator[EventBatch]:
        """Yield the blocks that are whole with this frame; after the last of them reading continues at `then`."""
        blocks = list(single_blocks(batch))
        for at, block in enumerate(blocks, 1):
            is_last = at == len(blocks)
            self.position = self._position(then if is_last else min(offset, then), int(block.block[-1]), offset)
            self._look_again = self._monotonic() + self._patience_s
            yield block

    def _position(self, offset: int, last: int | None = None, record: int | None = None) -> Position:
        if last is None:
            state, record = self._fold.state, self.position.record
            known, digest = (None, "") if state is None else (state.last, state.digest)
        else:
            known, digest = last, self._fold.digest_at(last)
        name, identity = self._log.name, self._log.identity
        return Position(stream=name, identity=identity, offset=offset, last=known, digest=digest, record=record)

    def _check_last(self) -> None:
        """Raise OutputDiffers if the block that was given last is not where it was read."""
        now, known = self._monotonic(), self.position
        if known.record is None or known.last is None or now < self._look_again:
            return
        self._look_again = now + self._patience_s
        bounds = self._log.bounds()
        if not bounds.first <= known.record < bounds.next or self._holds(known.record, known.last, known.digest):
            self._missed = None
        elif self._missed != known.record:  # it may come once more, after what stands in its place
            self._missed = known.record
        else:
            found = f"offset {known.record} holds another record"
            raise OutputDiffers(block=known.last, stream=self._log.name, found=found, known=known.digest)

    def _holds(self, record: int, block: int, digest: str) -> bool:
        """Whether a record has a block of the sequence with this digest; yes if it was trimmed meanwhile."""
        try:
            stored = self._log.reread(record)
        except Trimmed:
            return True
        if stored is None:  # it ends before the record: whether it stays so is looked at elsewhere
            return True
        view = BatchView(stored.base, stored.data, self._log.name)
        return view.base <= record < view.end and _holds_block(view.values()[record - view.base], block, digest)

    def _judge(self, gap: tuple[int, OutputBroken] | None) -> None:
        if gap is None:
            self._gap_since = None
            return
        now = self._monotonic()
        self._gap_since = now if self._gap_since is None else self._gap_since
        if now - self._gap_since >= self._patience_s:
            raise gap[1]


def _holds_block(value: bytes, block: int, digest: str) -> bool:
    """Whether a record has a block of the sequence with this digest."""
    head = head_of(value)
    cut = None if head is None else cut_of(head)
    return cut is not None and cut.first <= block <= cut.last and agree(digest, cut.digest_at(block))


def begin_of(log: Log) -> Position:
    """The start of a stream: block 0 is before everything, if nothing was trimmed."""
    first = log.bounds().first
    return Position(stream=log.name, identity=log.identity, offset=first, last=0 if first == 0 else None)
