"""`lockstep schedule serve`: one node in this process, or several as processes that are watched and started again."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import BUS_VARIABLE, bus_url, opened
from lockstep.cli.output import CODES, Output, Stopping
from lockstep.cli.schedule_events import STORE_VARIABLE, store_url
from lockstep.errors import LockstepError, TimedOut, UnsupportedByBackend, UsageError
from lockstep.log.urls import split_url
from lockstep.runtime import logger

if TYPE_CHECKING:
    import socket

    from lockstep.schedule.inflow import KafkaInflow
    from lockstep.schedule.scheduler import Scheduler
    from lockstep.schedule.settings import Settings

_CHILD = "LOCKSTEP_SCHEDULE_CHILD"
"""Set for a node that another process watches: it ends when its standard input does."""
_LOOK_S = 0.2
_LINE_BYTES = 1 << 16
_STOP_S = 15.0
_INFLOW_S = 5.0
_PAUSE_S, _PAUSE_MAX_S, _STEADY_S = 0.5, 30.0, 30.0
"""A node that died starts again after a pause, which doubles unless it had run for a while."""


def serve(options: argparse.Namespace, output: Output) -> int:
    """Serve until asked to end."""
    from lockstep.schedule.settings import NODES_MAX, Settings

    settings = Settings.loaded(options.config, options.settings_given, os.environ)
    for line in settings.ignored_lines():
        output.warn(line)
    port = settings.port if options.http is None else options.http
    nodes = options.nodes or settings.instances
    if nodes > NODES_MAX:
        raise UsageError(reason=f"{nodes} nodes are more than the {NODES_MAX} that one command starts.")
    if port and port + nodes - 1 > 65_535:
        raise UsageError(reason=f"--http {port} leaves no ports for {nodes} nodes.")
    if nodes > 1 and split_url(url := bus_url(options))[0] == "memory":
        raise UnsupportedByBackend(bus=url, feature=f"be shared by {nodes} nodes, which are processes of their own")
    if options.change_store:
        _change_store(options)
    with Stopping().listening() as stopping:
        if nodes > 1:
            return Supervisor(options, output, stopping, port, nodes).run()
        return _serve_here(options, output, stopping, port, settings)


def _change_store(options: argparse.Namespace) -> None:
    from lockstep.schedule.assembly import change_store

    with opened(bus_url(options), create=True) as bus:
        change_store(bus, options.name, store_url(options))


# one node


def _serve_here(options: argparse.Namespace, output: Output, stopping: Stopping, port: int, settings: Settings) -> int:
    from lockstep.schedule.assembly import open_courier, open_scheduler
    from lockstep.schedule.node import NodeOptions
    from lockstep.server.serving import bind

    if _CHILD in os.environ:
        threading.Thread(target=_follow_parent, args=(stopping,), name="lockstep-parent", daemon=True).start()
    with bind(options.host, port, "The scheduler's API") as bound, opened(bus_url(options), create=True) as bus:
        courier = open_courier(bus.runtime, host=options.host, **settings.courier_fields())
        chosen = NodeOptions(host=options.host, port=bound.getsockname()[1], **settings.node_fields())
        with (
            open_scheduler(
                bus,
                options.name,
                node=settings.is_node,
                store=store_url(options),
                options=chosen,
                node_name=options.node_name,
                courier=courier,
            ) as scheduler,
            _inflows(scheduler, settings) as inflows,
            _http(scheduler, bound, options) as url,
        ):
            _tell_started(output, scheduler, url)
            _work(scheduler, inflows, stopping)
    _tell(output, {"event": "stopped", "url": url}, f"Stopped {url}.")
    return stopping.code


@contextmanager
def _http(scheduler: Scheduler, bound: socket.socket, options: argparse.Namespace) -> Iterator[str]:
    """The HTTP API of a scheduler while it runs; its address."""
    from lockstep.server import read_token
    from lockstep.server.schedule import ScheduleServer

    token = read_token(options.token_file) if options.token_file else None
    change = read_token(options.change_token_file) if options.change_token_file else None
    with ScheduleServer(scheduler, host=options.host, bound=bound, token=token, change_token=change) as server:
        yield server.url


@contextmanager
def _inflows(scheduler: Scheduler, settings: Settings) -> Iterator[list[KafkaInflow]]:
    """Take in requests from the topics of Kafka that the settings name."""
    wanted = settings.inflows()
    if not wanted:
        yield []
        return
    from lockstep.schedule.inflow import KafkaInflow

    with ExitStack() as closing:
        running = []
        for one in wanted:
            running.append(
                KafkaInflow(
                    scheduler.client, one.topics, one.servers, one.group, consumers=one.consumers, settings=one.settings
                )
            )
            closing.callback(_close_inflow, running[-1])
        yield running


def _close_inflow(inflow: KafkaInflow) -> None:
    """Close an inflow; one whose broker hangs is abandoned, as messages it has not committed are read again."""
    try:
        inflow.close(_INFLOW_S)
    except TimedOut as error:
        logger.warning("The inflow was left behind: %s", error, extra={"action": "inflow_left"})


def _work(scheduler: Scheduler, inflows: Sequence[KafkaInflow], stopping: Stopping) -> None:
    """Wait for the end; a node or an inflow that crashed is an error."""
    parts = [part for part in (scheduler.node, *inflows) if part is not None]
    while not stopping.wait(_LOOK_S):
        for error in [part.error for part in parts if part.error is not None]:
            if isinstance(error, LockstepError):
                raise error
            raise LockstepError(reason=f"the node ended: {error!r}") from error


def _follow_parent(stopping: Stopping) -> None:
    """End when the process that watches this one is gone."""
    while os.read(0, 1024):  # not sys.stdin: its lock must be free when the interpreter ends
        pass
    stopping.ask(CODES[signal.SIGTERM])


def _tell_started(output: Output, scheduler: Scheduler, url: str) -> None:
    node = None if scheduler.node is None else scheduler.node.name
    fields = {"event": "started", "url": url, "node": node, "scheduler": scheduler.name, "bus": scheduler.bus.url}
    _tell(output, fields, f"Scheduler {scheduler.name} on {scheduler.bus.url}: {url}")


def _tell(output: Output, fields: dict[str, Any], sentence: str) -> None:
    if output.json:
        output.json_line(fields)
    else:
        output.note(sentence)
    output.flush()


# several nodes


def _told(line: bytes) -> dict[str, Any] | None:
    """Parse a line of a node's output; None if the line is not from the node itself."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_event = isinstance(told, dict) and told.get("event") in ("started", "stopped")
    is_ours = is_event and told.keys() >= ({"url", "scheduler", "bus"} if told["event"] == "started" else {"url"})
    return told if is_ours else None


