"""The ASGI app: who asks, what is asked, and the answer as JSON or as a page."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from starlette.types import Receive, Scope, Send

from lockstep.console.audit import AuditLog
from lockstep.console.credentials import SESSION_S, CredentialStore
from lockstep.console.errors import (
    ActRepeated,
    FormForged,
    FormInvalid,
    NotConfirmed,
    RoleNeeded,
    SignInNeeded,
    TooFast,
)
from lockstep.console.limits import CHANGES, READS, SIGN_INS, RateLimits
from lockstep.console.live import LivePages
from lockstep.console.mounts import Mount
from lockstep.console.openapi import document
from lockstep.console.pages import Pages, crumbs, link
from lockstep.console.port import DRY_RUN, Act, Asked, Pillar, Site, View
from lockstep.console.static import StaticFiles
from lockstep.errors import BadArgument, LockstepError
from lockstep.runtime import logger
from lockstep.server.access import ANONYMOUS, Principal, Role
from lockstep.server.answers import status_of
from lockstep.server.bodies import Reply, parse_json, reply
from lockstep.server.errors import MethodNotAllowed, RouteNotFound
from lockstep.server.routes import Call, Route, Router

API = "/api/v1"
COOKIE = "lockstep_session"
HTML = "text/html; charset=utf-8"
SIGN_IN, SIGN_OUT, LIVE, OPENAPI = "/sign-in", "/sign-out", "/live", "/openapi.json"
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_PAGE_HEADERS = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY"}
_FORM = b"application/x-www-form-urlencoded"
_HEADERS_OF = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
_OWN = frozenset({"_form", "_step", "_once", "confirm", "dry_run"})
_ONCE_MAX = 128


@dataclass(frozen=True, slots=True)
class _Request:
    """One request, as it came."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Mapping[bytes, bytes]
    address: str
    body: bytes

    @property
    def is_api(self) -> bool:
        return self.path == API or self.path.startswith((f"{API}/", LIVE))

    @property
    def wants_page(self) -> bool:
        """Whether an error is told as a page."""
        is_page = not self.is_api and not self.path.startswith("/apis/")
        return is_page and b"text/html" in self.headers.get(b"accept", b"")

    def cookie(self) -> str:
        """The secret of the session, or nothing."""
        try:
            cookies = SimpleCookie(self.headers.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            return ""
        found = cookies.get(COOKIE)
        return "" if found is None else found.value

    def once(self) -> str:
        """The mark of a request that must not be carried out twice, or nothing."""
        return self.headers.get(b"idempotency-key", b"").decode("latin-1")[:_ONCE_MAX]

    def bearer(self) -> str | None:
        """The token of the Authorization header; None without one."""
        given = self.headers.get(b"authorization")
        if given is None:
            return None
        scheme, _, token = given.decode("latin-1").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


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
        self._site, self._pillars, self._credentials, self._audit = site, pillars, credentials, audit
        self._mounts, self._anonymous, self._secure = mounts, anonymous, secure_cookie
        self._pages, self._static = Pages(), StaticFiles()
        self._limits = RateLimits(site.runtime.monotonic)
        self._pool = ThreadPoolExecutor(threads, "lockstep-console")
        self.live = LivePages()
        self._views = {view.path: view for pillar in pillars for view in pillar.views}
        self._acts = {act.path: act for pillar in pillars for act in pillar.acts}
        paths = [*self._views, *self._acts]
        self._router = Router(
            [Route(method="GET", path=path, handle=_unused, summary="") for path in dict.fromkeys(paths)]
        )
        self._openapi = reply(document(self._views.values(), self._acts.values(), mounts))

    def close(self) -> None:
        """End what goes on for ever, and begin nothing more."""
        self.live.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        message = await receive()
        request = _Request(
            scope["method"], scope["path"], scope["raw_path"], scope["query_string"],
            {name.lower(): value for name, value in scope["headers"]},
            (scope.get("client") or ("",))[0], message.get("body", b""),
        )  # fmt: skip
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

    # who asks

    def _principal(self, request: _Request) -> Principal:
        """The caller; SignInNeeded for a credential that is not valid, and for none where one is needed."""
        token = request.bearer()
        if token is not None:
            found = self._credentials.bearer(token)
            if found is None:
                raise SignInNeeded()
            return found
        session = request.cookie()
        found = self._credentials.session(session) if session else None
        if found is not None:
            return found
        if not self._anonymous:
            raise SignInNeeded()
        return ANONYMOUS

    def _admit(self, request: _Request, role: Role, area: str, *, changes: bool = False) -> Principal:
        """The caller, if it may do this and not too often."""
        principal = self._principal(request)
        self._limits.take(principal.credential or request.address, CHANGES if changes else READS)
        if not principal.may(role, area):
            if principal.credential == "":
                raise SignInNeeded()
            if changes:
                self._audit.event(principal, request.address, request.method, request.path, "refused")
            raise RoleNeeded(role=role.label, area=area, name=principal.name, own=principal.role.label,
                             scope=", ".join(principal.scope))  # fmt: skip
        return principal

    # what is asked

    def _answer(self, request: _Request) -> Reply:
        if request.path.startswith("/static/"):
            return self._static.reply(request.path, request.headers.get(b"if-none-match", b""))
        if request.path == OPENAPI:
            return self._openapi
        if request.path == SIGN_IN:
            return self._sign_in(request)
        if request.path == SIGN_OUT and request.method == "POST":
            return self._sign_out(request)
        raw = request.raw_path
        is_api = request.is_api
        if is_api:
            raw = raw[len(API) :] or b"/"
        route, names = self._router.find("GET", raw)
        view, act = self._views.get(route.path), self._acts.get(route.path)
        if request.method in ("GET", "HEAD") and (view is not None or (act is not None and not is_api)):
            if view is not None:
                return self._show(view, request, names, is_api=is_api)
            assert act is not None
            return self._form(act, request, names)
        if request.method == "POST" and act is not None:
            return self._do(act, request, names, is_api=is_api)
        from lockstep.server.errors import MethodNotAllowed

        allowed = [
            method for method, has in (("GET", view is not None or not is_api), ("POST", act is not None)) if has
        ]
        raise MethodNotAllowed(method=request.method, path=request.path, allowed=", ".join(allowed))

    def _show(self, view: View, request: _Request, names: Mapping[str, str], *, is_api: bool) -> Reply:
        asked = self._asked(view, request, names, self._admit(request, view.role, view.area))
        tree = view.load(asked)
        if is_api:
            return reply(tree)
        return self._html(self._pages.page(view.template, self._context(view, asked, tree)))

    def _asked(self, view: View, request: _Request, names: Mapping[str, str], principal: Principal) -> Asked:
        given = _query(request.query)
        unknown = [name for name in given if name not in {known.name for known in view.parameters}]
        if unknown:
            known = ", ".join(parameter.name for parameter in view.parameters) or "none"
            raise BadArgument(name=unknown[0], value=given[unknown[0]], reason=f"unknown parameter; known: {known}")
        values = {parameter.name: parameter.read(given.get(parameter.name)) for parameter in view.parameters}
        path = _path_of(view.path, names)
        return Asked(path=path, names=names, values=values, given=given, principal=principal, address=request.address)

    def _context(self, view: View | Act, asked: Asked, tree: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **self._shared_context(asked.principal), "view": view, "asked": asked, "tree": tree,
            "path": asked.path, "crumbs": self._crumbs(asked.path), "cli": _filled(view.cli, asked.names),
            "acts": self._acts_of(view, asked), "is_live": isinstance(view, View) and view.is_live,
        }  # fmt: skip

    def _shared_context(self, principal: Principal) -> dict[str, Any]:
        return {
            "pillars": self._pillars,
            "principal": principal,
            "api": API,
            "bus": _without_password(self._site.client.url),
            "form_token": _form_token(principal),
            "signed_in": bool(principal.credential),
        }

    def _acts_of(self, view: View | Act, asked: Asked) -> list[dict[str, Any]]:
        """What the caller may do on this page: acts whose path continues that of the page by one part."""
        found = [act for act in self._acts.values() if act.path.rpartition("/")[0] == view.path]
        return [
            {
                "title": act.title,
                "href": link(_path_of(act.path, asked.names), _scope(act, asked.given)),
                "is_destructive": "yes" if act.confirm else "",
            }
            for act in found
            if asked.principal.may(act.role, act.area)
        ]

    def _crumbs(self, path: str) -> list[tuple[str, str]]:
        """The parts of a path before the last one, with a link to those that are pages."""
        return [(unquote(text), href if self._is_page(href) else "") for text, href in crumbs(path)]

    def _is_page(self, path: str) -> bool:
        try:
            return self._router.find("GET", path.encode())[0].path in self._views
        except RouteNotFound:
            return False

    # acts

    def _form(self, act: Act, request: _Request, names: Mapping[str, str]) -> Reply:
        principal = self._admit(request, act.role, act.area)
        given = _query(request.query)
        values = {field.name: given.get(field.name, field.default) for field in act.fields}
        asked = Asked(path=_path_of(act.path, names), names=names, values=values, principal=principal,
                      address=request.address)  # fmt: skip
        return self._form_page(act, asked, step="form")

    def _do(self, act: Act, request: _Request, names: Mapping[str, str], *, is_api: bool) -> Reply:
        principal = self._admit(request, act.role, act.area, changes=True)
        given = self._given(request, principal, is_api=is_api)
        try:
            asked = self._read(act, request, names, principal, given)
        except FormInvalid as error:
            if is_api:
                raise
            values = {field.name: given.get(field.name, field.default) for field in act.fields}
            path = _path_of(act.path, names)
            wrong = Asked(path=path, names=names, values=values, principal=principal, address=request.address)
            return self._form_page(act, wrong, step="form", fault=str(error.params["faults"]), status=422)
        if is_api:
            return self._run_for_api(act, asked, given, request.once())
        if given.get("_step") != "run":
            return self._form_page(act, asked, step="preview", preview=act.preview(asked))
        if act.confirm and given.get("confirm") != asked.names[act.confirm]:
            fault = f"Type {asked.names[act.confirm]} to confirm."
            return self._form_page(act, asked, step="preview", preview=act.preview(asked), fault=fault, status=422)
        try:
            done = self._run(act, asked, given.get("_once", "")[:_ONCE_MAX])
        except ActRepeated as error:  # as after a second click: where the first one led to
            if error.params["outcome"] != "done":
                raise
            done = {}
        if done.get("shown_once"):
            return self._form_page(act, asked, step="done", preview=done)
        where = link(_path_of(act.done, names), _scope(act, asked.values))
        return Reply(b"", 303, HTML, {**_PAGE_HEADERS, "Location": where})

    def _run_for_api(self, act: Act, asked: Asked, given: Mapping[str, Any], once: str) -> Reply:
        if DRY_RUN.read(given.get("dry_run")):
            return reply({"dry_run": True, **act.preview(asked)})
        if act.confirm and given.get("confirm") != asked.names[act.confirm]:
            raise NotConfirmed(what=act.title, name=asked.names[act.confirm])
        return reply(self._run(act, asked, once))

    def _run(self, act: Act, asked: Asked, once: str) -> Mapping[str, Any]:
        """Carry out an act between two records of the audit log; ActRepeated if that was begun before."""
        self._audit.check_new(act, asked, once)
        try:
            preview = act.preview(asked)
        except LockstepError:
            self._audit.event(asked.principal, asked.address, act.title, asked.path, "refused")
            raise
        number = self._audit.begun(act, asked, preview, once)
        try:
            done = act.run(asked)
        except LockstepError as error:
            self._audit.ended(number, act, asked, "refused", {"error": error.code, "reason": str(error)[:500]})
            raise
        except Exception:
            self._audit.ended(number, act, asked, "failed", {})
            raise
        self._audit.ended(number, act, asked, "done", done)
        return done

    def _given(self, request: _Request, principal: Principal, *, is_api: bool) -> Mapping[str, Any]:
        """The fields of a body: JSON with a token, a form with a session."""
        if is_api:
            if principal.session:  # a page of somebody else may have had the browser send it
                raise SignInNeeded()
            tree = parse_json(request.body) if request.body else {}
            if not isinstance(tree, dict):
                raise FormInvalid(faults="The body must be a JSON object")
            return tree
        if request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != _FORM:
            raise FormInvalid(faults=f"The body must be a form. Send JSON to {API}{request.path}")
        fields = _query(request.body)
        if not hmac.compare_digest(fields.get("_form", ""), _form_token(principal)) or not principal.session:
            raise FormForged()
        return fields

    def _read(
        self, act: Act, request: _Request, names: Mapping[str, str], principal: Principal, given: Mapping[str, Any]
    ) -> Asked:
        """The fields of an act; FormInvalid tells all faults at once."""
        known = {field.name for field in act.fields}
        faults = [f"{name}: unknown field; known: {', '.join(sorted(known)) or 'none'}"
                  for name in given if name not in known | _OWN]  # fmt: skip
        values: dict[str, Any] = {}
        for field in act.fields:
            try:
                values[field.name] = field.read(given.get(field.name))
            except BadArgument as error:
                faults.append(f"{field.name}: {error.params['reason']}")
        if faults:
            raise FormInvalid(faults="; ".join(faults))
        path = _path_of(act.path, names)
        return Asked(path=path, names=names, values=values, principal=principal, address=request.address)

    def _form_page(
        self, act: Act, asked: Asked, *, step: str, preview: Mapping[str, Any] | None = None, fault: str = "",
        status: int = 200,
    ) -> Reply:  # fmt: skip
        context = {**self._context(act, asked, preview or {}), "act": act, "step": step, "fault": fault,
                   "confirm": asked.names.get(act.confirm, ""), "acts": [],
                   "once": self._site.runtime.new_id().hex()}  # fmt: skip
        return self._html(self._pages.page("act.html", context), status)

    # sessions

    def _sign_in(self, request: _Request) -> Reply:
        context = {**self._shared_context(ANONYMOUS), "path": SIGN_IN, "fault": "", "asked": None, "is_live": False}
        if request.method != "POST":
            return self._html(self._pages.page("sign_in.html", context))
        self._limits.take(f"sign-in {request.address}", SIGN_INS)
        found = self._credentials.sign_in(_query(request.body).get("token", "").strip())
        if found is None:
            self._audit.event(ANONYMOUS, request.address, "Sign in", SIGN_IN, "refused")
            context["fault"] = "This token is not valid. It may have expired or been revoked."
            return self._html(self._pages.page("sign_in.html", context), 403)
        principal, session = found
        self._audit.event(principal, request.address, "Sign in", SIGN_IN, "done")
        return Reply(b"", 303, HTML, {**_PAGE_HEADERS, "Location": "/", "Set-Cookie": self._cookie(session, SESSION_S)})

    def _sign_out(self, request: _Request) -> Reply:
        principal = self._principal(request)
        if principal.session:
            if not hmac.compare_digest(_query(request.body).get("_form", ""), _form_token(principal)):
                raise FormForged()
            self._credentials.sign_out(principal.session)
            self._audit.event(principal, request.address, "Sign out", SIGN_OUT, "done")
        return Reply(b"", 303, HTML, {**_PAGE_HEADERS, "Location": SIGN_IN, "Set-Cookie": self._cookie("", 0)})

    def _cookie(self, value: str, age_s: int) -> str:
        secure = "; Secure" if self._secure else ""
        return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{secure}"

    # streams of changes and other apps

    async def _serve_live(self, request: _Request, receive: Receive, send: Send) -> None:
        """GET /live?path=PATH: the content of a page whenever it changes."""
        given = _query(request.query)
        path, _, query = given.get("path", "/").partition("?")
        wanted = replace(request, method="GET", path=path, raw_path=path.encode(), query=query.encode())
        route, names = self._router.find("GET", wanted.raw_path)
        view = self._views.get(route.path)
        if view is None or not view.is_live:
            raise BadArgument(name="path", value=path, reason="it is no page that follows changes")
        principal = await self._in_thread(self._admit, request, view.role, view.area)
        # Viewers of a role and scope share what is rendered, so nothing of one caller's session may be in it.
        shared = Principal("", principal.role, principal.scope)
        asked = self._asked(view, wanted, names, shared)

        def rendered() -> str:
            return self._pages.content(view.template, self._context(view, asked, view.load(asked)))

        async def render() -> str:
            return str(await self._in_thread(rendered))

        async def still_may() -> bool:
            return bool(await self._in_thread(self._is_still, principal, request, view))

        key = f"{principal.role.label}\0{','.join(principal.scope)}\0{path}?{query}"
        await self.live.serve(key, render, receive, send, still_may if principal.credential else None)

    def _is_still(self, principal: Principal, request: _Request, view: View) -> bool:
        """Whether who opened a live page has the same credential as then, and it still allows that."""
        try:
            now = self._principal(request)
        except SignInNeeded:
            return False
        return now.credential == principal.credential and now.may(view.role, view.area)

    async def _pass_on(self, mount: Mount, request: _Request, scope: Scope, receive: Receive, send: Send) -> None:
        is_change = request.method not in ("GET", "HEAD")
        role = Role.OPERATOR if is_change else Role.VIEWER
        principal = await self._in_thread(lambda: self._admit(request, role, mount.area, changes=is_change))
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

    # answers

    def _html(self, text: str, status: int = 200) -> Reply:
        return Reply(text.encode("utf-8", "replace"), status, HTML, _PAGE_HEADERS)

    def _refused(self, request: _Request, error: LockstepError) -> Reply:
        status = _status(error)
        message = type(error).template.format(**error.params)
        advice = " ".join([type(error).advice.format(**error.params), *getattr(error, "__notes__", [])]).strip()
        headers = (
            {"Retry-After": "1"} if status in (429, 503) else {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        )
        if request.wants_page:
            if isinstance(error, SignInNeeded):
                return Reply(b"", 303, HTML, {**_PAGE_HEADERS, "Location": SIGN_IN})
            context = {**self._shared_context(ANONYMOUS), "path": request.path, "status": status, "code": error.code,
                       "message": message, "advice": advice, "asked": None, "is_live": False}  # fmt: skip
            return self._html(self._pages.page("error.html", context), status)
        return reply({"error": {"code": error.code, "message": message, "advice": advice}}, status, headers)

    def _failed(self, request: _Request, error: Exception) -> Reply:
        number = self._site.runtime.new_id().hex()
        detail = {"action": "request_failed", "method": request.method, "path": request.path, "id": number}
        logger.error("A request failed", exc_info=error, extra=detail)
        told = {"code": "INTERNAL", "message": "Something went wrong.", "advice": f"Look for {number} in the log."}
        return reply({"error": told}, 500)


def _status(error: LockstepError) -> int:
    if isinstance(error, SignInNeeded):
        return 401
    if isinstance(error, TooFast):
        return 429
    return 405 if isinstance(error, MethodNotAllowed) else status_of(error)


def _query(raw: bytes) -> dict[str, str]:
    """The first value of each name; BadArgument for what is none."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=64)
    except ValueError as error:
        raise BadArgument(name="query", value=raw[:80], reason=f"it can't be read: {error}") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def _form_token(principal: Principal) -> str:
    """What forms of a session carry: it follows from the session's secret, so that nothing has to be stored."""
    return hmac.new(principal.session.encode(), b"form", hashlib.sha256).hexdigest()


def _path_of(template: str, names: Mapping[str, str]) -> str:
    return _filled(template, {name: quote(text, safe="") for name, text in names.items()})


def _scope(act: Act, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of some values those that say which of several is meant."""
    return {field.name: values[field.name] for field in act.fields if field.is_scope and field.name in values}


def _filled(template: str, names: Mapping[str, str]) -> str:
    for name, text in names.items():
        template = template.replace(f"{{{name}}}", text)
    return template


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{mark}{'***@' if at and user else ''}{host}" if mark else url


def _unused(_call: Call) -> Reply:
    message = "views and acts are called by the app"
    raise AssertionError(message)
