"""A bus in virtual time on which requests are asked and answered."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

from lockstep.engine.runtime.requests.channel import Request, RequestClient, RequestServer
from lockstep.engine.runtime.sequence.streams import REQUESTS, ProjectStreams
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.memory import MemoryBroker
from lockstep.testing.virtual import VirtualRuntime

STREAMS = ProjectStreams(cluster="local", project="trades")
REQUEST = Request("id1", "query", {"of": "windows"}, STREAMS.replies("r1"), 5)


class World:
    """A bus in virtual time, an asker, and engines whose loops run while somebody waits."""

    def __init__(self) -> None:
        self.clock = VirtualRuntime()
        self.bus = MemoryBroker().bus(self.clock)
        self.log = self.bus.create(STREAMS.requests, REQUESTS)
        self.asker = RequestClient(self.bus, STREAMS, self.clock)
        self.failed: list[BaseException] = []

    def answerer(self, engine: str = "one") -> RequestServer:
        return RequestServer(self.bus, STREAMS, engine, self.clock)

    def engine(self, act: Callable[[RequestServer, Request], None], name: str = "one", *, after: float = 0.0) -> None:
        """An engine that leads from some time on, and looks every tenth of a second."""
        answerer, begins = self.answerer(name), self.clock.monotonic() + after

        def step() -> float:
            if self.clock.monotonic() >= begins:
                for request in answerer.waiting():
                    act(answerer, request)
            return 0.1

        self.clock.spawn(name, step, self.clock.waiter(), self.failed.append)
        self.clock.run_until_idle()

    def put(self, *values: bytes) -> None:
        self.log.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0) for value in values])

    def ask_raw(self, request: Request) -> None:
        self.put(json.dumps(dataclasses.asdict(request)).encode())

    def reply_streams(self) -> list[str]:
        return [name for name in self.bus.names() if name.startswith(STREAMS.replies(""))]


def echo(answerer: RequestServer, request: Request) -> None:
    answerer.answer(request, {"kind": request.kind, **request.params})
