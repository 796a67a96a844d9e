"""Whether a stream gets slower as it gets longer, and what subscribers cost that have nothing to do."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lockstep
from lockstep.bench.numbered import Numbered
from lockstep.bench.processes import Crew, Link
from lockstep.bench.scratch import make_stream, scratch_bus
from lockstep.drill import measure

STREAM = "bench"
LENGTHS = (10_000, 100_000, 1_000_000, 10_000_000)
_RUN_RECORDS = 10_000
_ROUNDS, _SAMPLES = 5, 200


def by_length(*, lengths: Sequence[int] = LENGTHS, size: int = 100) -> dict[str, Any]:
    """For each length: microseconds to get one record and to append one, and memory that is not the mapped file."""
    with scratch_bus("relaxed") as url, Crew() as crew:
        make_stream(url, STREAM, None)
        crew.start(_grow, url, tuple(lengths), size)
        crew.go()
        return {"lengths": crew.answer(0, 600.0)}


def flatness(rows: Sequence[dict[str, Any]], figure: str) -> float:
    """The largest figure by the smallest: 1 is flat."""
    found = [float(row[figure]) for row in rows]
    return round(max(found) / min(found), 2)


def _grow(link: Link, url: str, lengths: tuple[int, ...], size: int) -> list[dict[str, Any]]:
    rows = []
    numbered = Numbered(0, size, _RUN_RECORDS)
    with lockstep.connect(url) as bus, bus.publisher(STREAM) as publisher:
        link.ready()
        for length in lengths:
            while (missing := length - bus.bounds(STREAM).next) > 0:
                publisher.publish_many(numbered.next_run()[:missing]).wait()
            rows.append({"records": length, **_costs(bus, publisher, size), "memory_mb": _anonymous_mb()})
    return rows


def _costs(bus: lockstep.Lockstep, publisher: lockstep.Publisher, size: int) -> dict[str, float]:
    chance = random.Random(1)
    end = bus.bounds(STREAM).next
    offsets = iter([chance.randrange(end) for _ in range(_ROUNDS * _SAMPLES)])
    value = bytes(size)
    return {
        "get_us": _median_us(lambda: bus.get(STREAM, next(offsets))),
        "append_us": _median_us(lambda: publisher.publish_direct(value)),
    }


def _median_us(work: Callable[[], object]) -> float:
    """The best of several medians: what else the machine does is not the length of the stream."""
    return round(min(measure.percentile(_times_us(work), 50) for _ in range(_ROUNDS)), 1)


def _times_us(work: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(_SAMPLES):
        started = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - started) / 1000)
    return times


def _anonymous_mb() -> float:
    """Memory of this process without files: pages of the store are the kernel's cache, and given back when needed."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return round(int(line.split()[1]) / 1024, 1)
    return measure.peak_rss_mb()


_SETTLE_S = 3.0


def idle_cpu(*, subscribers: int = 16, seconds: float = 5.0, group: str | None = None) -> dict[str, Any]:
    """Processor time of all of them together, in percent of one core; in a group they beat and read each other."""
    with scratch_bus("relaxed") as url, Crew() as crew:
        make_stream(url, STREAM, 1000)
        for _ in range(subscribers):
            crew.start(_wait, url, seconds, group)
        crew.go()
        used = crew.answers(seconds + _SETTLE_S + 60.0)
    return {"cpu_percent": round(sum(used) / seconds * 100, 2), "subscribers": subscribers, "group": group is not None}


def _wait(link: Link, url: str, seconds: float, group: str | None) -> float:
    with lockstep.connect(url) as bus, bus.subscriber(STREAM, group=group) as subscriber:
        link.ready()
        _poll_for(subscriber, _SETTLE_S)  # joining a group is not idling
        cpu = measure.cpu_s()
        _poll_for(subscriber, seconds)
        return measure.cpu_s() - cpu


def _poll_for(subscriber: lockstep.Subscriber, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        subscriber.poll(left)
