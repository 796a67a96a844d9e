"""Reading a ring in order without waiting for each step: what was read but not asked for, and one read under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from hazelcast.future import Future

from lockstep.errors import LockstepError
from lockstep.log.hazelcast.ring import READ_MAX, Item, Ring

CHUNK_BYTES = 1 << 20
LARGEST_CHUNK_BYTES = 64 << 20
"""No read asks for more than this, if all items were as large as the largest that was seen."""
CURSORS = 3
"""Places at which one handle reads on: a reader, and callers that count what is there."""
_FIRST_COUNT, _GROWTH = 4, 8


class ItemSizes:
    """The sizes of the items of a ring that were seen so far."""

    def __init__(self) -> None:
        self._mean = self._largest = 0.0

    def note(self, found: list[Item]) -> None:
        """Add the sizes of items that were read."""
        sizes = [len(data) for _, data in found]
        mean = sum(sizes) / len(sizes)
        self._mean = (self._mean + mean) / 2 if self._mean else mean
        self._largest = max(self._largest, *sizes)

    def count(self, wanted_bytes: int, before: int) -> int:
        """How many items may be about so many bytes, if so many were asked for before; the members count items only."""
        if not self._mean:
            return 1 if wanted_bytes <= 1 else _FIRST_COUNT
        fits = min(wanted_bytes / self._mean, LARGEST_CHUNK_BYTES / self._largest)
        return max(1, min(int(fits) + 1, max(before, _FIRST_COUNT) * _GROWTH, READ_MAX))


class Cursor:
    """One position from which a reader goes on, with what was read ahead."""

    def __init__(self, ring: Ring, sizes: ItemSizes, losses: int) -> None:
        self.losses = losses
        """How many members had gone when what was read ahead was last known to be good."""
        self.at = -1
        """The sequence with which reading would go on."""
        self.last: Item | None = None
        """The item that was returned last."""
        self._ring, self._sizes = ring, sizes
        self._items: deque[Item] = deque()
        self._under_way: Future[Any] | None = None
        self._count = 0
        self._stayed: tuple[int, Item | None] = self.at, self.last

    def goes_on_from(self, start: int) -> bool:
        """Whether reading goes on here; the layer above may ask once more for the last message it got."""
        return start == self.at or (self.last is not None and self.last[0] == start == self.at - 1)

    def stay(self) -> None:
        """Remember this place: what is handed out from here on is not certain yet."""
        self._stayed = self.at, self.last

    def go_back(self) -> None:
        """To the place that was remembered, without anything that was read since."""
        self.forget()
        self.at, self.last = self._stayed

    def forget(self) -> None:
        """Drop everything that was read ahead."""
        self._items.clear()
        self._under_way, self._count = None, 0

    def take(self, start: int, max_bytes: int) -> list[Item]:
        """Items that were read ahead; empty if there are none, and the members must be asked."""
        if start != self.at and self.last is not None:
            return [self.last, *self._some(max_bytes - len(self.last[1]))]
        if not self._items and self._under_way is not None:
            self._receive()
        return self._some(max_bytes)

    def ask(self, start: int, max_bytes: int) -> tuple[list[Item], int]:
        """Items from a sequence on, asked for now, and the newest sequence of the ring."""
        goes_on = start == self.at
        asked = self._sizes.count(max(max_bytes, CHUNK_BYTES) if goes_on else max_bytes, self._count)
        found, tail = self._ring.read(start, asked)
        self.at = start
        self._got(found, asked, goes_on=goes_on)
        return self._some(max_bytes), tail

    def _receive(self) -> None:
        """What was asked for ahead; if that failed or came back empty, the members are asked again."""
        reading, self._under_way = self._under_way, None
        assert reading is not None
        try:
            self._got(self._ring.end_read(reading), self._count, goes_on=True)
        except LockstepError:
            self._count = 0  # asked again at once, and that says what is wrong

    def _got(self, found: list[Item], asked: int, *, goes_on: bool) -> None:
        self._items.extend(found)
        self._count = asked if found else 0
        if not found:
            return
        self._sizes.note(found)
        if goes_on and len(found) == asked:  # then there is more, or will be soon
            self._count = self._sizes.count(CHUNK_BYTES, asked)
            self._under_way = self._ring.begin_read(found[-1][0] + 1, self._count)

    def _some(self, max_bytes: int) -> list[Item]:
        taken, size = list[Item](), 0
        while self._items and size < max_bytes:
            taken.append(self._items.popleft())
            size += len(taken[-1][1])
        if taken:
            self.last, self.at = taken[-1], taken[-1][0] + 1
        return taken


class CursorSet:
    """The places at which one handle reads; the one that was not used for longest is given up for a new one."""

    def __init__(self, ring: Ring, losses: Callable[[], int]) -> None:
        self._ring, self._losses = ring, losses
        self._sizes = ItemSizes()
        self._cursors: deque[Cursor] = deque(maxlen=CURSORS)
        self._single_read_cursor = self._new()
        """The cursor of the last read of a single item. It does not displace the cursor of a reader."""

    def at(self, start: int, max_bytes: int) -> Cursor:
        """The one that goes on from a sequence, or a new one."""
        found = next(
            (cursor for cursor in (*self._cursors, self._single_read_cursor) if cursor.goes_on_from(start)), None
        )
        if found is None:
            found = self._new()
            if max_bytes <= 1:
                self._single_read_cursor = found
                return found
        elif found in self._cursors:
            self._cursors.remove(found)
        self._cursors.append(found)
        return found

    def _new(self) -> Cursor:
        return Cursor(self._ring, self._sizes, self._losses())

    def forget(self) -> None:
        """Drop everything that was read ahead; where they were is kept."""
        for cursor in self._cursors:
            cursor.forget()
