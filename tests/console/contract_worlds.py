"""A console on a socket over one bus in memory that has something of everything: what its document is held against."""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

sys.path.append(str(Path(__file__).parents[1] / "engine"))
sys.path.append(str(Path(__file__).parents[1] / "monitor"))

from cluster_worlds import World
from fleet_world import FleetWorld
from run_worlds import put

import lockstep
from lockstep.console.assembly import add_fleets, opened_parts
from lockstep.console.fleets import Fleet, Fleets
from lockstep.console.port import Site
from lockstep.console.server import Console, ConsoleOptions
from lockstep.core.sequence import Entry, Mark
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.runtime.sequence.entries import Decision, Statement, encode
from lockstep.server.access import Role
from lockstep.streams.client import Lockstep

SETTINGS = {
    "checks": {
        "disk": {"command": "check-disk", "subscribers": ["all"], "interval": 60, "handlers": ["log"],
                 "aggregate": "disks", "password": "tell-nobody"},
        "own": {"command": "check-own", "standalone": True, "interval": 60},
    },
    "handlers": {"log": {"type": "pipe", "command": "cat"}},
}  # fmt: skip


class OneFleet(Fleets):
    """A fleet without an engine: what is sent is taken at once."""

    def __init__(self, site: Site, folder: Path) -> None:
        super().__init__(site, folder)
        self.world = FleetWorld(folder / "view", **SETTINGS)
        self._one = Fleet("fleet", self.world.view, lambda: self.world, site.runtime)
        self._one.silent_s = lambda: 0.0  # no engine ticks
        self._world_lock = threading.Lock()
        take = self.world.take
        self.world.take = lambda *given: self._locked(take, *given)

    def _locked(self, take, *given):
        with self._world_lock:
            return take(*given)

    def names(self) -> list[str]:
        return ["fleet"]

    def open(self, name: str) -> Fleet:
        return self._one

    def close(self) -> None:
        super().close()
        self.world.view.close()


@dataclass
class Contract:
    """A served console; `tokens` has one of each role."""

    client: Lockstep
    console: Console
    tokens: dict[Role, str]
    fleet: FleetWorld
    project: World

    @property
    def url(self) -> str:
        return self.console.url

    def ask(
        self, method: str, target: str, body: bytes | None = None, role: Role | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        if role is not None:
            given["Authorization"] = f"Bearer {self.tokens[role]}"
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        try:
            connection.request(method, target, body, given)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()


@contextmanager
def contract(folder: Path) -> Iterator[Contract]:
    """Everything embedded, with data."""
    project = World()
    with ExitStack() as closing:
        client = closing.enter_context(lockstep.connect(project.bus.url))
        _fill_project(project)
        _fill_streams(client, closing)
        scheduler = closing.enter_context(client.scheduler("jobs"))
        scheduler.after("1h", {"a": 1}, id="e1")
        scheduler.every("0 9 * * *", "x", id="c1")
        with client.subscriber("jobs.fired.default", initial="earliest", create=False) as fired:
            scheduler.after("0s", {"a": 2}, id="e0")
            assert fired.poll(20.0)
        parts = closing.enter_context(opened_parts(client, "local", folder))
        site = Site(client, client.runtime, "local")
        fleets = OneFleet(site, folder / "fleet")
        closing.callback(fleets.close)
        _fill_fleet(fleets.world)
        parts.pillars[:] = [pillar for pillar in parts.pillars if pillar.name != "fleet"]
        parts.mounts[:] = [mount for mount in parts.mounts if mount.area != "fleet"]
        add_fleets(site, fleets, parts, closing)
        options = ConsoleOptions(cluster="local")
        console = closing.enter_context(Console(client, options, pillars=parts.pillars, mounts=parts.mounts))
        tokens = {role: console.credentials.issue(role.label, role)[1] for role in Role}
        yield Contract(client, console, tokens, fleets.world, project)


def _fill_project(world: World) -> None:
    for engine, role in (("a", "active"), ("b", "standby")):
        world.report(engine, role=role, at_ns=time.time_ns())
    world.beat(7)
    body = Decision({}, 0, 0, states=Statement(to_yaml(world.graph.project), ("q/sums",))).body()
    log = world.bus.open(world.streams.sequence)
    put(log, encode(Mark(1, "a1")), encode(Entry(1, "a1", 1, "", body)))


def _fill_streams(client: Lockstep, closing: ExitStack) -> None:
    client.create("orders")
    with client.publisher("orders") as publisher:
        for number in range(20):
            publisher.publish(f'{{"number": {number}}}'.encode(), key=b"k").result(5)
    reader = closing.enter_context(client.subscriber("orders", group="readers"))
    reader.poll(5.0)
    reader.confirm()
    client.create("orders.dlq")
    with client.publisher("orders.dlq") as publisher:
        headers = (("dlq-stream", b"orders"), ("dlq-offset", b"3"), ("dlq-reason", b"ValueError"))
        publisher.publish(b"letter", headers=headers).result(5)


def _fill_fleet(world: FleetWorld) -> None:
    for name in ("web-1", "web-2"):
        world.keepalive(name)
    world.check("web-1", "disk", 2, output="disk 99 % used", handlers=["log"], aggregate="disks")
    world.check("web-2", "disk", 0, aggregate="disks")
    world.send("silence", {"entry": {"subscription": "client:web-2", "check": "load", "reason": "known"}})
    world.send("stash", {"path": "note", "content": {"by": "ann"}})
    world.tick()
