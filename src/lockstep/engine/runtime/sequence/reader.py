"""Reading ranges of a project's sequence: entries, then the frames they name, then columns of numbered blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from lockstep.core.outputs import Lineage
from lockstep.core.sequence import SequenceState
from lockstep.engine.columns.runner import Span, join_spans
from lockstep.engine.errors import FrameDamaged, InputChanged, LogTooShort, SourceReplaced
from lockstep.engine.events.columns import EventBatch, Int64s, concat
from lockstep.engine.events.frames import FrameHead, decode_frame, decode_frames, read_head
from lockstep.engine.events.record_format import RecordForm, Records
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.checks_windows import options_of
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.sequence.entries import BlockCounter, Decision, Sender, SequencePosition, counted
from lockstep.engine.runtime.sequence.streams import Input, ProjectStreams, open_inputs, sources
from lockstep.errors import DataError, FormatTooNew, Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView
from lockstep.log.port import Bus, Log

GAP = "gap"
"""The reason under which records are reported that a stream let go of before they were taken."""
RANGE_BYTES = 256 << 20
"""A range ends after the entry with which its records reach this size: a column holds 2 GiB at most."""
_READ_BYTES = 8 << 20
_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class BrokenFrame:
    """A record of an input that is no event of its window: a block, or several, without events."""

    stream: str
    offset: int
    block: int
    reason: str
    word: str = "unparsable"
    """What it is counted under."""


@dataclass(frozen=True, slots=True)
class BatchPart:
    """The records of a stored batch from offset `low` up to `high`."""

    view: BatchView
    low: int
    high: int

    @property
    def count(self) -> int:
        """How many records."""
        return self.high - self.low

    @property
    def sender(self) -> Sender | None:
        """Who sent them, with the number of the first; None if that was not numbered."""
        if self.view.producer == NO_PRODUCER:
            return None
        return self.view.producer.hex(), self.view.sequence + self.low - self.view.base


@dataclass(frozen=True, slots=True)
class _RecordPiece:
    """Records of an input that are blocks `first` and on."""

    input: Input
    part: BatchPart
    first: int


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

    counter: BlockCounter
    pieces: dict[str, list[_Piece]] = field(default_factory=dict)
    records: dict[str, list[_RecordPiece]] = field(default_factory=dict)
    ticks: list[tuple[int, int]] = field(default_factory=list)
    lagging: set[int] = field(default_factory=set)
    broken: list[BrokenFrame] = field(default_factory=list)
    record_bytes: int = 0
    """Of records: an entry may hold few of them that are large."""


@dataclass(frozen=True, slots=True)
class Range:
    """A range of the sequence as columns, the position after it, and what could not be read."""

    span: Span
    end: SequencePosition
    broken: tuple[BrokenFrame, ...]
    control: Decision | None = None
    """The one entry of the range, if it is a control entry: a model, a reset or a snapshot."""
    lineage: Lineage = ()
    """The digests of the sequence for its blocks."""


def join_ranges(start: SequencePosition, end: SequencePosition, taken: Sequence[Range]) -> Range:
    """Ranges that follow each other from `start` to `end`, as one."""
    if len(taken) == 1:
        return taken[0]
    span = join_spans(start.block + 1, end.block, [each.span for each in taken])
    broken = tuple(each for one in taken for each in one.broken)
    return Range(span, end, broken, lineage=tuple(pair for one in taken for pair in one.lineage))


class RangeReader:
    """Reads ranges of the sequence as blocks. `needed` names the columns of each source; None: all."""

    def __init__(
        self,
        bus: Bus,
        graph: Graph,
        streams: ProjectStreams,
        needed: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self._sequence = bus.open(streams.sequence)
        self._nodes, self._inputs = sources(graph), open_inputs(bus, streams, graph)
        self._forms: dict[str, RecordForm] = {}
        self._needed = needed

    def only(self, needed: Mapping[str, frozenset[str]]) -> RangeReader:
        """The same reader for some columns only."""
        other = copy(self)
        other._needed = needed
        return other

    @property
    def schemas(self) -> dict[str, Schema]:
        """Of the sources, by path."""
        return {node.path: node.schema for node in self._nodes}

    @property
    def is_plain(self) -> bool:
        """Whether what it reads is as every reader of the model sees it."""
        return True

    def entries(self, position: SequencePosition) -> Iterator[tuple[SequenceState, Decision]]:
        """The entries after a position, each with the sequence after it."""
        return ((state, Decision.of(entry)) for state, entry in counted(self._sequence, position.sequence))

    def start(self) -> SequencePosition:
        """Before the first entry."""
        return SequencePosition(ends={each.name: 0 for each in self._inputs})

    def check_reach(self, position: SequencePosition) -> None:
        """Refuse if an input of the project's own begins after a position that is still needed.

        Of streams that are not its own no window reads the past, and what they let go of may be decided to be a gap.
        """
        for each in (each for each in self._inputs if not each.takes_records):
            needed, first = end_of(each, position.ends), each.log.bounds().first
            if needed < first:
                raise LogTooShort(window=each.node.path, stream=each.log.name, needed=needed, first=first)

    def read(self, position: SequencePosition, upto: int, max_events: int | None = None) -> Range:
        """Everything after `position` through entry `upto`, which must be on the log, or until it is large enough.

        It is large enough with `max_events`, or when its records are large: then the caller reads on.

        A control entry is a range of its own.
        """
        collected, end, lineage = _Collected(BlockCounter.at(position)), position, []
        room = float("inf") if max_events is None else position.events + max_events
        for state, entry in counted(self._sequence, position.sequence, upto):
            decision = Decision.of(entry)
            if decision.is_control:
                if end is position:
                    return self._control_range(position, state, decision)
                break
            self._take(decision, end.ends, collected)
            if collected.counter.block > end.block:
                lineage.append((collected.counter.block, lineage_digest(state)))
            end = end.after(state, decision, collected.counter)
            if end.events >= room or collected.record_bytes >= RANGE_BYTES:
                break
        else:
            self._check_reached(end, upto)
        batches, marked = self._decoded(collected)
        transactional = np.sort(np.concatenate(marked)) if marked else np.array([], np.int64)
        lagging = frozenset(collected.lagging)
        span = Span(position.block + 1, end.block, batches, tuple(collected.ticks), transactional, lagging)
        return Range(span, end, tuple(collected.broken), lineage=tuple(lineage))

    def _control_range(self, position: SequencePosition, state: SequenceState, decision: Decision) -> Range:
        end = position.after(state, decision, BlockCounter.at(position))
        nothing = Span(position.block + 1, position.block, {}, (), np.array([], np.int64))
        return Range(nothing, end, (), decision)

    def _check_reached(self, end: SequencePosition, upto: int) -> None:
        if end.number != upto:
            name = self._sequence.name
            raise DataError(reason=f"Entry {upto} of {name} is not there; the last is {end.number}.")

    def _take(self, decision: Decision, ends: Mapping[str, int], into: _Collected) -> None:
        into.counter.crc = 0
        gaps = decision.gaps or {}
        for each in self._inputs:
            start, stop = end_of(each, ends), end_of(each, decision.ends)
            if each.name in gaps:
                into.counter.pass_gap()
                reason = f"records up to offset {gaps[each.name] - 1} were gone before they could be read"
                into.broken.append(BrokenFrame(each.log.name, start, into.counter.block, reason, GAP))
                start = gaps[each.name]
            if each.takes_records:
                _take_records(each, start, stop, into)
            else:
                _take_frames(each, start, stop, into)
        if decision.tick_us is not None:
            into.counter.block += 1
            into.ticks.append((into.counter.block, decision.tick_us))
            if decision.lagging:
                into.lagging.add(into.counter.block)
        counter = into.counter
        if (counter.block, counter.events) != (decision.blocks, decision.events):
            found, said = f"{counter.block} blocks, {counter.events} events", f"{decision.blocks}, {decision.events}"
            raise DataError(reason=f"{self._sequence.name} says {said} where its inputs hold {found}.")
        if decision.crc is not None and decision.crc != counter.crc:
            raise InputChanged(stream=self._sequence.name, block=decision.blocks)

    def _decoded(self, into: _Collected) -> tuple[dict[str, EventBatch], list[Int64s]]:
        """The events of each source, and which blocks are transactional."""
        batches, transactional = {}, []
        for node in self._nodes:
            pieces, records = into.pieces.get(node.path), into.records.get(node.path)
            if records:
                batches[node.path] = self._decode_records(node, records, into.broken)
            elif pieces:
                found = self._decode_all(node, pieces) or self._decode_each(node, pieces, into.broken)
                batches[node.path] = concat([batch for batch, _ in found])
                transactional += [numbers for _, numbers in found if len(numbers)]
        return batches, transactional

    def _decode_records(self, node: Node, pieces: Sequence[_RecordPiece], broken: list[BrokenFrame]) -> EventBatch:
        """Records as events; those that are none are reported."""
        assert isinstance(node.window, SourceWindow)
        if node.path not in self._forms:
            self._forms[node.path] = RecordForm(node.schema, options_of(node.window))
        records = _joined(pieces)
        numbers = np.concatenate([np.arange(each.part.count, dtype=np.int64) + each.first for each in pieces])
        batch, bad = self._forms[node.path].events(records, numbers, self._columns(node))
        starts = np.cumsum([0, *(each.part.count for each in pieces)])
        for each in bad:
            stream = pieces[int(np.searchsorted(starts, each.at, "right")) - 1].part.view.stream
            offset, block = int(records.offset[each.at]), int(numbers[each.at])
            broken.append(BrokenFrame(stream, offset, block, each.detail, each.reason))
        return batch

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


def end_of(input_: Input, ends: Mapping[str, int]) -> int:
    """Up to where an input is taken."""
    if input_.name not in ends:
        raise SourceReplaced(window=input_.node.path, stream=input_.log.name)
    return ends[input_.name]


def _take_frames(each: Input, start: int, stop: int, into: _Collected) -> None:
    for offset, value, sender in records_between(each.log, start, stop, each.node.path):
        into.counter.sum_up(value)
        first, head = into.counter.block + 1, head_of(value)
        known = into.counter.take(head, each.name, sender)
        if known is None:
            reason = "messages of its client before it are missing" if head else "it is not an event frame"
            into.broken.append(BrokenFrame(each.log.name, offset, first, reason))
        elif head is not None and known < head.blocks:
            piece = _Piece(each.log.name, offset, value, first, known)
            into.pieces.setdefault(each.node.path, []).append(piece)


def _take_records(each: Input, start: int, stop: int, into: _Collected) -> None:
    for part in batches_between(each.log, start, stop, each.node.path):
        into.counter.sum_up_batch(part.view)
        into.record_bytes += len(part.view.raw)
        first = into.counter.block + 1
        known = into.counter.take_records(part.count, each.name, part.sender)
        if known < part.count:
            piece = _RecordPiece(each, replace(part, low=part.low + known), first)
            into.records.setdefault(each.node.path, []).append(piece)


def _joined(pieces: Sequence[_RecordPiece]) -> Records:
    """The records of several batches after each other."""
    keys: list[bytes | None] = []
    values: list[bytes] = []
    created: list[int] = []
    for each in pieces:
        view, places = each.part.view, slice(each.part.low - each.part.view.base, each.part.high - each.part.view.base)
        keys += view.keys()[places]
        values += view.values()[places]
        created += view.created()[places]
    counts = [each.part.count for each in pieces]
    shard = np.repeat(np.array([each.input.shard for each in pieces], np.int64), counts)
    offset = np.concatenate([np.arange(each.part.low, each.part.high, dtype=np.int64) for each in pieces])
    return Records(shard, offset, keys, values, created)


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
    for part in batches_between(log, start, stop, window):
        view, producer = part.view, None if part.view.producer == NO_PRODUCER else part.view.producer.hex()
        values = view.values()
        for offset in range(part.low, part.high):
            index = offset - view.base
            yield offset, values[index], (producer, view.sequence + index) if producer else None


def batches_between(log: Log, start: int, stop: int, window: str = "") -> Iterator[BatchPart]:
    """The stored batches of a log from `start` up to `stop`, each as far as it lies between them."""
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
            low, high = max(start, view.base), min(stop, view.end)
            if low < high:
                yield BatchPart(view, low, high)
            start = max(start, view.end)
