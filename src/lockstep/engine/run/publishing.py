"""From the spool to the out streams: in block order, each block once, with what is published written down beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.frames import FrameHead, cut_frames, decode_frame, read_head
from lockstep.engine.kernels.merging import merge_shards
from lockstep.engine.model.graph import Node
from lockstep.engine.run.beats import Beat, last_beat, trim_beats
from lockstep.engine.run.position import Position
from lockstep.engine.run.spool import Spool, SpoolPart
from lockstep.engine.run.streams import FRAME_BYTES, FRAME_LIMIT, ProjectStreams
from lockstep.engine.windows.counts import WindowCounts
from lockstep.errors import OffsetConflict
from lockstep.log.batch import NO_PRODUCER, Batch, BatchView, pack
from lockstep.log.port import Bus, Log, Transaction
from lockstep.runtime import Runtime, logger

Frame = bytes | memoryview
_LOGGED = 20
"""Bad events of a reason that are logged; all are counted, and put on their stream."""
_RECORDS_MAX = 1000
"""Bad records in one batch of the log."""


class Publisher:
    """Copies what workers computed to the out streams, and says so in a beat: all in one step where the bus can.

    Not to be shared between threads. `published` is the last block that is out; `counts` the windows' newest counts.
    """

    def __init__(
        self,
        bus: Bus,
        streams: ProjectStreams,
        nodes: Sequence[Node],
        spools: Sequence[Spool],
        runtime: Runtime,
        incarnation: str,
        divided: frozenset[str] = frozenset(),
    ) -> None:
        self._divided = divided
        self._bus, self._streams, self._runtime, self._incarnation = bus, streams, runtime, incarnation
        self._nodes = {node.path: node for node in nodes}
        self._spools = spools
        self._control = bus.open(streams.control)
        self.position: Position | None = None
        self.counts: dict[str, WindowCounts] = {}
        self.bad: Counter[str] = Counter()
        self.seconds = 0.0
        self._look()

    def _look(self) -> None:
        """What is published, as the newest beat and the out streams say."""
        self._next_beat = self._control.bounds().next
        beat = last_beat(self._control)
        ends = {path: last_block(self._bus.open(self._streams.output(node))) for path, node in self._nodes.items()}
        self._last = {path: max(end, beat.last.get(path, 0)) for path, end in ends.items()}  # one may be trimmed
        self.published = beat.published
        self.position = Position.of(beat.position) if beat.position else None
        self.counts = {path: WindowCounts.load(counts) for path, counts in beat.counts.items()}

    def step(self) -> bool:
        """Publish the next parts if every shard has them; true if it did."""
        if self._control.bounds().next != self._next_beat:
            self._look()  # an engine that has lost the lead by now was still publishing
        following = self.published + 1
        if not all(spool.has(following) for spool in self._spools):
            for spool in self._spools:
                spool.remove_before(following)
            return False
        ready = [part for spool in self._spools if (part := spool.part_with(following)) is not None]
        last = min(part.last for part in ready)
        frames = {path: self._frames(path, ready, last) for path in self._nodes}
        bad = [item for part in ready for item in part.bad if self.published < item["block"] <= last]
        notices = [item for part in ready for item in part.notices if self.published < item["block"] <= last]
        self._count(ready, bad, last)
        self._commit(frames, bad, notices, last, next((part.position for part in ready if part.last == last), None))
        return True

    def _frames(self, path: str, parts: Sequence[SpoolPart], last: int) -> Sequence[Frame]:
        """The frames of a window from its last published block up to `last`."""
        given = [frame for part in parts for frame in part.frames.get(path, ())]
        if not given:
            return []
        heads = [read_head(frame) for frame in given]
        if len(parts) == 1 and self._follows_on(heads, path, last):
            return given
        return self._cut_anew(path, parts, last)

    def _follows_on(self, heads: Sequence[FrameHead], path: str, last: int) -> bool:
        """Whether frames can go out as they are."""
        return heads[0].previous == self._last[path] and heads[-1].last <= last and heads[0].first > self._last[path]

    def _cut_anew(self, path: str, parts: Sequence[SpoolPart], last: int) -> Sequence[Frame]:
        """Merge what shards made, and leave out what is published or can't be yet."""
        node, decoded = self._nodes[path], []
        for part in parts:
            frames = [decode_frame(frame, node.schema, place="the spool") for frame in part.frames.get(path, [])]
            decoded += [frame for frame in frames if len(frame.batch)]
        if not decoded:
            return []
        if decoded[0].places is not None:
            batch = merge_shards([(frame.batch, frame.places) for frame in decoded if frame.places is not None])
        else:
            batch = concat([frame.batch for frame in decoded])
        low, high = np.searchsorted(batch.block, [max(self._last[path], self.published) + 1, last + 1])
        return self._encode(path, batch.slice(int(low), int(high)))

    def _encode(self, path: str, batch: EventBatch) -> Sequence[Frame]:
        return (
            cut_frames(batch, max_bytes=FRAME_BYTES, previous=self._last[path], limit=FRAME_LIMIT) if len(batch) else []
        )

    def _commit(
        self,
        frames: Mapping[str, Sequence[Frame]],
        bad: Sequence[Any],
        notices: Sequence[Any],
        last: int,
        position: Mapping[str, Any] | None,
    ) -> None:
        ends = {path: read_head(given[-1]).last if given else self._last[path] for path, given in frames.items()}
        now = self._runtime.wall_ns()
        writes = [
            (self._streams.output(self._nodes[path]), [pack_record(frame, now) for frame in given])
            for path, given in frames.items()
            if given
        ]
        writes += [(self._streams.bad, _json_records(bad, now))] if bad else []
        writes += [(self._streams.notices, _json_records(notices, now))] if notices else []
        counts = {path: counts.dump() for path, counts in self.counts.items()}
        beat = Beat(self._incarnation, last, ends, position, counts)
        writes.append((self._streams.control, [beat.batch(now)]))
        try:
            self._append(writes)
        except OffsetConflict:  # somebody else published meanwhile: nothing was written, look again
            return
        self._next_beat = self._control.bounds().next
        self._last, self.published = ends, last
        self.position = Position.of(position) if position else self.position
        trim_beats(self._control)

    def _append(self, writes: Sequence[tuple[str, list[Batch]]]) -> None:
        if not self._bus.promises.atomic:
            for name, batches in writes:  # the beat is last: what it says is out
                self._bus.open(name).append(batches)
            return

        beats = self._control.name

        def work(changes: Transaction) -> None:
            for name, batches in writes:
                expected = self._next_beat if name == beats else None  # nobody else may publish this project
                changes.append(name, batches, expected_next=expected)

        self._bus.atomic(work)

    def _count(self, parts: Sequence[SpoolPart], bad: Sequence[Any], last: int) -> None:
        for item in bad:
            self.bad[item["reason"]] += 1
            if self.bad[item["reason"]] <= _LOGGED:
                place = {name: item[name] for name in ("block", "window", "reason", "detail")}
                logger.warning("A bad event was refused", extra={"action": "bad_event", **place})
        if all(part.last == last for part in parts):
            self.counts = merge_counts([part.counts for part in parts], self._divided)
            self.seconds += max(part.seconds for part in parts)


