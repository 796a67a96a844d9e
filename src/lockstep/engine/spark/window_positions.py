"""How far a query has read a window: a place on its out stream, always between two blocks.

{"stream": "local.trades.q.w.O", "identity": "5f...", "offset": 170, "last": 1042, "digest": "...", "begin": {...}}

`begin` is where the query began: Spark does not keep that, and would ask again when it runs the very first batch once
more, when "latest" means something else. Spark compares positions as text, so the order of names never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from lockstep.core.outputs import OutState
from lockstep.engine.errors import BlocksMissing, HistoryTrimmed, OutputBroken, RowsLost
from lockstep.engine.events.frames import read_head
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.output.event_streams import OutFold
from lockstep.engine.runtime.output.outlet import is_barrier
from lockstep.engine.runtime.sequence.beats import Beat
from lockstep.errors import Trimmed
from lockstep.log.batch import BatchView
from lockstep.log.port import Log
from lockstep.runtime import logger

_READ_BYTES = 8 << 20
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Everything up to block `last` was read, and `offset` comes next. None: nothing is known of what came before."""

    offset: int
    last: int | None
    digest: str = ""

    def state(self) -> OutState | None:
        """The state that distinguishes new output from copies; None if no block is known."""
        return None if self.last is None else OutState(self.last, 0, self.digest)


@dataclass(frozen=True, slots=True)
class OutPosition:
    """A place on one stream, and the place where the query began."""

    stream: str
    identity: str
    at: Place
    begin: Place

    def to_json(self) -> Json:
        """As Spark keeps it."""
        place = asdict(self.at)
        return {"stream": self.stream, "identity": self.identity, **place, "begin": asdict(self.begin)}

    @classmethod
    def from_json(cls, stored: Json) -> OutPosition:
        """Back from what Spark kept."""
        at = Place(stored["offset"], stored["last"], stored["digest"])
        return cls(stored["stream"], stored["identity"], at, Place(**stored["begin"]))


def range_start(start: OutPosition, end: OutPosition) -> Place:
    """Where the rows up to `end` begin, from nothing but the two: a batch that is run again gets the same rows."""
    if start.identity != end.identity or start.at == start.begin:
        return end.begin
    return start.at


def earliest(log: Log) -> Place:
    """Before everything on a stream: block 0, if nothing was trimmed."""
    first = log.bounds().first
    return Place(first, 0 if first == 0 else None)


def told_by(beat: Beat, log: Log, path: str) -> Place:
    """The newest place that an engine tells of, else the earliest."""
    offset, out, bounds = beat.offsets.get(path), beat.out(path), log.bounds()
    if offset is None or out.part or not bounds.first <= offset <= bounds.next:
        return earliest(log)
    return Place(offset, out.last, out.digest)


@dataclass(frozen=True, slots=True)
class Record:
    """One record of an out stream, and when the bus took it."""

    offset: int
    value: bytes
    append_ns: int


def records_between(log: Log, start: int, stop: int) -> Iterator[Record]:
    """The records from `start` up to `stop`; HistoryTrimmed if some are gone."""
    while start < stop:
        try:
            stored = log.read(start, max_bytes=_READ_BYTES)
        except Trimmed as error:
            first = log.bounds().first
            raise HistoryTrimmed(what="A data frame", stream=log.name, needed=start, first=first) from error
        if not stored:
            return
        for entry in stored:
            view = BatchView(entry.base, entry.data, log.name)
            for index, value in enumerate(view.values()):
                if start <= view.base + index < stop:
                    yield Record(view.base + index, value, view.append_ns)
            start = view.end


@dataclass(slots=True)
class Walk:
    """Goes along an out stream by the heads of its frames, from one place between two blocks to the next.

    A frame that does not chain is passed over, as engines do: what is missing before it comes later, and then it comes
    again. No place lies after one as long as nothing has come.
    """

    log: Log
    schema: Schema
    at: Place
    size: int = 0
    """Bytes of the records up to there."""

    def steps(self, stop: int) -> Iterator[Walk]:
        """Itself at each place up to offset `stop`."""
        fold, size, is_gap = OutFold(self.log.name, self.schema, self.at.state()), self.size, False
        for record in records_between(self.log, self.at.offset, stop):
            size += len(record.value)
            before = fold.state
            try:
                fold.skip(record.offset, record.value)
            except OutputBroken:
                is_gap = True
                continue
            is_gap = is_gap and fold.state == before
            if not fold.goes_on and not is_gap:
                known = fold.state
                last, digest = (None, "") if known is None else (known.last, known.digest)
                self.at, self.size = Place(record.offset + 1, last, digest), size
                yield self


def walked(
    log: Log, schema: Schema, start: Place, stop: int, *, size: int | None = None, block: int | None = None
) -> Place:
    """The last place up to offset `stop`: the first one after `size` bytes, and before `block`."""
    at = start
    for step in Walk(log, schema, start).steps(stop):
        if block is not None and (step.at.last or 0) >= block:
            return at
        at = step.at
        if size is not None and step.size >= size:
            return at
    return at


def check_kept(log: Log, block: int) -> None:
    """Raise HistoryTrimmed if blocks from this one on were trimmed."""
    bounds = log.bounds()
    if bounds.first == 0:
        return
    for record in records_between(log, bounds.first, bounds.next):
        if not is_barrier(record.value):
            head = read_head(record.value, f"offset {record.offset} of {log.name}")
            if (head.first if head.part else head.previous or 0) >= block:
                raise HistoryTrimmed(what=f"Block {block}", stream=log.name, needed=0, first=bounds.first)
            return


def caught_up(log: Log, start: OutPosition, *, fail: bool) -> OutPosition:
    """The position to read on from, after what is gone was refused or reported."""
    if start.identity != log.identity:
        _lose(log, start.at.offset, start.at.offset, "the stream was deleted and made anew since", fail=fail)
        begin = earliest(log)
        return OutPosition(log.name, log.identity, begin, begin)
    bounds = log.bounds()
    if start.at.offset < bounds.first:
        reason = f"they were trimmed, the first one left is {bounds.first}"
        _lose(log, start.at.offset, bounds.first, reason, fail=fail)
        return replace(start, at=Place(bounds.first, None))
    if start.at.offset > bounds.next:
        reason = "the stream ends before them; was an old copy restored?"
        _lose(log, bounds.next, start.at.offset, reason, fail=fail)
        return replace(start, at=Place(bounds.next, None))
    return start


def check_published(log: Log, at: Place, out: OutState) -> None:
    """Raise BlocksMissing if a block is not there of which an engine said that it is, before the stream was read."""
    if at.last is not None and not out.part and out.last > at.last:
        raise BlocksMissing(stream=log.name, last=at.last, wanted=out.last, seconds=0)


def _lose(log: Log, first: int, resumed: int, reason: str, *, fail: bool) -> None:
    if fail:
        raise RowsLost(first=first, last=max(resumed - 1, first), stream=log.name, reason=reason)
    extra = {"action": "rows_lost", "stream": log.name, "first": first, "count": resumed - first, "reason": reason}
    logger.warning("Blocks are gone before they were read", extra=extra)
