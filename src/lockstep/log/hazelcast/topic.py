"""A stream as a ring: messages in, messages out, nothing overwritten that counts, nothing skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep.errors import AppendUncertain, DataError, LockstepError, StoreFull, TakenBack
from lockstep.log.hazelcast.catalogue import MapCatalogue
from lockstep.log.hazelcast.client import ClusterClient, Unanswered
from lockstep.log.hazelcast.reader import Cursor, CursorSet
from lockstep.log.hazelcast.ring import Item, Ring
from lockstep.log.network.driver import STRIDE, Ends, Message, StreamEntry, Topic, TopicGone
from lockstep.log.port import Limits

SLACK_LEAST, SLACK_PART = 64, 16
YOUNG = 256
"""A ring with fewer items than this is looked at after each append: one that sprang up anew has as few."""
FRESH_S = 1.0


class RingTopic(Topic):
    """The topic of one stream, as a ring. It never overwrites what still counts and never skips what was lost."""

    def __init__(
        self, client: ClusterClient, ring: Ring, known: StreamEntry, catalogue: MapCatalogue, append_bytes: int
    ) -> None:
        self.limits = Limits(
            stride=STRIDE,
            append_records=STRIDE,
            append_bytes=append_bytes,
            append_setting="append_bytes in the bus URL",
        )
        self._client, self._ring, self._known, self._catalogue = client, ring, known, catalogue
        self._cursors = CursorSet(ring, lambda: client.losses)
        self._floor = known.head // STRIDE
        """Every message below this number may be overwritten."""
        self._check_genuine()

    def send(self, messages: Sequence[bytes]) -> list[int]:
        return [self._send(data) for data in messages]

    def ends(self) -> Ends:
        before = self._ring.seen
        head, tail = self._ring.ends()
        if tail < before:
            self._check_genuine()
        self._ring.arm()
        return Ends(max(head - 1, 0), max(tail, 0))

    def fetch(self, number: int, max_bytes: int) -> list[Message]:
        start = number + 1
        cursor = self._cursors.at(start, max_bytes)
        found = self._fetch(cursor, start, max_bytes)
        while cursor.losses != self._client.losses:  # the client may have asked again, and another member answered
            cursor.go_back()
            found = self._fetch(cursor, start, max_bytes)
        self._ring.arm()
        return [Message(sequence - 1, data) for sequence, data in found]

    def reread(self, number: int) -> Message | None:
        found, _ = self._ring.read(number + 1, 1)
        return Message(found[0][0] - 1, found[0][1]) if found else None

    def drop(self, before: int) -> None:
        """Only notes the number: a ring reuses its room by itself."""
        self._floor = max(self._floor, before)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._ring.watch(wake)

    def close(self) -> None:
        self._cursors.forget()

    def _send(self, data: bytes) -> int:
        self._see_to_room()
        before = self._ring.seen
        try:
            sequence = self._ring.add(data)
        except Unanswered as error:
            raise AppendUncertain(stream=self._known.name, reason=f"{self._client.server}: {error}") from error
        if (sequence < YOUNG or sequence <= before) and not self._took(sequence):
            self._ring.destroy()  # what sprang up in its place, with what was just added to it
            raise self._gone()
        return sequence - 1

    def _took(self, sequence: int) -> bool:
        """Whether it was the ring of the stream that took an item; it has it, so no error may say that it has not."""
        try:
            return self._ring.is_genuine()
        except LockstepError as error:
            reason = f"it is item {sequence}, but whether of the same ring was not told: {error}"
            raise AppendUncertain(stream=self._known.name, reason=reason) from error

    def _fetch(self, cursor: Cursor, start: int, max_bytes: int) -> list[Item]:
        self._check_members(cursor)
        cursor.stay()
        found = cursor.take(start, max_bytes) if cursor.goes_on_from(start) else []
        return found or self._fetch_now(cursor, start, max_bytes)

    def _fetch_now(self, cursor: Cursor, start: int, max_bytes: int) -> list[Item]:
        before = self._ring.seen
        found, tail = cursor.ask(start, max_bytes)
        if not found and tail < before:
            self._check_genuine()
            self._check_still_there(cursor, start, tail)
        return found

    def _see_to_room(self) -> None:
        """Refuse what would make the ring overwrite something that counts."""
        if self._has_room():
            return
        known = self._catalogue.find(self._known.name)
        if known is not None and known.identity == self._known.identity:
            self.drop(known.head // STRIDE)
        if not self._has_room():
            reason = (
                f"its ring on {self._client.server} takes {self._ring.capacity} messages and is full of such that"
                f" count; the setting is the capacity of ringbuffer {self._ring.name.partition('@')[0]} on the members"
            )
            raise StoreFull(stream=self._known.name, reason=reason)

    def _has_room(self) -> bool:
        ring = self._ring
        if self._used() * 2 > ring.capacity and self._client.clock() - ring.seen_at > FRESH_S:
            ring.ends()  # others may have appended meanwhile
        return self._used() < ring.capacity - slack(ring.capacity)

    def _used(self) -> int:
        return self._ring.seen - self._floor

    def _check_members(self, cursor: Cursor) -> None:
        """After the loss of a member: what was read must still be there, or what follows is not what followed it.

        A member shows what it has before its copies have it. If it dies in between, the number is given out again.
        """
        lost = self._client.losses
        if lost == cursor.losses:
            return
        cursor.forget()
        if cursor.last is not None:
            self._check_last(cursor, cursor.last)
        cursor.losses = lost

    def _check_last(self, cursor: Cursor, last: Item) -> None:
        found, tail = self._ring.read(last[0], 1)
        if tail < last[0]:
            self._check_genuine()
        self._check_still_there(cursor, cursor.at, tail)
        if found and found[0][0] == last[0] and found[0] != last:
            raise self._taken_back(last)

    def _check_still_there(self, cursor: Cursor, start: int, tail: int) -> None:
        if cursor.last is not None and cursor.last[0] == start - 1 and tail < start - 1:
            raise self._taken_back(cursor.last)

    def _check_genuine(self) -> None:
        if not self._ring.is_genuine():
            raise self._gone()

    def _gone(self) -> Exception:
        """The error for a lost ring: TopicGone if the stream was deleted, DataError if its records were lost."""
        known = self._catalogue.find(self._known.name)
        if known is None or known.identity != self._known.identity:
            return TopicGone()
        return DataError(
            reason=f"The cluster {self._client.server} has lost the records of stream {self._known.name!r}: more"
            " members ended at once than it keeps copies. Delete the stream and make it anew."
        )

    def _taken_back(self, last: Item) -> TakenBack:
        reason = f"the member of {self._client.server} that had them ended before it had made a copy"
        offset = (last[0] - 1) * STRIDE
        return TakenBack(what=f"Records from offset {offset} on", stream=self._known.name, reason=reason, offset=offset)


def slack(capacity: int) -> int:
    """The part of a ring that stays free, because several writers may find room at the same moment."""
    return min(max(SLACK_LEAST, capacity // SLACK_PART), capacity // 4)
