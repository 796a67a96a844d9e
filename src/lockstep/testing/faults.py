"""A bus that misbehaves on order, in all the ways the port says a bus may.

    plan = FaultPlan()
    bus = FaultyBus(MemoryBroker(dedupe=False).bus(clock), plan)
    plan.lose_ack()                         # the next append lands, but its writer is told AppendUncertain
    plan.fail(StoreFull(...), times=3)      # then three are refused
    bus.stall("orders")                     # this bus sees nothing newer on orders until unstall
    assert plan.counts == {"lose_ack": 1}   # what really happened, by kind

Faults are used up in the order in which they were planned, by the appends they fit. Copies (`duplicate`, a `late`
append that was sent again) are stored twice only where the bus below does not drop them, as with
MemoryBroker(dedupe=False).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TypeVar

from lockstep.errors import AppendUncertain, OffsetConflict
from lockstep.log.batch import Batch
from lockstep.log.config import StreamConfig
from lockstep.log.port import READ_BYTES_DEFAULT, Bounds, Bus, Entry, Log, LogWaiter, Promises, Transaction

T = TypeVar("T")

DROP, LOSE_ACK, DUPLICATE, LATE, FAIL = "drop", "lose_ack", "duplicate", "late", "fail"


@dataclass(frozen=True, slots=True)
class _Planned:
    kind: str
    operation: str
    log: str | None
    error: Exception | None = None


class FaultPlan:
    """What is going to go wrong, and a count of what did. `log` limits a fault to one log; None takes any."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._planned: list[_Planned] = []

    def drop(self, times: int = 1, *, log: str | None = None, on: str = "append") -> FaultPlan:
        """The append (or on="atomic": the transaction) is lost; its writer is told AppendUncertain."""
        return self._plan(times, _Planned(DROP, on, log))

    def lose_ack(self, times: int = 1, *, log: str | None = None, on: str = "append") -> FaultPlan:
        """The append (or on="atomic": the transaction) lands; its writer is told AppendUncertain."""
        return self._plan(times, _Planned(LOSE_ACK, on, log))

    def duplicate(self, times: int = 1, *, log: str | None = None) -> FaultPlan:
        """The append is stored twice, one copy after the other; its writer gets the offsets of the first."""
        return self._plan(times, _Planned(DUPLICATE, "append", log))

    def late(self, times: int = 1, *, log: str | None = None) -> FaultPlan:
        """The append arrives after the next one to its log, or when released; its writer is told AppendUncertain."""
        return self._plan(times, _Planned(LATE, "append", log))

    def fail(self, error: Exception, times: int = 1, *, log: str | None = None, on: str = "append") -> FaultPlan:
        """The call raises `error` and does nothing. `on` is any method of Log, or atomic, create, open, delete."""
        return self._plan(times, _Planned(FAIL, on, log, error))

    def clear(self) -> FaultPlan:
        """Forget the faults that have not happened yet."""
        self._planned.clear()
        return self

    @property
    def pending(self) -> int:
        """Faults that have not happened yet."""
        return len(self._planned)

    def take(self, operation: str, log: str | None) -> _Planned | None:
        """The fault for this call, used up and counted; an error to raise is raised here."""
        for planned in self._planned:
            if planned.operation == operation and planned.log in (None, log):
                self._planned.remove(planned)
                self.counts[planned.kind] += 1
                if planned.error is not None:
                    raise planned.error
                return planned
        return None

    def _plan(self, times: int, planned: _Planned) -> FaultPlan:
        self._planned += [planned] * times
        return self


