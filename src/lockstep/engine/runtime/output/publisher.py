"""From the spool to the out streams: in block order, each block once, with a beat that says what is published."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockstep.core.outputs import Lineage, OutState, digest_of
from lockstep.engine.columns.sharding import merge_shards
from lockstep.engine.errors import BufferGap, OutputBroken, OutputWithoutStream
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.frames import cut_frames, decode_frame, read_head
from lockstep.engine.model.graph import Node
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.output.outlet import Frame, Outlet
from lockstep.engine.runtime.output.side_streams import SideLog, notice_label
from lockstep.engine.runtime.output.spool import UNKNOWN, Spool, SpoolPart
from lockstep.engine.runtime.sequence.beats import FEW_CLIENTS, Beat, Beats, trim_beats
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.outages import BUS_AWAY
from lockstep.engine.runtime.sequence.streams import FRAME_BYTES, FRAME_LIMIT, ProjectStreams
from lockstep.errors import AppendTooLarge, RecordTooLarge
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime, logger

_WHOLE_S, _TOO_LARGE_S = 1.0, 60.0
"""How often a beat names many clients; and how long after one that the bus refused it is tried again."""
_UNKNOWN_S = 10.0
"""How long output may wait for the statement that names its window."""
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
    back, and a beat is written after that. Not to be shared between threads. `published` is the last block that is
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
        self._bad = SideLog(bus.open(streams.bad), runtime)
        self._notices = SideLog(bus.open(streams.notices), runtime, label=notice_label)
        self.published, self.position = 0, None
        self.counts: dict[str, WindowCounts] = {}
        self.bad: Counter[str] = Counter()
        self.seconds = 0.0
        self._nodes: dict[str, Node] = {}
        self._outlets: dict[str, Outlet] = {}
        self._former: dict[str, tuple[OutState, int]] = {}
        """How far the streams of windows are out that are not published any more: they may be again, and be empty."""
        self._work: _Work | None = None
        self._knows_clients = True
        """Whether `position` names all clients; a beat that it comes from may have left them out."""
        self._unknown_since: float | None = None
        self._whole_at: int | None = None
        """Where the newest beat stands that names them, if others do not."""
        self._whole_due = float("-inf")
        self._is_beat_due = False
        """Whether the last beat was not acknowledged."""
        self.epoch: int | None = None
        self.use(nodes, divided)

    position: SequencePosition | None

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
        """Switch to other spools, into which everything that is not out is computed again, and follow."""
        self._spools = spools
        self.follow()

    def _outlet(self, log: Log, beat: Beat, path: str) -> Outlet:
        at = max(beat.offsets.get(path, 0), log.bounds().first)
        outlet = Outlet(log, self._incarnation, self._runtime, beat.out(path), at)
        if self.epoch is not None:
            outlet.lead(self.epoch)
        return outlet

    def lead(self, epoch: int) -> None:
        """Go on where others stopped, after a barrier on each stream."""
        self._bad.look()
        self._notices.look()
        self._learn(self._beats.last())  # the bus may be away: it leads when all of this is known
        self.epoch, self._work, self._whole_due = epoch, None, float("-inf")
        for outlet in self._outlets.values():
            outlet.lead(epoch)

    def follow(self) -> None:
        """Stop publishing, and drop what is in flight."""
        self.epoch, self._work = None, None
        for outlet in self._outlets.values():
            outlet.follow()

    @property
    def is_open(self) -> bool:
        """Whether it leads, and knows where each out stream ends."""
        return self.epoch is not None and all(outlet.is_open for outlet in self._outlets.values())

    @property
    def is_busy(self) -> bool:
        """Whether it leads and has begun something that ends when the bus shows it."""
        return self.epoch is not None and (self._work is not None or self._is_beat_due or not self.is_open)

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
        if self._is_beat_due and self._work is None:
            self._beat()
        return self._finish() if self._work is not None else self._begin()

    def _learn(self, beat: Beat) -> None:
        """Beats are facts; one of an engine that was paused may be older than what is known."""
        for path, outlet in self._outlets.items():
            if path in beat.offsets:
                outlet.learn(beat.out(path), beat.offsets[path])
        if beat.published >= self.published:
            self.published = beat.published
            former = beat.offsets.keys() - self._outlets.keys()
            self._former |= {path: (beat.out(path), beat.offsets[path]) for path in sorted(former)}
            self.position = SequencePosition.of(beat.position) if beat.position else None
            self._knows_clients, self._whole_at = beat.is_whole, beat.whole_at
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
        if self._must_wait(ready):
            return False
        last = min(part.last for part in ready)
        position = next((part.position for part in ready if part.last == last), None)
        bad, notices = (self._items(ready, name, last) for name in ("bad", "notices"))
        self._work = _Work(last, position, bad, notices)
        for path, outlet in self._outlets.items():
            frames = self._frames(path, outlet.out, ready, last)
            if frames:
                outlet.offer(frames)
        self._count(ready, bad, last)
        for outlet in self._outlets.values():  # from here on the bus may be away
            if not outlet.is_idle:
                outlet.pump()
        return self._finish()

    def _must_wait(self, parts: Sequence[SpoolPart]) -> bool:
        """Whether a part has output of a window that is not known yet: workers may read a new model's entry first."""
        unknown = {path for part in parts for path, frames in part.frames.items() if frames} - self._outlets.keys()
        if not unknown:
            self._unknown_since = None
            return False
        now = self._runtime.monotonic()
        self._unknown_since = now if self._unknown_since is None else self._unknown_since
        if now - self._unknown_since >= _UNKNOWN_S:
            first, last = parts[0].first, max(part.last for part in parts)
            raise OutputWithoutStream(window=", ".join(sorted(unknown)), first=first, last=last)
        return True

    def note(self, position: SequencePosition) -> None:
        """Write a beat if everything decided is out: the last entries may have had no blocks."""
        if self.is_open and self._work is None and position.block == self.published and position != self.position:
            self.position, self._knows_clients = position, True
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
        if name == "notices":
            return sorted(found, key=lambda item: (item["block"], item["window"], item["number"]))
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
            found = [decode_frame(frame, node.schema, place="the spool") for frame in part.frames.get(path, [])]
            decoded += [frame for frame in found if len(frame.batch)]
        if not decoded:
            return []
        if decoded[0].places is not None:
            batch = merge_shards([(frame.batch, frame.places) for frame in decoded if frame.places is not None])
        else:
            batch = concat([frame.batch for frame in decoded])
        first = out.last if out.part else out.last + 1
        low, high = (int(at) for at in np.searchsorted(batch.block, [first, last + 1]))
        if low >= high:
            return []
        lineage = joined_lineage(parts)
        chain = own_end(path, out, parts, batch, lineage)
        frames = cut_frames(batch.slice(low, high), max_bytes=FRAME_BYTES, previous=chain[0], limit=FRAME_LIMIT,
                            before=chain[1], lineage=lineage)  # fmt: skip
        return self._without_pieces(path, frames, out) if out.part else frames

    def _without_pieces(self, path: str, frames: Sequence[Frame], out: OutState) -> Sequence[Frame]:
        """Of a block that is partly out, the pieces that are not; it must be a block that this engine has cut alike."""
        head = read_head(frames[out.part]) if len(frames) > out.part else None
        if head is None or (head.first, head.part) != (out.last, out.part):
            stream, first = self._streams.output(self._nodes[path]), read_head(frames[0]).first
            raise OutputBroken(number=first, stream=stream, previous=first, last=out.last)
        return frames[out.part :]

    def _finish(self) -> bool:
        """Write bad records and notices once the frames were read back, and the beat once those were."""
        work = self._work
        if work is None or not all(outlet.is_idle for outlet in self._outlets.values()):
            return False
        if not (self._bad.write(work.bad) and self._notices.write(work.notices)):
            return False
        self.published, self._work = work.last, None
        if work.position is not None:
            self.position, self._knows_clients = SequencePosition.of(work.position), True
        self._beat()
        return True

    def _beat(self) -> None:
        self._is_beat_due = True
        if self._beats.last().published > self.published:  # this engine slept, and others went on
            self._is_beat_due = False
            return
        known = self._former | {path: (outlet.out, outlet.at) for path, outlet in self._outlets.items()}
        beat = Beat(
            self._incarnation,
            self.published,
            {path: out.last for path, (out, _) in known.items()},
            self.position.tree() if self.position else None,
            {path: counts.dump() for path, counts in self.counts.items()},
            self.epoch or 0,
            {path: at for path, (_, at) in known.items()},
            {path: out.part for path, (out, _) in known.items() if out.part},
            {path: out.digest for path, (out, _) in known.items()},
        )
        if self._say(beat):
            self._is_beat_due = False
            trim_beats(self._control, self._whole_at)

    def _say(self, beat: Beat) -> bool:
        """Write a beat. With many clients only one now and then names them; one that the bus refuses gets smaller."""
        now, has_few = self._runtime.monotonic(), _senders_known(self.position) <= FEW_CLIENTS
        light = beat.without_clients(self._whole_at)
        choices = [light, replace(light, counts={})]
        if self._knows_clients and (has_few or now >= self._whole_due):
            choices.insert(0, beat)
        for choice in choices:
            try:
                (at,) = self._control.append([choice.batch(self._runtime.wall_ns())])
            except BUS_AWAY as error:  # the next step says it again
                logger.warning("A beat was not acknowledged", extra={"action": "beat", "reason": str(error)})
                return False
            except (RecordTooLarge, AppendTooLarge) as error:
                logger.warning("A beat is too large for the bus", extra={"action": "beat", "reason": str(error)})
                self._whole_due = now + _TOO_LARGE_S
                continue
            if choice.is_whole:
                self._whole_at, self._whole_due = at, float("-inf") if has_few else now + _WHOLE_S
            break
        return True

    def _count(self, parts: Sequence[SpoolPart], bad: Sequence[Any], last: int) -> None:
        for item in bad:
            self.bad[item["reason"]] += 1
            if self.bad[item["reason"]] <= _LOGGED:
                place = {name: item[name] for name in ("block", "window", "reason", "detail")}
                logger.warning("A bad event was refused", extra={"action": "bad_event", **place})
        if all(part.last == last for part in parts):
            self.counts = merge_counts([part.counts for part in parts], self._divided)
            self.seconds += max(part.seconds for part in parts)


