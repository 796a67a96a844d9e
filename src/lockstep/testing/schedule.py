"""A scheduler in virtual time: a day passes in milliseconds, and then a test asserts what fired.

    with VirtualScheduler() as scheduler:
        scheduler.after("30m", {"mail": 7}, id="mail-7")
        scheduler.clock.advance("1 day")
        assert [event.id for event in scheduler.fired()] == ["mail-7"]

It is the real scheduler with one node on a bus in memory. Events of tenants that are not streams are delivered to a
receiver with configurable answers, 200 by default: `scheduler.answers("calls", 500, 500, 200)`.
"""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Any

from lockstep.cron import Cron, Zone, parse
from lockstep.errors import BadArgument
from lockstep.log.batch import BatchView
from lockstep.log.memory import MemoryBroker
from lockstep.schedule.delivery.port import Delivery, Done, Outcome, Result
from lockstep.schedule.fired import Fired, fired_from
from lockstep.schedule.node import NodeOptions
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.store.cells import CellStore
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Tenant
from lockstep.schedule.times import instant, span_ms, to_datetime
from lockstep.streams.client import Lockstep
from lockstep.streams.options import GroupOptions
from lockstep.streams.receiver import Receiver
from lockstep.streams.record import RecordBatch, Segment
from lockstep.testing.virtual import VirtualRuntime

SHARDS = 4
START = "2026-01-01T00:00Z"
_WORDS = re.compile(r"(\d+(?:\.\d+)?) ?(milliseconds?|seconds?|minutes?|hours?|days?|weeks?)", re.IGNORECASE)
_LETTERS = {"m": "m", "s": "s", "h": "h", "d": "d", "w": "w"}
_ALONE_S = 86_400.0 * 36_525
"""There is one node: it never has to fear that another takes over while time is skipped."""
_STEP_MS = 1000
_SETTLING_S = 2
"""By then the node owns all shards."""
_HANDLING_S = 0.2
"""How long functions have, in virtual time, before time is skipped again."""


class VirtualScheduler(Scheduler):
    """A scheduler with one node, on a bus in memory, whose time passes when `clock.advance` is called."""

    def __init__(
        self,
        name: str = "test",
        *,
        start: str | datetime = START,
        seed: int = 0,
        options: NodeOptions | None = None,
    ) -> None:
        begin = instant(start)
        self.runtime = VirtualRuntime(seed, wall_ns=begin * 10**6 - _SETTLING_S * 10**9)
        bus = Lockstep(MemoryBroker().bus(self.runtime), self.runtime)
        SchedulerStreams(name).create(bus, shards=SHARDS)
        self.courier = VirtualCourier()
        alone = GroupOptions(lease_s=_ALONE_S, beat_s=_ALONE_S / 4, max_processing_s=_ALONE_S)
        chosen = options or NodeOptions(group=alone)
        super().__init__(
            bus, name, open_store=lambda owners: CellStore(bus.bus, name, self.runtime, owners), courier=self.courier,
            options=chosen, node_name="node",
        )  # fmt: skip
        self._receiving = alone
        self.clock = VirtualClock(self)
        self._published: dict[str, tuple[int, list[Fired]]] = {}
        """By log: where the next record is, and what was published so far; retention may have dropped it since."""
        self.runtime.advance(_SETTLING_S)

    def answers(self, tenant: str, *codes: int | Exception) -> None:
        """Have the deliveries of a tenant answered so, one after the other; the last answer stays.

        A code is an HTTP status; an exception stands for a connection that fails.
        """
        if not codes:
            raise BadArgument(name="codes", value=codes, reason="give at least one")
        self.courier.answers[tenant] = deque(codes)

    def fired(self, tenant: str | None = None) -> list[Fired]:
        """Return what fired so far, in order: of one tenant, or of all. Each delivery counts that was taken."""
        names = [tenant] if tenant is not None else sorted(self.tenants())
        found = [event for name in names for event in self._fired(name)]
        return sorted(found, key=lambda event: event.triggered_at or event.at)

    def _fired(self, tenant: str) -> list[Fired]:
        stream = self.tenants()[tenant].stream if tenant in self.tenants() else None
        if stream is None:
            return [event for event in self.courier.taken if event.tenant == tenant]
        self._collect()
        logs = [log.name for log in self.bus.logs(stream)]
        return [event for log in logs for event in self._published[log][1] if event.tenant == tenant]

    def _collect(self) -> None:
        """Read what was published since."""
        streams = {tenant.stream for tenant in self.tenants().values() if tenant.stream is not None}
        for log in [log for stream in sorted(streams) for log in self.bus.logs(stream)]:
            start, found = self._published.get(log.name, (0, []))
            records, end = _records(log, start)
            self._published[log.name] = (end, [*found, *map(fired_from, records)])

    def close(self) -> None:
        """End the node and the bus."""
        super().close()
        self.bus.close()

    def __enter__(self) -> VirtualScheduler:
        return self


