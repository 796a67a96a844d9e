"""How many events a publisher connector has taken, over all that led: `maxevents` is exact and counted once. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lockstep.connectors.notes import Note
from lockstep.connectors.port import Piece

EVENTS = "events"
"""Of a note: the events up to its place."""


@dataclass(slots=True)
class Count:
    """The events that were taken so far; `most` of 0 sets no limit."""

    most: int
    taken: int = 0

    @classmethod
    def of(cls, most: int, note: Note | None) -> Count:
        """As noted."""
        return cls(most, 0 if note is None else int(note.more.get(EVENTS, 0)))

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.most > 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be taken."""
        return self.is_limited and self.taken >= self.most

    def take(self, piece: Piece) -> Piece:
        """The part of a piece that is within the limit. A frame with numbers of its own can't be cut."""
        left = self.most - self.taken
        if self.is_limited and piece.frame is None and left < len(piece.batch):
            piece = first_events(piece, left)
        self.taken += piece.events
        return piece


def first_events(piece: Piece, count: int) -> Piece:
    """The first so many events of a piece, at least one, and the blocks up to there."""
    batch = piece.batch.slice(0, count)
    return replace(piece, batch=batch, numbers=piece.numbers[piece.numbers <= batch.block[-1]])


def behind(piece: Piece, last: int) -> Piece:
    """The blocks of a piece behind block `last`."""
    start = int(np.searchsorted(piece.batch.block, last, "right"))
    batch = piece.batch.slice(start, len(piece.batch))
    return replace(piece, batch=batch, numbers=piece.numbers[piece.numbers > last])
