"""GET /changes: transitions as they come, as server-sent events. `Last-Event-ID` says after which one to go on."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Executor
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from lockstep.errors import BadArgument
from lockstep.monitor.view import FleetView
from lockstep.server.errors import TooManyRequests

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
