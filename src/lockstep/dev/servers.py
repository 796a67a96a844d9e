"""Start a server in a folder of its own; then kill, pause, stop and restart it, whole or process by process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from lockstep.dev import processes as facts
from lockstep.dev.cassandra import cassandra
from lockstep.dev.errors import ServerDidNotStart
from lockstep.dev.hazelcast import hazelcast
from lockstep.dev.kafka import kafka
from lockstep.dev.node import READY_S, STOP_S, Node, tail
from lockstep.dev.postgresql import postgresql
from lockstep.dev.processes import Server, free_ports, is_free
from lockstep.dev.rabbitmq import rabbitmq
from lockstep.dev.recipe import HOST, Plan, Recipe, Site
from lockstep.dev.redis import redis
from lockstep.dev.spark import spark
from lockstep.dev.supply import Supply
from lockstep.dev.zookeeper import zookeeper
from lockstep.runtime import Runtime, ThreadRuntime

__all__ = ["HOST", "RECIPES", "Node", "RunningServer", "Server", "attach", "start"]

PREPARE_S = 100.0
_PORT_TRIES = 3
_PREPARED = "prepared"
_MEANT_FOR_OTHERS = ("RABBITMQ_", "ERL_", "HZ_", "HAZELCAST_", "KAFKA_", "ZOO", "REDIS_", "SPARK_", "PG", "CASSANDRA_")

RECIPES: Mapping[str, Callable[[], Recipe]] = {
    "kafka": kafka,
    "rabbitmq": rabbitmq,
    "redis": redis,
    "hazelcast": hazelcast,
    "zookeeper": zookeeper,
    "kafka3": lambda: kafka(brokers=3),
    "hazelcast3": lambda: hazelcast(members=3),
    "spark": spark,
    "postgresql": postgresql,
    "cassandra": cassandra,
}
"""Every server by the name that it is started with."""


class RunningServer:
    """A server that was started: all its processes, or `nodes[i]` for one of them."""

    def __init__(self, name: str, url: str, folder: Path, ports: tuple[int, ...], processes: tuple[Node, ...]) -> None:
        self.name, self.url, self.folder, self.ports = name, url, folder, ports
        self._processes = processes
        self.nodes = tuple(node for node in processes if not node.process.is_helper)

    @property
    def pid(self) -> int:
        """The number of the first process that serves."""
        return self.nodes[0].pid

    @property
    def port(self) -> int:
        """Where clients connect to the first process that serves."""
        return self.nodes[0].port

    @property
    def is_alive(self) -> bool:
        """Whether any process that serves runs."""
        return any(node.is_alive for node in self.nodes)

    @property
    def facts(self) -> Server:
        """What another process needs to know to find it."""
        pids = {node.name: node.running for node in self._processes if node.running is not None}
        return Server(name=self.name, url=self.url, folder=self.folder, ports=self.ports, pids=pids)

    def start(self, within_s: float = READY_S) -> None:
        """Start what does not run, and return when everything answers."""
        for node in self._processes:
            node.start()
            facts.write(self.facts)  # at once: a process that comes later must be able to end it
            if node.process.is_helper:
                node.wait_ready(within_s)
        self.wait_ready(within_s)

    def wait_ready(self, within_s: float = READY_S) -> None:
        """Return when every process that runs answers and sees the others."""
        alive = [node for node in self.nodes if node.is_alive] or [*self.nodes]
        for node in alive:
            node.wait_ready(within_s, len(alive))

    def kill(self) -> None:
        """End it at once (-9), as a crash would."""
        _kill(self.nodes)

    def pause(self) -> None:
        """Stop it (SIGSTOP), and return when nothing of it runs: connections stay open, and nothing answers."""
        for node in self.nodes:
            node.pause()

    def resume(self) -> None:
        """Let it go on after a pause."""
        for node in self.nodes:
            node.resume()

    def restart(self, within_s: float = READY_S) -> None:
        """Stop what runs, then start everything on the same ports and data; return when it answers."""
        _stop(self.nodes, STOP_S)
        self.start(within_s)

    def stop(self, within_s: float = STOP_S) -> None:
        """Ask every process to end, and end those (-9) that do not in time."""
        _stop(self.nodes, within_s)
        _stop(tuple(node for node in self._processes if node.process.is_helper), within_s)
        facts.write(Server(name=self.name, url=self.url, folder=self.folder, ports=self.ports))

    def destroy(self) -> None:
        """End every process at once (-9), helpers too: for those who throw the folder away."""
        _kill(self._processes)


def start(
    recipe: Recipe,
    folder: Path,
    *,
    supply: Supply | None = None,
    runtime: Runtime | None = None,
    environ: Mapping[str, str] | None = None,
    owner: int | None = None,
) -> RunningServer:
    """Start a server in a folder and return when it answers; in a folder of before, on the same ports and data.

    It outlives this process, unless `owner` is a pid: then it is ended when that process is gone.
    """
    environ, runtime = own_environment(os.environ if environ is None else environ), runtime or ThreadRuntime()
    jars = (supply or Supply(environ, lambda _: None)).provide(recipe)
    folder = folder.resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    before, is_new = facts.read(folder), not any(folder.iterdir())
    tries_left = _PORT_TRIES if is_new else 1
    while True:
        tries_left -= 1
        folder.mkdir(mode=0o700, exist_ok=True)
        ports = _ports(recipe, before, runtime)
        plan = recipe.plan(Site(folder=folder, ports=ports, jars=jars))
        _prepare(recipe.name, plan, folder, environ)
        server = _server(recipe, plan, folder, ports, runtime, environ, owner)
        _adopt(server, before)
        failure = _failure(server)
        if failure is None:
            return server
        if not tries_left or all(map(is_free, ports)):
            raise failure
        shutil.rmtree(folder)  # another process took one of the ports meanwhile, and the folder holds no data yet


def _failure(server: RunningServer) -> ServerDidNotStart | None:
    """Start a server; None if it answers, else what was wrong, and nothing of it runs."""
    try:
        server.start()
    except BaseException as error:
        server.stop()
        if not isinstance(error, ServerDidNotStart):
            raise
        return error
    return None


def attach(recipe: Recipe, found: Server, runtime: Runtime, environ: Mapping[str, str]) -> RunningServer:
    """A server that another process started, to end it."""
    plan = recipe.plan(Site(folder=found.folder, ports=found.ports))
    server = _server(recipe, plan, found.folder, found.ports, runtime, environ, None)
    _adopt(server, found)
    return server


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without settings meant for other servers of the same kind; with the Java of JAVA_HOME first."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_MEANT_FOR_OTHERS)}
    if home := environ.get("JAVA_HOME"):
        kept["PATH"] = f"{home}/bin:{environ.get('PATH', os.defpath)}"
    return kept


def _ports(recipe: Recipe, before: Server | None, runtime: Runtime) -> tuple[int, ...]:
    """The ports it had, unless others have taken them while it was down."""
    if before and (before.alive or all(map(is_free, before.ports))):
        return before.ports
    return free_ports(recipe.port_count, runtime.random)


def _server(
    recipe: Recipe, plan: Plan, folder: Path, ports: tuple[int, ...], runtime: Runtime, environ: Mapping[str, str],
    owner: int | None,
) -> RunningServer:  # fmt: skip
    nodes = tuple(Node(process, folder, runtime, environ, owner) for process in plan.processes)
    return RunningServer(recipe.name, plan.url, folder, ports, nodes)


def _adopt(server: RunningServer, before: Server | None) -> None:
    """Know those processes again that still run."""
    for node in server._processes:
        node.running = before.alive.get(node.name) if before else None


def _prepare(name: str, plan: Plan, folder: Path, environ: Mapping[str, str]) -> None:
    """Write its files; in a new folder, run what has to be run once, all at the same time."""
    for file, text in plan.files.items():
        (folder / file).write_text(text)
    if (folder / _PREPARED).exists():
        return
    log = folder / f"{_PREPARED}.log"
    try:
        with log.open("ab") as out, ExitStack() as stack:
            run = [stack.enter_context(_launch(command, folder, environ, out)) for command in plan.prepare]
            for process in run:
                stack.callback(process.kill)  # before any is awaited, should one of them take too long
            done = all(process.wait(PREPARE_S) == 0 for process in run)
    except subprocess.TimeoutExpired:
        done = False
    if not done:
        raise ServerDidNotStart(name=name, reason="its folder could not be prepared", log=log, tail=tail(log))
    (folder / _PREPARED).touch()


def _launch(command: Sequence[str], folder: Path, environ: Mapping[str, str], out: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - a command of a recipe
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
    )


def _kill(nodes: tuple[Node, ...]) -> None:
    """Signal all before waiting for the first: a cluster that loses members one by one starts to rebalance."""
    for node in nodes:
        node.signal(signal.SIGKILL)
    for node in nodes:
        node.wait_gone()


def _stop(nodes: tuple[Node, ...], within_s: float) -> None:
    for node in nodes:
        node.ask_to_stop()
    for node in nodes:
        node.wait_stopped(within_s)
