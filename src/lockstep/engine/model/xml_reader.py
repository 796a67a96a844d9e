"""Models in ESP's XML: an engine around a project, or the project alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from lockstep.engine.errors import BadSchema, ModelUnreadable
from lockstep.engine.events.schema import Schema
from lockstep.engine.model import xml_attributes as t
from lockstep.engine.model.document import WINDOWS
from lockstep.engine.model.project import ConnectorEntry, ConnectorGroup, ContinuousQuery, Edge, GroupEdge, Project
from lockstep.engine.model.variables import expanded, remedy_for, unreplaced
from lockstep.engine.model.windows import UnreadWindow, Window
from lockstep.engine.model.xml_cursor import Cursor, Notes, Unused
from lockstep.engine.model.xml_elements import Element, parse_element
from lockstep.engine.model.xml_reader_windows import names_of, place_window, read_as, read_window

_ROOTS = ("luaroot", "pythonroot")
"""Folders of code in other languages, named by projects that have no such code too: kept among their metadata."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model's text has: its project, as far as it could be read, and what was met on the way."""

    project: Project | None
    notes: Notes

    def sound(self) -> Project:
        """The project; raises the first thing that is wrong."""
        if self.notes.unread:
            first, *others = self.notes.unread
            if others:
                first.add_note(f"There is more ({len(others)}): lockstep model check lists all of it.")
            raise first
        assert self.project is not None, "what was not read is noted"
        return self.project


