"""A scheduler with its HTTP API on a bus in memory or LMDB, and a real receiver on loopback."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

sys.path.append(str(Path(__file__).parents[1] / "schedule"))

from http_receiver import Receiver, receiving
from server_worlds import Answer, Client

import lockstep
from lockstep.schedule.delivery.couriers import CourierOptions, Couriers
from lockstep.schedule.node import NodeOptions
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.store.cells import CellStore
from lockstep.schedule.times import java_text
from lockstep.server.schedule import ScheduleServer
from lockstep.server.serving import bind

WAIT_S = 20.0
FAR = "2090-01-01T00:00Z"


def eventually(condition: Callable[[], Any], what: str = "it", within_s: float = WAIT_S) -> Any:
    """Wait for a condition, and return what it is then."""
    deadline, pause = time.monotonic() + within_s, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        pause.wait(0.01)
    return found


class World:
    """One scheduler served over HTTP."""

    def __init__(self, server: ScheduleServer, scheduler: Scheduler, receiver: Receiver) -> None:
        self.server, self.scheduler, self.receiver = server, scheduler, receiver
        self.ask = Client(server.url)
        self.address = f"[127.0.0.1]:{urlsplit(server.url).port}"
        self._names = 0

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def send(self, method: str, path: str, tree: Any = None) -> Answer:
        return self.ask(method, path, None if tree is None else json.dumps(tree))

    def post(self, path: str, tree: Any = None) -> Answer:
        return self.send("POST", path, tree)

    def schedule(self, *events: Any) -> Answer:
        return self.post("/events/schedule", list(events))

    def item(self, **fields: Any) -> dict[str, Any]:
        """Schedule one event, and return its item."""
        answer = self.schedule(fields)
        assert answer.status in (200, 400), answer.text
        return answer.json[0]

    def find(self, tenant: str, name: str) -> Answer:
        return self.get(f"/events/find?id={quote(name, safe='')}&tenant={quote(tenant, safe='')}")

    def name(self, start: str = "e") -> str:
        """A name that no other test uses."""
        self._names += 1
        return f"{start}{self._names}"

    def http_tenant(self, path: str = "/status/200", **props: Any) -> str:
        """Register a tenant whose events the receiver gets."""
        name = self.name("Tenant/ü ")
        props = {"url": self.receiver.url(path), **props}
        answer = self.post("/events/tenant/register", {"tenant": name, "type": "HTTP", "props": props})
        assert answer.status == 200, answer.text
        return name

    def stream_tenant(self) -> str:
        """Register a tenant whose events go to a stream."""
        name = self.name("stream")
        answer = self.post("/events/tenant/register", {"tenant": name, "type": "MESSAGING", "props": {"topic": name}})
        assert answer.status == 200, answer.text
        return name

    def records(self, stream: str) -> list[Any]:
        with self.scheduler.bus.subscriber(stream, initial="earliest", create=False) as subscriber:
            return list(subscriber.poll(0))

    def got(self, name: str) -> list[Any]:
        """What the receiver got of the event with an id, as (headers, body)."""
        found = []
        for one in list(self.receiver.received):
            headers = {key.lower(): text for key, text in one.headers}
            try:
                tree = json.loads(one.body)
            except ValueError:
                tree = None
            if isinstance(tree, dict) and tree.get("id") == name:
                found.append((headers, tree))
        return found

    def soon(self, seconds: float = 0.4) -> str:
        """A time shortly after now."""
        return java_text(self.scheduler.bus.runtime.wall_ns() // 10**6 + round(seconds * 1000))

    @property
    def history(self) -> list[dict[str, Any]]:
        return [json.loads(record.value) for record in self.records(self.scheduler.streams.history)]


@contextmanager
def scheduling(url: str = "memory:", *, courier: Any = None, **options: Any) -> Iterator[Scheduler]:
    """A scheduler with a node, in a with block."""
    with lockstep.connect(url) as bus:
        made = courier or Couriers(CourierOptions(allow_loopback=True))
        node = NodeOptions(**options)
        open_store = lambda owners: CellStore(bus.bus, "jobs", bus.runtime, owners)  # noqa: E731
        with Scheduler(bus, "jobs", open_store=open_store, courier=made, options=node) as scheduler:
            yield scheduler


@contextmanager
def serving(
    url: str = "memory:", *, token: str | None = None, change_token: str | None = None, answer_s: float = 10.0,
    **options: Any,
) -> Iterator[World]:  # fmt: skip
    """A scheduler with its API and a receiver."""
    bound = bind("127.0.0.1", 0)
    with receiving() as receiver, scheduling(url, port=bound.getsockname()[1], **options) as scheduler:
        more = {"token": token, "change_token": change_token, "bound": bound, "answer_s": answer_s}
        with ScheduleServer(scheduler, **more) as server:
            yield World(server, scheduler, receiver)


class Connected:
    """Requests on one connection, for measurements and raw paths."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        self._connection.request("POST", path, body)
        found = self._connection.getresponse()
        return found.status, found.read()

    def close(self) -> None:
        self._connection.close()
