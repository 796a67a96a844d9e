"""Pages that follow changes: server-sent events with the content of a page, rendered once for all its viewers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from starlette.types import Receive, Send

from lockstep.errors import Forbidden, LockstepError
from lockstep.runtime import logger
from lockstep.server.errors import TooManyRequests

VIEWERS_MAX = 512
EVERY_S, ALIVE_S = 1.0, 15.0
Render = Callable[[], Awaitable[str]]


@dataclass(slots=True)
class _Shared:
    """A page that somebody looks at."""

    task: asyncio.Task[None]
    changed: asyncio.Condition
    viewers: int = 0
    number: int = 0
    message: bytes = b""
    digest: bytes = b""
    is_over: bool = False
    """Nobody may look at it any more."""


class LivePages:
    """Renders each page that is looked at once a second, and sends it to its viewers when it has changed."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._pages: dict[str, _Shared] = {}
        self._viewers = 0
        self._is_closing = False

    @property
    def viewers(self) -> int:
        """How many look now."""
        return self._viewers

    def close(self) -> None:
        """End the streams of all viewers, within a second."""
        self._is_closing = True

    async def serve(self, key: str, render: Render, receive: Receive, send: Send) -> None:
        """Serve one viewer until it goes; TooManyRequests before anything is sent."""
        if self._viewers >= VIEWERS_MAX:
            raise TooManyRequests(limit=VIEWERS_MAX)
        self._viewers += 1
        shared = self._join(key, render)
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._follow(shared, send, gone)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._viewers -= 1
            self._leave(key, shared)
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    def _join(self, key: str, render: Render) -> _Shared:
        shared = self._pages.get(key)
        if shared is None:
            changed = asyncio.Condition()
            shared = _Shared(asyncio.ensure_future(asyncio.sleep(0)), changed)
            shared.task = asyncio.ensure_future(self._keep(key, shared, render))
            self._pages[key] = shared
        shared.viewers += 1
        return shared

    def _leave(self, key: str, shared: _Shared) -> None:
        shared.viewers -= 1
        if shared.viewers == 0:
            shared.task.cancel()
            if self._pages.get(key) is shared:
                del self._pages[key]

    async def _keep(self, key: str, shared: _Shared, render: Render) -> None:
        while not self._is_closing:
            try:
                kind, text = "content", await render()
            except Forbidden as error:  # the token or session was ended meanwhile
                kind, text, shared.is_over = "ended", str(error), True
                if self._pages.get(key) is shared:
                    del self._pages[key]
            except LockstepError as error:
                kind, text = "stale", str(error)
            except Exception as error:  # noqa: BLE001  # a defect: viewers see that the page stands still, the log says why
                logger.error("A live page can't be rendered", exc_info=error, extra={"action": "live_page_failed"})
                kind, text = "stale", "The page can't be drawn; the server's log says why."
            digest = hashlib.blake2b(f"{kind}{text}".encode(), digest_size=16).digest()
            async with shared.changed:
                if digest != shared.digest:
                    shared.number += 1
                    shared.digest = digest
                    shared.message = f"id: {shared.number}\nevent: {kind}\ndata: {json.dumps(text)}\n\n".encode()
                shared.changed.notify_all()
            if shared.is_over:
                return
            await asyncio.sleep(self._every_s)

    async def _follow(self, shared: _Shared, send: Send, gone: asyncio.Future[None]) -> None:
        seen, silent_s = 0, 0.0
        while not self._is_closing and not gone.done() and not (shared.is_over and shared.number == seen):
            async with shared.changed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(shared.changed.wait(), self._every_s * 2)
            silent_s += self._every_s
            if shared.number > seen:
                seen, silent_s = shared.number, 0.0
                await send({"type": "http.response.body", "body": shared.message, "more_body": True})
            elif seen and silent_s >= min(ALIVE_S, 3 * self._every_s):
                silent_s = 0.0  # says that the page is as it was, so that it is not marked as stale
                await send({"type": "http.response.body", "body": b"event: same\ndata: 1\n\n", "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
