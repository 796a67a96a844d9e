"""Acts: the form, the preview, the confirmation, and the records of the audit log around what is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.console.audit import AuditLog
from lockstep.console.callers import Callers, check_form
from lockstep.console.context import PageContext, path_of, scope_of
from lockstep.console.errors import ActRepeated, FormInvalid, NotConfirmed, SignInNeeded
from lockstep.console.pages import HTML, Pages, link, page_reply
from lockstep.console.port import DRY_RUN, Act, Asked, Download
from lockstep.console.request import API, ONCE_MAX, Request, query_of
from lockstep.errors import BadArgument, LockstepError
from lockstep.server.access import Principal
from lockstep.server.bodies import JSON, Reply, check_tree, parse_json, reply

_FORM = b"application/x-www-form-urlencoded"
_OWN = frozenset({"_form", "_step", "_once", "confirm", "dry_run"})


class ActRunner:
    """Shows the forms of acts and carries acts out, for callers that may."""

    def __init__(self, callers: Callers, audit: AuditLog, context: PageContext, pages: Pages) -> None:
        self._callers, self._audit, self._context, self._pages = callers, audit, context, pages

    def form(self, act: Act, request: Request, names: Mapping[str, str]) -> Reply:
        """The page with the form of an act, filled in as the query says."""
        principal = self._callers.admit(request, act.role, act.area)
        asked = _unread(act, request, names, principal, query_of(request.query))
        return self._page(act, asked, step="form")

    def run(self, act: Act, request: Request, names: Mapping[str, str]) -> Reply:
        """Preview an act or carry it out: as a page that sends its form, or as REST."""
        principal = self._callers.admit(request, act.role, act.area, changes=True)
        given = self._given(request, principal)
        try:
            asked = _read(act, request, names, principal, given)
        except FormInvalid as error:
            if request.is_api:
                raise
            wrong = _unread(act, request, names, principal, given)
            return self._page(act, wrong, step="form", fault=str(error.params["faults"]), status=422)
        return self._for_api(act, asked, given, request.once()) if request.is_api else self._for_page(act, asked, given)

    def _for_page(self, act: Act, asked: Asked, given: Mapping[str, Any]) -> Reply:
        if given.get("_step") != "run":
            return self._page(act, asked, step="preview", preview=act.preview(asked))
        if act.confirm and given.get("confirm") != asked.names[act.confirm]:
            fault = f"Type {asked.names[act.confirm]} to confirm."
            return self._page(act, asked, step="preview", preview=act.preview(asked), fault=fault, status=422)
        try:
            done = self._carried_out(act, asked, given.get("_once", "")[:ONCE_MAX])
        except ActRepeated as error:  # as after a second click: where the first one led to
            if error.params["outcome"] != "done":
                raise
            done = {}
        if isinstance(done, Download):
            return done.reply()
        if done.get("shown_once"):
            return self._page(act, asked, step="done", preview=done)
        where = link(path_of(act.done, asked.names), scope_of(act, asked.values))
        return Reply(b"", 303, HTML, {"Location": where})

    def _for_api(self, act: Act, asked: Asked, given: Mapping[str, Any], once: str) -> Reply:
        if DRY_RUN.read(given.get("dry_run")):
            return reply({"dry_run": True, **act.preview(asked)})
        if act.confirm and given.get("confirm") != asked.names[act.confirm]:
            raise NotConfirmed(what=act.title, name=asked.names[act.confirm])
        done = self._carried_out(act, asked, once)
        return done.reply() if isinstance(done, Download) else reply(done)

    def _carried_out(self, act: Act, asked: Asked, once: str) -> Mapping[str, Any] | Download:
        """Carry out an act between two records of the audit log; ActRepeated if that was begun before.

        A file may be made again: its page stays open, and it changes nothing.
        """
        once = once if act.answers == JSON else ""
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
        self._audit.ended(number, act, asked, "done", done.about if isinstance(done, Download) else done)
        return done

    def _given(self, request: Request, principal: Principal) -> Mapping[str, Any]:
        """The fields of a body: JSON with a token, a form with a session."""
        if request.is_api:
            if principal.session:  # another site's page may have had the browser send it
                raise SignInNeeded()
            tree = parse_json(request.body) if request.body else {}
            check_tree(tree)
            if not isinstance(tree, dict):
                raise FormInvalid(faults="The body must be a JSON object")
            return tree
        if request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != _FORM:
            raise FormInvalid(faults=f"The body must be a form. Send JSON to {API}{request.path}")
        fields = query_of(request.body)
        check_form(fields.get("_form", ""), principal)
        return fields

    def _page(
        self, act: Act, asked: Asked, *, step: str, preview: Mapping[str, Any] | None = None, fault: str = "",
        status: int = 200,
    ) -> Reply:  # fmt: skip
        context = {**self._context.of(act, asked, preview or {}), "act": act, "step": step, "fault": fault,
                   "confirm": asked.names.get(act.confirm, ""), "acts": [],
                   "once": self._context.new_mark()}  # fmt: skip
        return page_reply(self._pages.page("act.html", context), status)


def _unread(
    act: Act, request: Request, names: Mapping[str, str], principal: Principal, given: Mapping[str, Any]
) -> Asked:
    """A requested action, with the fields as they were sent."""
    values = {field.name: given.get(field.name, field.default) for field in act.fields}
    path = path_of(act.path, names)
    return Asked(path=path, names=names, values=values, principal=principal, address=request.address)


def _read(
    act: Act, request: Request, names: Mapping[str, str], principal: Principal, given: Mapping[str, Any]
) -> Asked:
    """Return the request with its fields parsed; raises FormInvalid with all errors at once."""
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
    path = path_of(act.path, names)
    return Asked(path=path, names=names, values=values, principal=principal, address=request.address)
