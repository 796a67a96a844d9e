"""Nodes that are killed with -9 while events come due: how long their shards are silent, and what is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from lockstep.bench.compare_servers import Served, Shares
from lockstep.bench.processes import Crew
from lockstep.bench.schedule.arrivals import Arrivals, Reader, lateness
from lockstep.bench.schedule.feed import feed
from lockstep.bench.schedule.nodes import OUT, TENANT, NodeProcess, Site, client, wait_settled
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.streams import SHARDS

Say = Callable[[str], None]
Shard = Callable[[bytes], int]
NODES, RATE = 3, 2000
_BETWEEN_S, _WAIT_S, _COPIES_S = 3.0, 60.0, 2.0
_KILL_S_MAX = 60.0
_EVENTS_MAX = 5_000_000


class Silence:
    """For each kill and each shard: when the first event arrived that came due after the kill."""

    def __init__(self, shard_of: Shard) -> None:
        self._shard_of = shard_of
        self.kills: list[int] = []
        self._first: list[dict[int, int]] = []
        self._is_open = False

    def killed(self, at_ns: int) -> None:
        """Note a kill."""
        self.kills.append(at_ns)
        self._first.append({})
        self._is_open = True

    def heard(self) -> int:
        """From how many shards events have arrived since the last kill."""
        return len(self._first[-1]) if self._first else 0

    def over(self) -> None:
        """Look at arrivals no more until the next kill."""
        self._is_open = False

    def add(self, keys: Sequence[bytes], now_ns: int) -> None:
        """Note what arrived."""
        if not self._is_open:
            return
        killed_ms, first = self.kills[-1] / 1e6, self._first[-1]
        for key in keys:
            if int(key.partition(b"-")[2]) >= killed_ms:
                first.setdefault(self._shard_of(key), now_ns)

    def seconds(self) -> list[float]:
        """Of each kill, how long the slowest shard was silent."""
        pairs = zip(self.kills, self._first, strict=True)
        return [round((max(first.values()) - at) / 1e9, 3) for at, first in pairs if first]


def kill_owners(
    site: Site, server: Served, kills: int, say: Say, rate: int = RATE, between_s: float = _BETWEEN_S
) -> dict[str, Any]:
    """Kill one of three nodes after the other, each started again; count what becomes of a steady flow of events."""
    measured = Shares(server)
    with client(site) as scheduler:
        arrivals = Arrivals(_EVENTS_MAX)
        silence = Silence(lambda key: scheduler.client.shard_of(TENANT, key.decode()))
        with closing(Reader(scheduler.bus, OUT, arrivals)) as reader:
            reader.on_read = silence.add
            sent = _kills(site, scheduler, reader, silence, kills, say, rate, between_s)
    seconds = silence.seconds()
    found = lateness([one * 1000 for one in seconds])
    return {
        "kills": kills, "rate": rate, "events": sent, "store": site.kind,
        "silence_s": {name: round(value / 1000, 3) for name, value in found.items()}, "each_s": seconds,
        **arrivals.faults(sent), **measured.cores(),
    }  # fmt: skip


def _kills(
    site: Site, scheduler: Scheduler, reader: Reader, silence: Silence, kills: int, say: Say, rate: int,
    between_s: float,
) -> int:  # fmt: skip
    started = {f"node-{number}": NodeProcess(site, f"node-{number}") for number in range(1, NODES + 1)}
    try:
        for one in started.values():
            one.wait_ready()
        wait_settled(scheduler, set(started))
        with Crew() as crew:
            crew.start(feed, site, rate)
            crew.go()
            reader.read_for(between_s)
            for number in range(kills):
                say(f"kill {number + 1} of {kills}")
                victim = list(started)[number % NODES]
                _kill(started[victim], reader, silence)
                started[victim].close()
                started[victim] = NodeProcess(site, victim)
                started[victim].wait_ready()
                _read_until_settled(scheduler, reader, set(started), between_s)
            crew.finish()
            sent = int(crew.answer(0, _WAIT_S)["sent"])
            reader.read_until(sent, _WAIT_S)
            reader.read_for(_COPIES_S)
    finally:
        for one in started.values():
            one.close()
    return sent


def _kill(node: NodeProcess, reader: Reader, silence: Silence) -> None:
    silence.killed(time.time_ns())
    node.kill()
    end = time.monotonic() + _KILL_S_MAX
    while silence.heard() < SHARDS and time.monotonic() < end:
        reader.poll()
    silence.over()


def _read_until_settled(scheduler: Scheduler, reader: Reader, names: set[str], between_s: float) -> None:
    """Read on until all nodes have their share again, and a little longer."""
    end = time.monotonic() + _WAIT_S
    while time.monotonic() < end:
        reader.read_for(min(between_s, 0.5))
        cards = {str(card["node"]): len(card["shards"]) for card in scheduler.client.nodes()}
        if all(cards.get(name, 0) > 0 for name in names):
            break
    reader.read_for(between_s)


def held_by_the_dead(url: str) -> int:
    """Executions of db-scheduler that a dead node had picked, and that nobody has taken over."""
    import psycopg

    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM scheduled_tasks WHERE picked").fetchone()
    return int(found[0]) if found else 0
