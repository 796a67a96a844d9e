"""The client of a scheduler: requests go to its stream, answers come back, reads go to the store.

HTTP, Python, the command line and inflows all use this, so there is one order for the requests of a key.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.core.agenda import Event
from lockstep.errors import AppendTooLarge, BadArgument, Closed, TimedOut, Trimmed, Unavailable
from lockstep.log.batch import Batch, BatchView, pack
from lockstep.log.offsets import step_back
from lockstep.log.port import Limits, Log, Transaction
from lockstep.runtime import Runtime, Waiter, logger
from lockstep.schedule import requests
from lockstep.schedule.requests import CRON_TYPES, Ask, Request
from lockstep.schedule.roster import decode_card
from lockstep.schedule.rows import CronRow, Run, cron_key, event_key, routing_key
from lockstep.schedule.store.port import Filter, Page, Store
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import ControlRecord, Register, Registered, Tenant
from lockstep.streams.client import Lockstep
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.member import seat_name
from lockstep.streams.shards import shard_of

ANSWER_S = 10.0
RETRY_S = 0.5
CARD_SILENT_S = 3.0
AT_ONCE_MAX = 10_000


@dataclass(slots=True)
class _Waiting:
    """A call that waits for answers."""

    waiter: Waiter
    missing: set[int]
    found: dict[int, dict[str, Any]] = field(default_factory=dict)


class SchedulerClient:
    """Sends requests, waits for answers, and reads. Safe to share between threads."""

    def __init__(self, bus: Lockstep, streams: SchedulerStreams, store: Store) -> None:
        self.bus, self.streams, self.store = bus, streams, store
        self._runtime: Runtime = bus.runtime
        self._logs: list[Log] = bus.logs(streams.requests)
        self.register = Register(bus.logs(streams.control)[0])
        self._registering = threading.Lock()
        self._id = self._runtime.new_id().hex()
        self._number = 0
        self._numbering = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._is_closed = False
        self.answer_s = ANSWER_S
        """How long a call waits for answers unless it says otherwise."""
        self._groups = GroupLog(bus.bus, streams.group, self._runtime)
        self._last_card = (-1, 0.0)
        """Where the stream of cards ended, and when on this process's clock it was first seen to end there."""
        self._answers: Log = bus.logs(streams.answers)[0]
        self._next = self._answers.bounds().next
        self._waiter = bus.bus.waiter()
        self._waiter.watch(self._answers)
        self._task = self._runtime.spawn(
            f"lockstep-answers-{streams.name}", self._read_answers, self._waiter, lambda _: None
        )

    # requests

    def send(self, asked: Sequence[Request], changes: Transaction | None = None) -> None:
        """Have requests carried out; return when they are stored in the stream, without waiting for answers.

        With `changes` they are stored when that transaction is. AppendTooLarge says that nothing was stored.
        """
        self._append([requests.encode(request) for request in asked], changes)

    def ask(self, asked: Sequence[Request], timeout: float | None = None) -> list[dict[str, Any]]:
        """Have requests carried out, and return what became of each, in order.

        TimedOut says that the answers did not come in time: the requests are stored and will be carried out.
        """
        answers: list[dict[str, Any]] = []
        for start in range(0, len(asked), AT_ONCE_MAX):
            part = asked[start : start + AT_ONCE_MAX]
            answers += self._ask(part, self.answer_s if timeout is None else timeout)
        return answers

    def _ask(self, asked: Sequence[Request], timeout: float) -> list[dict[str, Any]]:
        with self._numbering:
            first, self._number = self._number, self._number + len(asked)
        numbers = range(first, first + len(asked))
        waiting = _Waiting(self._runtime.waiter(), set(numbers))
        with self._numbering:
            self._waiting.append(waiting)
        try:
            pairs = zip(asked, numbers, strict=True)
            self._append([requests.encode(request, Ask(self._id, number)) for request, number in pairs])
            self._wait(waiting, timeout)
        finally:
            with self._numbering:
                self._waiting.remove(waiting)
        return [waiting.found[number] for number in numbers]

    def _wait(self, waiting: _Waiting, timeout: float) -> None:
        end = self._runtime.monotonic() + timeout
        while waiting.missing:
            left = end - self._runtime.monotonic()
            if self._is_closed:
                closed = Closed(what=f"Scheduler {self.streams.name!r}")
                closed.add_note("The requests are stored and will be carried out; nobody waits for the answers.")
                raise closed
            if left <= 0:
                count = len(waiting.missing)
                answers = "an answer" if count == 1 else f"{count:,} answers"
                what = f"Waiting for {answers} of scheduler {self.streams.name!r}"
                error = TimedOut(what=what, seconds=timeout)
                error.add_note(
                    "The requests are stored and will be carried out. Is a node running? Start one with"
                    f" 'lockstep schedule serve --name {self.streams.name}'."
                )
                raise error
            waiting.waiter.wait(left)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(what=f"Scheduler {self.streams.name!r}")

    def _append(self, pairs: Sequence[tuple[bytes, bytes]], changes: Transaction | None = None) -> None:
        self._check_open()
        by_log: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, value in pairs:
            by_log.setdefault(self._shard(key), []).append((key, value))
        for number, records in by_log.items():  # nothing is stored if one of them can't be
            self._check_sizes(self._logs[number], records)
        batches = [
            (self._logs[number], self._packed(part))
            for number, records in by_log.items()
            for part in _parts(records, self._logs[number].limits)
        ]
        if changes is not None:
            for log, batch in batches:
                changes.append(log.name, [batch])
            return
        if self.bus.promises.atomic and len(batches) > 1:
            self.bus.bus.atomic(lambda written: [written.append(log.name, [batch]) for log, batch in batches])
            return
        for log, batch in batches:
            log.append([batch])

    def _check_sizes(self, log: Log, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Raise AppendTooLarge for a request that the stream could not take even alone."""
        limit, largest = log.limits.append_bytes, max(map(_size, records)) + _BATCH_OVERHEAD
        if limit is not None and largest > limit:
            raise AppendTooLarge(
                size=f"{largest} bytes", stream=log.name, bus=self.bus.url, limit=f"{limit} bytes",
                setting=log.limits.append_setting,
            )  # fmt: skip

    def _packed(self, records: Sequence[tuple[bytes, bytes]]) -> Batch:
        return pack(
            [value for _, value in records], producer=self._runtime.new_id(), sequence=0,
            created_ns=self._runtime.wall_ns(), keys=[key for key, _ in records],
        )  # fmt: skip

    def _shard(self, key: bytes) -> int:
        return shard_of(key, len(self._logs), self._logs[0].config.partitioner)

    def _read_answers(self) -> float:
        try:
            self._next = max(self._next, self._answers.bounds().first)
            while entries := self._answers.read(self._next):
                for entry in entries:
                    self._take(BatchView(entry.base, entry.data, self._answers.name))
        except Trimmed:  # the ring went on meanwhile
            return 0.0
        except Unavailable as error:
            logger.warning(
                "Answers of scheduler %s can't be read, and are looked for again: %s", self.streams.name, error,
                extra={"action": "answers_retry", "reason": str(error)},
            )  # fmt: skip
            return RETRY_S
        return 1.0

    def _take(self, view: BatchView) -> None:
        own = self._id.encode()
        for key, value in zip(view.keys(), view.values(), strict=True):
            if key == own:
                self._arrived(value)
        self._next = view.end

    def _arrived(self, value: bytes) -> None:
        try:
            answer = json.loads(value)
            number = int(answer["number"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            logger.error(
                "A record of %s is no answer: %r", self._answers.name, error, extra={"action": "answer_invalid"}
            )
            return
        with self._numbering:
            for waiting in self._waiting:
                if number in waiting.missing:
                    waiting.missing.discard(number)
                    waiting.found[number] = answer
                    if not waiting.missing:
                        waiting.waiter.wake()

    # tenants

    def tenants(self) -> dict[str, Tenant]:
        """All tenants, as of now."""
        self._check_open()
        with self._registering:
            self.register.refresh()
            return dict(self.register.tenants)

    def is_known(self, tenant: str) -> bool:
        """Whether a tenant is registered, as of now."""
        return tenant in self.tenants()

    def control(self, record: ControlRecord) -> None:
        """Register, remove, pause or resume a tenant; it holds for all nodes and clients at once."""
        self._check_open()
        if isinstance(record, Registered) and record.tenant.stream is not None:
            self._make_stream(record.tenant.stream)
        with self._registering:
            self.register.refresh()
            self.register.append(record, self._runtime)

    def _make_stream(self, stream: str) -> None:
        if stream.startswith(f"{self.streams.name}.") and not stream.startswith(f"{self.streams.name}.fired."):
            raise BadArgument(name="topic", value=stream, reason="it is a stream of the scheduler itself")
        if stream not in self.bus.bus.names():
            self.bus.create(stream)

    # reads

    def find(self, tenant: str, name: str) -> Event | None:
        """The event of a tenant and id, as stored."""
        self._check_open()
        key = event_key(tenant, name)
        return self.store.get(self._shard(routing_key(tenant, name)), [key]).get(key)

    def events(self, chosen: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        """A page of events."""
        self._check_open()
        return self.store.events(range(len(self._logs)), chosen, limit, cursor)

    def crons(self, tenant: str, name: str) -> list[CronRow]:
        """The crons of a tenant and id, of all types."""
        self._check_open()
        shard = self._shard(routing_key(tenant, name))
        found = [self.store.cron(shard, cron_key(tenant, name, kind)) for kind in CRON_TYPES]
        return [row for row in found if row is not None]

    def all_crons(self) -> list[CronRow]:
        """Every cron, by tenant and id."""
        self._check_open()
        rows = [row for shard in range(len(self._logs)) for row in self.store.crons(shard)]
        return sorted(rows, key=lambda row: row.name)

    def runs(self, row: CronRow, limit: int = 100) -> list[Run]:
        """The logged runs of a cron, newest first."""
        return self.store.runs(self._shard(routing_key(row.tenant, row.id)), row.log_name, limit)

    def shard_of(self, tenant: str, name: str) -> int:
        """The shard of an event or cron."""
        return self._shard(routing_key(tenant, name))

    def nodes(self) -> list[Mapping[str, Any]]:
        """The newest card of each node that was heard lately, in the order of their names.

        That no card comes any more shows after three seconds, to a client that asked before: no clocks are compared.
        """
        log = self.bus.logs(self.streams.nodes)[0]
        bounds = log.bounds()
        if self._silence_s(bounds.next) >= CARD_SILENT_S:
            return []
        found: dict[str, tuple[int, Mapping[str, Any]]] = {}
        newest = 0
        for entry in _last_entries(log, bounds.first, bounds.next):
            view = BatchView(entry.base, entry.data, log.name)
            newest = max(newest, view.append_ns)
            for card in filter(None, map(decode_card, view.values())):
                found[card["member"]] = (view.append_ns, card)
        master = self._groups.load().seat(seat_name(log)).owner
        for member, (at, card) in found.items():
            found[member] = (at, {**card, "master": member == master})
        now = self._runtime.wall_ns()
        alive = [card for at, card in found.values() if min(now, newest) - at < CARD_SILENT_S * 1e9]
        return sorted(alive, key=lambda card: (card["host"], card["port"], card["node"]))

    def _silence_s(self, end: int) -> float:
        """For how long nothing has come to the stream of cards, as far as this client has seen."""
        now = self._runtime.monotonic()
        if end != self._last_card[0]:
            self._last_card = (end, now)
        return now - self._last_card[1]

    def close(self) -> None:
        """End; requests that were sent are carried out all the same. Calls that wait for answers raise Closed."""
        self._is_closed = True
        with self._numbering:
            for waiting in self._waiting:
                waiting.waiter.wake()
        self._task.stop()
        self._waiter.close()
        self._groups.close()


CARDS_READ = 500
_RECORD_OVERHEAD, _BATCH_OVERHEAD = 16, 512
"""What a record costs beside its key and value, and an append beside its records, at most."""


def _size(record: tuple[bytes, bytes]) -> int:
    return len(record[0]) + len(record[1]) + _RECORD_OVERHEAD


def _parts(records: Sequence[tuple[bytes, bytes]], limits: Limits) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """Records in parts that a log takes in one append each; all in one where there is no limit."""
    most_bytes = sys.maxsize if limits.append_bytes is None else limits.append_bytes - _BATCH_OVERHEAD
    most = limits.append_records or sys.maxsize
    start, size = 0, 0
    for at, record in enumerate(records):
        size += _size(record)
        if at > start and (size > most_bytes or at - start >= most):
            yield records[start:at]
            start, size = at, _size(record)
    yield records[start:]


def _last_entries(log: Log, first: int, end: int) -> list[Any]:
    start = step_back(log, end, CARDS_READ, first)
    found = []
    while start < end and (entries := log.read(start)):
        found += entries
        start = BatchView(entries[-1].base, entries[-1].data, log.name).end
    return found
