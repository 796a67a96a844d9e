"""What all contract suites share: the fixtures to override, and shorthand for records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import pytest

from lockstep.errors import UnsupportedByBackend
from lockstep.log.batch import Batch, BatchView, Headers, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus, Log, LogWaiter

SOON_S = 20.0
WOKEN_S = 0.1
"""A reader that is woken is awake by then; one that only looks again by itself does that less often."""
_WAKING_TRIES = 10
KEEP_ALL = StreamConfig(capacity=None)


class Producer:
    """A producer: an id, and a sequence that continues from batch to batch."""

    def __init__(self, name: str = "producer") -> None:
        self.id = name.encode().ljust(16, b"-")[:16]
        self.sequence = 0

    def batch(
        self, *values: bytes, keys: Sequence[bytes | None] | None = None, headers: Sequence[Headers] | None = None
    ) -> Batch:
        """The next batch; keep it to send it again."""
        batch = pack(values, producer=self.id, sequence=self.sequence, created_ns=1, keys=keys, headers=headers)
        self.sequence += len(values)
        return batch


class LogCase:
    """Base of the suites for logs. Override `bus`; the rest only where your backend needs it."""

    uses_threads = True
    """False for a bus in virtual time, which lives on one thread."""

    @pytest.fixture
    def bus(self) -> Iterator[Bus]:
        """A bus of the backend under test, with nothing on it; yours yields it and closes it."""
        message = "override the fixture 'bus'"
        raise NotImplementedError(message)

    @pytest.fixture
    def same_bus(self, bus: Bus) -> Bus:
        """Another handle on the same bus, as another process would have; the same handle where there is no other."""
        return bus

    @pytest.fixture
    def log(self, bus: Bus) -> Log:
        """A log that keeps everything."""
        return bus.create("orders", KEEP_ALL)

    @pytest.fixture
    def producer(self) -> Producer:
        """Return a producer that has sent nothing yet."""
        return Producer()

    def let_time_pass(self) -> None:
        """Called while a test waits for the clock; a bus in virtual time moves it here."""

    def ends_soon(self, call: Callable[[], None]) -> None:
        """Fail if `call` does not return within a bound that no healthy machine needs."""
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(SOON_S)
        assert not thread.is_alive(), f"{call} still runs after {SOON_S} s"

    def ends_by_itself(self, call: Callable[[], None]) -> None:
        """Fail if a wait does not end when its time is up."""
        if self.uses_threads:
            self.ends_soon(call)
        else:
            call()  # virtual time: one that never ended would stop the test

    def is_woken(self, bus: Bus, waiter: LogWaiter, act: Callable[[], object], *watched: Log) -> None:
        """Fail if `act` does not end a long wait; on a bus that promises to wake, at once and not by a look in between.

        A busy machine may be slow, so one wait of several has to end in time; a bus that wakes nobody ends none so.
        """
        for _ in range(_WAKING_TRIES):
            for log in watched:
                records(log)  # a reader looks before it waits; one that was woken and did not look is not woken again
            waiter.wait(0.0)  # takes a wake-up that is left from before
            act()
            began = time.monotonic()
            self.ends_soon(lambda: waiter.wait(3600))
            if time.monotonic() - began < WOKEN_S or not bus.promises.notifies:
                return
        message = f"no wait ended within {WOKEN_S} s of {act}: the bus promises to wake readers and does not"
        raise AssertionError(message)

    def create_retaining(self, bus: Bus, kind: str, config: StreamConfig) -> Log:
        """A log bounded by `kind`; a bus that can't must say so, and the test is skipped then."""
        if kind in bus.promises.retention:
            return bus.create("bounded", config)
        with unsupported():
            bus.create("bounded", config)
        pytest.skip(f"the bus does not retain by {kind}, and says so")


def unsupported() -> AbstractContextManager[object]:
    """What a bus without a feature must do when it is used."""
    return pytest.raises(UnsupportedByBackend)


def views(log: Log, offset: int | None = None) -> list[BatchView]:
    """Every batch from `offset` (or the first) to the end, checked."""
    at = log.bounds().first if offset is None else offset
    found: list[BatchView] = []
    while entries := log.read(at):
        found += [BatchView(entry.base, entry.data, log.name) for entry in entries]
        assert found[-1].end > at, "reading on must get on"
        at = found[-1].end
    return found


def records(log: Log, offset: int | None = None) -> list[tuple[int, bytes]]:
    """Offset and value of every record from `offset` (or the first) to the end."""
    start = log.bounds().first if offset is None else offset
    return [
        (at, value) for view in views(log, start) for at, value in enumerate(view.values(), view.base) if at >= start
    ]


def values(log: Log) -> list[bytes]:
    """The values of all readable records."""
    return [value for _, value in records(log)]