@dataclass(slots=True)
class _Child:
    """A node in a process of its own."""

    number: int
    port: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = _PAUSE_S
    again_at: float = 0.0
    was_up: bool = False
    """It has served at some time."""
    readers: list[threading.Thread] = field(default_factory=list)


class Supervisor:
    """Starts nodes as processes, starts those again that die, and ends all of them together."""

    def __init__(self, options: argparse.Namespace, output: Output, stopping: Stopping, port: int, nodes: int) -> None:
        self._options, self._output, self._stopping = options, output, stopping
        self._children = [_Child(number, port + number if port else 0) for number in range(nodes)]
        self._printing = threading.Lock()

    def run(self) -> int:
        """Watch the nodes until asked to end; the code of the first node that can't even start, if there is one."""
        try:
            for child in self._children:
                self._start(child)
            while not self._stopping.wait(_LOOK_S):
                for child in self._children:
                    code = self._look_after(child)
                    if code is not None:
                        return code
            return self._stopping.code
        finally:
            self._end_all()

    def _look_after(self, child: _Child) -> int | None:
        """Start a node again that died; return its exit code if it has never been up."""
        now = time.monotonic()
        if child.process is None:
            if now >= child.again_at:
                self._start(child)
            return None
        code = child.process.poll()
        if code is None:
            return None
        if not child.was_up:
            return code if code > 0 else 1
        child.pause = _PAUSE_S if now - child.started > _STEADY_S else min(child.pause * 2, _PAUSE_MAX_S)
        child.again_at, child.process = now + child.pause, None
        ended = f"signal {-code}" if code < 0 else f"code {code}"
        self._tell(
            {"event": "died", "node": child.number, "port": child.port, "code": code},
            f"Node {child.number + 1} ended with {ended}; it is started again in {child.pause:g} s.",
        )
        return None

    def _start(self, child: _Child) -> None:
        child.process = subprocess.Popen(  # noqa: S603 - this command itself
            self._command(child), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environ(), process_group=0
        )
        child.started = time.monotonic()
        child.readers = [reader for reader in child.readers if reader.is_alive()]
        reader = threading.Thread(target=self._relay, args=(child, child.process), daemon=True)
        reader.start()
        child.readers.append(reader)

    def _command(self, child: _Child) -> list[str]:
        options = self._options
        given: list[tuple[str, Sequence[str]]] = [
            ("--http", [str(child.port)]), ("--host", [options.host]), ("--name", [options.name]), ("--nodes", ["1"]),
            ("--config", options.config), ("--set", options.settings_given), ("--token-file", [options.token_file]),
            ("--change-token-file", [options.change_token_file]),
            ("--node-name", [f"{options.node_name}-{child.number + 1}"] if options.node_name else []),
        ]  # fmt: skip
        words = [word for name, values in given for value in values if value is not None for word in (name, value)]
        return [sys.executable, "-m", "lockstep.cli.main", "schedule", "serve", "--json", *words]

    def _environ(self) -> dict[str, str]:
        """URLs may hold passwords, so they go by the environment."""
        store = store_url(self._options)
        named = {_CHILD: "1", BUS_VARIABLE: bus_url(self._options), **({STORE_VARIABLE: store} if store else {})}
        return {**os.environ, **named}

    def _relay(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        """Pass on a node's own output; what its processors print goes to standard error."""
        assert process.stdout is not None
        with process.stdout as lines:
            while line := lines.readline(_LINE_BYTES):
                told = _told(line)
                if told is None:
                    self._pass_on(line)
                elif told["event"] == "started":
                    child.was_up = True
                    sentence = f"Node {child.number + 1} of scheduler {told['scheduler']}: {told['url']}"
                    self._tell({**told, "number": child.number, "pid": process.pid}, sentence)

    def _pass_on(self, line: bytes) -> None:
        with self._printing, suppress(OSError, ValueError):  # nobody reads it any more: the node must not wait
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()

    def _tell(self, fields: dict[str, Any], sentence: str) -> None:
        with self._printing:
            _tell(self._output, fields, sentence)

    def _end_all(self) -> None:
        running = [child.process for child in self._children if child.process is not None]
        for process in running:
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + _STOP_S
        for process in running:
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
        for child in self._children:
            for reader in child.readers:
                reader.join(1.0)
        self._tell({"event": "stopped"}, "Stopped all nodes.")
