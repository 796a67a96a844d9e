"""How fast and how late due events fire into a stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from lockstep.bench.compare_servers import Served, Shares
from lockstep.bench.processes import Crew
from lockstep.bench.schedule.arrivals import Arrivals, Reader, shares
from lockstep.bench.schedule.feed import LEAD_MS, feed
from lockstep.bench.schedule.nodes import (
    OUT,
    TENANT,
    NodeProcess,
    Site,
    client,
    fired_by_node,
    load,
    nodes,
    now_ms,
    sleep_until,
)
from lockstep.schedule.scheduler import Scheduler

Say = Callable[[str], None]
NODES = 3
FRESH_RATE = 200
BACKLOG_AGE_S = 61.0
"""Events that are due for longer than a minute are backlog to a node."""
_WAIT_S, _COPIES_S = 600.0, 1.0


def due_now(site: Site, server: Served, events: int, say: Say) -> dict[str, Any]:
    """Events a second when all are stored and due, from the moment at which their tenant may fire."""
    measured = Shares(server)
    with client(site) as scheduler, nodes(site, scheduler) as [node]:
        at = _after_load(events)
        scheduler.pause_tenant(TENANT)
        loaded_s = _load(scheduler, [(number, at) for number in range(events)], say)
        sleep_until(at)
        arrivals = Arrivals(events)
        with closing(Reader(scheduler.bus, OUT, arrivals)) as reader:
            cpu_s, server_s, began_ns = node.cpu_s(), server.cpu_s(), time.time_ns()
            scheduler.resume_tenant(TENANT)
            _read_all(reader, events, node)
            cpu_s, server_s = node.cpu_s() - cpu_s, server.cpu_s() - server_s
            reader.read_for(_COPIES_S)
    seconds = (arrivals.last_ns - began_ns) / 1e9
    return {
        "events": events, "store": site.kind, "per_s": round(events / seconds), "seconds": round(seconds, 3),
        "cpu_us_per_event": round(cpu_s / events * 1e6, 1), "server_us_per_event": round(server_s / events * 1e6, 1),
        "loaded_per_s": round(events / loaded_s), **arrivals.faults(events), **measured.cores(),
    }  # fmt: skip


def over_a_minute(site: Site, server: Served, events: int, say: Say, seconds: float = 60.0) -> dict[str, Any]:
    """Lateness of events that are due one after the other."""
    measured = Shares(server)
    with client(site) as scheduler, nodes(site, scheduler) as [node]:
        begin = _after_load(events)
        times = [begin + int(number * seconds * 1000 / events) for number in range(events)]
        _load(scheduler, list(enumerate(times)), say)
        say(f"reading for {seconds:.0f} s")
        found = _timed(scheduler, [node], events, begin)
    return {"events": events, "store": site.kind, "over_s": seconds, **found, **measured.cores()}


def in_one_instant(site: Site, server: Served, events: int, say: Say) -> dict[str, Any]:
    """How late the last of many events for one instant is, and how three nodes share them."""
    measured = Shares(server)
    with client(site) as scheduler, nodes(site, scheduler, NODES) as started:
        at = _after_load(events)
        _load(scheduler, [(number, at) for number in range(events)], say)
        found = _timed(scheduler, started, events, at)
        by_node = fired_by_node(scheduler)
    counts = {one.name: by_node.get(one.name, 0) for one in started}
    return {"events": events, "store": site.kind, "nodes": NODES, **found, **shares(counts), **measured.cores()}


def _timed(scheduler: Scheduler, started: list[NodeProcess], events: int, begin: int) -> dict[str, Any]:
    loaded_in_time = now_ms() < begin
    arrivals = Arrivals(events)
    with closing(Reader(scheduler.bus, OUT, arrivals)) as reader:
        cpu_s = sum(one.cpu_s() for one in started)
        _read_all(reader, events, *started)
        cpu_s = sum(one.cpu_s() for one in started) - cpu_s
        reader.read_for(_COPIES_S)
    return {
        "late_ms": arrivals.lateness(), "cpu_us_per_event": round(cpu_s / events * 1e6, 1),
        "loaded_in_time": loaded_in_time, **arrivals.faults(events),
    }  # fmt: skip


def start_with_backlog(
    site: Site, server: Served, events: int, say: Say, age_s: float = BACKLOG_AGE_S
) -> dict[str, Any]:
    """A node starts when many events are overdue: when the first one fires, how fast, and how late fresh ones are."""
    measured = Shares(server)
    with client(site) as scheduler:
        at = _after_load(events)
        scheduler.pause_tenant(TENANT)
        with nodes(site, scheduler):
            _load(scheduler, [(number, at) for number in range(events)], say)
        sleep_until(at)
        time.sleep(age_s)
        scheduler.resume_tenant(TENANT)
        say("starting the node")
        found = _backlog(site, scheduler, events)
    return {"events": events, "store": site.kind, **found, **measured.cores()}


def _backlog(site: Site, scheduler: Scheduler, events: int) -> dict[str, Any]:
    arrivals = Arrivals(events + FRESH_RATE * int(_WAIT_S))
    fresh = Fresh(events)
    with closing(Reader(scheduler.bus, OUT, arrivals)) as reader, Crew() as crew:
        reader.on_read = fresh.add
        crew.start(feed, site, FRESH_RATE, events)
        crew.go()
        began_ns = time.time_ns()
        with NodeProcess(site, "node-late") as node:
            node.wait_ready()
            while fresh.old < events and time.time_ns() < began_ns + _WAIT_S * 1e9:
                reader.poll()
                node.check()
            ended_ns = time.time_ns()
            crew.finish()
            sent = int(crew.answer(0, _WAIT_S)["sent"])
            reader.read_until(events + sent, _WAIT_S)
            cpu_s = node.cpu_s()
            reader.read_for(_COPIES_S)
    seconds = (ended_ns - fresh.first_old_ns) / 1e9
    return {
        "first_s": round((fresh.first_old_ns - began_ns) / 1e9, 2), "per_s": round(events / seconds),
        "fresh": sent, "fresh_late_ms": fresh.lateness(began_ns, ended_ns),
        "cpu_us_per_event": round(cpu_s / (events + sent) * 1e6, 1), **arrivals.faults(events + sent),
    }  # fmt: skip


class Fresh:
    """Tells the events of a backlog, which have the first numbers, from fresh ones."""

    def __init__(self, backlog: int) -> None:
        self._backlog = backlog
        self.old = 0
        self.first_old_ns = 0
        self._late: list[tuple[int, float]] = []

    def add(self, keys: list[bytes], now_ns: int) -> None:
        """Note what arrived."""
        for key in keys:
            number, _, at = key.partition(b"-")
            if int(number) < self._backlog:
                self.old += 1
                self.first_old_ns = self.first_old_ns or now_ns
            else:
                self._late.append((int(at), now_ns / 1e6 - int(at)))

    def lateness(self, began_ns: int, ended_ns: int) -> dict[str, float]:
        """Of fresh events that came due while the backlog was fired."""
        from lockstep.bench.schedule.arrivals import lateness

        begin, end = max(began_ns, self.first_old_ns) / 1e6, ended_ns / 1e6
        return lateness([late for at, late in self._late if begin <= at <= end])


def _load(scheduler: Scheduler, events: list[tuple[int, int]], say: Say) -> float:
    say(f"scheduling {len(events):,} events")
    return load(scheduler, events)


def _after_load(events: int) -> int:
    """A time at which so many events are surely stored."""
    return now_ms() + LEAD_MS + events * 1000 // 5000


def _read_all(reader: Reader, events: int, *started: NodeProcess) -> None:
    end = time.monotonic() + _WAIT_S
    while reader.arrivals.distinct < events and time.monotonic() < end:
        reader.poll()
        for one in started:
            one.check()
