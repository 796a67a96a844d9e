"""Simulated agents: any number of clients and checks in one process, for benchmarks and drills.

Each client sends a keepalive every 20 s and each of its checks a result each interval, spread evenly, with the numbers
that agents give. Whole batches are published, so that one process can be a large fleet.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.monitor import SENSU_VERSION
from lockstep.monitor.agent.agent import KEEPALIVE_S
from lockstep.monitor.transport.streams import MonitorStreams
from lockstep.streams.client import Lockstep

Json = dict[str, Any]
SLICE_S = 0.1
_TELL_S = 5.0
_IN_FLIGHT = 8
_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a fleet is simulated, and what share of its results fails."""

    clients: int
    checks: int
    interval_s: float
    failing: float = 0.03
    seed: int = 0
    members: str = ""
    """What each check of a result has besides, as JSON that begins with a comma."""


class Client:
    """One simulated agent: its numbers, and the texts that stay the same."""

    __slots__ = ("_keepalive", "_prefix", "_suffix", "agent", "keepalives", "key", "name", "results")

    def __init__(
        self, name: str, start_id: str, subscriptions: tuple[str, ...] = ("swarm",), members: str = ""
    ) -> None:
        self.name, self.agent = name, start_id
        self.key = f"r:{name}".encode()
        self.results = self.keepalives = 0
        own: Json = {
            "name": name,
            "address": "127.0.0.1",
            "subscriptions": [*subscriptions, f"client:{name}"],
            "version": SENSU_VERSION,
        }
        self._keepalive = json.dumps(own, separators=(",", ":"))[:-1]
        self._prefix = f'{{"client":"{name}","_agent":"{start_id}-r","_n":'
        self._suffix = f',"duration":0.012,"interval":60,"standalone":true{members}}}}}'

    def result(self, check: str, status: int, now: int) -> bytes:
        """The next result of a check."""
        self.results += 1
        return (
            f'{self._prefix}{self.results},"check":{{"name":"{check}","status":{status},"output":"{_OUTPUTS[status]}",'
            f'"issued":{now},"executed":{now}{self._suffix}'
        ).encode()

    def keepalive(self, now: int) -> bytes:
        """The next keepalive."""
        self.keepalives += 1
        return f'{self._keepalive},"timestamp":{now},"_agent":"{self.agent}-k","_n":{self.keepalives}}}'.encode()


_OUTPUTS = ("OK - all is well", "WARNING - near the limit", "CRITICAL - does not answer", "UNKNOWN - no data")


class Swarm:
    """The agents of a plan, publishing into one monitor."""

    def __init__(
        self,
        bus: Lockstep,
        name: str,
        plan: Plan,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._plan, self._wall, self._monotonic, self._sleep = plan, wall, monotonic, sleep
        self._publisher = bus.publisher(MonitorStreams(name).input)
        chance = random.Random(plan.seed)
        start = f"{int(wall() * 1000):x}"
        self.clients = [
            Client(f"swarm-{number:05d}", f"{start}{number:x}", members=plan.members) for number in range(plan.clients)
        ]
        self._checks = [f"check-{number:02d}" for number in range(plan.checks)]
        self._chance = chance
        self.published = self.keepalives = self.failing = 0
        self._results_due = self._keepalives_due = 0
        self._waiting: list[Any] = []

    def run(
        self,
        seconds: float | None,
        tell: Callable[[Json], None] = lambda _: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Json:
        """Publish until the time is over, `is_over` says so, or Ctrl-C; what was done."""
        begin, told = self._monotonic(), 0.0
        worst = 0.0
        try:
            while not is_over() and (seconds is None or self._monotonic() - begin < seconds):
                passed = self._monotonic() - begin
                self.publish_due(passed if seconds is None else min(passed, seconds))
                late = self._monotonic() - begin - passed
                worst = max(worst, late)
                if passed - told >= _TELL_S:
                    told = passed
                    tell(self._counts(passed, late))
                self._sleep(max(SLICE_S - late, 0.0))
        except KeyboardInterrupt:  # Ctrl-C ends it, and what was counted so far is told
            pass
        if seconds is not None and not is_over():
            self.publish_due(seconds)
        self._settle(0)
        return self._counts(self._monotonic() - begin, worst)

    def publish_due(self, passed: float) -> None:
        """Publish everything that is due after so many seconds, in the order of its times."""
        plan = self._plan
        total = plan.clients * plan.checks
        due = int(passed * total / plan.interval_s)
        keepalives_due = int(passed * plan.clients / KEEPALIVE_S) + plan.clients  # each sends one when it starts
        while self._keepalives_due < keepalives_due:
            stop = min(self._keepalives_due + _BATCH, keepalives_due)
            self._send_keepalives(range(self._keepalives_due, stop))
            self._keepalives_due = stop
        while self._results_due < due:
            stop = min(self._results_due + _BATCH, due)
            self._send_results(range(self._results_due, stop))
            self._results_due = stop

    def _send_keepalives(self, turns: range) -> None:
        now = int(self._wall())
        clients = [self.clients[turn % len(self.clients)] for turn in turns]
        self._send([client.keepalive(now) for client in clients], [f"k:{client.name}".encode() for client in clients])
        self.keepalives += len(clients)

    def _send_results(self, turns: range) -> None:
        now, count, clients, checks = int(self._wall()), len(self.clients), self.clients, self._checks
        values, keys, chance, share = [], [], self._chance.random, self._plan.failing
        for turn in turns:
            client = clients[turn % count]
            status = 0
            if chance() < share:
                status = 1 + turn % 2
                self.failing += 1
            values.append(client.result(checks[turn // count % len(checks)], status, now))
            keys.append(client.key)
        self._send(values, keys)
        self.published += len(values)

    def _send(self, values: list[bytes], keys: list[bytes]) -> None:
        self._waiting.append(self._publisher.publish_many(values, keys=keys))
        self._settle(_IN_FLIGHT)

    def _settle(self, left: int) -> None:
        """Wait until at most so many batches are under way; a batch that failed ends the run."""
        while len(self._waiting) > left:
            self._waiting.pop(0).wait()

    def _counts(self, seconds: float, late: float) -> Json:
        return {
            "clients": self._plan.clients,
            "results": self.published,
            "failing": self.failing,
            "keepalives": self.keepalives,
            "seconds": round(seconds, 2),
            "results_per_s": round(self.published / max(seconds, 1e-9), 1),
            "behind_s": round(late, 2),
        }
