"""How long it takes from the publication of a result to the start of its handler, while a fleet sends results."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing

import lockstep
from lockstep.bench.monitor.loads import NAME, SETTINGS, rate_of, swarm
from lockstep.bench.monitor.probes import Probe
from lockstep.bench.monitor.servers import Json, leader, servers, site
from lockstep.bench.processes import Crew
from lockstep.drill import measure
from lockstep.monitor.agent.swarm import Plan

Say = Callable[[str], None]
STAMP, CLIENT = "stamp", "bench-notifier"
_EVERY_S = 0.05
_LAST_S = 30.0
_BYTES = 65_536


class Arrivals:
    """Notes when a handler of type udp sent which output. In a thread of its own."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.settimeout(0.2)
        self.port = int(self._socket.getsockname()[1])
        self.at: dict[int, float] = {}
        self.repeated = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lockstep-bench-arrivals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._over.set()
        self._thread.join(10)
        self._socket.close()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                data = self._socket.recv(_BYTES)
            except TimeoutError:
                continue
            now, number = time.monotonic(), int(data)
            self.repeated += number in self.at
            self.at.setdefault(number, now)


def settings(port: int) -> Json:
    """The handler of the fleet, and one that sends what the check said to a port."""
    own = {"type": "udp", "socket": {"host": "127.0.0.1", "port": port}, "mutator": "only_check_output"}
    return {"handlers": {**SETTINGS["handlers"], STAMP: own}}


def handler_starts(runner: str, plan: Plan, seconds: float, say: Say) -> Json:
    """Seconds from a result to its handler. The results that are timed alternate between failing and well."""
    warm_s = min(2 * plan.interval_s, seconds / 2)
    with closing(Arrivals()) as arrivals, site(runner, settings(arrivals.port)) as place:
        say("starting a server")
        with servers(place) as started, lockstep.connect(place.url) as bus, Crew() as crew:
            leader(started)
            crew.start(swarm, place.url, plan, 3600.0)
            others = measure.Others()
            crew.go()
            time.sleep(warm_s)
            say(f"measuring for {seconds - warm_s:.0f} s")
            begun, cpu_s = time.monotonic(), started[0].cpu_s()
            sent = _send(Probe(bus, NAME, CLIENT), begun + seconds - warm_s)
            cpu_s = started[0].cpu_s() - cpu_s
            _wait(arrivals, len(sent))
            cores = others.cores()
            crew.finish()
            told = crew.answer(0, _LAST_S)
    late = [arrivals.at[number] - at for number, at in enumerate(sent) if number in arrivals.at]
    return {
        "rate": rate_of(plan), "events": len(sent), "lost": len(sent) - len(late), "repeated": arrivals.repeated,
        "late_s": measure.percentiles(late), "fleet_per_s": told["results_per_s"], "runner": runner,
        "cpu_cores": round(cpu_s / max(seconds - warm_s, 1e-9), 2), "others_cores": cores,
    }  # fmt: skip


def _send(probe: Probe, end: float) -> list[float]:
    """Publish a change of status each time, of one check after the other; when each was published."""
    sent: list[float] = []
    while time.monotonic() < end:
        number = len(sent)
        sent.append(time.monotonic())
        probe.result(f"check-{number // 2 % 10}", 0 if number % 2 else 2, str(number), handler=STAMP, standalone=True)
        time.sleep(max(0.0, sent[-1] + _EVERY_S - time.monotonic()))
    return sent


def _wait(arrivals: Arrivals, wanted: int) -> None:
    end = time.monotonic() + _LAST_S
    while len(arrivals.at) < wanted and time.monotonic() < end:
        time.sleep(_EVERY_S)
