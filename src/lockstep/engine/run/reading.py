"""Reading ranges of a project's sequence: entries, then the frames they name, then columns of numbered blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from lockstep.engine.errors import FrameDamaged, LogTooShort
from lockstep.engine.events.columns import EventBatch, Int64s, concat
from lockstep.engine.events.frames import decode_frame, read_head
from lockstep.engine.kernels.span import Span
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.run.decisions import Decision, counted
from lockstep.engine.run.position import Position, Tally
from lockstep.engine.run.streams import ProjectStreams, sources
from lockstep.errors import DataError, Trimmed
from lockstep.log.batch import BatchView
from lockstep.log.port import Bus, Log

_READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class BrokenFrame:
    """A record of an input that is not a frame of its window; its blocks are there, but empty."""

    stream: str
    offset: int
    block: int
    reason: str


@dataclass(slots=True)
class _Collected:
    """What a range holds so far."""

    tally: Tally
    batches: dict[str, list[EventBatch]] = field(default_factory=dict)
    transactional: list[Int64s] = field(default_factory=list)
    ticks: list[tuple[int, int]] = field(default_factory=list)
    broken: list[BrokenFrame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Range:
    """A range of the sequence as columns, the position behind it, and what could not be read."""

    span: Span
    end: Position
    broken: tuple[BrokenFrame, ...]


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
        return Position(ends=tuple(0 for _ in self._inputs))

    def check_reach(self, position: Position) -> None:
        """Refuse if an input begins behind a position that is still needed."""
        for (node, log), needed in zip(self._inputs, position.ends, strict=True):
            first = log.bounds().first
            if needed < first:
                raise LogTooShort(window=node.path, stream=log.name, needed=needed, first=first)

    def read(self, position: Position, upto: int, max_events: int | None = None) -> Range:
        """Everything behind `position` through entry `upto`, which must be on the log, or until it is large enough."""
        collected, ends, reached = _Collected(Tally.at(position)), position.ends, position.sequence
        tally = collected.tally
        room = float("inf") if max_events is None else position.events + max_events
        for state, entry in counted(self._sequence, position.sequence, upto):
            decision = Decision.of(entry)
            self._take(decision, ends, collected)
            ends, reached = decision.ends, state
            if tally.events >= room:
                break
        if reached.number != upto and tally.events < room:
            name, last = self._sequence.name, reached.number
            raise DataError(reason=f"Entry {upto} of {name} is not there; the last is {last}.")
        end = Position(reached, ends, tally.block, tally.events, tally.clients)
        return Range(_span(position.block + 1, collected), end, tuple(collected.broken))

    def _take(self, decision: Decision, ends: tuple[int, ...], into: _Collected) -> None:
        for (node, log), start, stop in zip(self._inputs, ends, decision.ends, strict=True):
            for offset, value in values_between(log, start, stop, node.path):
                self._take_frame(node, log.name, offset, value, into)
        if decision.tick_us is not None:
            into.tally.block += 1
            into.ticks.append((into.tally.block, decision.tick_us))
        tally = into.tally
        if (tally.block, tally.events) != (decision.blocks, decision.events):
            found, said = f"{tally.block} blocks, {tally.events} events", f"{decision.blocks}, {decision.events}"
            raise DataError(reason=f"{self._sequence.name} says {said} where its inputs hold {found}.")

    def _take_frame(self, node: Node, stream: str, offset: int, value: bytes, into: _Collected) -> None:
        """Number a frame's blocks, leaving out those that came before, and decode it."""
        first = into.tally.block + 1
        try:
            head = read_head(value)
            known = into.tally.take(head)
            if known == head.blocks:
                return
            if known is None:
                raise FrameDamaged(place=f"offset {offset} of {stream}", reason="messages before it are missing")
            needed = self._needed[node.path] if self._needed is not None else None
            place = f"offset {offset} of {stream}"
            frame = decode_frame(value, node.schema, columns=needed, number_from=first - known, place=place)
        except FrameDamaged as error:
            into.broken.append(BrokenFrame(stream, offset, first, str(error)))
            return
        batch = frame.batch
        if known:
            batch = batch.slice(int(np.searchsorted(batch.block, first)), len(batch))
        into.batches.setdefault(node.path, []).append(batch)
        into.transactional.append(frame.transactional[frame.transactional >= first])


def values_between(log: Log, start: int, stop: int, window: str = "") -> Iterator[tuple[int, bytes]]:
    """The records of a log from `start` up to `stop`, with their offsets."""
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
            for index, value in enumerate(view.values()):
                if start <= view.base + index < stop:
                    yield view.base + index, value
            start = view.end


def _span(first: int, collected: _Collected) -> Span:
    transactional = [numbers for numbers in collected.transactional if len(numbers)]
    return Span(
        first,
        collected.tally.block,
        {path: concat(batches) for path, batches in collected.batches.items()},
        tuple(collected.ticks),
        np.sort(np.concatenate(transactional)) if transactional else np.array([], np.int64),
    )
