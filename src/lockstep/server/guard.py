"""The checks before every route: token, origin, number and size of requests; errors are sent without traces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.errors import LockstepError, TimedOut
from lockstep.runtime import Runtime, logger
from lockstep.server.access import TokenCheck, is_loopback
from lockstep.server.answers import path_of, problem, refusal
from lockstep.server.errors import BodyTooLarge, ChangeNeedsToken, OriginRefused, TokenWrong, TooManyRequests

HEALTH = "/v1/healthz"
"""Needs no token and is outside the limits: it shows only that the server answers."""
_LOOKS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client, or all of them, can make an engine use."""

    requests: int = 16
    """Requests handled at a time, once they have arrived in full."""
    bodies: int = 16
    """Bodies that come in at a time, of requests that may pass: slow ones keep no others from being worked on."""
    body_bytes: int = 10 << 20
    body_s: float = 10.0


class Check(Protocol):
    """Decides whether a request may pass."""

    def allows(self, authorization: str | None) -> bool:
        """Return whether the Authorization header of a request has valid credentials."""


Refuse = Callable[[Request, LockstepError], Response]
"""Converts an error to an answer."""


class Guard:
    """Passes allowed requests to the app. Without `token` all may read; `change_token` is needed for changes.

    `check` replaces the token. `body_limit` gives the largest body of a path. `open_paths` need
    no token and are outside the limits. Requests to `lasting_paths` do not count as at work: the app bounds them.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        runtime: Runtime,
        limits: Limits,
        change_token: str | None = None,
        open_paths: frozenset[str] = frozenset({HEALTH}),
        refuse: Refuse = refusal,
        check: Check | None = None,
        body_limit: Callable[[str, int], int] = lambda _path, most: most,
        lasting_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._app, self._runtime, self._limits = app, runtime, limits
        self._open_paths, self._refusal, self._body_limit = open_paths, refuse, body_limit
        self._lasting_paths = lasting_paths
        self._token: Check | None = check if token is None else TokenCheck(token)
        self._change_token = None if change_token is None else TokenCheck(change_token)
        self._at_work = self._coming_in = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the app if it is allowed, else answer with an error document."""
        if scope["type"] != "http":
            return
        request, sending = Request(scope), _Sending(send)
        try:
            self._check(request)
            if path_of(request) in self._open_paths:
                await self._app(scope, _replay(b"", receive), sending)
            else:
                await self._serve(request, receive, sending)
        except LockstepError as error:
            await self._refuse(request, error, scope, receive, sending)
        except Exception as error:  # noqa: BLE001 - a defect
            if not sending.has_begun:  # else the app has told it
                await failure(request, error, self._runtime)(scope, receive, sending)

    async def _serve(self, request: Request, receive: Receive, sending: _Sending) -> None:
        body = await self._body(request, receive)
        if body is None:
            return
        if path_of(request) in self._lasting_paths:
            await self._app(request.scope, _replay(body, receive), sending)
            return
        if self._at_work >= self._limits.requests:
            raise TooManyRequests(limit=self._limits.requests)
        self._at_work += 1
        try:
            await self._app(request.scope, _replay(body, receive), sending)
        finally:
            self._at_work -= 1

    def _check(self, request: Request) -> None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise OriginRefused(host=host, origin=origin)
        if self._token is None and not is_loopback(_name_of(host)):  # DNS rebinding: a foreign name for this machine
            raise OriginRefused(host=host, origin=origin or "elsewhere")
        given = request.headers.get("authorization")
        if self._token is not None:
            if path_of(request) not in self._open_paths and not self._token.allows(given):
                raise TokenWrong()
        elif self._change_token is not None and request.method not in _LOOKS and not self._change_token.allows(given):
            raise ChangeNeedsToken()

    async def _body(self, request: Request, receive: Receive) -> bytes | None:
        """All of it, so that no route can take more; None if the client has gone. A request that looks needs none."""
        said = request.headers.get("content-length", "0")
        if request.method in _LOOKS or (said == "0" and "transfer-encoding" not in request.headers):
            return b""
        limit = self._body_limit(path_of(request), self._limits.body_bytes)
        if not said.isdecimal() or int(said) > limit:
            raise BodyTooLarge(limit=limit)
        if self._coming_in >= self._limits.bodies:
            raise TooManyRequests(limit=self._limits.bodies)
        self._coming_in += 1
        try:
            async with asyncio.timeout(self._limits.body_s):
                return await self._received(receive, limit)
        except TimeoutError:
            raise TimedOut(what="Receiving the request", seconds=self._limits.body_s) from None
        finally:
            self._coming_in -= 1

    async def _received(self, receive: Receive, limit: int) -> bytes | None:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise BodyTooLarge(limit=limit)
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _refuse(
        self, request: Request, error: LockstepError, scope: Scope, receive: Receive, sending: _Sending
    ) -> None:
        if not sending.has_begun:
            response = self._refusal(request, error)
            response.headers["Connection"] = "close"  # what is left of the request is not read
            await response(scope, receive, sending)


def failure(request: Request, error: Exception, runtime: Runtime) -> Response:
    """Return the answer to an unexpected exception: a number under which the log has the details."""
    number = runtime.new_id().hex()
    detail = {"action": "request_failed", "method": request.method, "path": path_of(request), "id": number}
    logger.error("A request failed", exc_info=error, extra=detail)
    return problem(request, 500, "INTERNAL", "Something went wrong.", f"Look for {number} in the engine's log.")


class _Sending:
    """Knows whether an answer has begun: a second one can't follow."""

    def __init__(self, send: Send) -> None:
        self._send, self.has_begun = send, False

    async def __call__(self, message: Message) -> None:
        self.has_begun = True
        await self._send(message)


def _replay(body: bytes, receive: Receive) -> Receive:
    """What the app receives: the body in one piece, then what the connection says."""
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
