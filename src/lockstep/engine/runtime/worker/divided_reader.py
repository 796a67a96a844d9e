"""Reading for one shard of several: a piece of input is read and divided by one of them, and taken by the others.

A piece is a run of entries that every shard finds alike, wherever it begins to read: it ends before the entry with
which there are more events than a multiple of PIECE_EVENTS, or behind an entry that is as large alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from lockstep.core.sequence import SequenceState
from lockstep.engine.kernels.sharding import InputShare
from lockstep.engine.runtime.sequence.decisions import Decision
from lockstep.engine.runtime.sequence.position import Position
from lockstep.engine.runtime.sequence.reading import Range, RangeReader, join_ranges
from lockstep.engine.runtime.worker.parts import PartCounts, PartFolder, divided, part_name

PIECE_EVENTS = 32_768
"""Pieces are about so large; less is read by each shard, as it is when input comes in.

An entry of a backlog is mostly larger, and so a piece: whatever entries a batch has, it cuts none.
"""


_WORTH_EVENTS = 4096
"""Of fewer nothing is left for others."""


class Reader(Protocol):
    """Reads ranges of a project's sequence."""

    def read(self, position: Position, upto: int, max_events: int | None = None) -> Range:
        """See RangeReader."""

    def check_reach(self, position: Position) -> None:
        """See RangeReader."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries through number `last`, when the sequence had that digest; `is_whole`: every shard finds it so."""

    last: int
    digest: str
    is_whole: bool


class DividedReader:
    """Gives the rows of one shard, and of the others what is looked at in all; without `folder` it reads all itself."""

    def __init__(
        self, reader: RangeReader, shares: Mapping[str, InputShare], fingerprint: str, folder: PartFolder | None
    ) -> None:
        self._reader, self._shares, self._fingerprint, self._folder = reader, shares, fingerprint, folder
        self._schemas = reader.schemas
        self.counts = folder.counts if folder is not None else PartCounts()

    def check_reach(self, position: Position) -> None:
        """See RangeReader."""
        self._reader.check_reach(position)

    def read(self, position: Position, upto: int, max_events: int | None = None) -> Range:
        """See RangeReader."""
        folder = self._folder
        if folder is None or not folder.others_here():
            return divided(self._reader.read(position, upto, max_events), self._shares)
        taken: list[Range] = []
        end = position
        for piece in pieces(self._reader.entries(position), position, upto, max_events):
            made = self._take(folder, end, piece)
            taken.append(made)
            end = made.end
            if made.turn is not None or end.number != piece.last:
                break
        if not taken:
            return divided(self._reader.read(position, upto, max_events), self._shares)
        return join_ranges(position, end, taken)

    def _take(self, folder: PartFolder, start: Position, piece: Piece) -> Range:
        def read() -> Range:
            return self._reader.read(start, piece.last)

        if not piece.is_whole:
            return folder.alone(self._shares, read)
        name = part_name(start, piece.last, piece.digest, self._shares, self._fingerprint)
        return folder.take(name, start.events // PIECE_EVENTS, self._shares, self._schemas, read)


def pieces(
    entries: Iterator[tuple[SequenceState, Decision]], position: Position, upto: int, max_events: int | None
) -> Iterator[Piece]:
    """The pieces behind a position through entry `upto`, or until there are enough events; none past a turn.

    An entry that turns something is a piece alone, and only the first.
    """
    room = float("inf") if max_events is None else position.events + max_events
    last: SequenceState | None = None
    start = events = position.events
    begins = is_large = is_enough = False
    for state, decision in entries:
        ends = decision.turns or is_large or _part_of(decision.events) != _part_of(events)
        if last is None:
            if decision.turns:
                yield Piece(state.number, state.digest, is_whole=False)
                return
            begins = ends
        elif ends or is_enough:
            yield Piece(last.number, last.digest, is_whole=begins and ends and events - start >= _WORTH_EVENTS)
            if decision.turns or is_enough:
                return
            begins, start = True, events
        is_large = decision.events - events >= PIECE_EVENTS
        last, events = state, decision.events
        is_enough = state.number == upto or events >= room
    if last is not None:  # the log ends here for now, for those who look at the same time
        yield Piece(last.number, last.digest, is_whole=begins and events - start >= PIECE_EVENTS // 8)


def _part_of(events: int) -> int:
    """In which of the parts of that size the last of so many events is."""
    return (events - 1) // PIECE_EVENTS
