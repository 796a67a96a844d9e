"""The engines of a drill: who leads, the servers below them, whether the bus can be written to."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

from lockstep.dev.home import Home
from lockstep.dev.node import Node
from lockstep.dev.servers import RECIPES, RunningServer, own_environment, start
from lockstep.drill.arrivals import Takeover, takeover
from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.processes import Child
from lockstep.engine.runtime.control.reports import Report
from lockstep.errors import BadArgument
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus
from lockstep.runtime import ThreadRuntime

ACTIVE = "active"


class EngineCommand(Protocol):
    """How an engine is started."""

    def __call__(
        self, name: str, *, model: Path, url: str, state: Path, cluster: str, window: str, lease_s: float
    ) -> Sequence[str]:
        """The words of the command."""


@dataclass(slots=True)
class EngineSeat:
    """A place for an engine: one process after the other, all with the same name and the same folder."""

    name: str
    command: Sequence[str]
    log: Path
    child: Child | None = None
    is_ready: bool = False
    role: str = ""
    epoch: int = 0
    report: Report | None = None
    buffer_peak: int = 0
    takeovers: list[Takeover] = field(default_factory=list)

    def start(self) -> None:
        """A new process."""
        self.is_ready, self.role, self.report = False, "", None
        self.child = Child(self.name, self.command, self.log)

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.child is not None and self.child.code is None

    @property
    def leads(self) -> bool:
        """Whether it said so, and is there."""
        return self.is_alive and self.role == ACTIVE

    @property
    def block(self) -> int:
        """The last block that the running process has computed, by its own word."""
        return self.report.block if self.report else 0

    def listen(self) -> None:
        """Take in what its process printed."""
        for at, line in self.child.lines() if self.child else []:
            told = _parsed(line)
            if told.get("event") == "ready":
                self.is_ready = True
                self.role = told.get("role", self.role)
            elif told.get("event") == "role":
                self.role = told["role"]
                if self.role == ACTIVE:
                    self.epoch = int(told.get("epoch", 0))
                    self.takeovers.append(takeover(at, self.name, told))

    def hear(self, report: Report) -> None:
        """A report under its name; one of an earlier process says nothing of this one."""
        self.buffer_peak = max(self.buffer_peak, report.buffer_peak_blocks)
        if self.child is not None and report.pid == self.child.pid:
            self.report = report
            self.epoch = max(self.epoch, report.epoch)


def leader(seats: Sequence[EngineSeat]) -> EngineSeat | None:
    """Who leads: the one with the newest epoch of those that say so."""
    return max((seat for seat in seats if seat.leads), key=lambda seat: seat.epoch, default=None)


def engine_command(
    name: str, *, model: Path, url: str, state: Path, cluster: str, window: str, lease_s: float
) -> list[str]:
    """How an engine is started: as anybody would do it."""
    return [
        sys.executable, "-m", "lockstep.cli.main", "engine", "run", str(model), "--bus", url, "--state", str(state),
        "--name", name, "--cluster", cluster, "--publish", window, "--lease", str(lease_s), "--json",
    ]  # fmt: skip


def spark_words(options: DrillOptions) -> list[str]:
    """Return an engine's options for a Spark cluster; by default it takes a slot on each of two workers."""
    if options.master is None:
        return [word for name, value in options.conf for word in ("--conf", f"{name}={value}")]
    conf = {"spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "768m", **dict(options.conf)}
    return ["--master", options.master, *(word for item in conf.items() for word in ("--conf", "=".join(item)))]


def _parsed(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


class Machines:
    """The nodes that a drill may kill, for each kind of fault that kills one."""

    def __init__(self, servers: Mapping[Fault, RunningServer]) -> None:
        self._servers = servers
        self._turns = {kind: cycle(server.nodes) for kind, server in servers.items()}
        self._down: list[tuple[RunningServer, Node]] = []

    def kill(self, kind: Fault) -> str:
        """End the next one in turn with -9, and all that it started; one that is alone starts again at once."""
        server, node = self._servers[kind], next(self._turns[kind])
        node.kill()
        self._down.append((server, node))
        if len(server.nodes) == 1:
            self.revive()
        return node.name

    def revive(self) -> list[str]:
        """Start again what is down; the names of those."""
        down, self._down = self._down, []
        for server, _ in down:
            server.start()  # and has it written down, so that `lockstep dev down` finds the new process
        return [node.name for _, node in down]


def machines(options: DrillOptions, environ: Mapping[str, str] | None = None) -> Machines:
    """Those that the faults of a drill need; BadArgument if one was not started by `lockstep dev`."""
    environ = own_environment(os.environ if environ is None else environ)
    wanted = {Fault.SERVER: ("--bus", options.bus), Fault.SPARK_WORKER: ("--master", options.master)}
    needed = {kind: given for kind, given in wanted.items() if kind in options.kinds}
    return Machines({kind: _found(kind, *given, options.servers, environ) for kind, given in needed.items()})


def _found(kind: Fault, name: str, url: str | None, folder: Path | None, environ: Mapping[str, str]) -> RunningServer:
    runtime = ThreadRuntime()
    home = Home(folder, runtime, environ, lambda _: None)
    for server in home.servers():
        if url is not None and _place(server.url) == _place(url) and server.is_running:
            return start(RECIPES[server.name](), server.folder, runtime=runtime, environ=environ)
    reason = (
        f"--fault {kind} ends a process of a server that 'lockstep dev up' started, and none in {home.folder} is it"
    )
    raise BadArgument(name=name, value=url, reason=reason)


def _place(url: str) -> str:
    """Return the URL without its options."""
    return url.partition("?")[0].rstrip("/")


_ANSWER_S, _END_S_MAX = 0.3, 30.0


class Probe:
    """Writes to a small stream of its own, in a thread that may have to wait."""

    def __init__(self, bus: Bus, stream: str) -> None:
        self._log = bus.create(stream, StreamConfig(capacity=10))
        self._thread: threading.Thread | None = None

    def is_writable(self) -> bool:
        """Whether a write is done within a moment."""
        self.wait()
        self._thread = threading.Thread(target=self._write, name="probe", daemon=True)
        self._thread.start()
        self._thread.join(_ANSWER_S)
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Until the last write is done."""
        if self._thread is not None:
            self._thread.join(_END_S_MAX)

    def _write(self) -> None:
        self._log.append([pack([b"?"], producer=NO_PRODUCER, sequence=0, created_ns=0)])
