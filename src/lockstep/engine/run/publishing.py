"""From the spool to the out streams: in block order, each block once, with what is published written down beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.core.outputs import OutState
from lockstep.engine.errors import BufferGap
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.frames import cut_frames, decode_frame, read_head
from lockstep.engine.kernels.merging import merge_shards
from lockstep.engine.model.graph import Node
from lockstep.engine.run.beats import Beat, Beats, trim_beats
from lockstep.engine.run.outlets import Frame, Outlet
from lockstep.engine.run.position import Position
from lockstep.engine.run.sidelog import SideLog
from lockstep.engine.run.spool import Spool, SpoolPart
from lockstep.engine.run.streams import FRAME_BYTES, FRAME_LIMIT, ProjectStreams
from lockstep.engine.windows.counts import WindowCounts
from lockstep.errors import AppendUncertain
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime, logger

_LOGGED = 20
"""Bad events of a reason that are logged; all are counted, and put on their stream."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What is being published: everything up to block `last`."""

    last: int
    position: Mapping[str, Any] | None
    bad: Sequence[Any]
    notices: Sequence[Any]


class Publisher:
    """Copies what workers computed to the out streams while this engine leads, and says so in a beat.

    While it follows it lets go of what others published. Plain appends are enough: a frame counts when it was read
    back, and a beat is written behind that. Not to be shared between threads. `published` is the last block that is
    out; `counts` the windows' newest counts.
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
        self._bus, self._streams, self._runtime, self._incarnation = bus, streams, runtime, incarnation
        self._spools = spools
        self._control = bus.open(streams.control)
        self._beats = Beats(self._control)
        self._bad, self._notices = SideLog(bus.open(streams.bad), runtime), SideLog(bus.open(streams.notices), runtime)
        self.published, self.position = 0, None
        self.counts: dict[str, WindowCounts] = {}
        self.bad: Counter[str] = Counter()
        self.seconds = 0.0
        self._nodes: dict[str, Node] = {}
        self._outlets: dict[str, Outlet] = {}
        self._work: _Work | None = None
        self.epoch: int | None = None
        self.use(nodes, divided)

    position: Position | None

    def use(self, nodes: Sequence[Node], divided: frozenset[str]) -> None:
        """Publish these windows too from now on; what waits of windows that are gone still goes out."""
        self._divided = divided
        beat = self._beats.last()
        for node in nodes:
            self._nodes[node.path] = node
            if node.path not in self._outlets:
                self._outlets[node.path] = self._outlet(self._bus.open(self._streams.output(node)), beat, node.path)
        self._learn(beat)

    def take_from(self, spools: Sequence[Spool]) -> None:
        """Go on with other spools, into which everything that is not out is computed again."""
        self._spools, self._work = spools, None
        if self.epoch is not None:
            self.lead(self.epoch)

    def _outlet(self, log: Log, beat: Beat, path: str) -> Outlet:
        at = max(beat.offsets.get(path, 0), log.bounds().first)
        outlet = Outlet(log, self._incarnation, self._runtime, OutState(beat.last.get(path, 0)), at)
        if self.epoch is not None:
            outlet.lead(self.epoch)
        return outlet

    def lead(self, epoch: int) -> None:
        """Go on where others stopped, behind a barrier on each stream."""
        self.epoch, self._work = epoch, None
        self._learn(self._beats.last())
        for outlet in self._outlets.values():
            outlet.lead(epoch)
        self._bad.look()
        self._notices.look()

    def follow(self) -> None:
        """Publish nothing more."""
        self.epoch, self._work = None, None
        for outlet in self._outlets.values():
            outlet.follow()

    @property
    def is_open(self) -> bool:
        """Whether it leads, and knows where each out stream ends."""
        return self.epoch is not None and all(outlet.is_open for outlet in self._outlets.values())

    @property
    def last_out(self) -> int:
        """The last block that is on any out stream."""
        return max((outlet.out.last for outlet in self._outlets.values()), default=0)

    def step(self) -> bool:
        """Do what is due; true if there may be more at once."""
        if self.epoch is None:
            self._learn(self._beats.last())
            for spool in self._spools:
                spool.remove_before(self.published + 1)
            return False
        was_open = self.is_open
        if not all(outlet.is_open and outlet.is_idle for outlet in self._outlets.values()):
            for outlet in self._outlets.values():
                outlet.pump()
        if not self.is_open:
            return False
        if not was_open:  # who takes over looks first how far the streams are out
            return True
        return self._finish() if self._work is not None else self._begin()

    def _learn(self, beat: Beat) -> None:
        """Beats are facts; one of an engine that was paused may be older than what is known."""
        for path, outlet in self._outlets.items():
            if path in beat.offsets:
                outlet.learn(OutState(beat.last.get(path, 0)), beat.offsets[path])
        if beat.published >= self.published:
            self.published = beat.published
            self.position = Position.of(beat.position) if beat.position else None
            self.counts = {path: WindowCounts.load(counts) for path, counts in beat.counts.items()}

    def _begin(self) -> bool:
        """Offer the next parts, if every shard has them."""
        following = self.published + 1
        if not all(spool.has(following) for spool in self._spools):
            for spool in self._spools:
                spool.remove_before(following)
            self._check_gap(following)
            return False
        ready = [part for spool in self._spools if (part := spool.part_with(following)) is not None]
        last = min(part.last for part in ready)
        position = next((part.position for part in ready if part.last == last), None)
        bad, notices = (self._items(ready, name, last) for name in ("bad", "notices"))
        self._work = _Work(last, position, bad, notices)
        for path, outlet in self._outlets.items():
            frames = self._frames(path, outlet.out, ready, last)
            if frames:
                outlet.offer(frames)
                outlet.pump()
        self._count(ready, bad, last)
        return self._finish()

    def note(self, position: Position) -> None:
        """Everything that is decided is out: say so, although the last entries had no blocks."""
        if self.is_open and self._work is None and position.block == self.published and position != self.position:
            self.position = position
            self._beat()

    def _check_gap(self, following: int) -> None:
        """Workers write in order: if something later is there, this block was here, and is not any more."""
        for spool in self._spools:
            first = spool.fill().first
            if first > following:
                raise BufferGap(place=spool.folder, first=following, last=first - 1)

    def _items(self, parts: Sequence[SpoolPart], name: str, last: int) -> list[Any]:
        """Bad records or notices of all shards, in an order that does not depend on how many there are."""
        found = [item for part in parts for item in getattr(part, name) if self.published < item["block"] <= last]
        if len(parts) == 1:
            return sorted(found, key=lambda item: item["block"])
        return sorted(found, key=lambda item: (item["block"], json.dumps(item, default=str)))

    def _frames(self, path: str, out: OutState, parts: Sequence[SpoolPart], last: int) -> Sequence[Frame]:
        """The frames of a window from where its stream ends up to block `last`."""
        given = [frame for part in parts for frame in part.frames.get(path, ())]
        if not given:
            return []
        if len(parts) == 1 and not out.part:
            heads = [read_head(given[0]), read_head(given[-1])]
            if heads[0].previous == out.last < heads[0].first and heads[-1].last <= last:
                return given
        return self._cut_anew(path, out, parts, last)

    def _cut_anew(self, path: str, out: OutState, parts: Sequence[SpoolPart], last: int) -> Sequence[Frame]:
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
        first = out.last if out.part else out.last + 1
        low, high = np.searchsorted(batch.block, [first, last + 1])
        return _encode(batch.slice(int(low), max(int(low), int(high))), out)

    def _finish(self) -> bool:
        """Write the beat, if everything was read back."""
        work = self._work
        if work is None or not all(outlet.is_idle for outlet in self._outlets.values()):
            return False
        self._bad.add(work.bad)
        self._notices.add(work.notices)
        self.published, self._work = work.last, None
        self.position = Position.of(work.position) if work.position else self.position
        self._beat()
        return True

    def _beat(self) -> None:
        if self._beats.last().published > self.published:  # this engine slept, and others went on
            return
        beat = Beat(
            self._incarnation,
            self.published,
            {path: outlet.out.last for path, outlet in self._outlets.items()},
            self.position.tree() if self.position else None,
            {path: counts.dump() for path, counts in self.counts.items()},
            self.epoch or 0,
            {path: outlet.at for path, outlet in self._outlets.items()},
        )
        try:
            self._control.append([beat.batch(self._runtime.wall_ns())])
        except AppendUncertain as error:  # the next one says it again
            logger.warning("A beat was not acknowledged", extra={"action": "beat", "reason": str(error)})
        trim_beats(self._control)

    def _count(self, parts: Sequence[SpoolPart], bad: Sequence[Any], last: int) -> None:
        for item in bad:
            self.bad[item["reason"]] += 1
            if self.bad[item["reason"]] <= _LOGGED:
                place = {name: item[name] for name in ("block", "window", "reason", "detail")}
                logger.warning("A bad event was refused", extra={"action": "bad_event", **place})
        if all(part.last == last for part in parts):
            self.counts = merge_counts([part.counts for part in parts], self._divided)
            self.seconds += max(part.seconds for part in parts)


def _encode(batch: EventBatch, out: OutState) -> Sequence[Frame]:
    """Frames that go on where a stream ends; of a block that is partly out the pieces that are not."""
    if not len(batch):
        return []
    frames = cut_frames(batch, max_bytes=FRAME_BYTES, previous=out.last, limit=FRAME_LIMIT)
    return frames[out.part :]


def merge_counts(parts: Sequence[Mapping[str, Any]], divided: frozenset[str]) -> dict[str, WindowCounts]:
    """The counts of all shards together; a window that is not divided has the same counts wherever it runs."""
    merged: dict[str, WindowCounts] = {}
    for part in parts:
        for path, dumped in part.items():
            counts = WindowCounts.load(dumped)
            known = merged.get(path)
            merged[path] = counts if known is None else known + counts if path in divided else known
    return merged
