"""The app of a monitor's API: routes, errors as Sensu reports them, and CORS where the settings ask for it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.errors import Closed, LockstepError, NotFound, TimedOut, Unavailable, UsageError
from lockstep.runtime import logger
from lockstep.server.answers import status_of
from lockstep.server.bodies import Reply
from lockstep.server.errors import BodyTooLarge, LoginWrong, MethodNotAllowed, TokenWrong
from lockstep.server.monitor.own import CHANGES, HEALTHZ, READYZ, ChangeStreams, OwnRoutes
from lockstep.server.monitor.sensu import ALWAYS, SENSU, ClientRoutes, EventRoutes, OperationRoutes
from lockstep.server.monitor.site import MonitorSite, answer
from lockstep.server.openapi import document
from lockstep.server.routes import Call, Handle, Route, Router, Work, parse_query

OPEN_PATHS = frozenset({HEALTHZ, READYZ})
"""Needs no credentials and is outside the limits."""
OPENAPI = "/openapi.json"
_REQUEST_ID, _ORIGIN = b"x-request-id", b"origin"


def routes_of(site: MonitorSite, document: Handle) -> list[Route]:
    """All routes; `document` answers with the OpenAPI document."""
    groups = (ClientRoutes(site), EventRoutes(site), OperationRoutes(site), OwnRoutes(site))
    own = Route(
        method="GET", path=OPENAPI, handle=document, work=Work.INLINE, tag="monitor",
        summary="The routes, with examples",
    )  # fmt: skip
    return [*(route for group in groups for route in group.routes()), own]


class MonitorApp:
    """An ASGI app. The guard before it has received the whole body."""

    def __init__(self, site: MonitorSite, reads: ThreadPoolExecutor, changes: ThreadPoolExecutor) -> None:
        self._site, self._reads, self._changes = site, reads, changes
        self._changing = ChangeStreams(site.view, reads)
        self.router = Router(routes_of(site, lambda _: self._document))
        self._document = answer(
            document(self.router.routes, title="Lockstep monitor", summary="Sensu's HTTP API, and our own",
                     scheme="basic")
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] == CHANGES and scope["method"] == "GET":
            try:
                await self._changing.serve(scope, receive, send)
            except LockstepError as error:
                await error_reply(error).response()(scope, receive, send)
            return
        message = await receive()
        answered = await self._answer(scope, message.get("body", b""))
        await answered.response()(scope, receive, send)

    def close(self) -> None:
        """End what would go on for ever."""
        self._changing.close()

    async def _answer(self, scope: Scope, body: bytes) -> Reply:
        method: str = scope["method"]
        try:
            path = b"/" + scope["raw_path"].lstrip(b"/")  # handlers of sensu_plugin begin paths with two
            route, names = self.router.find("GET" if method == "HEAD" else method, path)
            if route.tag == SENSU and route.path not in ALWAYS and not self._site.is_following():
                return answer({"error": "The view of the fleet can't follow now: the bus does not answer."}, 500)
            call = Call(scope["path"], names, parse_query(scope["query_string"], route), body)
            if route.work is Work.INLINE:
                return route.handle(call)
            pool = self._changes if route.work is Work.CHANGE else self._reads
            return await asyncio.get_running_loop().run_in_executor(pool, route.handle, call)
        except LockstepError as error:
            return error_reply(error)
        except Exception as error:  # noqa: BLE001  # a defect: told by a number, with the trace in the log
            number = self._site.runtime.new_id().hex()
            logger.error("A request failed", exc_info=error, extra={"action": "request_failed", "id": number})
            return answer({"error": f"Something went wrong. Look for {number} in the log."}, 500)


def error_reply(error: LockstepError) -> Reply:
    """An error as Sensu's clients know it: its codes, and the sentence as `error`."""
    text = " ".join(filter(None, (type(error).template, type(error).advice))).format(**error.params)
    told = answer({"error": text}, error_status(error))
    if isinstance(error, MethodNotAllowed):
        return replace(told, headers={"Allow": str(error.params["allowed"])})
    return replace(told, headers={"WWW-Authenticate": 'Basic realm="Restricted Area"'}) if told.status == 401 else told


def error_status(error: LockstepError) -> int:
    """The HTTP status of an error: 500 while the bus is away, as Sensu answers."""
    if isinstance(error, MethodNotAllowed):
        return 405
    if isinstance(error, TokenWrong):
        return 401
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, UsageError) and not isinstance(error, BodyTooLarge):
        return 400
    return 500 if isinstance(error, TimedOut | Closed | Unavailable) else status_of(error)


def refusal(_request: Request, error: LockstepError) -> Response:
    """Return an error of the guard as an answer."""
    if isinstance(error, TokenWrong):
        error = LoginWrong()
    return error_reply(error).response()


class Headers:
    """Adds what Sensu sends with every answer: Connection: close, the request's id, and CORS if there is any.

    OPTIONS is answered here, before credentials are looked at: a browser asks without them.
    """

    def __init__(self, app: ASGIApp, cors: dict[str, str]) -> None:
        self._app, self._origin = app, cors.get("Origin")
        self._fixed = [(b"connection", b"close")]
        self._fixed += [(f"access-control-allow-{name}".lower().encode(), text.encode()) for name, text in cors.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI app."""
        given = dict(scope.get("headers", []))
        own = [(_REQUEST_ID, given[_REQUEST_ID][:128])] if _REQUEST_ID in given else []

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0].lower() != b"connection"]
                message = {**message, "headers": [*headers, *self._fixed, *own]}
            await send(message)

        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            await Reply(b"").response()(scope, receive, sent)
            return
        await self._app(self._without_origin(scope, given.get(_ORIGIN)), receive, sent)

    def _without_origin(self, scope: Scope, origin: bytes | None) -> Scope:
        """The guard takes requests of other origins for forged ones; those that the settings name may pass."""
        if origin is None or self._origin not in ("*", origin.decode("latin-1")):
            return scope
        return {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != _ORIGIN]}
