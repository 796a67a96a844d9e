"""A publisher connector at work: blocks of its source onto the input stream of a window, each once.

The numbers of its client are places in the source. So the input stream itself tells how far it is: whoever leads next
goes on behind the last number there, and engines drop what two of them sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lockstep.connectors.notes import Note, Notes
from lockstep.connectors.port import Pace, Piece, Source
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.model.graph import Node
from lockstep.engine.run.feeding import EventPublisher
from lockstep.events.clients import client_id
from lockstep.events.connection import ProjectEvents
from lockstep.streams.publisher import Publisher

_FILL = 4_096
"""Empty blocks in a frame, where a source skips places."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """How fast, and how much."""

    rate: int = 0
    """Events a second; 0 sets no limit."""
    max_events: int = 0


class Feeding:
    """Publishes from a source until it ends. `step` does what is there, and says whether the source has ended."""

    def __init__(
        self, project: ProjectEvents, node: Node, connector: str, source: Source, notes: Notes, pace: Pace,
        options: FeedOptions,
    ) -> None:  # fmt: skip
        self._source, self._notes, self._pace, self._options = source, notes, pace, options
        self._schema = node.schema
        client = client_id(f"{project.streams.cluster}.{project.name}.K.{connector}")
        stream = project.input(node)
        self.last = project.last_id(node, client) if source.is_numbered else 0
        """The last block of this connector on the input stream, if its blocks have numbers."""
        note = notes.last()
        self._pieces: Iterator[Piece | None] = source.pieces(self.last, note)
        begun = source.start() if note is None else None
        if begun is not None:
            notes.write(begun)
        known = client if source.is_numbered else None
        self._sender = EventPublisher(project.connection, stream, node.schema, client=known, next_id=self.last + 1)
        self._plain: Publisher | None = None
        self._connection, self._stream = project.connection, stream
        self._began, self._events = pace.monotonic(), 0
        self._unnoted: int | None = None

    def step(self) -> bool:
        """Send what is there; true when the source has ended and everything is on the stream."""
        for piece in self._pieces:
            self._pace.check()
            if piece is None:
                self._settle()
                return False
            self._send(piece)
            if self._options.rate:
                self._wait_for_rate()
            if self._options.max_events and self._events >= self._options.max_events:
                break
        self._settle()
        return True

    def close(self) -> None:
        """Let go; what was sent is on the stream, or will be sent again by whoever leads."""
        try:
            self._sender.close()
            if self._plain is not None:
                self._plain.close()
        finally:
            self._source.close()

    def _send(self, piece: Piece) -> None:
        self._events += len(piece.batch)
        if piece.frame is not None:
            if self._plain is None:
                self._plain = self._connection.publisher(self._stream, create=False)
            self._plain.publish(piece.frame)
            self._unnoted = piece.at
            return
        if not len(piece.numbers):
            return
        first, sender = int(piece.numbers[0]), self._sender
        if self.last and first > sender.next_id:
            self._fill(first)
        sender.next_id = first
        sender.publish_batch(piece.batch, numbers=piece.numbers, transactional=piece.transactional)
        self.last = int(piece.numbers[-1])

    def _fill(self, upto: int) -> None:
        """Places without a message are blocks without events: engines refuse a client whose numbers skip."""
        nothing = EventBatch.empty(self._schema)
        for start in range(self._sender.next_id, upto, _FILL):
            numbers: Int64s = np.arange(start, min(start + _FILL, upto), dtype=np.int64)
            self._sender.publish_batch(nothing, numbers=numbers, frame_events=_FILL)

    def _settle(self) -> None:
        """Have everything on the stream, and note how far that is where the stream can't tell."""
        self._sender.flush()
        if self._plain is not None and self._unnoted is not None:
            self._plain.flush()
            self._notes.write(Note(self._unnoted))
            self._unnoted = None

    def _wait_for_rate(self) -> None:
        due = self._began + self._events / self._options.rate
        while (early := due - self._pace.monotonic()) > 0:
            self._pace.rest(early)
