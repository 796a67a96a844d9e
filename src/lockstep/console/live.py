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
RENDERS_MAX = 4
"""Pages that are rendered at the same time, so that threads are left for requests."""
CONTENT_MAX = 2_000_000
"""The largest page, in characters, that is updated live; viewers of a larger one see a notice."""
PIECE = 65_536
"""Bytes that are given to a connection at a time: one that does not read holds no more than two of these."""
IDLE_MAX = 32
"""Pages that are kept for a second after their last viewer left."""
EVERY_S, ALIVE_S = 1.0, 15.0
Render = Callable[[], Awaitable[str]]
StillMay = Callable[[], Awaitable[bool]]
_TOO_LARGE = "The page is too large to be followed. Show fewer rows, or load it again to see changes."


@dataclass(slots=True)
class _Shared:
    """A page that is open in a browser, or was within the last second."""

    changed: asyncio.Condition
    task: asyncio.Task[None] | None = None
    viewers: int = 0
    number: int = 0
    message: bytes = b""
    digest: bytes = b""
    is_over: bool = False
    """The page has ended, and is not rendered again."""


class LivePages:
    """Renders each page that is looked at once a second, and sends it to its viewers when it has changed.

    `render` of a page may be that of any of its viewers, so a key stands for callers who see the same.
    """

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._pages: dict[str, _Shared] = {}
        self._viewers = 0
        self._rendering = asyncio.Semaphore(RENDERS_MAX)
        self._is_closing = False
        self._over: asyncio.Future[None] | None = None
        """Done when all viewers are to go."""

    @property
    def viewers(self) -> int:
        """How many look now."""
        return self._viewers

    @property
    def pages(self) -> int:
        """How many pages are kept up to date."""
        return len(self._pages)

    def close(self) -> None:
        """End the streams of all viewers. May be called from any thread."""
        self._is_closing = True
        if self._over is not None:
            with suppress(RuntimeError):  # the loop has ended, and so have they
                self._over.get_loop().call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        for shared in self._pages.values():
            if shared.task is not None:
                shared.task.cancel()

    async def serve(
        self, key: str, render: Render, receive: Receive, send: Send, still_may: StillMay | None = None
    ) -> None:
        """Serve one viewer until it goes, or may look no longer; TooManyRequests before anything is sent."""
        if self._viewers >= VIEWERS_MAX:
            raise TooManyRequests(limit=VIEWERS_MAX)
        loop = asyncio.get_running_loop()
        if self._over is None or self._over.get_loop() is not loop:
            self._over = loop.create_future()
        self._viewers += 1
        shared = self._join(key, render)
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._follow(shared, send, gone, still_may)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._viewers -= 1
            self._leave(shared)
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    def _join(self, key: str, render: Render) -> _Shared:
        shared = self._pages.get(key)
        if shared is None:
            shared = self._pages[key] = _Shared(asyncio.Condition())
            shared.task = asyncio.ensure_future(self._keep(key, shared, render))
        shared.viewers += 1
        return shared

    def _leave(self, shared: _Shared) -> None:
        shared.viewers -= 1
        idle = sum(known.viewers == 0 for known in self._pages.values())
        if shared.viewers == 0 and idle > IDLE_MAX and shared.task is not None:
            shared.task.cancel()

    async def _keep(self, key: str, shared: _Shared, render: Render) -> None:
        """Render a page while it has viewers; one that comes back within a second costs nothing."""
        try:
            while not self._is_closing:
                async with self._rendering:
                    kind, text = await _rendered(render)
                if len(text) > CONTENT_MAX:
                    kind, text = "stale", _TOO_LARGE
                if kind == "ended":
                    self._forget(key, shared)
                    shared.is_over = True
                async with shared.changed:
                    _take(shared, kind, text)
                    shared.changed.notify_all()
                if shared.is_over:
                    return
                await asyncio.sleep(self._every_s)
                if shared.viewers == 0:
                    return
        finally:
            self._forget(key, shared)

    def _forget(self, key: str, shared: _Shared) -> None:
        if self._pages.get(key) is shared:
            del self._pages[key]

    async def _follow(
        self, shared: _Shared, send: Send, gone: asyncio.Future[None], still_may: StillMay | None
    ) -> None:
        seen, silent_s = 0, 0.0
        while not self._is_closing and not gone.done():
            if shared.number == seen:
                await self._news(shared, gone)
                if gone.done() or self._is_closing:
                    return
            if still_may is not None and not await still_may():
                await _send(send, _event("ended", "The session has ended, or its token was revoked."), gone)
                return
            silent_s += self._every_s
            if shared.number > seen:
                seen, silent_s = shared.number, 0.0
                await _send(send, shared.message, gone)
                if shared.is_over:
                    return
            elif seen and silent_s >= min(ALIVE_S, 3 * self._every_s):
                silent_s = 0.0  # says that the page is as it was, so that it is not marked as stale
                await _send(send, b"event: same\ndata: 1\n\n", gone)

    async def _news(self, shared: _Shared, gone: asyncio.Future[None]) -> None:
        """Return when the page was looked at anew, the viewer has gone, or nothing of that came for a while."""
        assert self._over is not None
        waiting = asyncio.ensure_future(_changed(shared))
        try:
            await asyncio.wait(
                {waiting, gone, self._over}, timeout=self._every_s * 2, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting


async def _changed(shared: _Shared) -> None:
    async with shared.changed:
        await shared.changed.wait()


async def _rendered(render: Render) -> tuple[str, str]:
    try:
        return "content", await render()
    except Forbidden as error:
        return "ended", str(error)
    except LockstepError as error:
        return "stale", str(error)
    except Exception as error:  # noqa: BLE001  # a defect: viewers see that the page stands still, the log says why
        logger.error("A live page can't be rendered", exc_info=error, extra={"action": "live_page_failed"})
        return "stale", "The page can't be drawn; the server's log says why."


def _take(shared: _Shared, kind: str, text: str) -> None:
    digest = hashlib.blake2b(f"{kind}{text}".encode("utf-8", "replace"), digest_size=16).digest()
    if digest != shared.digest:
        shared.number += 1
        shared.digest = digest
        shared.message = b"id: %d\n%b" % (shared.number, _event(kind, text))


def _event(kind: str, text: str) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(text)}\n\n".encode()


async def _send(send: Send, message: bytes, gone: asyncio.Future[None]) -> None:
    """Send it in pieces: `send` waits while the connection has too much that its client did not read."""
    for at in range(0, len(message), PIECE):
        if gone.done():
            return
        await send({"type": "http.response.body", "body": message[at : at + PIECE], "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
