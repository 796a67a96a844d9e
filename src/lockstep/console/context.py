"""What the templates of pages get: the data of a view, where the page stands, and its command and request."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from lockstep.console.audit import redacted
from lockstep.console.callers import form_token
from lockstep.console.pages import crumbs, link
from lockstep.console.port import TRUE, Act, Asked, Kind, Parameter, Pillar, Site, View
from lockstep.console.request import API
from lockstep.server.access import Principal
from lockstep.server.errors import RouteNotFound
from lockstep.server.routes import Router

_PART = re.compile(r"\{(\w+)\}")
ORIGIN = "\0"
"""Stands in commands and requests for the address of this server, as the browser has it."""
_NO_BUS = ("lockstep cron check",)
"""Commands that use no bus."""


class PageContext:
    """Makes the context of each page of a site."""

    def __init__(self, site: Site, pillars: Sequence[Pillar], acts: Iterable[Act], router: Router) -> None:
        self._site, self._pillars, self._acts, self._router = site, pillars, list(acts), router
        self._paths = {view.path for pillar in pillars for view in pillar.views}
        url = site.client.url
        self._bus = str(redacted(url))
        self._bus_option = "" if self._bus != url or url == "memory:" else f" --bus {shlex.quote(url)}"

    def shared(self, principal: Principal) -> dict[str, Any]:
        """What every page has."""
        return {
            "pillars": self._pillars, "principal": principal, "api": API, "bus": self._bus,
            "form_token": form_token(principal), "signed_in": bool(principal.credential),
        }  # fmt: skip

    def new_mark(self) -> str:
        """A mark for a form, by which a second confirmation is known."""
        return self._site.runtime.new_id().hex()

    def of(self, view: View | Act, asked: Asked, tree: Mapping[str, Any]) -> dict[str, Any]:
        """That of a view or of the form of an act."""
        return {
            **self.shared(asked.principal), "view": view, "asked": asked, "tree": tree, "path": asked.path,
            "crumbs": self._crumbs(asked.path), "cli": self.cli(view, asked, tree).partition(ORIGIN),
            "curl": curl_of(view, asked).partition(ORIGIN), "acts": self._acts_of(view, asked),
            "is_live": isinstance(view, View) and view.is_live,
        }  # fmt: skip

    def cli(self, view: View | Act, asked: Asked, tree: Mapping[str, Any]) -> str:
        """The command that shows or does the same as what is asked: on the same bus, or at this server."""
        command = command_of(view, asked, tree)
        if command.startswith("lockstep settings"):
            return f"{command} --server {ORIGIN}"
        if command.startswith("lockstep monitor"):
            name = tree.get("monitor") or asked.values.get("monitor")
            return f"{command} --url {ORIGIN}/apis/monitor/{quote(str(name), safe='')}" if name else command
        return command if command.startswith(_NO_BUS) else f"{command}{self._bus_option}"

    def _acts_of(self, view: View | Act, asked: Asked) -> list[dict[str, Any]]:
        """What the caller may do on this page: acts whose path continues that of the page by one part."""
        found = [act for act in self._acts if act.path.rpartition("/")[0] == view.path]
        return [
            {
                "title": act.title,
                "href": link(path_of(act.path, asked.names), scope_of(act, asked.given)),
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
            return self._router.find("GET", path.encode())[0].path in self._paths
        except RouteNotFound:
            return False


def path_of(template: str, names: Mapping[str, str]) -> str:
    """A path with its names filled in."""
    return _filled(template, {name: quote(text, safe="") for name, text in names.items()})


def scope_of(act: Act, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that identify one item among several."""
    return {field.name: values[field.name] for field in act.fields if field.is_scope and field.name in values}


def command_of(view: View | Act, asked: Asked, tree: Mapping[str, Any]) -> str:
    """The command of a view or an act for what is asked, quoted for a shell; what is not given yet is in capitals.

    `tree`: what is shown, which says which of several is meant where the caller did not.
    """
    parameters = view.parameters if isinstance(view, View) else view.fields
    given = {one.name: asked.values.get(one.name, one.default) for one in parameters}
    given |= {one.name: given[one.name] or tree.get(one.name) or "" for one in parameters if one.is_scope}
    words = {name: _quoted(text) for name, text in asked.names.items()}
    words |= {name: _word(name, value) for name, value in given.items() if name not in words}
    options = [_option(one, given[one.name]) for one in parameters if f"{{{one.name}}}" not in view.cli]
    return _filled(view.cli, words) + "".join(options)


def _word(name: str, value: Any) -> str:
    return name.upper() if value in ("", None) else _quoted(str(value))


def _quoted(text: str) -> str:
    """For a shell; a line break would send the first part before the rest is read."""
    return shlex.quote(text) if text.isprintable() else "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "'\\":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def _option(one: Parameter, value: Any) -> str:
    """The option that says the same as a value, where a command has one and the value is not the default."""
    if not one.option or value in (one.default, "", None) or (one.is_scope and value == "default"):
        return ""
    if one.kind is Kind.FLAG:
        return f" {one.option}" if str(value).lower() in TRUE else ""
    values = str(value).splitlines() if one.kind is Kind.LONG else [str(value)]
    return "".join(f" {one.option} {_quoted(each)}" for each in values)


def curl_of(view: View | Act, asked: Asked) -> str:
    """The request for what is asked.

    That of an act says only what it would do: to have it done, dry_run is left out.
    """
    header = ' -H "Authorization: Bearer $LOCKSTEP_TOKEN"'
    if isinstance(view, View):
        auth = header if asked.principal.credential else ""
        return f"curl -s{auth} '{ORIGIN}{link(f'{API}{asked.path}', asked.given)}'"
    fields = {field.name: asked.values.get(field.name, field.default) for field in view.fields}
    fields = {name: value for name, value in fields.items() if value not in ("", None)} | {"dry_run": True}
    if view.confirm:
        fields["confirm"] = asked.names.get(view.confirm, "")
    return f"curl -s{header} '{ORIGIN}{API}{asked.path}' -d {shlex.quote(json.dumps(fields))}"


def _filled(template: str, names: Mapping[str, str]) -> str:
    """All at once: a name that looks like a part of a template stays as it is."""
    return _PART.sub(lambda found: names.get(found[1], found[0]), template)