def _senders_known(position: SequencePosition | None) -> int:
    return 0 if position is None else len(position.clients) + len(position.producers)


def joined_lineage(parts: Sequence[SpoolPart]) -> Lineage:
    """The lineage of all parts together: shards read the same sequence, perhaps in other steps."""
    if len(parts) == 1:
        return parts[0].lineage
    return tuple(sorted({pair for part in parts for pair in part.lineage}))


def own_end(
    path: str, out: OutState, parts: Sequence[SpoolPart], batch: EventBatch, lineage: Lineage
) -> tuple[int, str]:
    """The block, with its digest, after which what this engine has computed for a window goes on.

    It should be the last block that is out: else the engine must not publish, and the outlet says so. Only where this
    engine does not know it (it replayed in silence) the stream is believed.
    """
    before = [part.before.get(path, UNKNOWN) for part in parts]
    upto = int(np.searchsorted(batch.block, out.last, "right"))
    found = int(batch.block[upto - 1]) if upto else -1
    if found == out.last:
        return found, digest_of(lineage, found)
    if UNKNOWN in before:
        covered = out.last >= min(part.first for part in parts)
        return out.last, digest_of(lineage, out.last) if covered else out.digest
    last = max(before)
    return last if last[0] > found else (found, digest_of(lineage, found))


def merge_counts(parts: Sequence[Mapping[str, Any]], divided: frozenset[str]) -> dict[str, WindowCounts]:
    """The counts of all shards together; a window that is not divided has the same counts wherever it runs."""
    merged: dict[str, WindowCounts] = {}
    for part in parts:
        for path, dumped in part.items():
            counts = WindowCounts.load(dumped)
            known = merged.get(path)
            merged[path] = counts if known is None else known + counts if path in divided else known
    return merged
