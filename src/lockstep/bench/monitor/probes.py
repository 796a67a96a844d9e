"""One client of the fleet whose results say when they were published, and when they can be seen."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from lockstep.drill.measure import percentiles
from lockstep.errors import LockstepError
from lockstep.monitor.client import MonitorClient
from lockstep.monitor.transport.streams import MonitorStreams
from lockstep.streams.client import Lockstep

CLIENT, CHECK = "bench-probe", "probe"
_EVERY_S = 0.1
_ERRORS_MAX = 100


class Probe:
    """Publishes numbered results of one client."""

    def __init__(self, bus: Lockstep, name: str, client: str = CLIENT) -> None:
        self._publisher = bus.publisher(MonitorStreams(name).input)
        self._client, self._agent, self._sent = client, f"{time.time_ns():x}", 0
        own = {"name": client, "address": "127.0.0.1", "subscriptions": [], "keepalives": False}
        key = f"k:{client}".encode()
        self._publisher.publish(json.dumps(own).encode(), key=key).result(30)

    def result(self, check: str, status: int, output: str, **more: Any) -> None:
        """Publish a result; it returns when that is stored."""
        self._sent += 1
        now = int(time.time())
        made = {"name": check, "status": status, "output": output, "issued": now, "executed": now, **more}
        message = {"client": self._client, "_agent": self._agent, "_n": self._sent, "check": made}
        data = json.dumps(message, separators=(",", ":")).encode()
        self._publisher.publish(data, key=f"r:{self._client}".encode()).result(30)


class LagProbe:
    """Publishes a result ten times a second, and asks a server until it shows it. In a thread of its own."""

    def __init__(self, bus: Lockstep, name: str, ask: Callable[[], MonitorClient]) -> None:
        self._probe, self._ask = Probe(bus, name), ask
        self._published: dict[int, float] = {}
        self._lags: list[tuple[float, float]] = []
        self._over = threading.Event()
        self.errors = 0
        self._thread = threading.Thread(target=self._run, name="lockstep-bench-lag", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._over.set()
        self._thread.join(30)

    def lags(self, since: float) -> list[float]:
        """Seconds from publication to sight, of what was published after a monotonic time."""
        now = time.monotonic()
        waiting = [now - at for at in list(self._published.values()) if at >= since]
        return [lag for at, lag in list(self._lags) if at >= since] + waiting

    def figures(self, since: float) -> dict[str, float]:
        """Their percentiles in seconds."""
        return percentiles(self.lags(since))

    def _run(self) -> None:
        number = 0
        while not self._over.wait(_EVERY_S) and self.errors < _ERRORS_MAX:
            number += 1
            self._published[number] = time.monotonic()
            try:
                self._probe.result(CHECK, 0, str(number), standalone=True)
                self._look()
            except LockstepError:
                self.errors += 1

    def _look(self) -> None:
        shown = int(self._ask().get("results", CLIENT, CHECK)["check"]["output"])
        now = time.monotonic()
        for number in [number for number in self._published if number <= shown]:
            at = self._published.pop(number)
            self._lags.append((at, now - at))
