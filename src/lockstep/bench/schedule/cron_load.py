"""Very many crons: how long a node takes to load them, and what they cost while it runs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from lockstep.bench.compare_servers import Served, Shares
from lockstep.bench.schedule.nodes import (
    TENANT,
    NodeProcess,
    Site,
    client,
    nodes,
    wait_applied,
    wait_settled,
)
from lockstep.core.ticks import Policy
from lockstep.schedule.requests import PutCron
from lockstep.schedule.rows import CronRow

Say = Callable[[str], None]
_CHUNK = 5000
_SETTLE_S = 300.0


def expressions(count: int, seed: int = 1) -> Iterator[str]:
    """Seven of ten tick daily, two weekly, one monthly, at minutes and hours spread evenly."""
    chance = random.Random(seed)
    for number in range(count):
        minute, hour, kind = chance.randrange(60), chance.randrange(24), number % 10
        if kind < 7:
            yield f"{minute} {hour} * * *"
        elif kind < 9:
            yield f"{minute} {hour} * * {chance.randrange(7)}"
        else:
            yield f"{minute} {hour} {chance.randrange(1, 29)} * *"


def many_crons(site: Site, server: Served, count: int, say: Say, seconds: float = 60.0) -> dict[str, Any]:
    """Put crons into a scheduler, start another node that loads them, and let it tick."""
    measured = Shares(server)
    with client(site) as scheduler:
        with nodes(site, scheduler):
            say(f"putting {count:,} crons")
            began = time.monotonic()
            rows = (
                CronRow(tenant=TENANT, id=f"c{number}", type="UNIX", expression=text, policy=Policy())
                for number, text in enumerate(expressions(count))
            )
            while chunk := [PutCron(row) for row in islice(rows, _CHUNK)]:
                scheduler.client.send(chunk)
            wait_applied(scheduler)
            put_s = time.monotonic() - began
        say("starting a node with them")
        began = time.monotonic()
        with NodeProcess(site, "node-late") as node:
            node.wait_ready()
            idle_cpu_s = node.cpu_s()
            wait_settled(scheduler, {"node-late"}, _SETTLE_S)
            loaded_s, load_cpu_s = time.monotonic() - began, node.cpu_s() - idle_cpu_s
            say(f"ticking for {seconds:.0f} s")
            cpu_s, began = node.cpu_s(), time.monotonic()
            before = _fired(scheduler.bus.bounds(scheduler.streams.history))
            time.sleep(seconds)
            spent, cpu_s = time.monotonic() - began, node.cpu_s() - cpu_s
            ticks = _fired(scheduler.bus.bounds(scheduler.streams.history)) - before
            told = node.close()
    return {
        "crons": count, "store": site.kind, "put_per_s": round(count / put_s), "load_s": round(loaded_s, 2),
        "load_cpu_s": round(load_cpu_s, 2), "cpu_ms_per_s": round(cpu_s / spent * 1000, 2), "ticks": ticks,
        "peak_mb": told["peak_mb"], **measured.cores(),
    }  # fmt: skip


def _fired(bounds: Any) -> int:
    return int(bounds.next)
