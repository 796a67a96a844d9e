"""Our own routes of a monitor: what happened, why, acknowledgements, and transitions as they come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from starlette.types import Receive, Scope, Send

from lockstep.errors import BadArgument
from lockstep.monitor.view import FleetView
from lockstep.server.access import Role
from lockstep.server.bodies import TEXT, Reply
from lockstep.server.errors import TooManyRequests
from lockstep.server.monitor.sensu import parse_body
from lockstep.server.monitor.site import MonitorSite, answer, empty
from lockstep.server.routes import Call, Route, Text, Work

HEALTHZ, READYZ = "/healthz", "/readyz"
_HISTORY_MAX = 1_000
_ANSWERS: Mapping[str, Mapping[int, Any]] = {
    "/why/{client}/{check}": {200: {}, 404: None}, "/deliveries": {200: {"items": [], "doubts": []}},
    "/counters": {200: {}},
    READYZ: {200: {"ready": True, "servers": []}, 503: {"ready": False, "servers": []}},
}  # fmt: skip
"""Examples of answers; of others it is a list."""


class OwnRoutes:
    """The monitor's own routes: events, reasons, acknowledgements and live transitions."""

    def __init__(self, site: MonitorSite) -> None:
        self._site, self._view = site, site.view

    def routes(self) -> list[Route]:
        """All of them."""
        limit = {"limit": f"at most so many, up to {_HISTORY_MAX} (100)"}
        get = [
            ("/history", self.history, "The newest transitions of the fleet", limit),
            ("/history/{client}", self.history, "The newest transitions of a client", limit),
            ("/history/{client}/{check}", self.history, "The newest transitions of a check", limit),
            ("/why/{client}/{check}", self.why, "What each gate said of a check's last event", {}),
            ("/deliveries", self.deliveries, "What became of notifications, and what is in doubt",
             {"unfinished": "true: only those that are not finished with", **limit}),
            ("/refused", self.refused, "What was refused lately, and why", {}),
            ("/counters", self.counters, "Totals", {}),
            (READYZ, self.readyz, "200 if the view follows the fleet, else 503", {}),
        ]  # fmt: skip
        made = [
            Route(
                method="GET",
                path=path,
                handle=handle,
                summary=summary,
                tag="monitor",
                query=query,
                answers=_ANSWERS.get(path, {200: []}),
            )
            for path, handle, summary, query in get
        ]
        ack = Route(
            method="POST", path="/ack", handle=self.ack, summary="Silence an event until it is resolved",
            work=Work.CHANGE, tag="monitor", body={"client": "web-1", "check": "disk", "by": "ann", "reason": "known"},
            answers={201: {"id": "client:web-1:disk"}, 404: None},
        )  # fmt: skip
        reload = Route(
            method="POST", path="/settings", handle=self.reload, summary="Put settings in force", role=Role.ADMIN,
            work=Work.CHANGE, tag="monitor", body={"settings": {"checks": {}}, "digest": "", "by": "ann"},
            answers={200: {"digest": ""}},
        )  # fmt: skip
        health = Route(
            method="GET", path=HEALTHZ, handle=lambda _: Reply(b"ok\n", media_type=TEXT),
            summary="That the server answers",
            work=Work.INLINE, tag="monitor", answers={200: Text("ok\n", TEXT)},
        )  # fmt: skip
        changes = Route(
            method="GET", path=CHANGES, handle=lambda _: Reply(b"", media_type=EVENT_STREAM),
            summary="Transitions as they come, as server-sent events", work=Work.INLINE, tag="monitor",
            answers={200: Text("id: 1.0\ndata: {}\n\n", EVENT_STREAM)},
        )  # fmt: skip
        return [*made, ack, reload, health, changes]

    def history(self, call: Call) -> Reply:
        """GET /history."""
        limit = call.whole("limit", 100, 1, _HISTORY_MAX)
        return answer(self._view.transitions(call.names.get("client"), call.names.get("check"), limit=limit))

    def why(self, call: Call) -> Reply:
        """GET /why/:c/:k."""
        found = self._view.row("why", call.names["client"], call.names["check"])
        return empty(404) if found is None else answer(found)

    def deliveries(self, call: Call) -> Reply:
        """GET /deliveries."""
        unfinished = call.query.get("unfinished") == "true"
        return answer(self._site.deliveries(unfinished, call.whole("limit", 100, 1, _HISTORY_MAX)))

    def refused(self, _call: Call) -> Reply:
        """GET /refused."""
        rows: list[dict[str, Any]] = sorted(self._view.rows("refused"), key=lambda row: -row["time"])
        return answer(rows)

    def counters(self, _call: Call) -> Reply:
        """GET /counters."""
        return answer(self._view.row("counters") or {})

    def readyz(self, _call: Call) -> Reply:
        """GET /readyz."""
        following = self._site.is_following()
        return answer({"ready": following, "servers": self._site.servers()}, 200 if following else 503)

    def ack(self, call: Call) -> Reply:
        """POST /ack."""
        given = parse_body(call, client=str, check=str)
        more = {name: given[name] for name in ("by", "reason") if isinstance(given.get(name), str)}
        return self._site.ask("ack", client=given["client"], check=given["check"], **more)

    def reload(self, call: Call) -> Reply:
        """POST /settings."""
        given = parse_body(call, settings=dict, digest=str)
        return self._site.ask(
            "settings", settings=given["settings"], digest=given["digest"], by=str(given.get("by") or "")
        )


CHANGES, EVENT_STREAM = "/changes", "text/event-stream"
STREAMS_MAX = 64
"""Readers at a time."""
_LOOK_S, _ALIVE_S = 0.5, 15.0
_AT_ONCE = 500
_ID = re.compile(rb"(\d{1,18})\.(\d{1,9})")
Place = tuple[int, int]


class ChangeStreams:
    """Sends transitions of a view to readers that stay connected."""

    def __init__(self, view: FleetView, reads: Executor) -> None:
        self._view, self._reads = view, reads
        self._open = 0
        self._is_closing = False

    def close(self) -> None:
        """End the streams of all readers, within half a second."""
        self._is_closing = True

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one reader until it goes. BadArgument or TooManyRequests before anything is sent."""
        if self._open >= STREAMS_MAX:
            raise TooManyRequests(limit=STREAMS_MAX)
        place = await self._begin(scope)
        self._open += 1
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            headers = [(b"content-type", EVENT_STREAM.encode()), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._follow(place, send, gone)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._open -= 1
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    async def _begin(self, scope: Scope) -> Place:
        given = dict(scope["headers"]).get(b"last-event-id")
        if given is None:
            return await asyncio.get_running_loop().run_in_executor(self._reads, self._view.last_place)
        found = _ID.fullmatch(given)
        if found is None:
            raise BadArgument(
                name="Last-Event-ID", value=given[:80], reason="it must be one that was sent: BLOCK.NUMBER"
            )
        return int(found[1]), int(found[2])

    async def _follow(self, place: Place, send: Send, gone: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        told = loop.time()
        while not gone.done() and not self._is_closing:
            found = await loop.run_in_executor(self._reads, self._view.transitions_after, place, _AT_ONCE)
            if found:
                place, told = found[-1][0], loop.time()
                await _send(send, b"".join(b"id: %d.%d\ndata: %b\n\n" % (*each, body) for each, body in found))
            elif loop.time() - told >= _ALIVE_S:
                told = loop.time()
                await _send(send, b": nothing new\n\n")
            if len(found) < _AT_ONCE:
                await asyncio.wait([gone], timeout=_LOOK_S)


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