def parse_xml(
    text: str | bytes,
    source: str = "model.xml",
    *,
    variables: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Project:
    """The project of an XML text; raises ModelUnreadable with line and column of the first thing that is wrong.

    `variables` are values for the names between @ signs, besides the project's properties: with None, names without a
    value stay as they are, else they are faults. `name` chooses among several projects.
    """
    return read_xml(text, source, variables=variables, name=name).sound()


def read_xml(
    text: str | bytes, source: str, *, variables: Mapping[str, str] | None = None, name: str | None = None
) -> Reading:
    """The project of an XML text, with everything that is wrong in it."""
    notes, project = Notes(), None
    try:
        project = _root(Cursor(parse_element(text, source), source, notes), variables, name)
    except ModelUnreadable as error:
        notes.unread.append(error)
    notes.unread.sort(key=lambda error: (error.params["line"], error.params["column"]))
    return Reading(project, notes)


def _root(cursor: Cursor, variables: Mapping[str, str] | None, name: str | None) -> Project:
    if cursor.element.tag == "engine":
        return _engine(cursor, variables, name)
    if cursor.element.tag != "project":
        reason = f"the root element {cursor.element.tag!r} is not known"
        cursor.refuse(reason, "A model is an engine or a project element.")
    return _project(cursor, variables)


@dataclass(frozen=True, slots=True)
class Variables:
    """The values of names between @ signs."""

    all: Mapping[str, str]
    properties: Mapping[str, str]
    is_complete: bool
    """Whether a name without a value is a fault: those of an environment are known."""


_FREE = ("description", "metadata", "connectors")
"""Where names without a value may stay."""


def _engine(cursor: Cursor, variables: Mapping[str, str] | None, name: str | None) -> Project:
    cursor.expect(("port", "name"), ("description", "projects"))
    found = cursor.inside("projects", "project")
    projects = [one for one in found if name is None or one.element.attributes.get("name") == name]
    if len(projects) != 1:
        at = projects[1] if projects else cursor
        names = ", ".join(one.element.attributes.get("name", "?") for one in found)
        remedy = f"Name one of them behind the file: {cursor.source}#NAME." if found else "Put a project into it."
        at.refuse(f"the engine has {len(found)} projects ({names})" if found else "the engine has no project", remedy)
    project = _project(projects[0], variables)
    given = cursor.element.attributes
    given.update({key: expanded(text, variables or {}) for key, text in given.items()})
    port = cursor.attempt(lambda one: one.values(t.table(("port", "port", t.NUMBER)), Project).get("port"), None)
    return replace(project, port=port, description=_prose(cursor.description(), project.description))


def _prose(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _project(cursor: Cursor, variables: Mapping[str, str] | None) -> Project:
    children = ("description", "metadata", "properties", "contqueries", "project-connectors")
    properties = dict(cursor.pairs("property", "properties", "name"))
    expand(cursor, Variables({**(variables or {}), **properties}, properties, variables is not None))
    cursor.expect((*names_of(t.PROJECT), *_ROOTS), children)
    _name(cursor)
    groups, edges, words = _connectors(cursor)
    project = Project(
        **cursor.values(t.PROJECT, Project),
        queries=tuple(_query(item) for item in cursor.inside("contqueries", "contquery")),
        connector_groups=groups,
        connector_edges=edges,
        metadata=cursor.pairs("meta", "metadata", "id", "name") + _roots(cursor),
        description=_prose(cursor.description(), words),
    )
    cursor.notes.lines[f"project {project.name}"] = cursor.element.line
    return project


def _name(cursor: Cursor) -> None:
    """A project without a name has that of its file, as where it is loaded by its name."""
    if "name" in cursor.element.attributes:
        return
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", PurePath(cursor.source).stem) or "project"
    cursor.element.attributes["name"] = name
    cursor.notes.unused.append(Unused(cursor.element.line, "that the project has no name", f"it is called {name!r}"))


def expand(cursor: Cursor, values: Variables) -> None:
    """Put values in the place of names between @ signs, in attributes and texts of an element and what is in it.

    Connectors know only the project's properties: their other names are looked up where they start, so that no secret
    of an environment gets into a model.
    """
    element, known = cursor.element, values.properties if cursor.element.tag == "connectors" else values.all
    inside = Variables(known, values.properties, values.is_complete and element.tag not in _FREE)
    for name, text in element.attributes.items() if inside.is_complete else ():
        for variable in unreplaced(text) if name not in _ROOTS else ():
            if variable not in known:
                cursor.complain(f"{name} has @{variable}@, which has no value", remedy_for(variable))
    element.attributes = {name: expanded(text, known) for name, text in element.attributes.items()}
    element.text = expanded(element.text, known)
    for child in element.children:
        expand(cursor.at(child), inside)


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
    values = cursor.values(t.QUERY, ContinuousQuery)
    cursor.notes.lines[f"query {values['name']}"] = cursor.element.line
    edges, words = _edges(cursor, t.EDGE, Edge)
    _place_edges(cursor, f"query {values['name']}")
    return ContinuousQuery(
        **values,
        windows=_windows(cursor, values["name"]),
        edges=edges,
        metadata=cursor.pairs("meta", "metadata", "id", "name"),
        description=_prose(cursor.description(), words),
    )


def _windows(cursor: Cursor, query: str) -> tuple[Window, ...]:
    """The windows; what could not be read of one is noted, and something unread stands in its place."""
    tags = tuple(f"window-{kind}" for kind in WINDOWS)
    cursor.inside("windows", *tags)  # notes what is none of them
    made: list[Window] = []
    found = cursor.child("windows")
    if found is not None:
        fill_schemas(found)
    for element in found.element.children if found is not None else ():
        if not element.tag.startswith("window-"):
            continue
        item, name = cursor.at(element), element.attributes.get("name", "")
        unread: Window = UnreadWindow(name=name)
        window = item.attempt(read_window, unread) if element.tag in tags else unread
        made.append(window)
        place_window(item, window, f"{query}/{name}")
    return tuple(made)


def _place_edges(cursor: Cursor, query: str) -> None:
    for item in (one for found in cursor.all("edges") for one in found.all("edge")):
        given = item.element.attributes
        for source in given.get("source", "").split():
            for target in given.get("target", "").split():
                cursor.notes.lines.setdefault(f"{query} edge {source} -> {target}", item.element.line)


def _edges(cursor: Cursor, table: t.Table, cls: Any) -> tuple[tuple[Any, ...], str]:
    """The edges, one for each pair of the names in an element; and what is said about them."""
    found = cursor.child("edges")
    if found is None:
        return (), ""
    found.expect(children=("description", "edge"))
    edges = []
    for item in found.all("edge"):
        item.expect(names_of(table))
        nothing: dict[str, Any] = {}
        values = item.attempt(lambda one: one.values(table, cls), nothing)
        if not values:
            continue
        sources, targets = values.pop("source"), values.pop("target")
        edges += [cls(source=source, target=target, **values) for source in sources for target in targets]
    return tuple(edges), found.description()


_CHAIN_MAX = 100
"""Schemas that copy each other, one after the other."""


def fill_schemas(windows: Cursor) -> None:
    """Put copied fields in front of those that a schema names itself; what can't be copied is noted."""
    named = {child.attributes.get("name", ""): windows.at(child) for child in windows.element.children}
    for name in named:
        _fill(name, named, ())


def _fill(name: str, named: Mapping[str, Cursor], above: tuple[str, ...]) -> list[Element] | None:
    """The fields of a window that says itself what they are; None if it does not."""
    window = named.get(name)
    schemas = [] if window is None else window.all("schema", "schema-string")
    if not schemas:
        return None
    schema = schemas[0]
    if schema.element.tag == "schema-string":
        return _of_string(schema)
    origin = schema.element.attributes.pop("copy", None)
    if origin is None:
        return [field for fields in schema.all("fields") for field in fields.element.children]
    is_endless = origin in (*above, name) or len(above) >= _CHAIN_MAX
    copied = None if is_endless else _fill(origin, named, (*above, name))
    if copied is None:
        remedy = "Write the fields of the schema out."
        schema.complain(f"the schema can't be copied from {origin!r}, which names no fields itself", remedy)
        return None
    return _put_in(schema, copied)


def _put_in(schema: Cursor, copied: list[Element]) -> list[Element]:
    with_keys = schema.element.attributes.pop("copy-keys", "true").strip().lower() in ("true", "1")
    fields = schema.all("fields")
    if not fields:
        schema.element.children.append(Element("fields", line=schema.element.line, column=schema.element.column))
        fields = schema.all("fields")
    holder = fields[0].element
    own = {child.attributes.get("name") for child in holder.children}
    taken = [_copy(field, schema.element, with_keys) for field in copied if field.attributes.get("name") not in own]
    holder.children[:0] = taken
    return holder.children


def _copy(field: Element, place: Element, with_keys: bool) -> Element:
    given = field.attributes if with_keys else {**field.attributes, "key": "false"}
    return Element("field", dict(given), line=place.line, column=place.column)


def _of_string(schema: Cursor) -> list[Element] | None:
    try:
        found = Schema.parse(schema.text().replace(":rstring", ":string"))
    except BadSchema:
        return None  # it is told when the window itself is read
    return [
        Element("field", {"name": item.name, "type": item.type.value, "key": "true" if item.key else "false"})
        for item in found
    ]