class FaultyBus:
    """A bus with the planned faults. Wrap one bus several times to give every process of a test its own faults."""

    def __init__(self, inner: Bus, plan: FaultPlan | None = None) -> None:
        self.inner, self.plan = inner, plan or FaultPlan()
        self.url: str = inner.url
        self.promises: Promises = inner.promises
        self._seen_next: dict[str, int] = {}
        self._late: list[tuple[Log, Sequence[Batch], int | None]] = []

    def create(self, name: str, config: StreamConfig) -> FaultyLog:
        """Create a log on the wrapped bus and wrap it; raise the error planned for `create`, if any."""
        self.plan.take("create", name)
        return FaultyLog(self, self.inner.create(name, config))

    def open(self, name: str) -> FaultyLog:
        """Open a log of the wrapped bus and wrap it; raise the error planned for `open`, if any."""
        self.plan.take("open", name)
        return FaultyLog(self, self.inner.open(name))

    def alter(self, name: str, config: StreamConfig) -> FaultyLog:
        """Change a log's configuration on the wrapped bus; raise the error planned for `alter`, if any."""
        self.plan.take("alter", name)
        return FaultyLog(self, self.inner.alter(name, config))

    def delete(self, name: str) -> None:
        """Delete a log of the wrapped bus; raise the error planned for `delete`, if any."""
        self.plan.take("delete", name)
        self.inner.delete(name)

    def names(self) -> list[str]:
        """Return the names of the wrapped bus's logs, in order; no fault can be planned for it."""
        return self.inner.names()

    def waiter(self) -> LogWaiter:
        """Return a waiter of the wrapped bus that also accepts the logs of this one."""
        return _Waiter(self.inner.waiter())

    def atomic(self, work: Callable[[Transaction], T]) -> T:
        """Run a transaction; a planned fault raises AppendUncertain, before the transaction or after its commit."""
        fault = self.plan.take("atomic", None)
        if fault is None:
            return self.inner.atomic(work)
        if fault.kind == LOSE_ACK:
            self.inner.atomic(work)
        raise AppendUncertain(stream=self.url, reason=f"{fault.kind} was planned")

    def snapshot(self) -> AbstractContextManager[Transaction]:
        """Return a consistent view of the wrapped bus for reading; no fault can be planned for it."""
        return self.inner.snapshot()

    def close(self) -> None:
        """Close the wrapped bus."""
        self.inner.close()

    def stall(self, name: str) -> None:
        """From now on reads of this log end where it ends now; only through this bus."""
        self._seen_next[name] = self.inner.open(name).bounds().next

    def unstall(self, name: str | None = None) -> None:
        """Reads see everything again; None does so for every log."""
        if name is None:
            self._seen_next.clear()
        else:
            self._seen_next.pop(name, None)

    def release_late(self, log: str | None = None) -> int:
        """Land the late appends of one log, or of all; returns how many."""
        due = [item for item in self._late if log in (None, item[0].name)]
        self._late = [item for item in self._late if item not in due]
        for inner, batches, expected_next in due:
            with suppress(OffsetConflict):  # its condition no longer holds, and no caller waits for it
                inner.append(batches, expected_next=expected_next)
        return len(due)

    def seen_next(self, name: str) -> int | None:
        """Where a stalled log seems to end."""
        return self._seen_next.get(name)

    def put_off(self, inner: Log, batches: Sequence[Batch], expected_next: int | None) -> None:
        """Keep an append for later."""
        self._late.append((inner, batches, expected_next))


class FaultyLog:
    """A log of a FaultyBus: each call takes the next fault planned for it, and reads can be stalled."""

    def __init__(self, bus: FaultyBus, inner: Log) -> None:
        self.name, self.identity, self.config, self.limits = inner.name, inner.identity, inner.config, inner.limits
        self.inner = inner
        self._bus, self._plan = bus, bus.plan

    def append(self, batches: Sequence[Batch], *, expected_next: int | None = None, wake: bool = True) -> list[int]:
        """Append and return the base offsets; a planned fault loses, delays or duplicates it, or loses the answer."""
        fault = self._plan.take("append", self.name)
        kind = None if fault is None else fault.kind
        if kind == LATE:
            self._bus.put_off(self.inner, batches, expected_next)
        if kind in (LATE, DROP):
            raise AppendUncertain(stream=self.name, reason=f"{kind} was planned")
        bases = self.inner.append(batches, expected_next=expected_next, wake=wake)
        if kind == DUPLICATE:
            self.inner.append(batches)
        self._bus.release_late(self.name)
        if kind == LOSE_ACK:
            raise AppendUncertain(stream=self.name, reason=f"{kind} was planned")
        return bases

    def read(self, offset: int, *, max_bytes: int = READ_BYTES_DEFAULT) -> list[Entry]:
        """Return stored batches from `offset` on, none from the stalled end on; raise a planned error, if any."""
        self._plan.take("read", self.name)
        entries = self.inner.read(offset, max_bytes=max_bytes)
        end = self._bus.seen_next(self.name)
        return entries if end is None else [entry for entry in entries if entry.base < end]

    def reread(self, offset: int) -> Entry | None:
        """Return the batch at `offset` as the store has it, or None from the stalled end on; raise a planned error."""
        self._plan.take("read", self.name)
        entry, end = self.inner.reread(offset), self._bus.seen_next(self.name)
        return entry if entry is not None and (end is None or entry.base < end) else None

    def bounds(self) -> Bounds:
        """Return the readable range, cut off at the stalled end; raise a planned error, if any."""
        self._plan.take("bounds", self.name)
        bounds = self.inner.bounds()
        end = self._bus.seen_next(self.name)
        return bounds if end is None else Bounds(bounds.first, max(bounds.first, min(bounds.next, end)))

    def trim(self, before: int) -> None:
        """Make everything below `before` unreadable; raise a planned error, if any."""
        self._plan.take("trim", self.name)
        self.inner.trim(before)

    def hold(self, holder: str, offset: int | None) -> None:
        """Keep everything from `offset` on for `holder`, None ends the hold; raise a planned error, if any."""
        self._plan.take("hold", self.name)
        self.inner.hold(holder, offset)

    def close(self) -> None:
        """Close the wrapped log."""
        self.inner.close()


class _Waiter:
    """A waiter of the wrapped bus that unwraps the logs it is given: a bus only waits for its own logs."""

    def __init__(self, inner: LogWaiter) -> None:
        self._inner = inner
        self.wait, self.wake, self.fileno, self.close = inner.wait, inner.wake, inner.fileno, inner.close

    def watch(self, log: Log) -> None:
        """Wake when something is appended to the log, wrapped or not."""
        self._inner.watch(_bare(log))

    def unwatch(self, log: Log) -> None:
        """No longer wake for the log, wrapped or not."""
        self._inner.unwatch(_bare(log))


def _bare(log: Log) -> Log:
    return log.inner if isinstance(log, FaultyLog) else log
