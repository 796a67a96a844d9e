"""A leading server that is killed with -9, again and again: how late requests are, which are missed or doubled."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import ceil

import lockstep
from lockstep.bench.monitor.loads import NAME, SETTINGS
from lockstep.bench.monitor.servers import Json, ServerProcess, Site, leader, site
from lockstep.drill import measure
from lockstep.errors import LockstepError
from lockstep.monitor.core.rules import splay_of
from lockstep.monitor.transport.streams import MonitorStreams
from lockstep.streams.client import Lockstep

Say = Callable[[str], None]
CHECKS, INTERVAL_S = 40, 8
"""Five requests are due each second; a check's next one only after a takeover is long over."""
_WARM_S, _BETWEEN_S, _LAST_S = 3.0, 6.0, 5.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that was read: its check, when it was due, and when it came, in seconds since 1970."""

    check: str
    due: float
    at: float


def settings() -> Json:
    """Checks that are published to one subscription."""
    check = {"command": "true", "subscribers": ["bench"], "interval": INTERVAL_S}
    return {**SETTINGS, "checks": {f"check-{number:02d}": check for number in range(CHECKS)}}


class Requests:
    """Reads the requests, with the time at which each came. In a thread of its own."""

    def __init__(self, bus: Lockstep) -> None:
        self._subscriber = bus.subscriber(MonitorStreams(NAME).requests, initial="latest")
        self.found: list[Arrival] = []
        self.errors = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lockstep-bench-requests", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._over.set()
        self._thread.join(10)
        self._subscriber.close()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                records = self._subscriber.poll(_POLL_S)
            except LockstepError:
                self.errors += 1
                continue
            now = time.time()
            self.found += [_arrival(json.loads(record.value), now) for record in records]


def _arrival(request: Json, at: float) -> Arrival:
    """A request is given at the first tick at or after it is due; `issued` is the second of that tick."""
    name = request["name"]
    return Arrival(name, last_due(name, request["issued"] + 0.999), at)


def last_due(check: str, at: float) -> float:
    """When a check was due last at a time."""
    splay_s = _splay_s(check)
    return (at - splay_s) // INTERVAL_S * INTERVAL_S + splay_s


def _splay_s(check: str) -> float:
    return splay_of(check) % (INTERVAL_S * 1000) / 1000


def due_between(checks: Sequence[str], since: float, until: float) -> list[tuple[str, float]]:
    """Everything that is due from one time to another."""
    found = []
    for check in checks:
        splay_s = _splay_s(check)
        first = ceil((since - splay_s) / INTERVAL_S)
        last = ceil((until - splay_s) / INTERVAL_S)
        found += [(check, turn * INTERVAL_S + splay_s) for turn in range(first, last)]
    return found


def judged(found: Sequence[Arrival], kills: Sequence[float], since: float, until: float) -> Json:
    """How late the requests were that were due next after each kill, which are missing and which came twice."""
    came = Counter((each.check, round(each.due, 3)) for each in found)
    wanted = {(check, round(due, 3)) for check, due in due_between(settings()["checks"].keys(), since, until)}
    late = []
    for kill in kills:
        following = [each for each in found if each.due >= kill]
        if following:
            first = min(following, key=lambda each: each.due)
            late.append(round(first.at - first.due, 3))
    return {
        "late_s": late, "late_max_s": max(late, default=float("nan")),
        "all_late_s": measure.percentiles([each.at - each.due for each in found]),
        "requests": len(wanted), "missed": len(wanted - came.keys()),
        "duplicated": sum(count - 1 for count in came.values()), "missing": sorted(wanted - came.keys())[:10],
    }  # fmt: skip


def kill_leaders(runner: str, kills: int, say: Say) -> Json:
    """Kill the leading one of two servers after the other, each started again."""
    with site(runner, settings()) as place:
        started = {name: ServerProcess(place, name) for name in ("server-1", "server-2")}
        try:
            for each in started.values():
                each.wait_up()
            with lockstep.connect(place.url) as bus, closing(Requests(bus)) as requests:
                others = measure.Others()
                time.sleep(_WARM_S)
                since = time.time() + 1.0
                at = [_kill(place, started, f"kill {number + 1} of {kills}", say) for number in range(kills)]
                until = time.time() - 1.0
                time.sleep(_LAST_S)
                found = judged(requests.found, at, since, until)
                return {**found, "kills": kills, "runner": runner, "others_cores": others.cores()}
        finally:
            for each in started.values():
                each.close()


def _kill(place: Site, started: dict[str, ServerProcess], what: str, say: Say) -> float:
    """Kill the one that leads, start it again, and wait until it is a standby; when it was killed."""
    victim = leader([*started.values()])
    say(what)
    at = time.time()
    victim.kill()
    started[victim.name] = ServerProcess(place, victim.name)
    started[victim.name].wait_up()
    time.sleep(_BETWEEN_S)
    return at
