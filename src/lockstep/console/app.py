"""The ASGI app: what is asked, and the answer as JSON or as a page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from starlette.types import Receive, Scope, Send

from lockstep.console.acts import ActRunner
from lockstep.console.audit import AuditLog
from lockstep.console.callers import SIGN_IN, SIGN_OUT, Callers
from lockstep.console.context import PageContext, path_of
from lockstep.console.credentials import CredentialStore
from lockstep.console.errors import SignInNeeded, TooFast
from lockstep.console.live import LivePages
from lockstep.console.mounts import Mount
from lockstep.console.openapi import document
from lockstep.console.pages import HTML, PAGE_HEADERS, Pages, page_reply
from lockstep.console.port import Asked, Pillar, Site, View
from lockstep.console.request import API, LIVE, Request, query_of
from lockstep.console.static import StaticFiles
from lockstep.errors import BadArgument, LockstepError
from lockstep.runtime import logger
from lockstep.server.access import ANONYMOUS, Principal, Role
from lockstep.server.answers import status_of
from lockstep.server.bodies import Reply, reply
from lockstep.server.errors import MethodNotAllowed
from lockstep.server.routes import Call, Route, Router

OPENAPI = "/openapi.json"


class ConsoleApp:
    """Answers requests of all pillars. The guard before it has received the whole body."""

    def __init__(
        self,
        site: Site,
        pillars: Sequence[Pillar],
        credentials: CredentialStore,
        audit: AuditLog,
        *,
        mounts: Sequence[Mount] = (),
        anonymous: bool = True,
        secure_cookie: bool = False,
        threads: int = 16,
    ) -> None:
        self._site, self._audit, self._mounts = site, audit, mounts
        self._pages, self._static, self.live = Pages(), StaticFiles(), LivePages()
        self._pool = ThreadPoolExecutor(threads, "lockstep-console")
        self._views = {view.path: view for pillar in pillars for view in pillar.views}
        self._acts = {act.path: act for pillar in pillars for act in pillar.acts}
        paths = dict.fromkeys([*self._views, *self._acts])
        self._router = Router([Route(method="GET", path=path, handle=_unused, summary="") for path in paths])
        self._context = PageContext(site, pillars, self._acts.values(), self._router)
        self._callers = Callers(
            credentials, audit, site.runtime.monotonic, anonymous=anonymous, secure_cookie=secure_cookie
        )
        self._runner = ActRunner(self._callers, audit, self._context, self._pages)
        self._openapi = reply(document(self._views.values(), self._acts.values(), mounts))

    def close(self) -> None:
        """End what goes on for ever, and begin nothing more."""
        self.live.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request.of(scope, await receive())
        try:
            if request.path == LIVE:
                await self._serve_live(request, receive, send)
                return
            mount = next((one for one in self._mounts if request.path.startswith(f"{one.prefix}/")), None)
            if mount is not None:
                await self._pass_on(mount, request, scope, receive, send)
                return
            answered = await self._in_thread(self._answer, request)
        except LockstepError as error:
            answered = self._refused(request, error)
        except Exception as error:  # noqa: BLE001  # a defect: told by a number, with the trace in the log
            answered = self._failed(request, error)
        if request.method == "HEAD":
            answered = replace(answered, body=b"")
        await answered.response()(scope, receive, send)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def _answer(self, request: Request) -> Reply:
        if request.path.startswith("/static/"):
            return self._static.reply(request.path, request.headers.get(b"if-none-match", b""))
        if request.path == OPENAPI:
            return self._openapi
        if request.path == SIGN_IN:
            return self._sign_in(request)
        if request.path == SIGN_OUT and request.method == "POST":
            return _sent_on(SIGN_IN, self._callers.sign_out(request))
        raw = (request.raw_path[len(API) :] or b"/") if request.is_api else request.raw_path
        route, names = self._router.find("GET", raw)
        view, act = self._views.get(route.path), self._acts.get(route.path)
        if request.method in ("GET", "HEAD"):
            if view is not None:
                return self._show(view, request, names)
            if act is not None and not request.is_api:
                return self._runner.form(act, request, names)
        if request.method == "POST" and act is not None:
            return self._runner.run(act, request, names)
        has = (("GET", view is not None or not request.is_api), ("POST", act is not None))
        allowed = ", ".join(method for method, is_there in has if is_there)
        raise MethodNotAllowed(method=request.method, path=request.path, allowed=allowed)

    def _show(self, view: View, request: Request, names: Mapping[str, str]) -> Reply:
        asked = _asked(view, request, names, self._callers.admit(request, view.role, view.area))
        tree = view.load(asked)
        if request.is_api:
            return reply(tree)
        return page_reply(self._pages.page(view.template, self._context.of(view, asked, tree)))

    def _sign_in(self, request: Request) -> Reply:
        context = {**self._context.shared(ANONYMOUS), "path": SIGN_IN, "fault": "", "asked": None, "is_live": False}
        if request.method != "POST":
            return page_reply(self._pages.page("sign_in.html", context))
        cookie = self._callers.sign_in(request)
        if cookie is not None:
            return _sent_on("/", cookie)
        context["fault"] = "This token is not valid. It may have expired or been revoked."
        return page_reply(self._pages.page("sign_in.html", context), 403)

    # streams of changes and other apps

    async def _serve_live(self, request: Request, receive: Receive, send: Send) -> None:
        """GET /live?path=PATH: the content of a page whenever it changes."""
        given = query_of(request.query)
        path, _, query = given.get("path", "/").partition("?")
        wanted = replace(request, method="GET", path=path, raw_path=path.encode(), query=query.encode())
        route, names = self._router.find("GET", wanted.raw_path)
        view = self._views.get(route.path)
        if view is None or not view.is_live:
            raise BadArgument(name="path", value=path, reason="it is no page that follows changes")
        principal = await self._in_thread(self._callers.admit, request, view.role, view.area)
        asked = _asked(view, wanted, names, principal)

        def rendered() -> str:
            self._still_admitted(request, view)
            return self._pages.content(view.template, self._context.of(view, asked, view.load(asked)))

        async def render() -> str:
            return str(await self._in_thread(rendered))

        key = f"{principal.credential}\0{principal.session}\0{path}?{query}"
        await self.live.serve(key, render, receive, send)

    def _still_admitted(self, request: Request, view: View) -> None:
        principal = self._callers.principal(request)
        if not principal.may(view.role, view.area):
            raise SignInNeeded()

    async def _pass_on(self, mount: Mount, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        is_change = request.method not in ("GET", "HEAD")
        role = Role.OPERATOR if is_change else Role.VIEWER
        principal = await self._in_thread(lambda: self._callers.admit(request, role, mount.area, changes=is_change))
        if is_change and principal.session:
            raise SignInNeeded()
        path = request.path[len(mount.prefix) :]
        if is_change:
            await self._in_thread(self._audit.event, principal, request.address, f"{request.method} {mount.title}",
                                  request.path, "begun")  # fmt: skip
        inner = {**scope, "path": path, "raw_path": request.raw_path[len(mount.prefix) :]}
        waiting = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def replayed() -> Any:
            return waiting.pop() if waiting else await receive()

        await mount.app(inner, replayed, send)

    # errors

    def _refused(self, request: Request, error: LockstepError) -> Reply:
        status = _status(error)
        message = type(error).template.format(**error.params)
        advice = " ".join([type(error).advice.format(**error.params), *getattr(error, "__notes__", [])]).strip()
        headers = (
            {"Retry-After": "1"} if status in (429, 503) else {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        )
        if request.wants_page:
            if isinstance(error, SignInNeeded):
                return Reply(b"", 303, HTML, {**PAGE_HEADERS, "Location": SIGN_IN})
            context = {**self._context.shared(ANONYMOUS), "path": request.path, "status": status, "code": error.code,
                       "message": message, "advice": advice, "asked": None, "is_live": False}  # fmt: skip
            return page_reply(self._pages.page("error.html", context), status)
        return reply({"error": {"code": error.code, "message": message, "advice": advice}}, status, headers)

    def _failed(self, request: Request, error: Exception) -> Reply:
        number = self._site.runtime.new_id().hex()
        detail = {"action": "request_failed", "method": request.method, "path": request.path, "id": number}
        logger.error("A request failed", exc_info=error, extra=detail)
        told = {"code": "INTERNAL", "message": "Something went wrong.", "advice": f"Look for {number} in the log."}
        return reply({"error": told}, 500)


def _asked(view: View, request: Request, names: Mapping[str, str], principal: Principal) -> Asked:
    """What is asked of a view; BadArgument for a parameter that it does not have, or can't take."""
    given = query_of(request.query)
    unknown = [name for name in given if name not in {known.name for known in view.parameters}]
    if unknown:
        known = ", ".join(parameter.name for parameter in view.parameters) or "none"
        raise BadArgument(name=unknown[0], value=given[unknown[0]], reason=f"unknown parameter; known: {known}")
    values = {parameter.name: parameter.read(given.get(parameter.name)) for parameter in view.parameters}
    path = path_of(view.path, names)
    return Asked(path=path, names=names, values=values, given=given, principal=principal, address=request.address)


def _sent_on(where: str, cookie: str) -> Reply:
    return Reply(b"", 303, HTML, {**PAGE_HEADERS, "Location": where, "Set-Cookie": cookie})


def _status(error: LockstepError) -> int:
    if isinstance(error, SignInNeeded):
        return 401
    if isinstance(error, TooFast):
        return 429
    return 405 if isinstance(error, MethodNotAllowed) else status_of(error)


def _unused(_call: Call) -> Reply:
    message = "views and acts are called by the app"
    raise AssertionError(message)
