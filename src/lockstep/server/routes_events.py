"""The rows of a window, page by page."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.json_format import format_event
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import BadText, formatter, parser
from lockstep.engine.model.graph import Node
from lockstep.engine.model.xml_elements import Element
from lockstep.errors import BadArgument, StreamNotFound
from lockstep.server.answers import as_json, as_xml, is_legal, wants_json
from lockstep.server.errors import WindowNotPublished
from lockstep.server.openapi import FORM, InPath, ProjectName, QueryName, WindowName
from lockstep.server.site import Site

PAGE_DEFAULT, PAGE_MAX = 50, 1_000
Page = Annotated[int, Query(ge=0, le=1_000_000_000, description="which page, from 0")]
PageSize = Annotated[int, Query(ge=1, le=PAGE_MAX, description="rows of a page")]
Filters = Annotated[
    list[str] | None, Query(alias="filter", max_length=16, description="FIELD=VALUE; with several, all must hold")
]


class EventRoutes:
    """Routes that read rows."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def router(self) -> APIRouter:
        """Both of them."""
        router, summary = (
            APIRouter(tags=["events"], dependencies=[FORM]),
            "The rows that a published window holds now, by page",
        )
        for path, route in (("/events/{project}/{contquery}/{window}", self.of_path), ("/events", self.of_query)):
            router.add_api_route(path, route, methods=["GET"], summary=summary, response_class=Response)
        return router

    def of_path(
        self,
        request: Request,
        project: InPath,
        contquery: InPath,
        window: InPath,
        page: Page = 0,
        pagesize: PageSize = PAGE_DEFAULT,
        filters: Filters = None,
    ) -> Response:
        """In the order in which they came, as inserts; `block` is the last block that they include."""
        return self._answer(request, self._site.window(project, contquery, window), (page, pagesize), filters or [])

    def of_query(
        self,
        request: Request,
        window: WindowName,
        project: ProjectName = None,
        contquery: QueryName = None,
        page: Page = 0,
        pagesize: PageSize = PAGE_DEFAULT,
        filters: Filters = None,
    ) -> Response:
        """The same, with the names as parameters."""
        return self._answer(request, self._site.window(project, contquery, window), (page, pagesize), filters or [])

    def _answer(self, request: Request, node: Node, part: tuple[int, int], filters: Sequence[str]) -> Response:
        as_wanted = _json if wants_json(request) else _xml
        fits = [_test(text, node.schema) for text in filters]
        block, rows = self._rows(node)
        chosen = [row for row in rows if all(test(row) for test in fits)] if fits else rows
        page, size = part
        pages = -(-len(chosen) // size)
        head = {"project": self._site.name, "contquery": node.query, "window": node.window.name, "block": block,
                "count": len(chosen), "page": page, "pages": pages, "pagesize": size}  # fmt: skip
        return as_wanted(head, chosen[page * size : (page + 1) * size], node.schema)

    def _rows(self, node: Node) -> tuple[int, list[Row]]:
        view, published = self._site.view, self._site.view.published()
        try:
            if node.path in published:
                log = view.bus().open(self._site.streams.output(node))
                return self._site.rows.now(log, node, view.graph().fingerprint)
        except StreamNotFound:  # not made yet, or removed: as if it were not published
            published -= {node.path}
        raise WindowNotPublished(window=node.path, known=", ".join(sorted(published)) or "none")


def _test(text: str, schema: Schema) -> Callable[[Row], bool]:
    """Whether a row has a value in a field. An empty value means none."""
    name, equals, wanted = text.partition("=")
    if not equals or name not in schema:
        known = ", ".join(schema.names)
        raise BadArgument(name="filter", value=text, reason=f"it must be FIELD=VALUE with a field of {known}")
    try:
        value = parser(schema[name].type)(wanted) if wanted else None
    except BadText as error:
        raise BadArgument(name="filter", value=text, reason=error.detail) from None
    place = schema.places[name]
    return lambda row: bool(row[place] == value)


def _json(head: dict[str, Any], rows: Sequence[Row], schema: Schema) -> Response:
    """Numbers stay exact: rows are written by the events' own form."""
    events = ",".join(format_event(Event(Opcode.INSERT, Flag.NORMAL, row), schema) for row in rows)
    return as_json(f'{json.dumps(head, ensure_ascii=False)[:-1]}, "events": [{events}]}}')


def _xml(head: dict[str, Any], rows: Sequence[Row], schema: Schema) -> Response:
    writers = [formatter(field.type) for field in schema]
    events = []
    for row in rows:
        values = [
            _value(name, write(value))
            for name, write, value in zip(schema.names, writers, row, strict=True)
            if value is not None
        ]
        events.append(Element("event", {"opcode": "insert"}, values))
    return as_xml(Element("events", {name: str(value) for name, value in head.items()}, events))


def _value(name: str, text: str) -> Element:
    """A value; one with characters that XML has no place for as base64."""
    if is_legal(text):
        return Element("value", {"name": name}, text=text)
    return Element("value", {"name": name, "encoding": "base64"}, text=base64.b64encode(text.encode()).decode())
