"""Health, readiness and metrics: answered before anything else, so that they answer also when all slots are busy.

Everybody may ask whether the server is well. What it looks at, and metrics, which have the names of streams, are for
those who may look at pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from lockstep.console.app import ConsoleApp
from lockstep.console.border import error_reply
from lockstep.console.metrics import ServerMetrics
from lockstep.console.port import Pillar, Site
from lockstep.errors import LockstepError
from lockstep.runtime import logger
from lockstep.server.bodies import Reply, reply

HEALTHZ, READYZ, METRICS = "/healthz", "/readyz", "/metrics"
READY_KEPT_S = 1.0
AWAY = "the bus does not answer; the log says why"


class Operation:
    """Stands before the app; counts its answers."""

    def __init__(self, app: ConsoleApp, site: Site, pillars: Sequence[Pillar]) -> None:
        self._app, self._site, self._pillars = app, site, pillars
        self._metrics = ServerMetrics(site, pillars, lambda: app.live.viewers)
        self._ready: tuple[float, bool, list[dict[str, Any]]] | None = None
        self._looking: asyncio.Task[tuple[bool, list[dict[str, Any]]]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI app."""
        path, began = scope["path"], self._site.runtime.monotonic()
        is_own = path in (HEALTHZ, READYZ, METRICS) and scope["method"] in ("GET", "HEAD")

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = path if is_own else self._app.label(scope)
                took = None if route.endswith(("/live", "/changes")) else self._site.runtime.monotonic() - began
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._metrics.requests.add(method, route, message["status"], took)
            await send(message)

        if is_own:
            await (await self._own(path, scope)).response()(scope, receive, counted)
        else:
            await self._app(scope, receive, counted)

    async def _own(self, path: str, scope: Scope) -> Reply:
        if path == HEALTHZ:
            return reply({"status": "ok"})
        try:
            if path == METRICS:
                return await asyncio.to_thread(self._figures, scope)
            return await self._readiness(scope)
        except LockstepError as error:
            return error_reply(error)

    def _figures(self, scope: Scope) -> Reply:
        self._app.check_may_look(scope)
        return self._metrics.reply()

    async def _readiness(self, scope: Scope) -> Reply:
        is_well, parts = await self._looked()
        told: dict[str, Any] = {"status": "ok" if is_well else "away", "role": "console", "epoch": None}
        if not is_well:  # everybody may ask, so where the bus is is not told
            return reply({**told, "reason": AWAY}, 503, {"Retry-After": "1"})
        with suppress(LockstepError):
            await asyncio.to_thread(self._app.check_may_look, scope)
            told["parts"] = parts
        return reply(told)

    async def _looked(self) -> tuple[bool, list[dict[str, Any]]]:
        """At most once a second, by one thread at a time."""
        now = self._site.runtime.monotonic()
        if self._ready is not None and now - self._ready[0] < READY_KEPT_S:
            return self._ready[1:]
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._look))
        return await asyncio.shield(self._looking)

    def _look(self) -> tuple[bool, list[dict[str, Any]]]:
        parts: list[dict[str, Any]] = []
        try:
            self._site.client.bus.names()
            is_well = True
        except LockstepError as error:
            logger.warning("The bus can't be read: %s", error, extra={"action": "not_ready", "reason": str(error)})
            is_well = False
        for pillar in self._pillars if is_well else ():
            try:
                parts += [dict(part) for part in pillar.parts()]
            except LockstepError as error:
                parts.append({"kind": pillar.name, "name": pillar.title, "role": "unknown", "leader": None,
                              "epoch": None, "reason": error.code})  # fmt: skip
        self._ready = (self._site.runtime.monotonic(), is_well, parts)
        return is_well, parts


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
