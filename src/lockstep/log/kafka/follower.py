"""What is stored from now on, of everything that is watched.

One consumer follows every watched partition of a bus, wakes waiting readers, and keeps the last messages, so
that reading at the end needs no round trip.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from itertools import chain
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from lockstep.errors import LockstepError
from lockstep.log.kafka.client import Partition, Settings
from lockstep.log.kafka.errors import TRANSIENT
from lockstep.log.network.driver import Ends, TopicGone
from lockstep.runtime import Runtime, logger

Wake = Callable[[], None]
AskEnds = Callable[[Partition, float], Ends]

KEPT_BYTES, KEPT_MESSAGES = 4 << 20, 5_000
"""Of each watched partition: a reader that lags more than this reads with its own consumer."""
_POLL_S = 0.05
_PIECE = 500
_ASK_S = 2.0
_RETRY_S = 0.5


class PartitionTail:
    """The last messages of one partition. Safe to share between threads."""

    def __init__(self, partition: Partition, identity: str) -> None:
        self.partition, self.identity = partition, identity
        self.wakes: list[Wake] = []
        self.retry_at = 0.0
        self._lock = threading.Lock()
        self._numbers: list[int] = []
        self._messages: list[Message] = []
        self._from = self._next = -1
        self._bytes = 0

    @property
    def is_followed(self) -> bool:
        """Whether messages are coming in."""
        return self._next >= 0

    def begin(self, number: int) -> None:
        """Start at a number; -1 stops."""
        with self._lock:
            self._numbers, self._messages, self._bytes = [], [], 0
            self._from = self._next = number

    def push(self, message: Message) -> None:
        """Add the next message."""
        number = message.offset() or 0
        with self._lock:
            if number < self._next or self._next < 0:
                return  # of a follow before
            self._numbers.append(number)
            self._messages.append(message)
            self._next = number + 1
            self._bytes += len(message)
            if self._bytes > 2 * KEPT_BYTES or len(self._numbers) > 2 * KEPT_MESSAGES:
                self._forget_old()

    def take(self, number: int, max_bytes: int) -> list[Message]:
        """Messages from a number on; empty if they are not here."""
        with self._lock:
            if not self._from <= number < self._next:
                return []
            at, size = bisect_left(self._numbers, number), 0
            stop = at
            while stop < len(self._messages) and size < max_bytes:
                size += len(self._messages[stop])
                stop += 1
            return self._messages[at:stop]

    def _forget_old(self) -> None:
        gone = max(len(self._numbers) - KEPT_MESSAGES, 0)
        self._bytes -= sum(map(len, self._messages[:gone]))
        while self._bytes > KEPT_BYTES and gone < len(self._messages) - 1:
            self._bytes -= len(self._messages[gone])
            gone += 1
        del self._numbers[:gone], self._messages[:gone]
        self._from = self._numbers[0]


class Follower:
    """Follows every watched partition of a bus with one consumer and one thread, which run while something is watched.

    If the thread fails, it starts again with a new consumer and wakes all waiting readers.
    """

    def __init__(
        self,
        set_up: Settings,
        ends: AskEnds,
        runtime: Runtime,
        make: Callable[[dict[str, Any]], Consumer] = Consumer,
    ) -> None:
        self._set_up, self._ends, self._runtime, self._make = set_up, ends, runtime, make
        self._lock = threading.Lock()
        self._tails: dict[Partition, PartitionTail] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def find(self, partition: Partition, identity: str) -> PartitionTail | None:
        """The followed messages of a partition, or None."""
        tail = self._tails.get(partition)
        return tail if tail is not None and tail.identity == identity else None

    def watch(self, partition: Partition, identity: str, wake: Wake) -> Callable[[], None]:
        """Have `wake` called soon, and whenever something was stored, until the returned function is called."""
        with self._lock:
            tail = self._tails.get(partition)
            if tail is None or tail.identity != identity:
                others = tail.wakes if tail is not None else []
                tail = self._tails[partition] = PartitionTail(partition, identity)
                tail.wakes = list(others)  # of a stream that was deleted and made anew: they find that out
            tail.wakes.append(wake)
            self._start()
        return lambda: self._unwatch(partition, wake)

    def close(self) -> None:
        """Stop, and end the connections."""
        with self._lock:
            self._closed = True
            self._tails.clear()
            thread = self._thread
        if thread is not None:
            thread.join(_ASK_S + 10 * _RETRY_S)

    def _unwatch(self, partition: Partition, wake: Wake) -> None:
        with self._lock:
            tail = self._tails.get(partition)
            if tail is None or wake not in tail.wakes:
                return
            tail.wakes.remove(wake)
            if not tail.wakes:
                del self._tails[partition]

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="lockstep-kafka-tail", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                self._follow_watched()
            except Exception as error:  # noqa: BLE001 - readers rely on this thread, so it starts again
                logger.error(
                    "Following streams on Kafka failed and is started again", exc_info=error,
                    extra={"action": "follow_restarted"},
                )  # fmt: skip
                self._start_over()
            else:
                return

    def _follow_watched(self) -> None:
        """Follow until nothing is watched any more."""
        following: dict[Partition, PartitionTail] = {}
        consumer = self._make(dict(self._set_up))
        try:
            while self._goes_on():
                self._adjust(consumer, following)
                self._pump(consumer, following)
        finally:
            consumer.close()

    def _start_over(self) -> None:
        self._runtime.waiter().wait(_RETRY_S)
        with self._lock:
            tails = list(self._tails.values())
        for tail in tails:
            tail.begin(-1)
            tail.retry_at = 0.0

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._tails:
                self._thread = None
            return bool(self._tails)

    def _adjust(self, consumer: Consumer, following: dict[Partition, PartitionTail]) -> None:
        """Assign partitions that are newly watched, and unassign those that no longer are."""
        with self._lock:
            wanted = dict(self._tails)
        for partition in [
            partition
            for partition, tail in following.items()
            if wanted.get(partition) is not tail or not tail.is_followed
        ]:
            consumer.incremental_unassign([TopicPartition(*partition)])
            del following[partition]
        for partition, tail in wanted.items():
            if partition not in following and tail.retry_at <= self._runtime.monotonic():
                self._follow(consumer, tail, following)

    def _follow(self, consumer: Consumer, tail: PartitionTail, following: dict[Partition, PartitionTail]) -> None:
        tail.retry_at = self._runtime.monotonic() + _RETRY_S
        try:
            consumer.list_topics(tail.partition.topic, timeout=_ASK_S)  # or it looks for the leader in its own time
            number = self._ends(tail.partition, _ASK_S).next
            consumer.incremental_assign([TopicPartition(*tail.partition, number)])
        except (KafkaException, LockstepError, TopicGone) as error:
            logger.debug("A stream can't be followed now", extra={"action": "follow_failed", "error": str(error)})
            return
        tail.begin(number)
        following[tail.partition] = tail
        _wake(tail)  # for what was stored between the call to watch and now

    def _pump(self, consumer: Consumer, following: dict[Partition, PartitionTail]) -> None:
        first = consumer.poll(_POLL_S)
        if first is None:
            return
        grown: dict[Partition, PartitionTail] = {}
        for message in chain([first], consumer.consume(_PIECE, timeout=0)):
            partition = Partition(message.topic() or "", message.partition() or 0)
            tail, error = following.get(partition), message.error()
            if tail is None or (error is not None and error.code() in TRANSIENT):
                continue
            if error is None:
                tail.push(message)
            else:
                tail.begin(-1)
            grown[partition] = tail
        for tail in grown.values():
            _wake(tail)


def _wake(tail: PartitionTail) -> None:
    for wake in list(tail.wakes):
        wake()
