"""Engines as processes on a real server, without Spark; and somebody who publishes, subscribes and knows the answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
from cluster_oracle import Oracle, Recorder
from failover_worlds import WANTED
from kernel_worlds import texts
from run_worlds import sums_graph, trade

from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.frames import encode_frame
from lockstep.engine.runtime.output.event_streams import OutFold
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep

HERE = Path(__file__).parent
LEASE_S, LONG_LEASE_S = 0.5, 2.0
"""Redis answers within a millisecond; the others need longer on a busy machine."""
BOUND_S = 90.0
SOURCE = "q/in"


class EngineProcess:
    """One engine; what it says is in `said`."""

    def __init__(self, url, name, folder):
        self.name, self.said = name, []
        lease_s = LEASE_S if url.startswith("redis") else LONG_LEASE_S
        path = os.pathsep.join([*sys.path, str(HERE), str(HERE.parent)])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "engine_process.py"), url, name, str(folder), str(lease_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    @property
    def is_alive(self):
        return self._process.poll() is None

    @property
    def role(self):
        """The role that it said last."""
        return next((words["role"] for words in reversed(self.said) if "role" in words), None)

    @property
    def error(self):
        """The code that it ended with, or None."""
        return next((words["error"] for words in self.said if "error" in words), None)

    def kill(self):
        self._process.kill()
        self._process.wait(BOUND_S)
        self._thread.join(BOUND_S)
        self._process.stdin.close()
        self._process.stdout.close()

    def _hear(self):
        for line in self._process.stdout:
            if line.startswith("{"):
                self.said.append(json.loads(line))


class EngineWorld:
    """A project on a bus, at a URL that no fault touches."""

    def __init__(self, url, folder):
        self._url, self._folder = url, folder
        self._runtime = ThreadRuntime()
        self.graph = sums_graph()
        self.streams = ProjectStreams(cluster="local", project=self.graph.project.name)
        self.engines = {}
        self.sent = 0
        self.open()

    def open(self):
        """Connect; again, if the bus had to be closed."""
        self.bus = open_bus(self._url, self._runtime)
        self.streams.create(self.bus, self.graph, WANTED)
        client = Lockstep(self.bus, self._runtime)
        self._publisher = client.publisher(self.streams.input(self.graph.find(SOURCE)), create=False)

    def start(self, name, url=None):
        """An engine, perhaps over another way to the same bus."""
        folder = self._folder / f"{name}-{len(self.engines)}"
        self.engines[name] = EngineProcess(url or self._url, name, folder)
        return self.engines[name]

    def publish(self, count):
        """So many blocks of one trade; all are stored when it returns."""
        schema, number = self.graph.find(SOURCE).schema, np.array([1], np.int64)
        for _ in range(count):
            self.sent += 1
            events = [trade(self.sent, symbol="ABC"[self.sent % 3], price=self.sent / 4)]
            self._publisher.publish(encode_frame(EventBatch.of(schema, [(1, events)]), numbers=number))
        self._publisher.flush()

    def until(self, is_so, what):
        end, pause = self._runtime.monotonic() + BOUND_S, self._runtime.waiter()
        while not is_so():
            said = {name: engine.said for name, engine in self.engines.items()}
            assert self._runtime.monotonic() < end, f"{what} did not come true: {said}"
            pause.wait(0.05)

    def until_active(self, *names):
        self.until(lambda: any(self.engines[name].role == "active" for name in names), f"one of {names} is active")

    def settle(self):
        """Return when everything that was published is out, and is what the interpreter says, byte for byte."""
        self.until(self.is_out, "everything is out")

    def input_events(self):
        """How many events are on the input: on a bus that lost some, fewer than were sent."""
        log = self.bus.open(self.streams.input(self.graph.find(SOURCE)))
        return sum(1 for _ in values_between(log, log.bounds().first, log.bounds().next))

    def is_out(self):
        """Whether everything that was published is out; fails if anything else is."""
        oracle = Oracle.of(Recorder(self.bus, self.streams), self.graph)
        if oracle.events < self.sent:
            return False
        assert oracle.events == self.sent, "an event counted twice"
        for path in WANTED:
            got, wanted = self._got(path), oracle.answer[path]
            assert got == wanted[: len(got)], path
            if len(got) < len(wanted):
                return False
        return True

    def _got(self, path):
        """What a subscriber that reads from the beginning gets."""
        node = self.graph.find(path)
        log = self.bus.open(self.streams.output(node))
        fold, found = OutFold(log.name, node.schema, 0), []
        for offset, value in values_between(log, log.bounds().first, log.bounds().next):
            for number, events in fold.take(offset, value).blocks():
                found += texts(number, events)
        return found

    def close(self):
        for engine in self.engines.values():
            engine.kill()
        self.bus.close()
