"""Reading one log from a position: batches taken apart, copies dropped, gaps noticed."""

from __future__ import annotations

from collections import deque

from lockstep.core.producers import Window, admit
from lockstep.errors import BadOffset, Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView
from lockstep.log.port import Log
from lockstep.streams.record import Gap, Segment

DEDUPE_LOOK_BACK, DEDUPE_LOOK_BACK_RECORDS = 256, 10_000
"""How many appends before a position are looked at for copies; where an append is many messages, how many of these."""


class Cursor:
    """The reading position in one log. Not for several threads at once."""

    def __init__(
        self, log: Log, position: int, *, on_gap: str = "skip", stale_margin: float = 0.0, dedupe: bool = False
    ) -> None:
        self.log = log
        self.position = position
        """The next offset to hand out."""
        self.last_read: int | None = None
        self._read_before: int | None = None
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
        """The next records, perhaps none, never waiting; and the gap that had to be skipped to get there."""
        gap = None
        while not self._fetched and gap is None:
            before = self._fetch_from
            gap = self._fetch(max_bytes)
            if gap is None and self._fetch_from == before:
                break  # the end; whatever held only copies was passed by, and did not end the search
        taken: list[Segment] = []
        left = max_records
        while left and self._fetched:
            segment = self._fetched.popleft()
            if segment.count > left:
                segment, rest = segment.cut(left)
                self._fetched.appendleft(rest)
            taken.append(segment)
            left -= segment.count
        if taken:
            self._read_before = self.last_read
            self.last_read = taken[-1].view.base + taken[-1].stop - 1
            self.position = self.last_read + 1
        return taken, gap

    def unread(self, segments: list[Segment]) -> None:
        """Take back what was read last: it was not handed out after all."""
        self._fetched.extendleft(reversed(segments))
        self.position = segments[0].view.base + segments[0].start
        self.last_read = self._read_before

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
        resumed = min(bounds.first + margin, bounds.next)
        gap = Gap(self.log.name, self.position, resumed)
        self.seek(resumed)
        return gap

    def _window_before(self, position: int) -> Window:
        """Where the log keeps copies: what stands just before the position, so that a copy behind it is known."""
        window = Window()
        if not self._dedupe:
            return window
        bounds = self.log.bounds()
        limits = self.log.limits
        back = DEDUPE_LOOK_BACK_RECORDS if limits.batch_records == 1 else DEDUPE_LOOK_BACK * limits.stride
        at = max(bounds.first, position - back)
        while at < min(position, bounds.next):
            entries = self.log.read(at)
            if not entries:
                break
            for entry in entries:
                if entry.base >= position:
                    return window
                view = BatchView(entry.base, entry.data, self.log.name)
                if view.producer != NO_PRODUCER:
                    window, _ = admit(window, view.producer, view.sequence, min(view.count, position - view.base))
                at = view.end
        return window


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
