"""Publishing events to a project's inputs, and reading what comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lockstep.engine.errors import OutputBroken
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.events.event import Event
from lockstep.engine.events.frames import decode_frame, encode_frame
from lockstep.engine.events.schema import Schema
from lockstep.engine.run.reading import values_between
from lockstep.log.port import Log
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
        """Wait until everything is on the stream."""
        self._publisher.flush()

    def close(self) -> None:
        """Flush and let go."""
        self._publisher.close()

    def _send(self, batch: EventBatch, numbers: Int64s, transactional: Int64s) -> Receipt:
        frame = encode_frame(
            batch, numbers=numbers, client=self._client, first_id=self.next_id, transactional=transactional
        )
        self.next_id += len(numbers)
        return self._publisher.publish(frame)


class OutFold:
    """Reads the frames of an out stream in order: each block once, copies dropped, a missing one an error.

    `last` is the number of the last block that was given out; None takes the first frame as it comes.
    """

    def __init__(self, stream: str, schema: Schema, last: int | None = None) -> None:
        self._stream, self._schema, self.last = stream, schema, last

    def take(self, offset: int, value: bytes) -> EventBatch:
        """The events of a frame that were not given out before, perhaps none."""
        frame = decode_frame(value, self._schema, place=f"offset {offset} of {self._stream}")
        head = frame.head
        previous = head.previous or 0
        last = previous if self.last is None else self.last
        if previous > last:
            raise OutputBroken(number=head.first, stream=self._stream, previous=previous, last=last)
        self.last = max(last, head.last)
        if previous == last:  # what follows on, or the rest of a block that was too long for one frame
            return frame.batch
        if head.last > last and last not in frame.numbers:
            raise OutputBroken(number=head.first, stream=self._stream, previous=previous, last=last)
        fresh = int(np.searchsorted(frame.batch.block, last, "right"))
        return frame.batch.slice(fresh, len(frame.batch))


def out_batches(log: Log, schema: Schema) -> Iterator[EventBatch]:
    """Everything on an out stream, in order, each block once."""
    bounds = log.bounds()
    fold = OutFold(log.name, schema)
    for offset, value in values_between(log, bounds.first, bounds.next):
        batch = fold.take(offset, value)
        if len(batch):
            yield batch
