"""One ring of the cluster, as all handles of this process on a stream share it.

Its first item is a mark, so that a ring that was destroyed or lost, which looks like a new one, is told from one that
is empty. Message n is the item with sequence n + 1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from hazelcast.errors import HazelcastError
from hazelcast.future import Future, combine_futures
from hazelcast.proxy.ringbuffer import OVERFLOW_POLICY_OVERWRITE

from lockstep.errors import DataError
from lockstep.log.hazelcast.client import ClusterClient
from lockstep.log.hazelcast.errors import NOT_DONE, first_line

MARK = b"lockstep ring 1"
READ_MAX = 999
"""The client takes no more items at once."""

Item = tuple[int, bytes]
"""Sequence and content."""


class Ring:
    """The ring of one stream. Safe to share between threads."""

    def __init__(self, client: ClusterClient, name: str) -> None:
        self.name, self._client = name, client
        self._proxy: Any = client.guarded(lambda: client.library.get_ringbuffer(name), name)
        self.capacity: int = client.ask(self._proxy.capacity, name)
        """How many items it holds before it overwrites the oldest: a setting of the members."""
        self.seen = -1
        """The highest sequence that this process knows of."""
        self.seen_at = client.clock()
        self._lock = threading.Lock()
        self._wakes: list[Callable[[], None]] = []
        self._is_armed = False

    def mark(self) -> None:
        """Add the mark, which makes it the ring of a stream. Nobody else knows its name yet."""
        self.saw(self._client.ask(lambda: self._proxy.add(bytearray(MARK)), self.name))

    def destroy(self) -> None:
        """Destroy the ring and its items."""
        # The client forgets a ring that it has destroyed once, and then asks nobody: have it look again.
        client, name = self._client, self.name
        client.guarded(lambda: client.library.get_ringbuffer(name).destroy(), name)

    def is_genuine(self) -> bool:
        """Whether it is the ring that was marked, and not a new, empty one of the same name."""
        found, tail = self._read(0, 1)
        is_marked = tail >= 0 and (not found or found[0][0] > 0 or found[0][1] == MARK)
        if is_marked:
            self.saw(tail)
        return is_marked

    def ends(self) -> tuple[int, int]:
        """The sequences of the oldest and of the newest item."""
        both = self._client.ask(
            lambda: combine_futures([self._proxy.head_sequence(), self._proxy.tail_sequence()]), self.name
        )
        head, tail = both
        self.saw(tail)
        return head, tail

    def add(self, data: bytes) -> int:
        """Store an item and return its sequence. Raises Unanswered if it is not known whether it was stored."""
        item = bytearray(data)  # the client would pickle bytes; an array of bytes can be read by anybody
        call = self._proxy.add
        sequence: int = self._client.tell(lambda: call(item, OVERFLOW_POLICY_OVERWRITE), self.name, NOT_DONE)
        self.saw(sequence)
        return sequence

    def read(self, start: int, count: int) -> tuple[list[Item], int]:
        """Items from a sequence on, as far as there are any, and the sequence of the newest one of the ring."""
        found, tail = self._read(start, count)
        self.saw(tail)
        return found, tail

    def begin_read(self, start: int, count: int) -> Future[Any]:
        """Ask for items without waiting for them."""
        future: Future[Any] = self._proxy.read_many(start, 0, min(count, READ_MAX, self.capacity))
        return future

    def end_read(self, reading: Future[Any]) -> list[Item]:
        """The items that `begin_read` asked for."""
        found = self._items(self._client.answer(reading, self.name))
        if found:
            self.saw(found[-1][0])
        return found

    def saw(self, sequence: int) -> None:
        """Note the highest sequence."""
        with self._lock:
            self.seen = max(self.seen, sequence)
            self.seen_at = self._client.clock()

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called when something was added after what was seen, until the returned function is called."""
        with self._lock:
            self._wakes.append(wake)
        self.arm()

        def stop() -> None:
            with self._lock:
                if wake in self._wakes:
                    self._wakes.remove(wake)

        return stop

    def arm(self) -> None:
        """Have one read wait at the members for the next item, if anything here watches the ring.

        Called after each look: a reader that was woken and has not looked need not be woken again.
        """
        with self._lock:
            if not self._wakes or self._is_armed:
                return
            self._is_armed = True
            start = self.seen + 1
        self._proxy.read_many(start, 1, 1).add_done_callback(self._woken)

    def _read(self, start: int, count: int) -> tuple[list[Item], int]:
        """Ask for both at once: what is added between the two comes after an answer that is empty."""
        result, tail = self._client.ask(
            lambda: combine_futures([self.begin_read(start, count), self._proxy.tail_sequence()]), self.name
        )
        return self._items(result), tail

    def _items(self, result: Any) -> list[Item]:
        """The items of an answer; DataError for what is none of ours."""
        try:
            return items_of(result)
        except (HazelcastError, TypeError) as error:
            reason = f"Ring {self.name} on {self._client.server} holds something that lockstep did not write"
            raise DataError(reason=f"{reason}: {first_line(error)}.") from error

    def _woken(self, waited: Future[Any]) -> None:
        """Wake watchers: something was added, or waiting failed."""
        del waited
        with self._lock:
            self._is_armed = False
            wakes = list(self._wakes)
        for wake in wakes:
            wake()


def items_of(result: Any) -> list[Item]:
    """The items of an answer with their sequences, which need not begin where the question did."""
    return [(result.get_sequence(at), bytes(item)) for at, item in enumerate(result)]
