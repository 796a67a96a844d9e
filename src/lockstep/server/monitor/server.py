"""The server of a monitor's API: uvicorn in a thread, beside the engine."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from lockstep.server.access import BasicCheck, is_loopback
from lockstep.server.errors import LoginNeeded
from lockstep.server.guard import Guard, Limits
from lockstep.server.monitor.app import OPEN_PATHS, Headers, MonitorApp, refusal
from lockstep.server.monitor.site import MonitorSite
from lockstep.server.serving import RestServer, bind

LIMITS = Limits(requests=128, bodies=64, body_bytes=4 << 20, body_s=30.0)
CHANGE_THREADS, READ_THREADS = 32, 8


def check_login(host: str, credentials: tuple[str, str] | None) -> None:
    """Refuse to listen where others can reach it without a user and a password."""
    if credentials is None and not is_loopback(host):
        raise LoginNeeded(host=host)


class MonitorServer:
    """Serves a monitor's API from when it is made until it is closed; `url` is where. Port 0 takes any free port.

    A host that other machines can reach needs a user and a password.
    """

    def __init__(
        self,
        site: MonitorSite,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        credentials: tuple[str, str] | None = None,
        cors: Mapping[str, str] | None = None,
        bound: socket.socket | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        check_login(host, credentials)
        self._pools = (
            ThreadPoolExecutor(READ_THREADS, "lockstep-monitor-read"),
            ThreadPoolExecutor(CHANGE_THREADS, "lockstep-monitor-change"),
        )
        self.app = MonitorApp(site, *self._pools)
        check = None if credentials is None else BasicCheck(*credentials)
        guard = Guard(
            self.app,
            token=None,
            check=check,
            runtime=site.runtime,
            limits=limits,
            open_paths=OPEN_PATHS,
            refuse=refusal,
        )
        try:
            self._server = RestServer(
                Headers(guard, dict(cors or {})), bound or bind(host, port, "The monitor's API"), host
            )
        except BaseException:
            self._close_pools()
            raise
        self.url = self._server.url

    def close(self) -> None:
        """Take no more requests; those at work have two seconds. May be called again."""
        self.app.close()
        try:
            self._server.stop()
        finally:
            self._close_pools()

    def _close_pools(self) -> None:
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> MonitorServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
