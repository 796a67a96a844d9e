"""Servers below the engines, where `lockstep dev` started them: one machine of them dies, and comes back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path

from lockstep.dev.home import Home
from lockstep.dev.node import Node
from lockstep.dev.servers import RECIPES, RunningServer, own_environment, start
from lockstep.drill.options import DrillOptions, Fault
from lockstep.errors import BadArgument
from lockstep.runtime import ThreadRuntime


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
    """Without the options behind it."""
    return url.partition("?")[0].rstrip("/")
