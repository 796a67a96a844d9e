"""The app of a scheduler's API: routes, errors as documents, and the headers that show how long an answer took."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.errors import BadArgument, LockstepError
from lockstep.runtime import Runtime, logger
from lockstep.schedule.times import java_text
from lockstep.schedule.validation import ID_BYTES_MAX
from lockstep.server.bodies import Reply, reply
from lockstep.server.openapi import document
from lockstep.server.routes import Call, Handle, Route, Router, Work, parse_query
from lockstep.server.schedule.bigben import BigBenRoutes
from lockstep.server.schedule.cron_routes import CronRoutes
from lockstep.server.schedule.documents import error_reply, failure_reply
from lockstep.server.schedule.events import EventRoutes
from lockstep.server.schedule.operation import HEALTHZ, PING, READYZ, OperationRoutes
from lockstep.server.schedule.site import ScheduleSite
from lockstep.server.schedule.tenants import TenantRoutes

OPEN_PATHS = frozenset({HEALTHZ, READYZ, PING})
"""Needs no token and is outside the limits."""
CHANGE_THREADS, READ_THREADS = 32, 8


@dataclass(frozen=True, slots=True)
class Pools:
    """Threads for calls that block: a node that is away holds up changes, and no reads."""

    changes: Executor
    reads: Executor

    @classmethod
    def open(cls) -> Pools:
        """Threads are started as they are needed."""
        return cls(
            ThreadPoolExecutor(CHANGE_THREADS, "lockstep-schedule-change"),
            ThreadPoolExecutor(READ_THREADS, "lockstep-schedule-read"),
        )

    def close(self) -> None:
        """Begin nothing more; what runs ends by itself."""
        self.changes.shutdown(wait=False, cancel_futures=True)
        self.reads.shutdown(wait=False, cancel_futures=True)


def routes_of(site: ScheduleSite, operation: OperationRoutes, document: Handle) -> list[Route]:
    """All routes; `document` answers with the OpenAPI document."""
    groups = (BigBenRoutes(site), EventRoutes(site), CronRoutes(site), TenantRoutes(site), operation)
    own = Route(method="GET", path="/openapi.json", handle=document, work=Work.INLINE, tag="operation",
                summary="This document")  # fmt: skip
    return [*(route for group in groups for route in group.routes()), own]


class ScheduleApp:
    """An ASGI app. The guard before it has received the whole body."""

    def __init__(self, site: ScheduleSite, pools: Pools, node: str) -> None:
        self._site, self._pools, self._node = site, pools, node
        self.operation = OperationRoutes(site)
        self.router = Router(routes_of(site, self.operation, self._document))
        made = document(
            self.router.routes, title="Lockstep scheduler", summary="BigBen's HTTP API, and our own under /v2",
            description="Write a slash in a tenant or id as %2F.",
        )  # fmt: skip
        self._openapi = reply(made)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        message = await receive()
        answered = await self._answer(scope, message.get("body", b""))
        await answered.response()(scope, receive, send)

    async def _answer(self, scope: Scope, body: bytes) -> Reply:
        path: str = scope["path"]
        method: str = scope["method"]
        try:
            route, names = self.router.find("GET" if method == "HEAD" else method, scope["raw_path"])
            for name, text in names.items():
                _check_name(name, text)
            call = Call(path, names, parse_query(scope["query_string"], route), body)
            return await self._run(route, call)
        except LockstepError as error:
            return error_reply(path, error)
        except Exception as error:  # noqa: BLE001  # a defect: told by a number, with the trace in the log
            return self._failure(path, method, error)

    async def _run(self, route: Route, call: Call) -> Reply:
        if route.work is Work.INLINE:
            return route.handle(call)
        pool = self._pools.changes if route.work is Work.CHANGE else self._pools.reads
        return await asyncio.get_running_loop().run_in_executor(pool, route.handle, call)

    def _failure(self, path: str, method: str, error: Exception) -> Reply:
        number = self._site.runtime.new_id().hex()
        detail = {"action": "request_failed", "method": method, "path": path, "id": number}
        logger.error("A request failed", exc_info=error, extra=detail)
        return failure_reply(path, {"id": number, "node": self._node, "start_time": java_text(self._site.now)})

    def _document(self, _call: Call) -> Reply:
        return self._openapi


def _check_name(name: str, text: str) -> None:
    if "\0" in text or len(text.encode()) > ID_BYTES_MAX:
        raise BadArgument(name=name, value=text[:80], reason=f"it must be text of 1 to {ID_BYTES_MAX} bytes")


class Timing:
    """Adds Start-Time, End-Time, Duration and Node to every answer, and counts them."""

    def __init__(self, app: ASGIApp, runtime: Runtime, node: str, counts: dict[int, int]) -> None:
        self._app, self._runtime, self._counts = app, runtime, counts
        self._node = node.encode("ascii", "replace")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app, count the status of its answer, and add the headers with the times and the node."""
        wall, begun = self._runtime.wall_ns() // 10**6, self._runtime.monotonic()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                status: int = message["status"]
                self._counts[status] = self._counts.get(status, 0) + 1
                message = {**message, "headers": [*message["headers"], *self._headers(wall, begun)]}
            await send(message)

        await self._app(scope, receive, timed)

    def _headers(self, wall: int, begun: float) -> list[tuple[bytes, bytes]]:
        took = round((self._runtime.monotonic() - begun) * 1000)
        named: Mapping[str, Any] = {
            "Start-Time": java_text(wall), "End-Time": java_text(wall + took), "Duration": f"{took} ms",
        }  # fmt: skip
        return [*((name.lower().encode(), text.encode()) for name, text in named.items()), (b"node", self._node)]
