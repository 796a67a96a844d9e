"""How soon a subscriber in another process has a record, by every means: from the call to the end of the read."""

from __future__ import annotations

import random
import time
from typing import Any

from lockstep.bench.compare_fanout import own_stream
from lockstep.bench.compare_means import load
from lockstep.bench.processes import CONTEXT, Crew, Link
from lockstep.bench.streams import hush
from lockstep.drill import measure

_PAUSE_S = (0.001, 0.004)
_LOST_S = 15.0
_WARM = 20
"""So many first ones are left out: they pay for connections and first calls."""


def wake_latency(means: str, url: str, records: int) -> dict[str, float]:
    """Percentiles in milliseconds of single records, each published while the subscriber waits."""
    arrived = CONTEXT.Semaphore(0)
    with own_stream(means, url) as stream, Crew() as crew:
        crew.start(_receive, means, url, stream, records + _WARM, arrived)
        crew.start(_send, means, url, stream, records + _WARM, arrived)
        crew.go()
        latencies: list[float] = crew.answers(60.0 + records * 0.05)[0]
    return measure.percentiles(latencies[_WARM:])


def _send(link: Link, means: str, url: str, stream: str, records: int, arrived: Any) -> None:
    hush()
    chance = random.Random(1)  # the same pauses in every run
    with load(means).sender(url, stream) as sender:
        link.ready()
        for _ in range(records):
            time.sleep(chance.uniform(*_PAUSE_S))  # time enough for the subscriber to wait again
            sender.start([time.monotonic_ns().to_bytes(8, "little")])
            sender.wait()
            if not arrived.acquire(timeout=_LOST_S):
                message = "a record did not arrive"
                raise TimeoutError(message)


def _receive(link: Link, means: str, url: str, stream: str, records: int, arrived: Any) -> list[float]:
    hush()
    latencies: list[float] = []
    with load(means).reader(url, stream) as reader:
        link.ready()
        while len(latencies) < records:
            values = reader.read(1.0)
            now = time.monotonic_ns()
            for value in values:
                latencies.append((now - int.from_bytes(value, "little")) / 1e6)
                arrived.release()
    return latencies
