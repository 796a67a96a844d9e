"""What runs beside an engine: REST, connectors, and lines about its role."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.connectors.mailer import Mailer
    from lockstep.connectors.runner import Connectors
    from lockstep.engine.model.graph import Graph, Node
    from lockstep.engine.runtime.control.options import OnStatus
    from lockstep.engine.runtime.control.reports import Report
    from lockstep.engine.runtime.engine import Engine
    from lockstep.engine.runtime.requests.channel import Reply
    from lockstep.engine.runtime.sequence.streams import ProjectStreams
    from lockstep.log.port import Bus
    from lockstep.streams.client import Lockstep

TOKEN_NAME = "http.token"  # noqa: S105 - the name of a file


class View:
    """An engine as REST sees it."""

    def __init__(self, engine: Engine, bus: Bus) -> None:
        self._engine, self._bus = engine, bus
        self.engine, self.cluster = engine.name, engine.streams.cluster

    def graph(self) -> Graph:
        """The model in force."""
        return self._engine.graph

    def report(self) -> Report:
        """How the engine is, now."""
        return self._engine.report()

    def heard(self) -> Mapping[str, float]:
        """For how many seconds it has heard nothing of engines of the project, where it knows that."""
        from lockstep.engine.runtime.control.status import SILENT_S

        return self._engine.heard(SILENT_S)

    def bus(self) -> Bus:
        """Where its streams are."""
        return self._bus

    def published(self) -> frozenset[str]:
        """The windows with an out stream."""
        return self._engine.wanted

    def ask(self, kind: str, params: Mapping[str, Any], timeout_s: float) -> Reply:
        """Send a request to the active engine, over the bus."""
        from lockstep.engine.runtime.requests.channel import RequestClient
        from lockstep.runtime import ThreadRuntime

        return RequestClient(self._bus, self._engine.streams, ThreadRuntime()).ask(kind, params, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class Rest:
    """How REST is to be served: everything is checked, and the port is taken."""

    host: str
    bound: socket.socket
    token: str | None
    change_token: str | None
    state: Path
    root: Path
    persist_root: Path


@contextmanager
def prepared_rest(options: argparse.Namespace, state: Path) -> Iterator[Rest | None]:
    """Check the REST options before Spark starts; None if REST is not enabled.

    Without --token-file everybody on this machine may look, and changes need the token that is made here: it will be in
    the state folder, which only its owner can read.
    """
    if options.http is None:
        yield None
        return
    from lockstep.server import bind, read_token
    from lockstep.server.access import check_host

    token = read_token(options.token_file) if options.token_file else None
    check_host(options.http_host, token)
    root = Path(options.files) if options.files else state
    if options.files and not root.is_dir():
        raise UsageError(reason=f"--files {options.files!r} is no folder.")
    made = None if token else secrets.token_urlsafe(32)
    with bind(options.http_host, options.http) as bound:
        yield Rest(options.http_host, bound, token, made, state, root, Path(options.persist_to or state))


@contextmanager
def kept_token(token: str | None, state: Path, port: int) -> Iterator[None]:
    """Keep a token for changes in the state folder, and where clients of the same user find it by the port."""
    if token is None:
        yield
        return
    _write_private(state / TOKEN_NAME, token)
    with suppress(OSError, RuntimeError):  # a user without a home: clients name the file in the state folder
        _write_private(token_of_port(port), token)
    try:
        yield
    finally:
        with suppress(OSError, RuntimeError):
            token_of_port(port).unlink()


def token_of_port(port: int) -> Path:
    """Where clients of this user find the token of the engine that serves REST on a port of this machine.

    RuntimeError for a user who has no home: neither HOME nor an entry in the list of users.
    """
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "lockstep" / f"http-{port}.token"


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{text}\n")
    fresh.replace(path)


@contextmanager
def served(engine: Engine, bus: Bus, rest: Rest | None) -> Iterator[None]:
    """Serve REST while the engine runs, if it is asked for."""
    if rest is None:
        yield
        return
    from lockstep.server import serve

    port: int = rest.bound.getsockname()[1]
    server = serve(View(engine, bus), host=rest.host, bound=rest.bound, token=rest.token,
                   change_token=rest.change_token, root=rest.root, persist_root=rest.persist_root)  # fmt: skip
    engine.http = server.url
    try:
        with kept_token(rest.change_token, rest.state, port):
            yield
    finally:
        server.stop()


def with_subscribed(graph: Graph, published: Sequence[Node]) -> list[Node]:
    """The windows to be published, and those from which connectors take events."""
    from lockstep.connectors.plan import subscribed_windows

    chosen = {node.path for node in published} | subscribed_windows(graph)
    return [node for node in graph.nodes if node.path in chosen]


def prepared(graph: Graph, client: Lockstep, options: argparse.Namespace, wanted: frozenset[str]) -> Connectors:
    """The connectors, checked, before the engine starts; an error for one that can't be run."""
    from lockstep.connectors.runner import Connectors
    from lockstep.engine.model.variables import with_home

    bound: frozenset[str] = getattr(options, "bound_connectors", frozenset())
    environ = with_home(os.environ, options.model)
    made = Connectors(graph, client, options.cluster, environ, bound=bound)
    made.prepare(wanted)
    return made


