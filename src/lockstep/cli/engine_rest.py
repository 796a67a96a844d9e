"""REST beside an engine that runs."""

from __future__ import annotations

import argparse
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.engine.model.graph import Graph
    from lockstep.engine.runtime.control.reports import Report
    from lockstep.engine.runtime.engine import Engine
    from lockstep.engine.runtime.requests.channel import Reply
    from lockstep.log.port import Bus

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
        """Ask whoever leads, over the bus."""
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
    """Find everything that is wrong with the REST options before Spark starts; None if no REST is wanted.

    Without --token-file everybody on this machine may look, and changes need the token that is made here: it will be in
    the state folder, which only its owner can read.
    """
    if options.http is None:
        yield None
        return
    from lockstep.server import bind, read_token
    from lockstep.server.tokens import check_host

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
