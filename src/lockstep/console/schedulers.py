"""The schedulers of a bus as the console sees them: found by their streams, opened when looked at, kept open."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.console.metrics import Histogram
from lockstep.console.port import Asked, Parameter, Site
from lockstep.core.agenda import Status
from lockstep.errors import BadArgument, GroupNotFound, SchedulerNotFound, Trimmed
from lockstep.log.batch import BatchView
from lockstep.log.offsets import step_back
from lockstep.log.port import Log
from lockstep.schedule.assembly import DEFAULT_NAME, open_scheduler
from lockstep.schedule.client import SchedulerClient
from lockstep.schedule.history import heard_nodes
from lockstep.schedule.requests import CRON_TYPES
from lockstep.schedule.rows import event_key
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.times import FIRST_MS

OPEN_MAX = 32
"""Schedulers that are kept open; of more, the one that was looked at longest ago is closed."""
ANSWER_S = 5.0
COUNTED_MAX = 1000
"""Events that are counted at most; of more it is said that there are more."""
OVERDUE_MS = 10_000
"""An event that is due for so long and has not fired is overdue: a node that takes over needs some seconds."""
LOOK_S = 5.0
"""How long the home page caches the state of a scheduler, in seconds."""
FAILURES_MAX, TAIL_RECORDS, TAIL_AT_ONCE = 200, 5_000, 20_000
RECENT_MS = 86_400_000
TRIES_TOLD = 3
"""After this many failed deliveries an event is reported, though it is still retried."""
LATE_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 3600.0)
_WHAT, _LATE = re.compile(rb'"what": ?"([a-z ]{1,32})"'), re.compile(rb'"lateMs": ?(-?\d{1,15})')
_FAILURES = (b'"failed"', b'"missed"', b'"retry"')
SKEW_MS = 5_000
"""Cards of nodes that are heard come within three seconds of each other, so a larger difference is one of clocks."""
SCHEDULER = Parameter(
    name="scheduler", label="Scheduler", is_scope=True, characters_max=128,
    help="which scheduler; by default the only one, or 'default'", option="--name",
)  # fmt: skip


class Schedulers:
    """Clients of the schedulers of a bus. Safe to share between threads; close it."""

    def __init__(self, site: Site, stores: Mapping[str, str] | None = None) -> None:
        """`stores` has the URL of the store, with its password, of each scheduler whose rows are not on the bus."""
        self._site, self._stores = site, stores or {}
        self._open: OrderedDict[str, Scheduler] = OrderedDict()
        self._health: dict[str, _Watch] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Every scheduler that has been set up on the bus."""
        return list(self._site.names.derived("schedulers", _schedulers))

    def chosen(self, asked: Asked) -> Scheduler:
        """The scheduler that a request means."""
        return self.open(self.name_of(asked.values["scheduler"]))

    def name_of(self, wanted: str) -> str:
        """The name that is meant; BadArgument if there are several and none of them is called default."""
        known = self.names()
        if wanted in known:
            return wanted
        if wanted or not known:
            raise SchedulerNotFound(name=wanted or DEFAULT_NAME, bus=self._site.client.bus.url)
        if DEFAULT_NAME in known:
            return DEFAULT_NAME
        if len(known) > 1:
            raise BadArgument(name="scheduler", value="", reason=f"say which: {', '.join(known)}")
        return known[0]

    def open(self, name: str) -> Scheduler:
        """The client of a scheduler; the same until it is closed."""
        with self._lock:
            found = self._open.get(name)
            if found is None:
                found = open_scheduler(self._site.client, name, node=False, store=self._stores.get(name))
                found.client.answer_s = ANSWER_S
                self._open[name] = found
            self._open.move_to_end(name)
            extra = self._open.popitem(last=False)[1] if len(self._open) > OPEN_MAX else None
        if extra is not None:
            extra.close()
        return found

    def health(self, name: str) -> Health:
        """How a scheduler does, as of a few seconds ago."""
        scheduler = self.open(name)
        with self._lock:
            watch = self._health.get(name)
            if watch is None or watch.scheduler is not scheduler:
                watch = self._health[name] = _Watch(scheduler)
        return watch.look()

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._site.now_ms

    def tail(self, name: str) -> FailureTail:
        """What is counted of the history of a scheduler that was looked at."""
        self.health(name)
        with self._lock:
            return self._health[name].tail

    def epoch(self, name: str) -> int | None:
        """The newest epoch in which a node owns a shard; None before any does."""
        scheduler = self.open(name)
        try:
            found = scheduler.bus.groups.describe(scheduler.streams.group).streams
        except GroupNotFound:
            return None
        return max((progress.epoch for progress in found), default=None)

    def close(self) -> None:
        """Close all that were opened."""
        with self._lock:
            opened, self._open = list(self._open.values()), OrderedDict()
            self._health.clear()
        for scheduler in opened:
            scheduler.close()


