"""Running a model on the streams of a bus."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from lockstep.cli import model_report as report
from lockstep.cli.bus import preflight
from lockstep.cli.connection import bus_url, opened
from lockstep.cli.engine_services import (
    Rest,
    connected,
    drained,
    mailing,
    prepared,
    prepared_rest,
    served,
    told,
    with_subscribed,
)
from lockstep.cli.model_files import find_window, load_graph
from lockstep.cli.output import Output, plural
from lockstep.cli.values import check_runner
from lockstep.errors import LockstepError, Trimmed, UnsupportedByBackend, UsageError, from_os_error
from lockstep.log.config import check_name
from lockstep.log.urls import password_variable, split_url
from lockstep.runtime import logger

if TYPE_CHECKING:
    from lockstep.connectors.mailer import Mailer
    from lockstep.connectors.runner import Connectors
    from lockstep.engine.model.graph import Graph, Node
    from lockstep.engine.runtime.control.leadership import RoleChange
    from lockstep.engine.runtime.engine import Engine, EngineOptions, EngineStatus
    from lockstep.engine.runtime.sequence.streams import ProjectStreams
    from lockstep.log.port import Bus
    from lockstep.streams.client import Lockstep

_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
_STATE = ".lockstep-engine"
"""Not inside a bus's folder: that holds a store, and nothing else."""
_EVERY_S, _JSON_EVERY_S = 1.0, 5.0
_RESTARTS, _RESTARTS_S = "LOCKSTEP_RESTARTS", 600.0
"""Restarts are counted over ten minutes, through the environment of the process itself."""
_PERSIST_S = 15.0
_MAIL_S = 10.0
"""With --until-idle, the longest wait for messages to be delivered: the mail server may be down."""


class _Asked(Exception):
    """The engine was asked to stop."""


class Stopping:
    """Notes a request to end instead of tearing everything down; a second Ctrl-C does that, and one that `dies`."""

    def __init__(self, *, dies: bool = False) -> None:
        self.code, self._dies = 0, dies

    def __enter__(self) -> Stopping:
        self._before = {number: signal.getsignal(number) for number in _CODES}
        self.listen()
        return self

    def listen(self) -> None:
        """Take requests to end; Spark sets a handler of its own when it starts."""
        for number in _CODES:
            signal.signal(number, self._asked)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        if self._dies and number == signal.SIGINT:
            os._exit(_CODES[signal.SIGINT])  # as a kill would end it: another engine takes over
        if self.code and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.code = _CODES[signal.Signals(number)]


def run(options: argparse.Namespace, output: Output) -> int:
    """Run it until it is asked to end, or until nothing is left to do.

    If Spark or a batch fails, or logs were trimmed past it or its own state, it starts again as a standby, with the
    newest persisted snapshot; without any, a log that is too short stays so.
    """
    from lockstep.engine.errors import ComputeFailed, LogTooShort, SparkFailed

    try:
        return _run(options, output)
    except (SparkFailed, ComputeFailed, Trimmed, LogTooShort) as error:
        again = Restarts.of(os.environ.get(_RESTARTS), time.time()).next(options.restarts, time.time())
        if again is None or (isinstance(error, LogTooShort) and not options.persist_to):
            raise
        output.note(f"{error} Starting again as a standby ({again.count} of {options.restarts}).")
        output.flush()
        os.environ[_RESTARTS] = again.text()
        itself = getattr(options, "again", [sys.executable, "-m", "lockstep.cli.main", *sys.argv[1:]])
        os.execv(sys.executable, itself)  # noqa: S606 - itself


def _run(options: argparse.Namespace, output: Output) -> int:
    graph = load_graph(options.model)
    state = Path(options.state or Path(_STATE) / f"{options.cluster}.{graph.project.name}")
    published_windows(graph, options.publish)  # names that are wrong are said first
    url = _shared(bus_url(options))
    if secret := password_variable(url):
        os.environ.setdefault(*secret)  # for the workers: what they are told otherwise is written down by Spark
    check_runner(options)
    if options.runner == "spark":
        from lockstep.engine.spark.session import check_java

        check_java()
    _check_snapshots(options, graph)
    stopping = Stopping(dies=getattr(options, "dies_on_interrupt", False))
    _check_before_spark(options, state)
    try:
        with (
            prepared_rest(options, state) as rest,
            _taken_port(options.metrics_port) as metrics,
            opened(url, create=True) as client,
            stopping,
            told(
                getattr(options, "told_level", logging.INFO),
                verbose=options.verbose,
                as_document=getattr(options, "document_lines", False),
            ),
        ):
            return _live(options, output, graph, client, url, state, Doors(rest, metrics), stopping)
    except (LockstepError, OSError) as error:
        if not stopping.code:
            raise
        _tell_late_error(output, graph.project.name, error)
        return stopping.code