@contextmanager
def connected(connectors: Connectors, engine: Engine) -> Iterator[None]:
    """Run them while this engine leads."""
    from lockstep.engine.runtime.control.leadership import ACTIVE

    connectors.start(lambda: engine.role == ACTIVE)
    try:
        yield
    finally:
        connectors.stop()


@contextmanager
def mailing(client: Lockstep, streams: ProjectStreams) -> Iterator[Mailer]:
    """Send what notification windows decide, with the carriers of the other engines."""
    from lockstep.connectors.mailer import Mailer

    mailer = Mailer(client, streams, os.environ)
    try:
        yield mailer
    finally:
        mailer.stop()


def drained(connectors: Connectors, engine: Engine, tell: OnStatus) -> None:
    """Return when sources that have an end were read, everything is out, and was sent."""
    engine.run_until(lambda _: connectors.have_read, progress=tell)
    engine.drain(progress=tell)
    published = connectors.published()
    engine.run_until(lambda _: connectors.have_sent(published), progress=tell)


TOLD = frozenset({"role", "takeover", "buffer", "persist", "replace", "gate", "preflight", "connector"})
"""The actions that are always reported on standard error."""
_PLAIN = "%(asctime)s; %(levelname)s; %(message)s"
_WHERE = "%(thread_id)s; %(name)s; (%(filename)s:%(lineno)d); %(funcName)s()"
_DOCUMENT = f"%(asctime)s; %(levelname)s; {_WHERE}: %(message)s"
_WORDS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_GOES_ACTIVE = "Hot failover state switched to active"


class DocumentLines(logging.Formatter):
    """Lines as SAS's failover document shows them: with thread, logger, place and function."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"

    def __init__(self) -> None:
        super().__init__(_DOCUMENT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line, with the level and the thread as the document writes them."""
        shown = logging.makeLogRecord(record.__dict__)
        shown.levelname = _WORDS.get(record.levelname, record.levelname)
        shown.__dict__["thread_id"] = f"{(record.thread or 0) % 100_000_000:08d}"
        return super().format(shown)


class _Telling(logging.StreamHandler):  # type: ignore[type-arg]
    """Shows important events; in the document's format going active is a warning, for the first engine too."""

    def __init__(self, least: int, *, as_document: bool) -> None:
        super().__init__()
        self._least, self._as_document = least, as_document
        self.setFormatter(DocumentLines() if as_document else logging.Formatter(_PLAIN))
        self.addFilter(lambda record: getattr(record, "action", "") in TOLD)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record if its level is high enough."""
        if self._as_document and record.getMessage() == _GOES_ACTIVE and record.levelno < logging.WARNING:
            record = logging.makeLogRecord(record.__dict__)
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        if record.levelno >= self._least:
            super().emit(record)


@contextmanager
def told(level: int, *, verbose: bool, as_document: bool = False) -> Iterator[None]:
    """Report changes of an engine's role on standard error; with --verbose all log lines already are."""
    log, before = logging.getLogger("lockstep"), logging.getLogger("lockstep").level
    handler = logging.NullHandler() if verbose else _Telling(level, as_document=as_document)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
