"""The console's server: uvicorn in a thread, over one connection to a bus. Any number may stand beside one bus."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from lockstep.console.administration import AdministrationViews
from lockstep.console.app import ConsoleApp
from lockstep.console.audit import AuditLog
from lockstep.console.border import ProxyAddress, SafeHeaders, body_limit, refusal
from lockstep.console.credentials import CredentialStore
from lockstep.console.home import HomeView
from lockstep.console.mounts import Mount
from lockstep.console.operation import HEALTHZ, METRICS, READYZ, Operation
from lockstep.console.port import Pillar, Site
from lockstep.console.request import LIVE
from lockstep.console.settings import LIMITS, ServerFacts
from lockstep.server.access import is_loopback
from lockstep.server.connections import Connection
from lockstep.server.guard import Guard, Limits
from lockstep.server.serving import RestServer, TlsFiles, bind
from lockstep.streams.client import Lockstep

OPEN_PATHS = frozenset({HEALTHZ, READYZ, METRICS})


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleOptions:
    """How a console is served."""

    host: str = "127.0.0.1"
    port: int = 0
    cluster: str = "local"
    """The cluster of the projects, as given to engines with --cluster."""
    tls: TlsFiles | None = None
    behind_proxy: bool = False
    """Whether a proxy in front of it does TLS."""
    anonymous: bool | None = None
    """Whether callers without a credential may look; None: on loopback alone."""
    state: str = ""
    """The folder for views of fleets, as the page of settings shows it."""
    left_out: Sequence[str] = ()
    """Sentences about parts that are not there."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The environment of the process, for debug bundles."""

    @property
    def encryption(self) -> str:
        """Who does TLS, in words."""
        if self.tls is not None:
            return "TLS with its own certificate"
        return "TLS by a proxy in front of it" if self.behind_proxy else "none: it listens on loopback only"


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
        is_open = is_local and not options.behind_proxy  # whom a proxy lets through is not on this machine
        anonymous = is_open if options.anonymous is None else options.anonymous
        is_secure = options.tls is not None or options.behind_proxy
        bound = bound or bind(options.host, options.port, "The console")
        facts = ServerFacts(
            host=options.host, port=bound.getsockname()[1], encryption=options.encryption, anonymous=anonymous,
            state=options.state, server=socket.gethostname(), started_ms=site.now_ms, left_out=options.left_out,
            limits=limits, environ=options.environ,
        )  # fmt: skip
        found = [*pillars, AdministrationViews(site, self.credentials, self.audit, facts).pillar()]
        self.app = ConsoleApp(
            site, [HomeView(found).pillar(), *found], self.credentials, self.audit, mounts=mounts, anonymous=anonymous,
            secure_cookie=is_secure,
        )  # fmt: skip
        operation = Operation(self.app, site, found)
        guard = Guard(operation, token=None, check=None if is_open else _Everybody(), runtime=runtime, limits=limits,
                      open_paths=OPEN_PATHS, lasting_paths=frozenset({LIVE}), refuse=refusal,
                      body_limit=body_limit)  # fmt: skip
        served = SafeHeaders(guard, is_tls=is_secure)
        app = ProxyAddress(served) if options.behind_proxy else served
        self._server = RestServer(app, bound, options.host, tls=options.tls, connection=ConsoleConnection)
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
        """Return True for every request."""
        return True