@dataclass(frozen=True, slots=True)
class Doors:
    """The HTTP servers of an engine: REST, and the metrics port; None for one that is not enabled."""

    rest: Rest | None
    metrics: socket.socket | None


def _live(
    options: argparse.Namespace,
    output: Output,
    graph: Graph,
    client: Lockstep,
    url: str,
    state: Path,
    doors: Doors,
    stopping: Stopping,
) -> int:
    """From the start of Spark until the last words."""
    from lockstep.engine.model.validation import cautions
    from lockstep.engine.runtime.engine import Engine
    from lockstep.engine.runtime.sequence.streams import ProjectStreams
    from lockstep.engine.runtime.snapshots import retention
    from lockstep.runtime import ThreadRuntime

    published = with_subscribed(graph, published_windows(graph, options.publish))
    if not published:
        output.warn(f"No window of {graph.project.name} is published: name some with --publish, or give them pubsub.")
    for caution in cautions(graph.project):
        output.warn(str(caution))
    streams = ProjectStreams(cluster=options.cluster, project=graph.project.name)
    graph, published = _in_force(client.bus, streams, graph, published, is_chosen=bool(options.publish))
    wanted = frozenset(node.path for node in published)
    telling = Telling(output, graph, streams, published, wants_progress=options.progress)
    preflight(client.bus, output, strict=options.strict, also=retention.input_retention(client.bus, streams, graph))
    connectors = prepared(graph, client, options, wanted)
    engine = Engine(graph, wanted, client.bus, state, ThreadRuntime(), _options(options, url), telling.role)
    telling.starting()
    try:
        with engine:
            stopping.listen()
            if doors.metrics is not None:
                _serve_metrics(graph.project.name, engine, doors.metrics)
            with (
                served(engine, client.bus, doors.rest),
                connected(connectors, engine),
                mailing(client, streams) as mailer,
            ):
                telling.ready(client.url, state, options.shards, engine)
                _work(engine, connectors, mailer, telling, stopping, until_idle=options.until_idle)
            telling.progress.end()
            telling.stopping(stopping)
            if stopping.code and options.persist_to:
                _persist(client, streams, output)
    finally:
        telling.progress.end()
    telling.stopped(engine.status(), stopping)
    return stopping.code


def _tell_late_error(output: Output, project: str, error: LockstepError | OSError) -> None:
    """A stop that was asked for stays a stop, whatever went wrong after it; what did is said and logged."""
    from lockstep.engine.errors import SparkFailed, SparkNotStarted, SparkUnavailable

    logger.warning("An error came after the request to stop", exc_info=error, extra={"action": "stop_error"})
    found = error if isinstance(error, LockstepError) else from_os_error(error)
    if output.json:
        told = {"code": found.code, "message": str(found)}
        output.json_line({"event": "stopped", "project": project, "reason": "signal", "error": told})
    elif isinstance(found, SparkFailed | SparkNotStarted | SparkUnavailable):
        output.note(f"Stopped. Spark was stopped by the same request: {found.params['reason']}.")
    else:
        output.note(f"Stopped. An error came after the request to stop: {found}")


def _check_before_spark(options: argparse.Namespace, state: Path) -> None:
    """What can be known to be wrong is said now, and not after the seconds that Spark takes to start."""
    if options.name:
        check_name("Engine", options.name)
    if options.metrics_port is not None and options.metrics_port == options.http:
        raise UsageError(reason=f"--http and --metrics-port are both {options.http}: choose two ports.")
    for option, folder in (("--state", state), ("--persist-to", options.persist_to)):
        if folder is not None:
            check_folder(option, Path(folder))


def _check_snapshots(options: argparse.Namespace, graph: Graph) -> None:
    """Refuse options that would do nothing: snapshots need a folder, and trimming needs snapshots."""
    if options.persist_every is not None and not options.persist_to and not graph.project.restore:
        raise UsageError(reason="--persist-every needs --persist-to FOLDER: snapshots are written there.")
    if options.trim and options.persist_every is None:
        raise UsageError(reason="--trim needs --persist-every TIME: streams are trimmed after each snapshot.")


@contextmanager
def _taken_port(port: int | None) -> Iterator[socket.socket | None]:
    """Reserve the metrics port before Spark starts; None if metrics are not enabled."""
    if port is None:
        yield None
        return
    from lockstep.server.serving import bind

    with bind("127.0.0.1", port, "Metrics") as bound:
        yield bound


def check_folder(option: str, folder: Path) -> None:
    """Raise if a folder cannot be created or written to."""
    known = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    if not known.is_dir():
        raise UsageError(reason=f"{option} {str(folder)!r} can't be used: {str(known)!r} is no folder.")
    if not os.access(known, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"{option} can't be written to", str(known))


