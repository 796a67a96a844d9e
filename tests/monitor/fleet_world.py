"""A fleet with its view and its API, without an engine between them: what is sent is taken at once."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager

from lockstep.monitor.core.fleet import Fleet
from lockstep.monitor.core.output import Output
from lockstep.monitor.view import FleetView, RowChange
from lockstep.runtime import ThreadRuntime
from lockstep.server.monitor import MonitorServer
from lockstep.server.monitor.site import MonitorSite, QueueFigures, TransportFigures

START_S = 1_800_000_000


class FleetWorld:
    """Takes orders and results as servers send them, and ticks when it is told to."""

    def __init__(self, folder, **settings):
        self.fleet, self.view = Fleet(), FleetView(folder)
        self.block, self.now = 0, START_S
        self.notices = []
        self.is_away = False
        self.figures = TransportFigures(keepalives=QueueFigures(0, 1), results=QueueFigures(3, 1))
        self.tick()
        self.send("settings", {"settings": settings, "digest": "d1", "by": "test"})
        self.tick()

    def take(self, key, document):
        out = Output()
        self.block += 1
        self.fleet.take(key, json.dumps(document).encode(), self.block, out)
        self._apply(out)

    def tick(self, seconds=1):
        for _ in range(seconds):
            out = Output()
            self.block += 1
            self.now += 1
            self.fleet.tick(self.now * 1_000_000, False, self.block, out)
            self._apply(out)

    def _apply(self, out):
        self.notices += out.notices
        rows = [RowChange.of(row.id, row.kind, row.client, row.name, row.body) for row in out.rows]
        self.view.apply(rows, str(self.block), self.now)

    # as lockstep.server.monitor.site.Orders

    def send(self, kind, fields):
        order = f"order-{self.block}"
        if not self.is_away:
            self.take(b"o:", {"order": kind, "id": order, **fields})
        return order

    def result(self, client, check):
        self.take(b"r:" + client.encode(), {"client": client, "check": check})
        self.tick()

    def wait(self, order, seconds):
        return not self.is_away

    def deliveries(self, unfinished, limit):
        """One notification that was carried out."""
        return {"items": [] if unfinished else [{"id": "e.1.log", "state": "done"}][:limit], "doubts": []}

    # what tests say

    def keepalive(self, client, **more):
        document = {"name": client, "address": "127.0.0.1", "subscriptions": ["all"], "timestamp": self.now, **more}
        self.take(b"k:" + client.encode(), document)

    def check(self, client, name, status=0, **more):
        made = {"name": name, "status": status, "output": "o", "issued": self.now, "executed": self.now, **more}
        self.result(client, made)


@contextmanager
def served(world, **options):
    """A function that asks the API over HTTP: ask(method, path, body) gives (status, headers, body)."""
    runtime = ThreadRuntime()
    runtime.wall_ns = lambda: world.now * 10**9
    site = MonitorSite(
        world.view, world, runtime, lambda: world.figures, lambda: [{"name": "s1", "role": "active"}],
        is_following=lambda: not world.is_away, deliveries=world.deliveries,
    )  # fmt: skip
    with MonitorServer(site, **options) as server:
        host = server.url.removeprefix("http://")

        def ask(method, path, body=None, headers=None):
            connection = http.client.HTTPConnection(host, timeout=10)
            try:
                data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
                connection.request(method, path, data, headers or {})
                answer = connection.getresponse()
                text = answer.read()
                return answer.status, dict(answer.getheaders()), json.loads(text) if text else None
            finally:
                connection.close()

        ask.url = server.url
        yield ask
