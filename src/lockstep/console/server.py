"""The console's server: uvicorn in a thread, over one connection to a bus. Any number may stand beside one bus."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from lockstep.console.administration import AdministrationViews
from lockstep.console.app import LIVE, ConsoleApp
from lockstep.console.audit import AuditLog
from lockstep.console.credentials import CredentialStore
from lockstep.console.home import HomeView
from lockstep.console.mounts import Mount
from lockstep.console.operation import HEALTHZ, METRICS, READYZ, Operation
from lockstep.console.port import Pillar, Site
from lockstep.server.connections import Connection
from lockstep.server.guard import Guard, Limits
from lockstep.server.serving import RestServer, TlsFiles, bind
from lockstep.server.tokens import is_loopback
from lockstep.streams.client import Lockstep

LIMITS = Limits(requests=256, bodies=32, body_bytes=16 << 20, body_s=30.0)
OPEN_PATHS = frozenset({HEALTHZ, READYZ})


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleOptions:
    """How a console is served."""

    host: str = "127.0.0.1"
    port: int = 0
    cluster: str = "local"
    """Of the projects, as engines have it with --cluster."""
    tls: TlsFiles | None = None
    behind_proxy: bool = False
    """Whether a proxy in front of it does TLS."""
    anonymous: bool | None = None
    """Whether callers without a credential may look; None: on loopback alone."""


class Console:
    """Serves from when it is made until it is closed; `url` is where. The client is the caller's to close."""

    def __init__(
        self,
        client: Lockstep,
        options: ConsoleOptions | None = None,
        *,
        pillars: Sequence[Pillar] = (),
        mounts: Sequence[Mount] = (),
        bound: socket.socket | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        options = options or ConsoleOptions()
        is_local = is_loopback(options.host)
        check_exposure(options)
        runtime = client.runtime
        site = Site(client, runtime, options.cluster)
        self.credentials = CredentialStore(client, runtime)
        self.audit = AuditLog(client, runtime, socket.gethostname())
        found = [*pillars, AdministrationViews(self.credentials, self.audit).pillar()]
        anonymous = is_local if options.anonymous is None else options.anonymous
        self.app = ConsoleApp(
            site, [HomeView(found).pillar(), *found], self.credentials, self.audit, mounts=mounts, anonymous=anonymous,
            secure_cookie=options.tls is not None or options.behind_proxy,
        )  # fmt: skip
        check = None if is_local else _Everybody()
        guard = Guard(Operation(self.app, site), token=None, check=check, runtime=runtime, limits=limits,
                      open_paths=OPEN_PATHS, lasting_paths=frozenset({LIVE, METRICS}))  # fmt: skip
        self._server = RestServer(
            guard,
            bound or bind(options.host, options.port, "The console"),
            options.host,
            tls=options.tls,
            connection=ConsoleConnection,
        )
        self.url = self._server.url

    def close(self) -> None:
        """Take no more requests; those at work have two seconds. May be called again."""
        self.app.close()
        self._server.stop()
        self.audit.close()
        self.credentials.close()

    def __enter__(self) -> Console:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def check_exposure(options: ConsoleOptions) -> None:
    """Refuse to listen where others can reach it without encryption."""
    from lockstep.console.errors import TlsNeeded

    if not is_loopback(options.host) and options.tls is None and not options.behind_proxy:
        raise TlsNeeded(host=options.host)


class ConsoleConnection(Connection):
    """Every live page keeps a connection, so there may be more than an engine's REST has."""

    most = 1_024
    share = 2


class _Everybody:
    """Lets all requests to the app, which checks credentials by route."""

    def allows(self, authorization: str | None) -> bool:  # noqa: ARG002
        """See Check."""
        return True
