"""What an event costs with one shard and with several: a publisher and a subscriber for each shard, on one server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import lockstep
from lockstep.bench.compare_means import reader, sender
from lockstep.bench.compare_servers import Served, Shares
from lockstep.bench.numbered import Numbered
from lockstep.bench.processes import Crew, Link
from lockstep.bench.rows import Row
from lockstep.bench.streams import hush
from lockstep.drill import measure

SHARDS = (1, 2, 4)
_RUN_RECORDS = 2_500
_SIZE = 100
_POLL_S = 1.0
_END_S_MAX = 120.0


def by_shards(server: Served, *, records: int = 1_000_000, shards: Sequence[int] = SHARDS) -> list[dict[str, Any]]:
    """For each number of shards: events a second, and microseconds of processor time for each event."""
    _measure(server, shards[0], records // 2)  # the first run warms the server up, and is not told
    return [_measure(server, count, records) for count in shards]


def _measure(server: Served, shards: int, records: int) -> dict[str, Any]:
    each = records // shards // _RUN_RECORDS * _RUN_RECORDS
    shares = Shares(server)
    with _sharded(server.url, shards) as stream, Crew() as crew:
        names = [f"{stream}/{number}" for number in range(shards)] if shards > 1 else [stream]
        for role in (_subscribe, _publish):
            for name in names:
                crew.start(role, server.url, name, each)
        busy = server.cpu_s()
        started = crew.go()
        answers = crew.answers(_END_S_MAX)
        busy = server.cpu_s() - busy
    return {**figures(shards, each * shards, started, answers, busy), **shares.cores()}


def figures(
    shards: int, records: int, started: float, answers: Sequence[tuple[float, float]], server_s: float
) -> dict[str, Any]:
    """Of what subscribers, then publishers answered: processor seconds, and when they ended."""
    seconds = max(ended for _, ended in answers[:shards]) - started
    subscribers, publishers = (sum(cpu for cpu, _ in part) for part in (answers[:shards], answers[shards:]))
    costs = {"publisher_us": publishers, "subscriber_us": subscribers, "server_us": server_s}
    return {
        "shards": shards,
        "records": records,
        "events_per_s": round(records / seconds),
        **{name: round(cpu / records * 1e6, 3) for name, cpu in costs.items()},
        "event_us": round(sum(costs.values()) / records * 1e6, 3),
    }


def rows(found: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """The same as rows of the table of all benchmarks."""
    for one in found:
        name = f"kafka, lockstep, {one['shards']} {'shard' if one['shards'] == 1 else 'shards'}"
        for what, value, unit in (("events", one["events_per_s"], "/s"), ("cost of an event", one["event_us"], "µs")):
            yield Row(name=f"{name}: {what}", value=value, unit=unit, details=one, others_cores=one["others_cores"])


@contextmanager
def _sharded(url: str, shards: int) -> Iterator[str]:
    stream = f"bench-{uuid4().hex[:12]}"
    with lockstep.connect(url) as bus:
        bus.create(stream, lockstep.StreamConfig(capacity=None, shards=shards, compression="none"))
    try:
        yield stream
    finally:
        with lockstep.connect(url) as bus:
            bus.delete(stream)


def _publish(link: Link, url: str, shard: str, records: int) -> tuple[float, float]:
    hush()
    numbered = Numbered(0, _SIZE, _RUN_RECORDS)
    with sender(url, shard) as publisher:
        link.ready()
        cpu = measure.cpu_s()
        for _ in range(records // _RUN_RECORDS):
            publisher.start(numbered.next_run())
            publisher.wait()
        return measure.cpu_s() - cpu, time.monotonic()


def _subscribe(link: Link, url: str, shard: str, records: int) -> tuple[float, float]:
    hush()
    with reader(url, shard) as subscriber:
        link.ready()
        cpu, received = measure.cpu_s(), 0
        while received < records:
            received += len(subscriber.read(_POLL_S))
        return measure.cpu_s() - cpu, time.monotonic()
