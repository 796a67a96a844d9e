"""The cursors of a subscriber: read in turn so that no stream starves, and kept in step with its group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lockstep.errors import DecodeFailed, Fenced, GroupGap, LockstepError, Trimmed
from lockstep.log.port import Log
from lockstep.runtime import logger
from lockstep.streams.cursor import Cursor
from lockstep.streams.member import GroupMember
from lockstep.streams.metrics import SubscriberMeter
from lockstep.streams.options import OnStream, SubscriberOptions
from lockstep.streams.record import Gap, Record, RecordBatch, decode
from lockstep.streams.serializers import Serializer

MayHandOut = Callable[[str], bool]


class RecordsInTurn:
    """The records of a batch one by one: the reader's position moves with each that is handed out.

    A record that can't be decoded is handed out as its DecodeFailed; the next call goes on after it. Ends early if
    another caller moved the position, so that no record is handed out twice, and if the stream was paused or lost.
    """

    def __init__(
        self,
        batch: RecordBatch[Any, Any],
        cursor: Cursor,
        hand_out: Callable[[int], None],
        is_current: Callable[[], bool],
    ) -> None:
        self.stream = batch.stream
        self._records, self._cursor, self._hand_out, self._is_current = iter(batch), cursor, hand_out, is_current
        self._position = cursor.position

    def __iter__(self) -> Iterator[Record[Any, Any]]:
        return self

    def __next__(self) -> Record[Any, Any]:
        if self._cursor.position != self._position or self._cursor.paused or not self._is_current():
            raise StopIteration
        try:
            record = next(self._records)
        except DecodeFailed as error:
            self._move(int(str(error.params["offset"])))
            raise
        self._move(record.offset)
        return record

    def _move(self, offset: int) -> None:
        self._hand_out(offset)
        self._position = offset + 1


class Reading:
    """One cursor for each stream that may be read now."""

    def __init__(
        self,
        options: SubscriberOptions,
        meter: SubscriberMeter,
        *,
        group: str | None,
        dedupe: bool,
        value: Serializer[Any],
        key: Serializer[Any],
    ) -> None:
        self.cursors: dict[str, Cursor] = {}
        self._options, self._meter = options, meter
        self._group, self._dedupe, self._value, self._key = group, dedupe, value, key
        self._on_gap = options.on_gap
        if options.on_gap == "auto":
            self._on_gap = "skip" if group is None else "fail"
        self._delivered: dict[str, int] = {}
        self._turn = 0

    def begin(self, log: Log, position: int) -> None:
        """Read a log from a position."""
        options = self._options
        self.cursors[log.name] = Cursor(
            log, position, on_gap=self._on_gap, stale_margin=options.stale_margin, dedupe=self._dedupe
        )

    def stop(self, name: str) -> None:
        """Hand out no more of a log that is about to go."""
        if name in self.cursors:
            self.cursors[name].paused = True

    def end(self, name: str) -> int | None:
        """Read a log no more; returns the last offset that was read of it."""
        return self.cursors.pop(name).last_read

    def decode(self, record: Record) -> Record[Any, Any]:
        """A record of bytes as the subscriber wants it."""
        return decode(record, self._value, self._key)

    def next_batch(
        self, max_records: int, max_bytes: int, may_hand_out: MayHandOut, epochs: dict[str, int]
    ) -> RecordBatch[Any, Any] | None:
        """Records of the next stream in turn that has some, or None. All of them are handed out."""
        batch = self.peek_batch(max_records, max_bytes, may_hand_out, epochs)
        if batch:
            self.hand_out(batch)
        return batch

    def hand_out(self, batch: RecordBatch[Any, Any]) -> None:
        """The reader gets all of a batch that was only peeked at."""
        self._hand_out(self.cursors[batch.stream], batch.first_offset, batch.last_offset, len(batch))

    def one_by_one(self, batch: RecordBatch[Any, Any]) -> RecordsInTurn:
        """The records of a batch that was only peeked at, each handed out when it is asked for."""
        cursor = self.cursors[batch.stream]
        return RecordsInTurn(
            batch,
            cursor,
            lambda offset: self._hand_out(cursor, offset, offset, 1),
            lambda: self.cursors.get(batch.stream) is cursor,
        )

    def peek_batch(
        self, max_records: int, max_bytes: int, may_hand_out: MayHandOut, epochs: dict[str, int]
    ) -> RecordBatch[Any, Any] | None:
        """As next_batch, but nothing is handed out yet: the position stays."""
        names = sorted(name for name, cursor in self.cursors.items() if not cursor.paused)
        for step in range(len(names)):
            name = names[(self._turn + step) % len(names)]
            batch = self._read(name, max_records, max_bytes, may_hand_out, epochs.get(name))
            if batch is not None:
                self._turn += step + 1
                return batch
        return None

    def _read(
        self, name: str, max_records: int, max_bytes: int, may_hand_out: MayHandOut, epoch: int | None
    ) -> RecordBatch[Any, Any] | None:
        cursor = self.cursors[name]
        try:
            segments, gap = cursor.peek(max_records, max_bytes)
            if gap is not None and not segments:
                segments, further = cursor.peek(max_records, max_bytes)
                if further is not None:  # overtaken once more, meanwhile
                    gap = Gap(gap.stream, gap.first, further.resumed)
        except LockstepError as error:
            self._turn += 1  # the next poll begins elsewhere: one bad stream must not hide the others
            if isinstance(error, Trimmed) and self._group is not None:
                raise self._group_gap(cursor, error) from error
            raise
        if gap is not None:
            self._note(gap)
        if not segments and gap is None:
            return None
        if not may_hand_out(name):
            return None
        return RecordBatch(name, segments, gap=gap, epoch=epoch, value=self._value, key=self._key)

    def _hand_out(self, cursor: Cursor, first: int, last: int, count: int) -> None:
        """Move the position after what the reader gets now: the one place that does."""
        cursor.hand_out(last)
        name = cursor.log.name
        self._meter.records += count
        seen = self._delivered.get(name, -1)
        if first <= seen:
            self._meter.redeliveries += count
        self._delivered[name] = max(seen, last)

    def _group_gap(self, cursor: Cursor, error: Trimmed) -> GroupGap:
        first = max(int(str(error.params["first"])), cursor.position + 1)
        return GroupGap(
            group=self._group, stream=cursor.log.name, count=first - cursor.position,
            offset=cursor.position, last=first - 1, first=first,
        )  # fmt: skip

    def _note(self, gap: Gap) -> None:
        self._meter.gaps += 1
        self._meter.gap_records += gap.count
        reader = "A subscriber without a group" if self._group is None else f"Group {self._group}"
        logger.warning(
            "%s missed %d offsets of %s: %d to %d were trimmed before they were read; it goes on at %d. "
            "Give the stream more retention, protect=True or a history.",
            reader, gap.count, gap.stream, gap.first, gap.resumed - 1, gap.resumed,
            extra={"action": "gap", "stream": gap.stream, "first": gap.first, "resumed": gap.resumed},
        )  # fmt: skip
        if self._options.on_gap_found is not None:
            self._options.on_gap_found(gap)


class Following:
    """The streams a member has now. `epochs` is the fencing token of each, `lost` that of those it had before."""

    def __init__(
        self,
        member: GroupMember,
        reading: Reading,
        seats: Mapping[str, Log],
        options: SubscriberOptions,
        meter: SubscriberMeter,
    ) -> None:
        self.member = member
        self.epochs: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.is_busy: Callable[[str], bool] = lambda _: False
        """Says whether work on a stream is still under way, so that it can't be handed over yet."""
        self._reading, self._seats, self._options, self._meter = reading, seats, options, meter
        self.seat_of = {log.name: seat for seat, log in seats.items()}

    def follow(self) -> None:
        """Make the cursors match what the group gave this member."""
        self.finish_yielding()
        held = {self._seats[seat].name: epoch for seat, epoch in self.member.held().items()}
        for name in [name for name, epoch in self.epochs.items() if not self._is_known(name, epoch)]:
            self._drop(name)
            _tell(self._options.on_lost, name)
        for name, epoch in held.items():
            if name not in self.epochs:
                self._take(name, epoch)

    def finish_yielding(self) -> None:
        """The caller polls again, which by default means that it is done with what it got: confirm, hand over."""
        for seat in self.member.yielding():
            name = self._seats[seat].name
            if self.is_busy(name):
                self._reading.stop(name)
                continue
            if name in self.epochs:
                _tell(self._options.on_revoked, name)
                self._meter.revocations += 1
                self._drop(name)
            self.member.drained(seat)

    def is_mine(self, name: str) -> bool:
        """Checked after a read: records read while the lease ran out are not handed out."""
        return self.member.holds(self.seat_of[name], self.epochs.get(name, -1))

    def fenced(self, name: str, epoch: int) -> Fenced:
        """The error of a confirmation that came too late."""
        reason = "its lease ended or another member owns the stream"
        group = self.member.grouplog.group
        return Fenced(member=self.member.id, group=group, stream=name, epoch=epoch, reason=reason)

    def _is_known(self, name: str, epoch: int) -> bool:
        """Whether the group's log, as read so far, still names this member and epoch."""
        state = self.member.group_state.seat(self.seat_of[name])
        return (state.owner, state.epoch) == (self.member.id, epoch)

    def _take(self, name: str, epoch: int) -> None:
        seat = self.seat_of[name]
        resume = self.member.resume(seat)
        assert resume is not None, "an owner was given a start with its claim"
        self._reading.begin(self._seats[seat], resume)
        self.epochs[name] = epoch
        self.lost.pop(name, None)
        self._meter.takeovers += 1
        _tell(self._options.on_assigned, name)

    def _drop(self, name: str) -> None:
        epoch = self.epochs.pop(name)
        if self._reading.end(name) is not None:
            self.lost[name] = epoch  # a confirmation of what was read then fails: it is too late


def _tell(callback: OnStream | None, name: str) -> None:
    if callback is not None:
        callback(name)
