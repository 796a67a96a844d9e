"""Health, readiness and metrics: answered before anything else, so that they answer also when all slots are busy."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.console.port import Site
from lockstep.errors import LockstepError
from lockstep.server.bodies import TEXT, Reply, reply

HEALTHZ, READYZ, METRICS = "/healthz", "/readyz", "/metrics"
READY_KEPT_S = 1.0


class Operation:
    """Stands before the app; counts its answers."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app, self._site = app, site
        self._answers: Counter[int] = Counter()
        self._ready: tuple[float, Reply] | None = None
        self._looking: asyncio.Task[Reply] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI app."""
        path = scope["path"]
        if path in (HEALTHZ, READYZ, METRICS) and scope["method"] in ("GET", "HEAD"):
            await (await self._own(path)).response()(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answers[message["status"]] += 1
            await send(message)

        await self._app(scope, receive, counted)

    async def _own(self, path: str) -> Reply:
        if path == HEALTHZ:
            return reply({"status": "ok"})
        if path == METRICS:
            return await asyncio.to_thread(self._metrics)
        now = self._site.runtime.monotonic()
        if self._ready is not None and now - self._ready[0] < READY_KEPT_S:
            return self._ready[1]
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._readiness))
        return await asyncio.shield(self._looking)

    def _readiness(self) -> Reply:
        try:
            self._site.client.bus.names()
            found = reply({"status": "ok", "role": "console", "epoch": None})
        except LockstepError:  # everybody may ask, so where the bus is is not told
            found = reply({"status": "the bus is away; the log says why"}, 503, {"Retry-After": "1"})
        self._ready = (self._site.runtime.monotonic(), found)
        return found

    def _metrics(self) -> Reply:
        lines = ["# HELP lockstep_console_answers_total Answers of the console by status",
                 "# TYPE lockstep_console_answers_total counter"]  # fmt: skip
        lines += [f'lockstep_console_answers_total{{status="{status}"}} {count}'
                  for status, count in sorted(self._answers.items())]  # fmt: skip
        lines += [f"process_time_seconds {time.process_time():.3f}", ""]
        return Reply("\n".join(lines).encode(), media_type=TEXT)