def _schedulers(logs: Sequence[str]) -> list[str]:
    names = set(logs)
    found = (name.removesuffix(".requests") for name in logs if name.endswith(".requests"))
    is_public = (name for name in found if name and name[0].isalnum())  # a group's log begins with an underscore
    return sorted(name for name in is_public if names.issuperset(SchedulerStreams(name).own))


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Unfired events of a tenant that are due."""

    tenant: str
    count: int
    has_more: bool
    since: int
    """When the first of them was due, in milliseconds since 1970."""
    is_paused: bool

    @property
    def count_text(self) -> str:
        """The number of events as text."""
        return "1 event" if self.count == 1 else f"{'more than ' if self.has_more else ''}{self.count:,} events"


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """How a scheduler does."""

    nodes: Sequence[Mapping[str, Any]]
    shards: int
    unowned: Sequence[int]
    tenants: int
    backlogs: Sequence[Backlog]
    failed: Sequence[Mapping[str, Any]]
    """Records of the history about events that failed lately and are still FAILED."""
    retried: Sequence[Mapping[str, Any]]
    """The same about events whose delivery has failed some times and is tried again."""
    failed_ticks: Sequence[Mapping[str, Any]]
    """The same about crons whose last tick failed."""
    skew: tuple[str, str, float] | None
    """Two nodes whose clocks differ, the one that is ahead first, and by how many seconds."""


@dataclass(slots=True)
class _Watch:
    """Looks at a scheduler at most once in `LOOK_S`."""

    scheduler: Scheduler
    tail: FailureTail = field(init=False)
    _known: Health | None = None
    _until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.tail = FailureTail(self.scheduler.bus.logs(self.scheduler.streams.history)[0])

    def look(self) -> Health:
        runtime = self.scheduler.bus.runtime
        with self._lock:
            if self._known is None or runtime.monotonic() >= self._until:
                self._known = looked_at(self.scheduler, self.tail)
                self._until = runtime.monotonic() + LOOK_S
            return self._known


def looked_at(scheduler: Scheduler, tail: FailureTail) -> Health:
    """Ask the bus and the store how a scheduler does; as many calls as it has shards, and some."""
    now = scheduler.bus.runtime.wall_ns() // 10**6
    nodes = heard_nodes(scheduler)
    shards = len(scheduler.bus.logs(scheduler.streams.requests))
    owned = {shard for card in nodes for shard in card["shards"]}
    failures = tail.look()
    ticks = [record for record in tail.ticks.values() if int(record["at"]) > now - RECENT_MS]
    return Health(
        nodes=nodes, shards=shards, unowned=[shard for shard in range(shards) if shard not in owned],
        tenants=len(scheduler.client.tenants()), backlogs=backlogs_of(scheduler, shards, now),
        failed=still_in(Status.FAILED, scheduler.client, failures, now),
        retried=still_in(Status.RETRY, scheduler.client, failures, now), failed_ticks=ticks, skew=skew_of(nodes),
    )  # fmt: skip


def backlogs_of(scheduler: Scheduler, shards: int, now: int) -> list[Backlog]:
    """Tenants with unfired events that are due, the oldest first."""
    first_due: dict[str, int] = {}
    for shard in range(shards):
        for tenant, due in scheduler.store.tenants(shard).items():
            first_due[tenant] = min(due, first_due.get(tenant, due))
    known = scheduler.client.tenants()
    found = []
    for tenant, since in sorted(first_due.items(), key=lambda pair: pair[1]):
        is_paused = tenant not in known or known[tenant].paused
        if since <= now - (0 if is_paused else OVERDUE_MS):
            count, has_more = count_of(scheduler, tenant, now)
            found.append(Backlog(tenant=tenant, count=count, has_more=has_more, since=since, is_paused=is_paused))
    return found


def count_of(scheduler: Scheduler, tenant: str, stop: int) -> tuple[int, bool]:
    """Unfired events of a tenant that are due up to a time, and whether there are more than are counted."""
    count = 0
    for shard in range(len(scheduler.bus.logs(scheduler.streams.requests))):
        count += len(scheduler.store.due(shard, tenant, FIRST_MS, stop, COUNTED_MAX + 1 - count))
        if count > COUNTED_MAX:
            return COUNTED_MAX, True
    return count, False


def still_in(
    status: Status, client: SchedulerClient, records: Sequence[Mapping[str, Any]], now: int
) -> list[Mapping[str, Any]]:
    """Of records of failures those of the last day whose events have this status still, the newest first."""
    newest = {(str(record["tenant"]), str(record["id"])): record for record in records}
    by_shard: dict[int, dict[bytes, Mapping[str, Any]]] = {}
    for (tenant, name), record in newest.items():
        if int(record["at"]) > now - RECENT_MS:
            by_shard.setdefault(client.shard_of(tenant, name), {})[event_key(tenant, name)] = record
    found = [
        known[key]
        for shard, known in by_shard.items()
        for key, event in client.store.get(shard, list(known)).items()
        if event.status is status
    ]
    return sorted(found, key=lambda record: -int(record["at"]))


def cron_of_tick(tenant: str, name: str) -> str | None:
    """The id of the cron whose tick has this name, as TENANT/ID/TYPE; None if it is the name of no tick."""
    rest, _, kind = name.removeprefix(f"{tenant}/").rpartition("/")
    return rest if rest and kind in CRON_TYPES and name.startswith(f"{tenant}/") else None


def skew_of(nodes: Sequence[Mapping[str, Any]]) -> tuple[str, str, float] | None:
    """The two nodes whose clocks differ most, if they differ by more than cards can be apart."""
    if len(nodes) < 2:
        return None
    last = max(nodes, key=lambda card: int(card["wall"]))
    first = min(nodes, key=lambda card: int(card["wall"]))
    apart = int(last["wall"]) - int(first["wall"])
    return (str(last["node"]), str(first["node"]), apart / 1000) if apart > SKEW_MS else None


class FailureTail:
    """The newest failures in a history: it begins some thousand records before its end, and reads on from there.

    `ticks` has the crons whose last tick failed, by their names: ticks leave no rows that could be asked.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        bounds = log.bounds()
        self._next = step_back(log, bounds.next, TAIL_RECORDS, bounds.first)
        self._found: deque[Mapping[str, Any]] = deque(maxlen=FAILURES_MAX)
        self.ticks: dict[str, Mapping[str, Any]] = {}
        self._counted_from = bounds.next
        self.outcomes: Counter[str] = Counter()
        """Records by what happened, from when this was made."""
        self.late = Histogram(LATE_S)

    def look(self) -> Sequence[Mapping[str, Any]]:
        """The failures up to now, oldest first. Of what comes faster than it is read, the older part is passed by."""
        bounds = self._log.bounds()
        if bounds.next - self._next > TAIL_AT_ONCE or self._next < bounds.first:
            self._next = step_back(self._log, bounds.next, TAIL_AT_ONCE, bounds.first)
        try:
            while self._next < bounds.next and (entries := self._log.read(self._next)):
                for entry in entries:
                    view = BatchView(entry.base, entry.data, self._log.name)
                    for value in view.values()[max(self._next - view.base, 0) :]:
                        self._take(value)
                        if view.base >= self._counted_from:
                            self._count(value)
                    self._next = view.end
        except Trimmed:
            self._next = self._log.bounds().first
        return list(self._found)

    def _count(self, value: bytes) -> None:
        what = _WHAT.search(value)
        if what is None:
            return
        self.outcomes[what[1].decode()] += 1
        late = _LATE.search(value) if what[1] == b"fired" else None
        if late is not None:
            self.late.add(int(late[1]) / 1000)

    def _take(self, value: bytes) -> None:
        is_failure = any(word in value for word in _FAILURES)
        if not is_failure and not self.ticks:
            return
        record = json.loads(value)
        name, what = str(record.get("id")), record.get("what")
        if what == "fired":
            self.ticks.pop(name, None)
        elif what in ("failed", "missed") and str(record.get("eventId")).startswith(f"{name}/"):
            if len(self.ticks) < FAILURES_MAX or name in self.ticks:
                self.ticks[name] = record
        elif what in ("failed", "missed") or (what == "retry" and record.get("attempt", 0) >= TRIES_TOLD):
            self._found.append(record)
