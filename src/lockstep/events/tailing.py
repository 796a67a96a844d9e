"""Reading an out stream block by block: whole ones, each once, with the position behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lockstep.core.outputs import OutState, agree
from lockstep.engine.errors import HistoryTrimmed, LogTooShort, OutputBroken, OutputDiffers
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.output.event_streams import OutFold, WholeBlocks
from lockstep.engine.runtime.output.outlet import cut_of
from lockstep.engine.runtime.sequence.outages import LengthCheck
from lockstep.engine.runtime.sequence.reader import head_of, values_between
from lockstep.errors import Trimmed
from lockstep.events.forms import single_blocks
from lockstep.events.positions import Position
from lockstep.log.batch import BatchView
from lockstep.log.port import Log


class OutTail:
    """Reads from a position on. A block that comes in pieces is held back until it is whole.

    A gap may be filled by what somebody writes later; if it is not within `patience_s`, it is an error. So is a stream
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
        """The blocks that are there and were not read yet; `position` is then the one behind the last given."""
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
                if gap is not None:  # what was missing has come: look again at what stood behind it
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
        """The blocks that are whole with this frame; reading goes on at `then` behind the last of them."""
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
