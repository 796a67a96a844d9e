"""What subscribers cost that have nothing to do."""

from __future__ import annotations

import time
from typing import Any

import lockstep
from lockstep.bench import measure
from lockstep.bench.crew import Crew, Link
from lockstep.bench.scratch import make_stream, scratch_bus

STREAM = "bench"
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
