"""Publishing events to a project's inputs, and reading what comes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np

from lockstep.core.outputs import Cut, OutState, Verdict, fold
from lockstep.engine.errors import OutputBroken, OutputDiffers
from lockstep.engine.events.columns import EventBatch, Int64s, concat
from lockstep.engine.events.csv_reader import CsvOutput
from lockstep.engine.events.csv_writer import write_csv
from lockstep.engine.events.event import Event
from lockstep.engine.events.frames import FrameHead, decode_frame, encode_frame, read_head
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Node
from lockstep.engine.runtime.output.outlet import cut_of, is_barrier
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.port import Bus, Log
from lockstep.streams.client import Lockstep
from lockstep.streams.receipt import Receipt

_FRAME_EVENTS = 4_096


class EventPublisher:
    """Sends blocks of events to one input stream. Each block gets the next message id of this client.

    A client that is started again with the same `client` name and the next id goes on where it was; blocks that are
    already there are dropped by the engine. Without a name the stream's own de-duplication is used.
    """

    def __init__(
        self, connection: Lockstep, stream: str, schema: Schema, *, client: bytes | None = None, next_id: int = 1
    ) -> None:
        self._publisher = connection.publisher(stream, create=False)
        self._schema, self._client = schema, client
        self._unsure: deque[Receipt] = deque()
        self.next_id = next_id

    def publish(self, events: Sequence[Event], *, transactional: bool = False) -> Receipt:
        """Send one block."""
        number = np.array([self.next_id], np.int64)
        batch = EventBatch.of(self._schema, [(self.next_id, events)])
        return self._send(batch, number, number if transactional else number[:0])

    def publish_batch(
        self,
        batch: EventBatch,
        *,
        frame_events: int = _FRAME_EVENTS,
        numbers: Int64s | None = None,
        transactional: bool = False,
    ) -> None:
        """Send many blocks: events with the same block number are one. `numbers` names also those without events."""
        if numbers is None:
            is_first = np.r_[True, batch.block[1:] != batch.block[:-1]] if len(batch) else np.array([], bool)
            numbers = batch.block[is_first]
        starts, at = np.append(np.searchsorted(batch.block, numbers), len(batch)), 0
        while at < len(numbers):
            until = max(int(np.searchsorted(starts, starts[at] + frame_events, "right")) - 1, at + 1)
            chosen = numbers[at:until]
            self._send(
                batch.slice(int(starts[at]), int(starts[until])), chosen, chosen if transactional else chosen[:0]
            )
            at = until

    def flush(self) -> None:
        """Wait until everything is on the stream; raises what kept a block from it."""
        self._publisher.flush()
        self._check()

    def close(self) -> None:
        """Flush and let go; raises what kept a block from the stream."""
        self._publisher.close()
        self._check()

    def _check(self) -> None:
        """Forget what is stored, and raise the first failure."""
        while self._unsure and self._unsure[0].done():
            self._unsure.popleft().result()

    def _send(self, batch: EventBatch, numbers: Int64s, transactional: Int64s) -> Receipt:
        frame = encode_frame(
            batch, numbers=numbers, client=self._client, first_id=self.next_id, transactional=transactional
        )
        self._check()
        receipt = self._publisher.publish(frame)
        self._unsure.append(receipt)
        self.next_id += len(numbers)
        return receipt


class OutFold:
    """Reads the frames of an out stream in order: each block once, copies dropped, a missing one an error.

    A block that was computed from another sequence than those before it is an error too.
    `state` says up to where blocks were given out; None takes the first whole block as it comes. `columns` are those
    that are wanted; None: all.
    """

    def __init__(
        self,
        stream: str,
        schema: Schema,
        last: int | OutState | None = None,
        *,
        columns: frozenset[str] | None = None,
    ) -> None:
        self._stream, self._schema, self._columns = stream, schema, columns
        self.state = OutState(last) if isinstance(last, int) else last
        self._cut: Cut | None = None

    @property
    def last(self) -> int | None:
        """The last block that was given out, perhaps not yet all of it."""
        return None if self.state is None else self.state.last

    def digest_at(self, block: int) -> str:
        """The digest of a block of the last frame that was given out; empty if it is not known."""
        return self._cut.digest_at(block) if self._cut is not None else ""

    def take(self, offset: int, value: bytes) -> EventBatch:
        """The events of a record that were not given out before, perhaps none; OutputBroken if some are missing."""
        if is_barrier(value):
            return EventBatch.empty(self._schema)
        frame = decode_frame(value, self._schema, columns=self._columns, place=f"offset {offset} of {self._stream}")
        before = _start(frame.head) if self.state is None else self.state
        after, verdict = self._judged(before, frame.head)
        if verdict is Verdict.PARTLY and before.last not in frame.numbers:
            raise self._broken(frame.head, before)
        self.state = after
        if verdict is Verdict.COPY:
            return frame.batch.slice(0, 0)
        self._cut = cut_of(frame.head)
        fresh = int(np.searchsorted(frame.batch.block, before.last, "right")) if verdict is Verdict.PARTLY else 0
        return frame.batch.slice(fresh, len(frame.batch))

    def skip(self, offset: int, value: bytes) -> None:
        """Go past a record as `take` does, by its head alone."""
        if is_barrier(value):
            return
        head = read_head(value, f"offset {offset} of {self._stream}")
        self.state, _ = self._judged(_start(head) if self.state is None else self.state, head)

    def _judged(self, before: OutState, head: FrameHead) -> tuple[OutState, Verdict]:
        """The state after a frame, and what it is; an error if blocks are missing, or are of another sequence."""
        after, verdict = _fold(before, head)
        if verdict is Verdict.DIFFERS:
            found = cut_of(head).digest_at(before.last)
            raise OutputDiffers(block=before.last, stream=self._stream, found=found, known=before.digest)
        if verdict is Verdict.GAP:
            raise self._broken(head, before)
        return after, verdict

    @property
    def goes_on(self) -> bool:
        """Whether the last block is not whole yet."""
        return self.state is not None and self.state.part > 0

    def _broken(self, head: FrameHead, state: OutState) -> OutputBroken:
        return OutputBroken(number=head.first, stream=self._stream, previous=head.previous or 0, last=state.last)


def _start(head: FrameHead) -> OutState:
    """Where a reader without a past begins: a later piece follows its own block, which so is left out whole."""
    return OutState(head.previous or 0, 0, head.before)


def _fold(state: OutState, head: FrameHead) -> tuple[OutState, Verdict]:
    if _is_unnumbered(head) and head.first == state.last:  # can't be told from a copy; nobody writes them any more
        return OutState(head.last, 0, cut_of(head).digest_at(head.last)), Verdict.NEW
    return fold(state, cut_of(head))


def _is_unnumbered(head: FrameHead) -> bool:
    """Whether a frame is a later piece from the time when pieces had no numbers."""
    return head.previous == head.first and not head.part


class WholeBlocks:
    """Holds a block that comes in pieces back until it is whole: an update may be cut between its halves."""

    def __init__(self, fold: OutFold) -> None:
        self._fold = fold
        self._pieces: list[EventBatch] = []

    @property
    def is_waiting(self) -> bool:
        """Whether pieces are held back."""
        return bool(self._pieces)

    def take(self, offset: int, value: bytes) -> EventBatch:
        """The events of blocks that are whole with this record, perhaps none; OutputBroken if some are missing."""
        batch = self._fold.take(offset, value)
        if not len(batch):
            return batch
        if self._fold.goes_on:
            self._pieces.append(batch)
            return batch.slice(0, 0)
        pieces, self._pieces = [*self._pieces, batch], []
        return concat(pieces)


def out_batches(log: Log, schema: Schema) -> Iterator[EventBatch]:
    """Everything on an out stream, in order, each block once and whole."""
    bounds = log.bounds()
    blocks = WholeBlocks(OutFold(log.name, schema))
    for offset, value in values_between(log, bounds.first, bounds.next):
        batch = blocks.take(offset, value)
        if len(batch):
            yield batch


def write_outputs(
    bus: Bus, streams: ProjectStreams, files: Mapping[str, tuple[Node, BinaryIO]], output: CsvOutput
) -> dict[str, int]:
    """Write what is on the out streams of some windows to their files; the lines of each, by the window's path."""
    return {
        path: sum(write_csv(batch, file, output) for batch in out_batches(bus.open(streams.output(node)), node.schema))
        for path, (node, file) in files.items()
    }
