"""The server: uvicorn in a thread of the engine."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from lockstep.errors import TimedOut
from lockstep.runtime import Runtime, ThreadRuntime, logger
from lockstep.server.access import check_host
from lockstep.server.connections import Connection, connections_max
from lockstep.server.errors import PortUnusable
from lockstep.server.guard import Guard, Limits

if TYPE_CHECKING:
    from lockstep.server.rows import RowLimits
    from lockstep.server.view import EngineView

_START_S, _DRAIN_S = 10.0, 2
_WAITING = 128
"""Connections that the system holds until they are taken."""
_PORT_MAX = 65_535


def serve(
    view: EngineView,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    change_token: str | None = None,
    root: Path | None = None,
    persist_root: Path | None = None,
    bound: socket.socket | None = None,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    row_limits: RowLimits | None = None,
) -> RestServer:
    """Serve an engine; returns when it listens. Port 0 takes any that is free.

    A host that other machines can reach needs a token. Without one everybody on this machine may look, and with
    `change_token` only its bearers may change something. Models that clients name must be below `root`, folders for
    snapshots below `persist_root` (as `root`); without one none can be named. `bound` is a socket from `bind`.
    """
    from lockstep.server.app import make_app
    from lockstep.server.rows import RowLimits, RowsOfWindows
    from lockstep.server.site import Site

    check_host(host, token)
    runtime, limits = runtime or ThreadRuntime(), limits or Limits()
    site = Site(view, RowsOfWindows(runtime, row_limits or RowLimits()), runtime, limits, root, persist_root or root)
    guard = Guard(make_app(site), token=token, change_token=change_token, runtime=runtime, limits=limits)
    return serve_app(guard, bound or bind(host, port), host)


def serve_app(app: Any, bound: socket.socket, host: str) -> RestServer:
    """Serve any app on a socket from `bind`."""
    return RestServer(app, bound, host)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate with its chain, and its key, as PEM files."""

    certificate: Path
    key: Path


class RestServer:
    """A server at work; `url` is where."""

    def __init__(
        self,
        app: Any,
        listening: socket.socket,
        host: str,
        *,
        tls: TlsFiles | None = None,
        connection: type[Connection] = Connection,
    ) -> None:
        port = listening.getsockname()[1]
        self.url = f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"
        self._socket = listening
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                interface="asgi3",
                http=connection,
                ws="none",
                loop="asyncio",
                timeout_keep_alive=5,
                timeout_graceful_shutdown=_DRAIN_S,
                backlog=min(_WAITING, connections_max(connection.most, connection.share)),  # as many are taken at once
                proxy_headers=False,
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else tls.key,
            )
        )
        self._thread = threading.Thread(target=self._run, name="lockstep-rest", daemon=True)
        self._thread.start()
        if not self._server.is_up.wait(_START_S):
            self._server.should_exit = True
            raise PortUnusable(
                what="REST", host=host, port=port, reason=f"the server did not start within {_START_S:g} s"
            )
        logger.info("REST is served", extra={"action": "rest_served", "url": self.url})

    def stop(self, timeout_s: float = 5.0) -> None:
        """Take no more requests; those at work have two seconds. May be called again."""
        self._server.should_exit = True
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(1.0)
        if self._thread.is_alive():
            raise TimedOut(what="Stopping REST", seconds=timeout_s)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


def bind(host: str, port: int, what: str = "REST") -> socket.socket:
    """A socket that listens, so that nobody else can have its port; PortUnusable if the port can't be had."""
    if not 0 <= port <= _PORT_MAX:  # some systems cut it to size without a word
        raise PortUnusable(what=what, host=host, port=port, reason=f"a port is at most {_PORT_MAX}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)  # without the protocol asyncio leaves Nagle's delay on: 40 ms
    except OSError as error:
        raise PortUnusable(what=what, host=host, port=port, reason=str(error)) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_WAITING)  # until then another process could bind the same port
    except OSError as error:
        bound.close()
        raise PortUnusable(what=what, host=host, port=port, reason=error.strerror or str(error)) from None
    return bound
