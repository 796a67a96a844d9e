"""The cursors of a subscriber, read in turn so that no stream starves, with gaps and repeats counted."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.errors import Closed, LockstepError, NotFound, Trimmed
from lockstep.log.batch import peek
from lockstep.log.offsets import records_between
from lockstep.log.port import Log
from lockstep.runtime import Runtime, logger
from lockstep.streams.cursor import Cursor
from lockstep.streams.metrics import SubscriberMeter
from lockstep.streams.options import SubscriberOptions
from lockstep.streams.record import Gap, Record, RecordBatch, Segment, decode
from lockstep.streams.serializers import Serializer

MayHandOut = Callable[[str], bool]


class Reading:
    """One cursor for each stream that may be read now."""

    def __init__(
        self,
        options: SubscriberOptions,
        meter: SubscriberMeter,
        runtime: Runtime,
        *,
        dedupe: bool,
        value: Serializer,
        key: Serializer,
    ) -> None:
        self.cursors: dict[str, Cursor] = {}
        self._options, self._meter, self._runtime = options, meter, runtime
        self._dedupe, self._value, self._key = dedupe, value, key
        self._delivered: dict[str, int] = {}
        self._turn = 0

    def begin(self, log: Log, position: int) -> None:
        """Read a log from a position."""
        options = self._options
        self.cursors[log.name] = Cursor(
            log, position, on_gap=options.on_gap, stale_margin=options.stale_margin, dedupe=self._dedupe
        )

    def stop(self, name: str) -> None:
        """Hand out no more of a log that is about to go."""
        if name in self.cursors:
            self.cursors[name].paused = True

    def end(self, name: str) -> int | None:
        """Read a log no more; returns the last offset that was read of it."""
        return self.cursors.pop(name).last_read

    def decode(self, record: Record) -> Record:
        """A record of bytes as the subscriber wants it."""
        return decode(record, self._value, self._key)

    def next_batch(
        self, max_records: int, max_bytes: int, may_hand_out: MayHandOut, epochs: dict[str, int]
    ) -> RecordBatch | None:
        """Records of the next stream in turn that has some, or None."""
        names = sorted(name for name, cursor in self.cursors.items() if not cursor.paused)
        for step in range(len(names)):
            name = names[(self._turn + step) % len(names)]
            batch = self._read(name, max_records, max_bytes, may_hand_out, epochs.get(name))
            if batch is not None:
                self._turn += step + 1
                return batch
        return None

    def lag(self) -> dict[str, tuple[int, float]]:
        """How far behind each stream it is: records, and seconds since the oldest of them was appended."""
        found = {}
        for name, cursor in list(self.cursors.items()):
            try:
                behind = records_between(cursor.log, cursor.position, cursor.log.bounds().next)
                entries = cursor.log.read(cursor.position, max_bytes=1) if behind > 0 else []
            except (NotFound, Trimmed, Closed):  # deleted, overtaken or closed meanwhile: reading says so, not a metric
                continue
            waited = (self._runtime.wall_ns() - peek(entries[0].data)[1]) / 1e9 if entries else 0.0
            found[name] = (max(behind, 0), max(waited, 0.0))
        return found

    def _read(
        self, name: str, max_records: int, max_bytes: int, may_hand_out: MayHandOut, epoch: int | None
    ) -> RecordBatch | None:
        cursor = self.cursors[name]
        try:
            segments, gap = cursor.read(max_records, max_bytes)
            if gap is not None and not segments:
                segments, further = cursor.read(max_records, max_bytes)
                if further is not None:  # overtaken once more, meanwhile
                    gap = Gap(gap.stream, gap.first, further.resumed)
        except LockstepError:
            self._turn += 1  # the next poll begins elsewhere: one bad stream must not hide the others
            raise
        if gap is not None:
            self._note(gap)
        if not segments and gap is None:
            return None
        if not may_hand_out(name):
            if segments:
                cursor.unread(segments)
            return None
        self._count(name, segments)
        return RecordBatch(name, segments, gap=gap, epoch=epoch, value=self._value, key=self._key)

    def _count(self, name: str, segments: list[Segment]) -> None:
        if not segments:
            return
        count = sum(segment.count for segment in segments)
        self._meter.records += count
        first = segments[0].view.base + segments[0].start
        seen = self._delivered.get(name, -1)
        if first <= seen:
            self._meter.redeliveries += count
        self._delivered[name] = max(seen, segments[-1].view.base + segments[-1].stop - 1)

    def _note(self, gap: Gap) -> None:
        self._meter.gaps += 1
        self._meter.gap_records += gap.count
        logger.warning(
            "Records were trimmed before they were read",
            extra={"action": "gap", "stream": gap.stream, "first": gap.first, "resumed": gap.resumed},
        )
        if self._options.on_gap_found is not None:
            self._options.on_gap_found(gap)