def _in_force(
    bus: Bus, streams: ProjectStreams, graph: Graph, published: list[Node], *, is_chosen: bool
) -> tuple[Graph, list[Node]]:
    """The model in force and what it publishes, if the given one is it or was replaced; `is_chosen`: by --publish."""
    from lockstep.engine.runtime.sequence.model_statement import (
        compiled,
        model_to_run,
        newest_statement,
        published_nodes,
    )

    found = newest_statement(bus, streams) if streams.sequence in bus.names() else None
    if found is None:
        return graph, published
    in_force = compiled(found)
    is_given = not is_chosen and in_force.fingerprint == graph.fingerprint
    if _RESTARTS not in os.environ and not is_given:
        run = model_to_run(bus, streams, graph, frozenset(node.path for node in published))
        return run.graph, [node for node in run.graph.nodes if node.path in run.wanted]
    return in_force, published_nodes(found, in_force)


def _persist(client: Lockstep, streams: ProjectStreams, output: Output) -> None:
    """Before a planned stop one engine writes a snapshot, so that the next start has little to replay."""
    from lockstep.engine.runtime.requests.channel import RequestClient

    try:
        RequestClient(client.bus, streams, client.runtime).ask("persist", {}, timeout_s=_PERSIST_S)
    except LockstepError as error:
        output.note(f"Stopping without a new snapshot: {error}")


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often this process has started itself again, and since when."""

    count: int
    since: float

    @classmethod
    def of(cls, text: str | None, now: float) -> Restarts:
        """As the process before left it."""
        count, _, since = (text or "").partition(":")
        return cls(int(count), float(since)) if count.isdigit() and since else cls(0, now)

    def next(self, most: int, now: float) -> Restarts | None:
        """One more, unless there were too many in a while."""
        if now - self.since > _RESTARTS_S:
            return Restarts(1, now) if most else None
        return Restarts(self.count + 1, self.since) if self.count < most else None

    def text(self) -> str:
        """For the process that follows."""
        return f"{self.count}:{self.since}"


def _serve_metrics(project: str, engine: Engine, taken: socket.socket) -> None:
    """On loopback only; it ends with the process. The server binds the port itself, so it is let go just before."""
    from prometheus_client import CollectorRegistry, start_http_server

    from lockstep.engine.runtime.control.metrics import EngineMetrics

    registry = CollectorRegistry()
    registry.register(EngineMetrics(project, engine.status))
    host, port = taken.getsockname()
    taken.close()
    start_http_server(port, addr=host, registry=registry)


def _work(
    engine: Engine,
    connectors: Connectors,
    mailer: Mailer,
    telling: Telling,
    stopping: Stopping,
    *,
    until_idle: bool,
) -> None:
    def tell(status: EngineStatus) -> None:
        if stopping.code:
            raise _Asked
        mailer.look(engine.graph)
        telling.tell(status)

    try:
        if until_idle:
            drained(connectors, engine, tell)
            mailer.look(engine.graph)
            mailer.wait_sent(_MAIL_S)
        else:
            engine.run_until(lambda _: False, progress=tell)
    except _Asked:
        return


def _shared(url: str) -> str:
    """Spark's workers are processes of their own, so they must be able to open the bus too."""
    if split_url(url)[0] == "memory":
        raise UnsupportedByBackend(bus=url, feature="be used by an engine: its workers are other processes")
    return url


def _options(options: argparse.Namespace, url: str) -> EngineOptions:
    from lockstep.engine.runtime.control.leadership import usual_lease_s
    from lockstep.engine.runtime.engine import EngineOptions

    return EngineOptions(
        cluster=options.cluster,
        shards=options.shards,
        batch_events=options.batch,
        name=options.name,
        lease_s=options.lease or usual_lease_s(url),
        preference=options.preference,
        election=_election(options.election),
        buffer_blocks=options.buffer_blocks,
        buffer_bytes=options.buffer_bytes,
        persist_to=Path(options.persist_to).resolve() if options.persist_to else None,
        persist_every_s=options.persist_every,
        trim=options.trim,
        runner=options.runner,
        master=options.master,
        spark=dict(options.conf),
        verbose=options.verbose or options.verbose_spark,
    )


def _election(url: str) -> str:
    """Said to be wrong before Spark is started, if it is."""
    from lockstep.engine.gates.urls import gate_address

    if url:
        gate_address(url, os.environ)
    return url