class VirtualClock:
    """The clock of a virtual scheduler."""

    def __init__(self, scheduler: VirtualScheduler) -> None:
        self._scheduler, self._runtime = scheduler, scheduler.runtime
        self._parsed: dict[tuple[str, str, str, str], tuple[Cron, Zone]] = {}

    @property
    def now(self) -> datetime:
        """The time."""
        return to_datetime(self._now())

    def advance(self, span: str | float | timedelta) -> None:
        """Let time pass: "1 day", "90m", a number of seconds, or a timedelta. Whatever falls due fires on the way."""
        end = self._now() + virtual_ms(span)
        self._runtime.run_until_idle()
        while (now := self._now()) < end:
            until = min(self._next_due(now), end)
            self._runtime.skip((until - now) / 1000)
            self._runtime.run_until_idle()
            self._let_functions_work(end)
            self._scheduler._collect()

    def _let_functions_work(self, end: int) -> None:
        """Functions that take events have timers of their own: time passes for them step by step."""
        while any(self._has_work(receiver) for receiver in self._scheduler._receivers):
            left = (end - self._now()) / 1000
            if left <= 0:
                return
            self._runtime.advance(min(_HANDLING_S, left))

    def _has_work(self, receiver: Receiver) -> bool:
        """Whether a function has events to take, and goes on taking them."""
        group = receiver.subscriber.group
        if receiver.error is not None or not receiver.is_running or group is None:
            return False
        return receiver._is_at_work() or any(part.lag for part in self._scheduler.bus.groups.describe(group).streams)

    def advance_to(self, time: str | datetime) -> None:
        """Let time pass until an instant."""
        self.advance(max(instant(time) - self._now(), 0) / 1000)

    def _now(self) -> int:
        return self._runtime.wall_ns() // 10**6

    def _next_due(self, now: int) -> int:
        """The next instant at which something may happen; nothing does before it."""
        store, client = self._scheduler.store, self._scheduler.client
        known = client.tenants()
        may_fire = {name for name, tenant in known.items() if not tenant.paused}
        dues = [due for shard in range(SHARDS) for due in store.tenants(shard).items()]
        firsts = [first for name, first in dues if name in may_fire]
        ticks = [tick for row in client.all_crons() if (tick := self._next_tick(row, now)) is not None]
        waiting = [first for first in firsts if first <= now]  # throttled, or in flight
        later = [due for due in (*firsts, *ticks) if due > now]
        return min([*later, *([now + _STEP_MS] if waiting else [])], default=now + 10**15)

    def _next_tick(self, row: Any, now: int) -> int | None:
        about = (row.expression, row.type, row.tz, row.dst)
        if about not in self._parsed:
            zone = Zone(row.tz, "literal" if row.dst == "literal" else "once")
            self._parsed[about] = (parse(row.expression, row.type), zone)
        cron, zone = self._parsed[about]
        found = cron.next(datetime.fromtimestamp(now // 1000, UTC), zone)
        return None if found is None else int(found.timestamp()) * 1000


class VirtualCourier:
    """Accepts deliveries at once and gives the configured answers, 200 by default."""

    def __init__(self) -> None:
        self.answers: dict[str, deque[int | Exception]] = {}
        self.delivered: list[Fired] = []
        """Every try, taken or not."""
        self.taken: list[Fired] = []

    def check(self, tenant: Tenant) -> None:
        """Accept any tenant."""

    def deliver(self, delivery: Delivery, done: Done) -> None:
        """Answer as the test said, 200 if it said nothing."""
        fired = Fired.of(delivery.event, dry_run=delivery.dry_run)
        self.delivered.append(fired)
        answers = self.answers.get(delivery.tenant.tenant) or deque([200])
        answer = answers.popleft() if len(answers) > 1 else answers[0]
        if answer in range(200, 300):
            self.taken.append(fired)
            done(Result(delivery, Outcome.TAKEN))
            return
        refused = answer in range(400, 500) and answer not in (408, 425, 429)
        outcome = Outcome.REFUSED if refused else Outcome.FAILED
        done(Result(delivery, outcome, f"it answered {answer}" if isinstance(answer, int) else repr(answer)))

    def forget(self, tenant: str) -> None:
        """Nothing is kept for a tenant that could be outdated."""

    def close(self) -> None:
        """Nothing is open."""


def virtual_ms(span: str | float | timedelta) -> int:
    """Return a span in milliseconds; words are understood too, as in "1 day" or "2 hours 30 minutes"."""
    if not isinstance(span, str) or not _WORDS.search(span):
        return span_ms(span)
    short = _WORDS.sub(lambda found: found[1] + ("ms" if found[2][:2].lower() == "mi" and "lli" in found[2].lower()
                                                 else _LETTERS[found[2][0].lower()]), span)  # fmt: skip
    return span_ms(re.sub(r"[\s,]|\band\b", "", short))


def _records(log: Any, start: int) -> tuple[list[Any], int]:
    start, found = max(start, log.bounds().first), []
    while entries := log.read(start):
        for entry in entries:
            view = BatchView(entry.base, entry.data, log.name)
            found += list(RecordBatch(log.name, [Segment(view, 0, len(view.values()))]))
            start = view.end
    return found, start
