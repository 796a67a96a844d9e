"""Reading ranges of a project's sequence: entries, then the frames they name, then columns of numbered blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from lockstep.core.outputs import Lineage
from lockstep.core.sequence import SequenceState
from lockstep.engine.errors import FrameDamaged, InputChanged, LogTooShort
from lockstep.engine.events.columns import EventBatch, Int64s, concat
from lockstep.engine.events.frames import FrameHead, decode_frame, decode_frames, read_head
from lockstep.engine.kernels.span import Span
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.run.decisions import Decision, counted
from lockstep.engine.run.position import Position, Sender, Tally
from lockstep.engine.run.streams import ProjectStreams, sources
from lockstep.errors import DataError, FormatTooNew, Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView
from lockstep.log.port import Bus, Log

_READ_BYTES = 8 << 20
_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class BrokenFrame:
    """A record of an input that is not a frame of its window: a block, or several, without events."""

    stream: str
    offset: int
    block: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Piece:
    """A frame of an input whose blocks are numbered from `first` on; `known` blocks before that came already."""

    stream: str
    offset: int
    value: bytes
    first: int
    known: int


@dataclass(slots=True)
class _Collected:
    """What a range holds so far."""

    tally: Tally
    pieces: dict[str, list[_Piece]] = field(default_factory=dict)
    ticks: list[tuple[int, int]] = field(default_factory=list)
    lagging: set[int] = field(default_factory=set)
    broken: list[BrokenFrame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Range:
    """A range of the sequence as columns, the position behind it, and what could not be read."""

    span: Span
    end: Position
    broken: tuple[BrokenFrame, ...]
    turn: Decision | None = None
    """The one entry of the range, if it turns something: a model, a reset or a snapshot."""
    lineage: Lineage = ()
    """The digests of the sequence for its blocks."""


class RangeReader:
    """Turns entries of the sequence log into blocks. `needed` names the columns of each source; None takes all."""

    def __init__(
        self,
        bus: Bus,
        graph: Graph,
        streams: ProjectStreams,
        needed: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self._sequence = bus.open(streams.sequence)
        self._inputs: list[tuple[Node, Log]] = [(node, bus.open(streams.input(node))) for node in sources(graph)]
        self._needed = needed

    def only(self, needed: Mapping[str, frozenset[str]]) -> RangeReader:
        """A reader of some columns."""
        other = copy(self)
        other._needed = needed
        return other

    def start(self) -> Position:
        """Before the first entry."""
        return Position(ends={node.path: 0 for node, _ in self._inputs})

    def check_reach(self, position: Position) -> None:
        """Refuse if an input begins behind a position that is still needed."""
        for node, log in self._inputs:
            needed, first = position.ends[node.path], log.bounds().first
            if needed < first:
                raise LogTooShort(window=node.path, stream=log.name, needed=needed, first=first)

    def read(self, position: Position, upto: int, max_events: int | None = None) -> Range:
        """Everything behind `position` through entry `upto`, which must be on the log, or until it is large enough.

        An entry that turns something is a range of its own.
        """
        collected, end, lineage = _Collected(Tally.at(position)), position, []
        room = float("inf") if max_events is None else position.events + max_events
        for state, entry in counted(self._sequence, position.sequence, upto):
            decision = Decision.of(entry)
            if decision.turns:
                if end is position:
                    return self._turn(position, state, decision)
                break
            self._take(decision, end.ends, collected)
            if collected.tally.block > end.block:
                lineage.append((collected.tally.block, lineage_digest(state)))
            end = end.after(state, decision, collected.tally)
            if end.events >= room:
                break
        else:
            self._check_reached(end, upto)
        batches, marked = self._decoded(collected)
        transactional = np.sort(np.concatenate(marked)) if marked else np.array([], np.int64)
        lagging = frozenset(collected.lagging)
        span = Span(position.block + 1, end.block, batches, tuple(collected.ticks), transactional, lagging)
        return Range(span, end, tuple(collected.broken), lineage=tuple(lineage))

    def _turn(self, position: Position, state: SequenceState, decision: Decision) -> Range:
        end = position.after(state, decision, Tally.at(position))
        nothing = Span(position.block + 1, position.block, {}, (), np.array([], np.int64))
        return Range(nothing, end, (), decision)

    def _check_reached(self, end: Position, upto: int) -> None:
        if end.number != upto:
            name = self._sequence.name
            raise DataError(reason=f"Entry {upto} of {name} is not there; the last is {end.number}.")

    def _take(self, decision: Decision, ends: Mapping[str, int], into: _Collected) -> None:
        into.tally.crc = 0
        for node, log in self._inputs:
            records = records_between(log, ends[node.path], decision.ends[node.path], node.path)
            for offset, value, sender in records:
                into.tally.sum_up(value)
                first, head = into.tally.block + 1, head_of(value)
                known = into.tally.take(head, node.path, sender)
                if known is None:
                    reason = "messages of its client before it are missing" if head else "it is not an event frame"
                    into.broken.append(BrokenFrame(log.name, offset, first, reason))
                elif head is not None and known < head.blocks:
                    into.pieces.setdefault(node.path, []).append(_Piece(log.name, offset, value, first, known))
        if decision.tick_us is not None:
            into.tally.block += 1
            into.ticks.append((into.tally.block, decision.tick_us))
            if decision.lagging:
                into.lagging.add(into.tally.block)
        tally = into.tally
        if (tally.block, tally.events) != (decision.blocks, decision.events):
            found, said = f"{tally.block} blocks, {tally.events} events", f"{decision.blocks}, {decision.events}"
            raise DataError(reason=f"{self._sequence.name} says {said} where its inputs hold {found}.")
        if decision.crc is not None and decision.crc != tally.crc:
            raise InputChanged(stream=self._sequence.name, block=decision.blocks)

    def _decoded(self, into: _Collected) -> tuple[dict[str, EventBatch], list[Int64s]]:
        """The events of each source, and which blocks are transactional."""
        batches, transactional = {}, []
        for node, _ in self._inputs:
            pieces = into.pieces.get(node.path)
            if pieces:
                found = self._decode_all(node, pieces) or self._decode_each(node, pieces, into.broken)
                batches[node.path] = concat([batch for batch, _ in found])
                transactional += [numbers for _, numbers in found if len(numbers)]
        return batches, transactional

    def _decode_all(self, node: Node, pieces: Sequence[_Piece]) -> list[tuple[EventBatch, Int64s]] | None:
        """All frames in one go, or None if one is broken or was taken in part before."""
        if any(piece.known for piece in pieces):
            return None
        firsts = np.array([piece.first for piece in pieces], np.int64)
        try:
            frames = decode_frames(
                [piece.value for piece in pieces], node.schema, columns=self._columns(node), number_from=firsts
            )
        except FrameDamaged:
            return None
        return [(frames.batch, frames.transactional)]

    def _decode_each(
        self, node: Node, pieces: Sequence[_Piece], broken: list[BrokenFrame]
    ) -> list[tuple[EventBatch, Int64s]]:
        found = [(EventBatch.empty(node.schema), np.array([], np.int64))]
        for piece in pieces:
            try:
                number, place = piece.first - piece.known, f"offset {piece.offset} of {piece.stream}"
                frame = decode_frame(
                    piece.value, node.schema, columns=self._columns(node), number_from=number, place=place
                )
            except FrameDamaged as error:
                broken.append(BrokenFrame(piece.stream, piece.offset, piece.first, str(error)))
                continue
            batch = frame.batch.slice(int(np.searchsorted(frame.batch.block, piece.first)), len(frame.batch))
            found.append((batch, frame.transactional[frame.transactional >= piece.first]))
        return found[1:] or found

    def _columns(self, node: Node) -> frozenset[str] | None:
        return None if self._needed is None else self._needed.get(node.path, frozenset())


def lineage_digest(state: SequenceState) -> str:
    """What out streams say of a sequence: the beginning of its digest."""
    return state.digest[:_DIGEST_CHARS]


def head_of(value: bytes) -> FrameHead | None:
    """The head of a record that is a frame."""
    try:
        return read_head(value)
    except (FrameDamaged, FormatTooNew):  # a record that can't be read must not stop those that can
        return None


def values_between(log: Log, start: int, stop: int, window: str = "") -> Iterator[tuple[int, bytes]]:
    """The records of a log from `start` up to `stop`, with their offsets."""
    for offset, value, _ in records_between(log, start, stop, window):
        yield offset, value


def records_between(log: Log, start: int, stop: int, window: str = "") -> Iterator[tuple[int, bytes, Sender | None]]:
    """The records of a log from `start` up to `stop`, with their offsets, and who sent them if that was numbered."""
    while start < stop:
        try:
            stored = log.read(start, max_bytes=_READ_BYTES)
        except Trimmed as error:
            first = log.bounds().first
            raise LogTooShort(window=window or log.name, stream=log.name, needed=start, first=first) from error
        if not stored:
            raise DataError(reason=f"{log.name} ends before offset {stop}, which its sequence log names.")
        for entry in stored:
            view = BatchView(entry.base, entry.data, log.name)
            producer = None if view.producer == NO_PRODUCER else view.producer.hex()
            for index, value in enumerate(view.values()):
                if start <= view.base + index < stop:
                    yield view.base + index, value, (producer, view.sequence + index) if producer else None
            start = view.end
