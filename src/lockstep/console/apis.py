"""The APIs of schedulers and monitors below paths of the console.

/apis/schedule/NAME/... is BigBen's and the scheduler's own, /apis/monitor/NAME/... Sensu's and the monitor's own. The
console checks who asks; they answer as their own servers do.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send

from lockstep.console.mounts import Mount
from lockstep.server.bodies import Reply
from lockstep.server.errors import RouteNotFound
from lockstep.server.routes import Call

if TYPE_CHECKING:
    from lockstep.console.fleets import Fleets
    from lockstep.console.schedulers import Schedulers
    from lockstep.schedule.scheduler import Scheduler
    from lockstep.server.monitor.app import MonitorApp

SCHEDULE, MONITOR = "/apis/schedule", "/apis/monitor"
READ_THREADS, CHANGE_THREADS = 4, 8


class NamedApps:
    """An app for each name, which is the first part of the path."""

    def __init__(self, prefix: str, find: Callable[[str], ASGIApp]) -> None:
        self._prefix, self._find = prefix, find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI app; RouteNotFound without a name, and the errors of `find`."""
        name, _, rest = scope["path"].removeprefix("/").partition("/")
        _, _, raw = scope["raw_path"].removeprefix(b"/").partition(b"/")
        if not name:
            raise RouteNotFound(path=f"{self._prefix}{scope['path']}")
        app = await asyncio.to_thread(self._find, name)
        await app({**scope, "path": f"/{rest}", "raw_path": b"/" + raw}, receive, send)


class ScheduleApis:
    """The APIs of all schedulers of a bus."""

    def __init__(self, schedulers: Schedulers) -> None:
        from lockstep.server.schedule.app import Pools

        self._schedulers, self._pools = schedulers, Pools.open()
        self._apps: dict[str, tuple[Scheduler, ASGIApp]] = {}
        self._lock = threading.Lock()

    def mount(self) -> Mount:
        """Where they are."""
        from lockstep.server.schedule.app import routes_of
        from lockstep.server.schedule.operation import OperationRoutes

        site: Any = None  # no route is called
        routes = routes_of(site, OperationRoutes(site), _uncalled)
        return Mount(SCHEDULE, "schedules", NamedApps(SCHEDULE, self._app), "BigBen's API, and ours under /v2", routes)

    def close(self) -> None:
        """Begin nothing more."""
        self._pools.close()

    def _app(self, name: str) -> ASGIApp:
        """Return the app of a scheduler, created again if its client was closed to make room for others."""
        from lockstep.schedule.client import ANSWER_S
        from lockstep.server.schedule.app import ScheduleApp, Timing
        from lockstep.server.schedule.site import ScheduleSite

        scheduler = self._schedulers.open(self._schedulers.name_of(name))
        with self._lock:
            known = self._apps.get(name)
            if known is None or known[0] is not scheduler:
                app = ScheduleApp(ScheduleSite(scheduler, ANSWER_S), self._pools, socket.gethostname())
                timed = Timing(app, scheduler.bus.runtime, socket.gethostname(), app.operation.requests)
                known = self._apps[name] = (scheduler, timed)
            return known[1]


class MonitorApis:
    """The APIs of all monitors of a bus, over the views that the console keeps."""

    def __init__(self, fleets: Fleets) -> None:
        self._fleets = fleets
        self._apps: dict[str, MonitorApp] = {}
        self._lock = threading.Lock()
        self._reads = ThreadPoolExecutor(READ_THREADS, "lockstep-console-monitor-read")
        self._changes = ThreadPoolExecutor(CHANGE_THREADS, "lockstep-console-monitor-change")

    def mount(self) -> Mount:
        """Where they are."""
        from lockstep.server.monitor.app import routes_of
        from lockstep.server.monitor.site import MonitorSite, TransportFigures

        nothing: Any = None  # no route is called
        routes = routes_of(MonitorSite(nothing, nothing, nothing, TransportFigures), _uncalled)
        return Mount(MONITOR, "fleet", NamedApps(MONITOR, self._app), "Sensu's API, and ours", routes)

    def close(self) -> None:
        """End what goes on, and begin nothing more."""
        for app in self._apps.values():
            app.close()
        self._reads.shutdown(wait=False, cancel_futures=True)
        self._changes.shutdown(wait=False, cancel_futures=True)

    def _app(self, name: str) -> ASGIApp:
        from lockstep.server.monitor.app import MonitorApp

        known = self._fleets.name_of(name)
        assert known is not None, "a name that is given is known, or NotFound"
        with self._lock:
            if known not in self._apps:
                self._apps[known] = MonitorApp(self._fleets.open(known).site(), self._reads, self._changes)
            return self._apps[known]


def _uncalled(_call: Call) -> Reply:
    message = "the routes of a document are not called"
    raise AssertionError(message)
