"""A publisher connector at work: blocks of its source onto the input stream of a window, each once.

The numbers of its client are positions in the source, so the input stream itself shows how far it is: the next leader
continues after the last number there, and engines drop what was sent twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lockstep.connectors.port import EVENTS, Count, Note, Notes, Pace, Piece, Source, behind
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.model.graph import Node
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.events.clients import client_id
from lockstep.events.connection import ProjectEvents
from lockstep.streams.publisher import Publisher
from lockstep.streams.receipt import Receipt

FILL = 4_096
"""Empty blocks in a frame, where a source skips places."""
_UNSETTLED = 500
"""Pieces that may be on their way without a note: a source that is never silent needs notes too."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """How fast, and how much."""

    rate: int = 0
    """Events a second; 0 sets no limit."""
    max_events: int = 0


class Feeding:
    """Publishes from a source until it ends; `step` sends what is available, and returns whether it has ended."""

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
        self._count = Count.of(options.max_events, note)
        # where events are counted, those that were sent and not noted yet are read again, and counted only
        after = 0 if self._count.is_limited else self.last
        self._pieces: Iterator[Piece | None] = source.pieces(after, note)
        begun = source.start() if note is None else None
        if begun is not None:
            notes.write(begun)
        known = client if source.is_numbered else None
        self._sender = EventPublisher(project.connection, stream, node.schema, client=known, next_id=self.last + 1)
        self._plain: Publisher | None = None
        self._connection, self._stream = project.connection, stream
        self._began, self._events = pace.monotonic(), 0
        self._unsure: list[Receipt] = []
        self._unnoted: int | None = None
        self._unsettled = 0

    def step(self) -> bool:
        """Send what is available; returns True when the source has ended and everything is on the stream."""
        if self._count.is_full:
            return True
        for piece in self._pieces:
            self._pace.check()
            if piece is None:
                self._settle()
                return False
            self._send(self._count.take(piece))
            if self._options.rate:
                self._wait_for_rate()
            if self._count.is_full:
                break
            if self._unsettled >= _UNSETTLED:
                self._settle()
        self._settle()
        return True

    def close(self) -> None:
        """Close source and publisher; blocks that did not reach the stream are sent again by the next leader."""
        try:
            self._sender.close()
            if self._plain is not None:
                self._plain.close()
        finally:
            self._source.close()

    def _send(self, piece: Piece) -> None:
        self._events += piece.events
        if piece.frame is not None:
            self._send_frame(piece.frame, piece.at)
            return
        if self._count.is_limited:
            self._unsettled, self._unnoted = self._unsettled + 1, self._place(piece)
            piece = behind(piece, self.last) if self._source.is_numbered else piece
        if not len(piece.numbers):
            return
        first, sender = int(piece.numbers[0]), self._sender
        if self.last and first > sender.next_id:
            self._fill(first)
        sender.next_id = first
        sender.publish_batch(piece.batch, numbers=piece.numbers, transactional=piece.transactional)
        self.last = int(piece.numbers[-1])

    def _send_frame(self, frame: bytes, at: int) -> None:
        """A frame has its own numbers, so the input does not show how far the source was read: write a note."""
        if self._plain is None:
            self._plain = self._connection.publisher(self._stream, create=False)
        self._unsure.append(self._plain.publish(frame))
        self._unsettled, self._unnoted = self._unsettled + 1, at

    def _place(self, piece: Piece) -> int | None:
        """What to note with the count: a place in the source, or the count itself if the source has none."""
        if not self._source.is_numbered:
            return self._count.taken
        return int(piece.numbers[-1]) if len(piece.numbers) else self._unnoted

    def _fill(self, upto: int) -> None:
        """Places without a message are blocks without events: engines refuse a client whose numbers skip."""
        nothing = EventBatch.empty(self._schema)
        for start in range(self._sender.next_id, upto, FILL):
            numbers: Int64s = np.arange(start, min(start + FILL, upto), dtype=np.int64)
            self._sender.publish_batch(nothing, numbers=numbers, frame_events=FILL)

    def _settle(self) -> None:
        """Flush, and note how far the source was read if the stream cannot show it."""
        self._sender.flush()
        if self._plain is not None:
            self._plain.flush()
        unsure, self._unsure, self._unsettled = self._unsure, [], 0
        for receipt in unsure:
            receipt.result()
        if self._unnoted is not None:
            more = {EVENTS: self._count.taken} if self._count.is_limited else {}
            self._notes.write(Note(self._unnoted, more))
            self._unnoted = None

    def _wait_for_rate(self) -> None:
        due = self._began + self._events / self._options.rate
        while (early := due - self._pace.monotonic()) > 0:
            self._pace.rest(early)