def published_windows(graph: Graph, names: Sequence[str]) -> list[Node]:
    """The windows that are named; else those with pubsub; else those that no other window reads.

    There may be none, as the model says pubsub is false everywhere: then only what connectors take comes out.
    """
    if names:
        chosen = {find_window(graph, name).path for name in names}
        return [node for node in graph.nodes if node.path in chosen]
    marked = [node for node in graph.nodes if node.window.pubsub]
    parents = {parent.node for node in graph.nodes for parent in node.parents}
    last = [node for node in graph.nodes if node.index not in parents and node.window.pubsub is not False]
    return marked or last


class Telling:
    """Reports what an engine does: sentences and a status line on a terminal, JSON lines for programs."""

    def __init__(
        self,
        output: Output,
        graph: Graph,
        streams: ProjectStreams,
        published: Sequence[Node],
        *,
        wants_progress: bool | None,
    ) -> None:
        self._output, self._graph = output, graph
        self._inputs = {node.path: streams.input(node) for node in graph.nodes if node.is_source}
        self._outputs = {node.path: streams.output(node) for node in published}
        self._cluster, self._bad = streams.cluster, streams.bad
        self._wants = wants_progress
        self.progress = output.progress("events")
        self._told_at, self._told_events = time.monotonic(), -1
        self._placed_by: float | None = None

    def starting(self) -> None:
        """It takes a while."""
        self.progress.say("Starting ...")

    def role(self, change: RoleChange) -> None:
        """It became active or standby."""
        self._placed_by = None
        self.progress.end()
        if self._output.json:
            self._line("role", **asdict(change))

    def ready(self, url: str, state: Path, shards: int, engine: Engine) -> None:
        """Events are taken from now on."""
        self._placed_by = time.monotonic() + _EVERY_S if engine.role == "standby" else None
        self.progress.end()
        if self._output.json:
            self._line("ready", engine=engine.name, pid=os.getpid(), role=engine.role, cluster=self._cluster, bus=url,
                       state=str(state), shards=shards, inputs=self._inputs, outputs=self._outputs,
                       http=engine.http)  # fmt: skip
            return
        name = self._graph.project.name
        self._output.line(f"{name} is running on {url} as {engine.name}, {engine.role}, {plural(shards, 'shard')}.")
        width = max(map(len, [*self._inputs, *self._outputs]))
        for way, streams in (("in ", self._inputs), ("out", self._outputs)):
            for path, stream in streams.items():
                self._output.line(f"  {way}  {path:<{width}}  {stream}")
        if election := engine.status().election:
            self._output.line(f"  election by {election}")
        self._output.flush()

    def tell(self, status: EngineStatus) -> None:
        """How far it is, now and then."""
        now = time.monotonic()
        if self._placed_by is not None and now >= self._placed_by:  # by now another one is known to lead
            self._placed_by = None
            logger.info("Hot failover state switched to standby", extra={"action": "role"})
        if self._told_events < 0:
            self._told_events = status.published_events
        if now - self._told_at < (_JSON_EVERY_S if self._output.json else _EVERY_S):
            return
        rate = report.per_second(status.published_events - self._told_events, now - self._told_at)
        self._told_at, self._told_events = now, status.published_events
        if self._wants is False:
            return
        if self._output.json:
            self._line("progress", **_figures(status), events_per_s=rate)
        elif self._wants:
            self._output.note(_state(status, rate))
        else:
            self.progress.say(_state(status, rate))

    def stopping(self, stopping: Stopping) -> None:
        """It was heard."""
        if stopping.code:
            self._output.note("Stopping ...")

    def stopped(self, status: EngineStatus, stopping: Stopping) -> None:
        """The last words."""
        rows = report.window_rows(self._graph, status.counts)
        if self._output.json:
            self._line("stopped", reason="signal" if stopping.code else "idle", **_figures(status), windows=rows)
            return
        report.show_windows(self._output, rows)
        self._output.flush()
        if refused := sum(status.bad.values()):
            reasons = report.in_words(dict(sorted(status.bad.items())))
            self._output.warn(f"{plural(refused, 'event')} refused while it led: {reasons}. They are on {self._bad}.")
        behind = f"; {plural(status.lag, 'block')} to go on with" if status.lag else ""
        self._output.note(
            f"Stopped after block {status.published:,}, {plural(status.published_events, 'event')}{behind}."
        )

    def _line(self, event: str, **fields: Any) -> None:
        self._output.json_line({"event": event, "project": self._graph.project.name, **fields})
        self._output.flush()


def _figures(status: EngineStatus) -> dict[str, Any]:
    return {
        "published": status.published,
        "events": status.published_events,
        "lag": status.lag,
        "bad": dict(sorted(status.bad.items())),
    }


def _state(status: EngineStatus, rate: int) -> str:
    bad = f", {sum(status.bad.values()):,} bad" if status.bad else ""
    return f"{status.published_events:,} events, {rate:,}/s, {plural(status.lag, 'block')} behind{bad}"
