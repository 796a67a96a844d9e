"""How long a group stands still when its reader is killed, and when it leaves in order."""

from __future__ import annotations

import signal
import time
from typing import Any

import lockstep
from lockstep.bench.processes import Crew, Link
from lockstep.bench.scratch import make_stream, scratch_bus
from lockstep.drill import measure

STREAM, GROUP = "bench", "readers"
_EVERY_S = 0.005
_TRIAL_S_MAX = 30.0


def takeover(*, trials: int = 20, members: int = 6, kill: bool = True, durability: str = "relaxed") -> dict[str, Any]:
    """Seconds from the kill, or from the begin of close(), to the first record that the next reader has."""
    times: list[float] = []
    while len(times) < trials:
        times += _round(min(members - 1, trials - len(times)), members, kill, durability)
    return {
        "seconds": measure.percentiles(times),
        "worst_s": round(max(times), 3),
        "trials": len(times),
        "members": members,
        "how": "killed" if kill else "closed",
        "durability": durability,
    }


def _round(trials: int, members: int, kill: bool, durability: str) -> list[float]:
    """A group loses one reader after the other until the trials are done."""
    times = []
    with scratch_bus(durability) as url, Crew() as crew:
        make_stream(url, STREAM, 100_000)
        for _ in range(members):
            crew.start(_read, url)
        crew.start(_publish, url)
        crew.go()
        reader, _ = _next_reader(crew)
        for _ in range(trials):
            ended = _end(crew, reader, kill)
            reader, first = _next_reader(crew)
            times.append(first - ended)
        crew.finish()
    return times


def _end(crew: Crew, reader: int, kill: bool) -> float:
    if kill:
        at = time.monotonic()
        crew.signal(reader, signal.SIGKILL)
        return at
    crew.finish_one(reader)
    kind, what = crew.hear(reader, _TRIAL_S_MAX)
    assert kind == "told", "a member that leaves says when"
    assert what[0] == "closing", what
    return float(what[1])


def _next_reader(crew: Crew) -> tuple[int, float]:
    """The reader that got a first record, and when."""
    end = time.monotonic() + _TRIAL_S_MAX
    while time.monotonic() < end:
        for number, kind, what in crew.hear_any(0.1):
            if kind == "told" and what[0] == "first":
                return number, what[1]
    message = f"nobody took over within {_TRIAL_S_MAX:.0f} s"
    raise TimeoutError(message)


def _read(link: Link, url: str) -> None:
    with lockstep.connect(url) as bus, bus.subscriber(STREAM, group=GROUP) as subscriber:
        link.ready()
        is_first = True
        while not link.is_over():
            if not subscriber.poll(0.05):
                continue
            if is_first:
                link.tell(("first", time.monotonic()))
                is_first = False
            subscriber.confirm()
        link.tell(("closing", time.monotonic()))


def _publish(link: Link, url: str) -> None:
    with lockstep.connect(url) as bus, bus.publisher(STREAM) as publisher:
        link.ready()
        while not link.is_over():
            publisher.publish(b"x" * 100)
            time.sleep(_EVERY_S)