def merge_counts(parts: Sequence[Mapping[str, Any]], divided: frozenset[str]) -> dict[str, WindowCounts]:
    """The counts of all shards together; a window that is not divided has the same counts wherever it runs."""
    merged: dict[str, WindowCounts] = {}
    for part in parts:
        for path, dumped in part.items():
            counts = WindowCounts.load(dumped)
            known = merged.get(path)
            merged[path] = counts if known is None else known + counts if path in divided else known
    return merged


def last_block(out: Log) -> int:
    """The number of the last block on an out stream, 0 if there is none."""
    bounds = out.bounds()
    if bounds.next == bounds.first:
        return 0
    stored = out.read(bounds.next - 1)[-1]
    return read_head(BatchView(stored.base, stored.data, out.name).values()[-1]).last


def pack_record(frame: Frame, now_ns: int) -> Batch:
    """A frame as a record; a view of the spool is put into the batch without a copy of its own."""
    values: Any = [frame]
    return _record(values, now_ns)


def _record(values: Sequence[bytes], now_ns: int) -> Batch:
    return pack(values, producer=NO_PRODUCER, sequence=0, created_ns=now_ns)


def _json_records(items: Sequence[Any], now_ns: int) -> list[Batch]:
    values = [json.dumps(item, ensure_ascii=False, default=str).encode() for item in items]
    return [_record(values[at : at + _RECORDS_MAX], now_ns) for at in range(0, len(values), _RECORDS_MAX)]
