"""Reading one log from a position: batches taken apart, copies dropped, gaps noticed."""

from __future__ import annotations

from collections import deque

from lockstep.core.producers import Window, admit, window_of
from lockstep.errors import BadOffset, Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView
from lockstep.log.port import Log
from lockstep.streams.record import Gap, Segment

LOOK_BACK_APPENDS, LOOK_BACK_BYTES, LOOK_BACK_LEAST = 10_000, 4 << 20, 256
"""So many appends before a position are read, so that a copy after it is recognized: as many as fit into the bytes, but
a least number in any case."""


class Cursor:
    """The reading position in one log. Not for several threads at once."""

    def __init__(
        self, log: Log, position: int, *, on_gap: str = "skip", stale_margin: float = 0.0, dedupe: bool = False
    ) -> None:
        self.log = log
        self.position = position
        """The next offset to hand out."""
        self.last_read: int | None = None
        """The last offset that was handed out."""
        self.paused = False
        self._on_gap, self._stale_margin, self._dedupe = on_gap, stale_margin, dedupe
        self._fetched: deque[Segment] = deque()
        self._fetch_from = position
        self._window = self._window_before(position)

    def seek(self, position: int) -> None:
        """Go on from another position."""
        self.position = self._fetch_from = position
        self._fetched.clear()
        self._window = self._window_before(position)

    def read(self, max_records: int, max_bytes: int) -> tuple[list[Segment], Gap | None]:
        """As peek, and all of it is handed out."""
        segments, gap = self.peek(max_records, max_bytes)
        if segments:
            self.hand_out(segments[-1].last_offset)
        return segments, gap

    def hand_out(self, offset: int) -> None:
        """The reader has everything up to `offset`; the position is after it."""
        self.last_read = offset
        self.position = offset + 1

    def peek(self, max_records: int, max_bytes: int) -> tuple[list[Segment], Gap | None]:
        """The next records, perhaps none, never waiting; and the gap that had to be skipped to get there.

        The position stays where it is until they are handed out, all at once or one by one.
        """
        gap = None
        self._drop_handed_out()
        while not self._fetched and gap is None:
            before = self._fetch_from
            gap = self._fetch(max_bytes)
            if gap is None and self._fetch_from == before:
                break  # the end; whatever held only copies was passed by, and did not end the search
        found: list[Segment] = []
        left = max_records
        for segment in self._fetched:
            if not left:
                break
            part = segment if segment.count <= left else segment.cut(left)[0]
            found.append(part)
            left -= part.count
        return found, gap

    def _drop_handed_out(self) -> None:
        while self._fetched and self._fetched[0].last_offset < self.position:
            self._fetched.popleft()
        if self._fetched and self._fetched[0].first_offset < self.position:
            segment = self._fetched.popleft()
            self._fetched.appendleft(segment.cut(self.position - segment.first_offset)[1])

    def _fetch(self, max_bytes: int) -> Gap | None:
        try:
            entries = self.log.read(self._fetch_from, max_bytes=max_bytes)
        except Trimmed as error:
            return self._skip(error)
        if not entries and self._fetch_from > self.log.bounds().next:
            raise BadOffset(offset=self._fetch_from, stream=self.log.name, reason="it lies beyond the end")
        for entry in entries:
            view = BatchView(entry.base, entry.data, self.log.name)
            start = max(self._fetch_from - view.base, 0)
            if self._dedupe and view.producer != NO_PRODUCER:
                self._window, seen = admit(self._window, view.producer, view.sequence, view.count)
                start = max(start, seen)
            if start < view.count:
                self._fetched.append(Segment(view, start, view.count))
            self._fetch_from = view.end
        if not self._fetched:
            self.position = self._fetch_from
        return None

    def _skip(self, error: Trimmed) -> Gap:
        if self._on_gap == "fail":
            raise error
        bounds = self.log.bounds()
        margin = int((self.log.config.capacity or 0) * self._stale_margin)
        # Always forward: after a hole in a history, the first readable offset of the log lies before the position.
        readable = max(int(str(error.params["first"])), bounds.first, self.position)
        resumed = max(min(readable + margin, bounds.next), self.position)
        gap = Gap(self.log.name, self.position, resumed)
        self.seek(resumed)
        return gap

    def _window_before(self, position: int) -> Window:
        """Where the log keeps copies: what stands just before the position, so that a copy after it is recognized."""
        if not self._dedupe:
            return Window()
        stride = 1 if self.log.limits.batch_records == 1 else self.log.limits.stride
        bounds = self.log.bounds()
        stop = min(position, bounds.next)
        least = LOOK_BACK_LEAST if stride > 1 else LOOK_BACK_APPENDS
        near = max(bounds.first, position - least * stride)
        batches, size = self._origins(near, stop)
        appends = min(LOOK_BACK_APPENDS, least * LOOK_BACK_BYTES // max(size, 1))
        if near > bounds.first and appends > least:
            earlier, _ = self._origins(max(bounds.first, position - appends * stride), near)
            batches = earlier + batches
        return window_of(batches)

    def _origins(self, start: int, stop: int) -> tuple[list[tuple[bytes, int, int]], int]:
        """Producer, first sequence and count of the batches between two offsets, and their size in bytes."""
        found, size = list[tuple[bytes, int, int]](), 0
        while start < stop and (entries := self.log.read(start)):
            for entry in entries:
                if entry.base >= stop:
                    return found, size
                view = BatchView(entry.base, entry.data, self.log.name)
                size += len(entry.data)
                if view.producer != NO_PRODUCER:
                    found.append((view.producer, view.sequence, min(view.count, stop - view.base)))
                start = view.end
        return found, size


def first_at(log: Log, time_ns: int) -> int:
    """The offset of the first record appended at or after a time; the end if there is none. Halves, never scans."""
    bounds = log.bounds()
    low, high = bounds.first, bounds.next
    while low < high:
        middle = (low + high) // 2
        entries = log.read(middle, max_bytes=1)
        if not entries or entries[0].base >= high:
            high = middle
            continue
        view = BatchView(entries[0].base, entries[0].data, log.name)
        if view.append_ns >= time_ns:
            high = max(min(middle, view.base), low)
        else:
            low = view.end
    behind = log.read(low, max_bytes=1) if log.limits.stride > 1 else []  # it may have ended in a gap
    return max(low, behind[0].base) if behind else low
