"""How soon a subscriber that waits in another process has a record: from the call of publish() to the end of poll()."""

from __future__ import annotations

import random
import time
from typing import Any

import lockstep
from lockstep.bench.processes import CONTEXT, Crew, Link
from lockstep.bench.scratch import make_stream, scratch_bus
from lockstep.drill import measure

STREAM = "bench"
_PAUSE_S = (0.001, 0.004)
_LOST_S = 10.0


def wake_latency(*, records: int = 1000, durability: str = "fsync") -> dict[str, Any]:
    """Latencies in milliseconds of single records, each published while the subscriber waits."""
    arrived = CONTEXT.Semaphore(0)
    with scratch_bus(durability) as url, Crew() as crew:
        make_stream(url, STREAM, 10_000)
        crew.start(_receive, url, records, arrived)
        crew.start(_send, url, records, arrived)
        crew.go()
        latencies = crew.answers(60.0 + records * 0.05)[0]
    return {"latency_ms": measure.percentiles(latencies), "records": len(latencies), "durability": durability}


def _send(link: Link, url: str, records: int, arrived: Any) -> None:
    chance = random.Random(1)  # the same pauses in every run
    with lockstep.connect(url) as bus, bus.publisher(STREAM) as publisher:
        link.ready()
        for _ in range(records):
            time.sleep(chance.uniform(*_PAUSE_S))  # time enough for the subscriber to wait again
            publisher.publish(time.monotonic_ns().to_bytes(8, "little"))
            if not arrived.acquire(timeout=_LOST_S):
                message = "a record did not arrive"
                raise TimeoutError(message)


def _receive(link: Link, url: str, records: int, arrived: Any) -> list[float]:
    latencies: list[float] = []
    with lockstep.connect(url) as bus, bus.subscriber(STREAM, initial="earliest") as subscriber:
        link.ready()
        while len(latencies) < records:
            batch = subscriber.poll(1.0)
            now = time.monotonic_ns()
            for value in batch.values():
                latencies.append((now - int.from_bytes(value, "little")) / 1e6)
                arrived.release()
    return latencies
