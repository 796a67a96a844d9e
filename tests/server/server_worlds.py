"""A project on a bus in memory with REST over it; the engine is a few lines that say what they are told to say."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.append(str(Path(__file__).parents[1] / "engine"))

from cluster_worlds import World, report_of

from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event
from lockstep.engine.events.frames import encode_frame
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.runtime.control.reports import Report
from lockstep.engine.runtime.requests.channel import Reply
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.port import Bus, Log
from lockstep.server import RestServer, serve

BASE = "/eventStreamProcessing/v1"
ENGINE = "a"


class View:
    """See EngineView. Tests write what it says."""

    engine, cluster = ENGINE, "local"

    def __init__(self, graph: Graph | None = None, wanted: frozenset[str] = frozenset({"q/sums"})) -> None:
        self.world = World(graph, wanted)
        self.model, self.wanted = self.world.graph, wanted
        self.told: Report = report_of(self.model, ENGINE)
        self.silences: Mapping[str, float] = {}
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.reply: Callable[[str], Mapping[str, Any]] = lambda _kind: {}

    def graph(self) -> Graph:
        return self.model

    def report(self) -> Report:
        return self.told

    def heard(self) -> Mapping[str, float]:
        return self.silences

    def bus(self) -> Bus:
        return self.world.bus

    def published(self) -> frozenset[str]:
        return self.wanted

    def ask(self, kind: str, params: Mapping[str, Any], timeout_s: float) -> Reply:
        assert timeout_s > 0
        self.asked.append((kind, params))
        return Reply("1", True, self.reply(kind), None, "leader")

    def out(self, path: str = "q/sums") -> Log:
        return self.bus().open(self.world.streams.output(self._node(path)))

    def put(self, *values: bytes, path: str = "q/sums") -> None:
        """Records onto an out stream, each a batch of its own."""
        batches = [pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0) for value in values]
        self.out(path).append(batches)

    def publish(self, blocks: Sequence[tuple[int, Sequence[Event]]], previous: int, path: str = "q/sums") -> None:
        """One frame onto an out stream."""
        self.put(encode_frame(EventBatch.of(self._node(path).schema, blocks), previous=previous), path=path)

    def _node(self, path: str) -> Node:
        node = self.model.find(path)
        assert node is not None
        return node


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class Client:
    """Asks a server, on a connection of its own each time."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Answer:
        place = urlsplit(self.url)
        assert place.hostname is not None
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
        try:
            connection.request(method, path, body, dict(headers or {}), **more)
            found = connection.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        """A route of ESP's, as JSON."""
        return self("GET", f"{BASE}{path}", headers={"Accept": "application/json", **headers})

    def xml(self, path: str) -> str:
        """A route of ESP's, as XML, without its first line."""
        found = self("GET", f"{BASE}{path}")
        assert found.headers["content-type"].startswith("application/xml")
        return found.text.partition("\n")[2]

    def put(self, path: str, body: Any = None, method: str = "PUT") -> Answer:
        """Change something."""
        return self(method, f"{BASE}{path}", body, {"Accept": "application/json"})


@contextmanager
def served(view: View, **options: Any) -> Iterator[Client]:
    """REST over a view, for a while."""
    server: RestServer = serve(view, **options)
    try:
        yield Client(server.url)
    finally:
        server.stop()
