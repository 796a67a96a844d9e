"""Node processes of a scheduler, and what the benchmark does with them: loads events, waits, and ends them."""

from __future__ import annotations

import json
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any

import lockstep
from lockstep.bench.compare_servers import Served
from lockstep.bench.processes import Crew, Link
from lockstep.bench.schedule.arrivals import event_name
from lockstep.core.agenda import Option, Remove, Upsert
from lockstep.drill import measure
from lockstep.log.batch import BatchView
from lockstep.schedule import assembly
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.streams import SHARDS, SchedulerStreams
from lockstep.schedule.validation import event_id
from lockstep.streams.client import Lockstep

NAME, TENANT, OUT = "bench", "bench", "out"
PAYLOAD = b'{"order":"4711","customer":"c-1029","amount":12.5,"currency":"EUR"}'
_CHUNK = 5000
_SETTLE_S, _APPLIED_S = 60.0, 900.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Site:
    """Where a scheduler is: the URL of its bus, and of its store, if that is not the bus."""

    url: str
    store: str | None = None

    @property
    def kind(self) -> str:
        """For people."""
        scheme = "lmdb" if self.store is None else self.store.partition(":")[0]
        return {"lmdb": "LMDB", "postgresql": "PostgreSQL"}.get(scheme, scheme)


def open_scheduler(bus: Lockstep, site: Site, *, node: str | None) -> Scheduler:
    """The scheduler of the benchmark, with a node of this name in this process, or only to ask."""
    return assembly.open_scheduler(bus, NAME, node=node is not None, store=site.store, node_name=node)


def serve(link: Link, site: Site, name: str) -> dict[str, Any]:
    """Be a node until it is told to end."""
    logging.getLogger("lockstep").setLevel(logging.ERROR)  # takeovers are meant here
    with lockstep.connect(site.url) as bus, open_scheduler(bus, site, node=name) as scheduler:
        link.ready()
        node = scheduler.node
        assert node is not None
        while not link.is_over():
            if node.error is not None:
                raise node.error
            time.sleep(_LOOK_S)
        return {"cpu_s": measure.cpu_s(), "peak_mb": round(measure.peak_rss_mb())}


class NodeProcess:
    """One node in a process of its own. Leaving the with block ends it."""

    def __init__(self, site: Site, name: str) -> None:
        self.name = name
        self._crew = Crew()
        self._crew.start(serve, site, name)
        self._is_killed = False
        self._told: dict[str, Any] | None = None

    @property
    def pid(self) -> int:
        """The number of the process."""
        pid = self._crew.processes[0].pid
        assert pid is not None
        return pid

    def wait_ready(self) -> None:
        """Return when the node has been opened."""
        self._crew.go()

    def cpu_s(self) -> float:
        """Processor time of the process so far."""
        return Served("", (self.pid,)).cpu_s()

    def kill(self) -> None:
        """End it at once (-9), as a crash would."""
        self._crew.signal(0, signal.SIGKILL)
        self._crew.processes[0].join()
        self._is_killed = True

    def check(self) -> None:
        """Raise what ended the node, if anything did."""
        if not self._is_killed and self._crew.processes[0].exitcode is not None:
            self._crew.answer(0, 1.0)

    def close(self) -> dict[str, Any]:
        """End it in order; return what it says of itself."""
        if self._told is not None:
            return self._told
        self._told = {}
        with self._crew:
            if not self._is_killed:
                self._crew.finish()
                self._told = dict(self._crew.answer(0, _SETTLE_S))
        return self._told

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._crew.__exit__(kind, error, at)


@contextmanager
def client(site: Site) -> Iterator[Scheduler]:
    """A scheduler without a node, whose tenant's events go to the stream `out`."""
    with lockstep.connect(site.url) as bus:
        SchedulerStreams(NAME).create(bus)
        with open_scheduler(bus, site, node=None) as scheduler:
            scheduler.register(TENANT, "MESSAGING", {"topic": OUT})
            yield scheduler


@contextmanager
def nodes(site: Site, scheduler: Scheduler, count: int = 1) -> Iterator[list[NodeProcess]]:
    """Node processes that have shared the shards among them."""
    started = [NodeProcess(site, f"node-{number}") for number in range(1, count + 1)]
    try:
        for one in started:
            one.wait_ready()
        wait_settled(scheduler, {one.name for one in started})
        yield started
    finally:
        for one in started:
            one.close()


def wait_settled(scheduler: Scheduler, names: set[str], timeout: float = _SETTLE_S) -> None:
    """Return when nodes of these names own all shards, each about as many."""
    end = time.monotonic() + timeout
    least = SHARDS // len(names)
    while True:
        cards = {str(card["node"]): card["shards"] for card in scheduler.client.nodes()}
        owned = Counter(shard for name in names for shard in cards.get(name, ()))
        if len(owned) == SHARDS and owned.total() == SHARDS and all(len(cards[name]) >= least for name in names):
            return
        if time.monotonic() >= end:
            message = f"nodes {', '.join(sorted(names))} did not share the shards within {timeout:.0f} s"
            raise TimeoutError(message)
        time.sleep(_LOOK_S)


def load(scheduler: Scheduler, events: Iterable[tuple[int, int]]) -> float:
    """Schedule events by number and time, and return when all are stored; seconds that it took."""
    began = time.monotonic()
    waiting = iter(events)
    while chunk := list(islice(waiting, _CHUNK)):
        scheduler.client.send([upsert(scheduler, number, at) for number, at in chunk])
    wait_applied(scheduler)
    return time.monotonic() - began


def upsert(scheduler: Scheduler, number: int, at: int, tenant: str = TENANT) -> Upsert:
    """The request for an event."""
    made = event_id(scheduler.bus.runtime.new_id, Option.FULL_EVENT)
    return Upsert(tenant, event_name(number, at), at, made, PAYLOAD)


def wait_applied(scheduler: Scheduler) -> None:
    """Return when every request sent before has been carried out: each shard answers one that comes after them."""
    missing, asked, number = set(range(SHARDS)), list[Remove](), 0
    while missing:
        name = f"no-event-{number}"
        number += 1
        shard = scheduler.client.shard_of(TENANT, name)
        if shard in missing:
            missing.discard(shard)
            asked.append(Remove(TENANT, name))
    scheduler.client.ask(asked, timeout=_APPLIED_S)


def fired_by_node(scheduler: Scheduler) -> dict[str, int]:
    """How many events each node fired, as the history says."""
    log = scheduler.bus.logs(scheduler.streams.history)[0]
    bounds = log.bounds()
    at, found = bounds.first, Counter[str]()
    while at < bounds.next:
        for entry in log.read(at):
            view = BatchView(entry.base, entry.data, log.name)
            records = [json.loads(value) for value in view.values()]
            found.update(record["node"] for record in records if record["what"] == "fired")
            at = view.end
    return dict(found)


def sleep_until(at_ms: int) -> None:
    """Sleep until a wall-clock time."""
    time.sleep(max(at_ms / 1000 - time.time(), 0.0))


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 10**6
