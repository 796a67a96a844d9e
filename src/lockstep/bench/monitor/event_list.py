"""A large fleet with many open events: how long the API takes to list them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import lockstep
from lockstep.bench.monitor.loads import NAME, SETTINGS
from lockstep.bench.monitor.servers import Json, leader, servers, site
from lockstep.drill import measure
from lockstep.monitor.transport.streams import MonitorStreams

Say = Callable[[str], None]
_BATCH = 2_000
_SEEN_S, _LOOK_S = 120.0, 0.5
TRIES = 20


def list_events(runner: str, clients: int, events: int, say: Say) -> Json:
    """Seconds of GET /events and GET /clients, with everything in the answer."""
    with site(runner, SETTINGS) as place:
        say("starting a server")
        with servers(place) as [server], lockstep.connect(place.url) as bus:
            leader([server])
            with bus.publisher(MonitorStreams(NAME).input) as publisher:
                say(f"{clients} clients, {events} events")
                for keys, values in _messages(clients, events):
                    publisher.publish_many(values, keys=keys).wait()
            api = server.client
            end = time.monotonic() + _SEEN_S
            while len(api.events()) < events and time.monotonic() < end:
                time.sleep(_LOOK_S)
            others = measure.Others()
            took = {name: _timed(lambda: api.get(name)) for name in ("events", "clients")}  # noqa: B023
            return {
                "clients": len(api.clients()), "events": len(api.events()),
                **{f"{name}_s": times for name, times in took.items()}, "others_cores": others.cores(),
            }  # fmt: skip


def _timed(ask: Callable[[], object]) -> dict[str, float]:
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
    return {name: round(measure.percentile(times, at), 4) for name, at in (("p50", 50), ("max", 100))}


def _messages(clients: int, events: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Keepalives of all, then a failing result of each of the first clients, or more than one."""
    names = [f"host-{number:05d}" for number in range(clients)]
    own = [{"name": name, "address": "10.0.0.1", "subscriptions": ["linux"], "keepalives": False} for name in names]
    everything = [(f"k:{each['name']}".encode(), json.dumps(each).encode()) for each in own]
    everything += [
        (f"r:{names[number % clients]}".encode(), _failing(names[number % clients], number // clients))
        for number in range(events)
    ]
    for at in range(0, len(everything), _BATCH):
        part = everything[at : at + _BATCH]
        yield [key for key, _ in part], [value for _, value in part]


def _failing(client: str, number: int) -> bytes:
    now = int(time.time())
    check = {
        "name": f"disk-{number}", "status": 2, "output": "CRITICAL - / is 97 % full", "issued": now, "executed": now,
        "command": "check_disk -w 10 -c 5", "interval": 60, "standalone": True, "occurrences": 3, "refresh": 1800,
    }  # fmt: skip
    return json.dumps({"client": client, "check": check}).encode()
