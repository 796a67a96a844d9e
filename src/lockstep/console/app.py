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
from lockstep.console.border import error_advice, error_message, error_reply, error_status
from lockstep.console.callers import SIGN_IN, SIGN_OUT, Callers
from lockstep.console.context import PageContext, path_of
from lockstep.console.credentials import CredentialStore
from lockstep.console.errors import SignInNeeded
from lockstep.console.live import LivePages
from lockstep.console.mounts import Change, Mount, NotedApi
from lockstep.console.openapi import document
from lockstep.console.pages import HTML, Pages, page_reply
from lockstep.console.port import Asked, Pillar, Site, View
from lockstep.console.request import API, LIVE, Request, query_of
from lockstep.console.static import StaticFiles
from lockstep.errors import BadArgument, LockstepError
from lockstep.runtime import logger
from lockstep.server.access import ANONYMOUS, Principal, Role
from lockstep.server.bodies import Reply, reply
from lockstep.server.errors import MethodNotAllowed, RouteNotFound
from lockstep.server.routes import Call, Route, Router

OPENAPI, GRAFANA = "/openapi.json", "/grafana.json"
METRICS_AREA = "metrics"
"""What the scope of a token must have for /metrics."""


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
        await answered.response()(scope, receive, send)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def label(self, scope: Scope) -> str:
        """The route of a request, for counts: one of those in the document."""
        path, raw = scope["path"], scope["raw_path"]
        mount = next((one for one in self._mounts if path.startswith(f"{one.prefix}/")), None)
        if mount is not None:
            route = mount.route(scope["method"], raw[len(mount.prefix) :])
            return f"{mount.prefix}/{{{mount.name}}}{'/...' if route is None else route.path}"
        if path in (LIVE, SIGN_IN, SIGN_OUT, OPENAPI, GRAFANA) or path.startswith("/static/"):
            return "/static" if path.startswith("/static/") else str(path)
        prefix = API if raw.startswith(f"{API}/".encode()) else ""
        try:
            return prefix + self._router.find("GET", raw[len(prefix) :])[0].path
        except LockstepError:
            return "unknown"

    def check_may_look(self, scope: Scope) -> None:
        """Refuse a caller that may not see metrics: SignInNeeded. They cost little however often they are asked for."""
        if not self._callers.principal(Request.of(scope, {})).may(Role.VIEWER, METRICS_AREA):
            raise SignInNeeded()

    def _answer(self, request: Request) -> Reply:
        if request.path.startswith("/static/"):
            return self._static.reply(request.path, request.headers.get(b"if-none-match", b""))
        if request.path == OPENAPI:
            return self._openapi
        if request.path == GRAFANA:
            return self._static.dashboard()
        if request.path == SIGN_IN:
            return self._sign_in(request)
        if request.path == SIGN_OUT and request.method == "POST":
            return _sent_on(SIGN_IN, self._callers.sign_out(request))
        raw = request.raw_path
        if request.is_api:
            raw = _without_prefix(request, API) or b"/"
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
        if request.method != "GET":
            raise MethodNotAllowed(method=request.method, path=LIVE, allowed="GET")
        given = query_of(request.query)
        path, _, query = given.get("path", "/").partition("?")
        wanted = replace(request, method="GET", path=path, raw_path=path.encode(), query=query.encode())
        route, names = self._router.find("GET", wanted.raw_path)
        view = self._views.get(route.path)
        if view is None or not view.is_live:
            raise BadArgument(name="path", value=path, reason="it is no page that follows changes")
        principal = await self._in_thread(self._callers.admit, request, view.role, view.area)
        # Viewers of a role and scope share what is rendered, so nothing of one caller's session may be in it.
        shown = principal if view.is_personal else Principal("", principal.role, principal.scope)
        asked = _asked(view, wanted, names, shown)

        def rendered() -> str:
            return self._pages.content(view.template, self._context.of(view, asked, view.load(asked)))

        async def render() -> str:
            return str(await self._in_thread(rendered))

        async def still_may() -> bool:
            return bool(await self._in_thread(self._is_still, principal, request, view))

        key = f"{shown.credential}\0{shown.session}\0{shown.role.label}\0{','.join(shown.scope)}\0{path}?{query}"
        await self.live.serve(key, render, receive, send, still_may if principal.credential else None)

    def _is_still(self, principal: Principal, request: Request, view: View) -> bool:
        """Whether who opened a live page has the same credential as then, and it still allows that."""
        try:
            now = self._callers.principal(request)
        except SignInNeeded:
            return False
        return now.credential == principal.credential and now.may(view.role, view.area)

    async def _pass_on(self, mount: Mount, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        is_change = request.method not in ("GET", "HEAD")
        inner = {**scope, "path": request.path[len(mount.prefix) :], "raw_path": _without_prefix(request, mount.prefix)}
        role = mount.role(request.method, inner["raw_path"])
        principal = await self._in_thread(lambda: self._callers.admit(request, role, mount.area, changes=is_change))
        if is_change and principal.session:
            raise SignInNeeded()
        waiting = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def replayed() -> Any:
            return waiting.pop() if waiting else await receive()

        if not is_change:
            await mount.app(inner, replayed, send)
            return
        change = Change(principal=principal, address=request.address, method=request.method, path=request.path,
                        body=request.body)  # fmt: skip
        await NotedApi(mount, self._audit).change(change, inner, replayed, send)

    # errors

    def _refused(self, request: Request, error: LockstepError) -> Reply:
        status = error_status(error)
        if request.wants_page:
            if isinstance(error, SignInNeeded):
                return Reply(b"", 303, HTML, {"Location": SIGN_IN})
            context = {**self._context.shared(ANONYMOUS), "path": request.path, "status": status, "code": error.code,
                       "message": error_message(error), "advice": error_advice(error), "asked": None,
                       "is_live": False}  # fmt: skip
            return page_reply(self._pages.page("error.html", context), status)
        return error_reply(error)

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


def _without_prefix(request: Request, prefix: str) -> bytes:
    """The path after a prefix, as it was sent; RouteNotFound where parts of the prefix are escaped."""
    if not f"{request.raw_path.decode('latin-1')}/".startswith(f"{prefix}/"):
        raise RouteNotFound(path=request.path)
    return request.raw_path[len(prefix) :]


def _sent_on(where: str, cookie: str) -> Reply:
    return Reply(b"", 303, HTML, {"Location": where, "Set-Cookie": cookie})


def _unused(_call: Call) -> Reply:
    message = "views and acts are called by the app"
    raise AssertionError(message)
