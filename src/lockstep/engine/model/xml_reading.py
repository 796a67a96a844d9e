"""Models in ESP's XML: an engine around a project, or the project alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lockstep.engine.model import xml_common_tables as t
from lockstep.engine.model.document_windows import WINDOWS
from lockstep.engine.model.project import (
    ConnectorEntry,
    ConnectorGroup,
    ContinuousQuery,
    Edge,
    GroupEdge,
    Project,
)
from lockstep.engine.model.xml_common import parse_element
from lockstep.engine.model.xml_reading_cursor import Cursor
from lockstep.engine.model.xml_reading_windows import names_of, read_as, read_window

_ROOTS = ("luaroot", "pythonroot")
"""Folders of code in other languages, named by projects that have no such code too: kept among their metadata."""


def parse_xml(text: str | bytes, source: str = "model.xml") -> Project:
    """The project of an XML text; raises ModelUnreadable with line and column of what is wrong."""
    root = Cursor(parse_element(text, source), source)
    if root.element.tag == "engine":
        return _engine(root)
    if root.element.tag != "project":
        root.refuse(f"the root element {root.element.tag!r} is not known", "A model is an engine or a project element.")
    return _project(root)


def _engine(cursor: Cursor) -> Project:
    cursor.expect(("port",), ("description", "projects"))
    projects = cursor.inside("projects", "project")
    if len(projects) != 1:
        at = projects[1] if projects else cursor
        at.refuse(f"the engine has {len(projects)} projects", "Keep one project in a file.")
    project = _project(projects[0])
    port = cursor.values(t.table(("port", "port", t.NUMBER)), Project).get("port")
    return replace(project, port=port, description=_prose(cursor.description(), project.description))


def _prose(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _project(cursor: Cursor) -> Project:
    cursor.expect((*names_of(t.PROJECT), *_ROOTS), ("description", "metadata", "contqueries", "project-connectors"))
    groups, edges, words = _connectors(cursor)
    return Project(
        **cursor.values(t.PROJECT, Project),
        queries=tuple(_query(item) for item in cursor.inside("contqueries", "contquery")),
        connector_groups=groups,
        connector_edges=edges,
        metadata=cursor.pairs("meta", "metadata", "id", "name") + _roots(cursor),
        description=_prose(cursor.description(), words),
    )


def _roots(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    given = cursor.element.attributes
    return tuple((name, given[name]) for name in _ROOTS if name in given)


def _connectors(cursor: Cursor) -> tuple[tuple[ConnectorGroup, ...], tuple[GroupEdge, ...], str]:
    found = cursor.child("project-connectors")
    if found is None:
        return (), (), ""
    found.expect(children=("connector-groups", "edges"))
    groups = tuple(_group(item) for item in found.inside("connector-groups", "connector-group"))
    edges, words = _edges(found, t.GROUP_EDGE, GroupEdge)
    return groups, edges, words


def _group(cursor: Cursor) -> ConnectorGroup:
    cursor.expect(("name",), ("connector-entry",))
    entries = tuple(read_as(item, t.ENTRY, ConnectorEntry) for item in cursor.all("connector-entry"))
    return ConnectorGroup(name=cursor.need("name"), entries=entries)


def _query(cursor: Cursor) -> ContinuousQuery:
    cursor.expect(names_of(t.QUERY), ("description", "metadata", "windows", "edges"))
    tags = tuple(f"window-{kind}" for kind in WINDOWS)
    edges, words = _edges(cursor, t.EDGE, Edge)
    return ContinuousQuery(
        **cursor.values(t.QUERY, ContinuousQuery),
        windows=tuple(read_window(item) for item in cursor.inside("windows", *tags)),
        edges=edges,
        metadata=cursor.pairs("meta", "metadata", "id", "name"),
        description=_prose(cursor.description(), words),
    )


def _edges(cursor: Cursor, table: t.Table, cls: Any) -> tuple[tuple[Any, ...], str]:
    """The edges, one for each pair of the names in an element; and what is said about them."""
    found = cursor.child("edges")
    if found is None:
        return (), ""
    found.expect(children=("description", "edge"))
    edges = []
    for item in found.all("edge"):
        item.expect(names_of(table))
        values = item.values(table, cls)
        sources, targets = values.pop("source"), values.pop("target")
        edges += [cls(source=source, target=target, **values) for source in sources for target in targets]
    return tuple(edges), found.description()
