"""What stands before every route: token, origin, how many requests at a time, how large, and errors without traces."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.errors import LockstepError, TimedOut
from lockstep.runtime import Runtime, logger
from lockstep.server.answers import problem, refusal
from lockstep.server.errors import BodyTooLarge, OriginRefused, TokenWrong, TooManyRequests
from lockstep.server.tokens import TokenCheck, is_loopback

HEALTH = "/v1/healthz"
"""Open to everybody: it says nothing but that the server answers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client, or all of them, can make an engine use."""

    requests: int = 16
    body_bytes: int = 10 << 20
    body_s: float = 30.0


class Guard:
    """Lets requests through to the app that may pass."""

    def __init__(self, app: ASGIApp, *, token: str | None, runtime: Runtime, limits: Limits) -> None:
        self._app, self._runtime, self._limits = app, runtime, limits
        self._token = None if token is None else TokenCheck(token)
        self._at_work = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return
        self._at_work += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._at_work -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, sending = Request(scope), _Sending(send)
        try:
            self._check(request)
            body = await self._body(request, receive)
            if body is not None:
                await self._app(scope, _replay(body, receive), sending)
        except LockstepError as error:
            await self._refuse(request, error, scope, receive, sending)
        except Exception as error:  # noqa: BLE001 - a defect
            if not sending.has_begun:  # else the app has told it
                await failure(request, error, self._runtime)(scope, receive, sending)

    def _check(self, request: Request) -> None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise OriginRefused(host=host, origin=origin)
        if self._token is None and not is_loopback(_name_of(host)):  # a name that somebody made to mean this machine
            raise OriginRefused(host=host, origin=origin or "elsewhere")
        if self._at_work > self._limits.requests:
            raise TooManyRequests(limit=self._limits.requests)
        allowed = self._token is None or request.url.path == HEALTH
        if not allowed and self._token is not None and not self._token.allows(request.headers.get("authorization")):
            raise TokenWrong()

    async def _body(self, request: Request, receive: Receive) -> bytes | None:
        """All of it, so that no route can take more; None if the client has gone."""
        limit, parts, size = self._limits.body_bytes, [], 0
        said = request.headers.get("content-length", "0")
        if not said.isdecimal() or int(said) > limit:
            raise BodyTooLarge(limit=limit)
        try:
            async with asyncio.timeout(self._limits.body_s):
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
        except TimeoutError:
            raise TimedOut(what="Receiving the request", seconds=self._limits.body_s) from None

    async def _refuse(
        self, request: Request, error: LockstepError, scope: Scope, receive: Receive, sending: _Sending
    ) -> None:
        if not sending.has_begun:
            response = refusal(request, error)
            response.headers["Connection"] = "close"  # what is left of the request is not read
            await response(scope, receive, sending)


def failure(request: Request, error: Exception, runtime: Runtime) -> Response:
    """What a client is told of a defect: a number, under which the log has the rest."""
    number = runtime.new_id().hex()
    detail = {"action": "request_failed", "method": request.method, "path": request.url.path, "id": number}
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
