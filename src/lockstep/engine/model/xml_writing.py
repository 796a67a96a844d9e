"""Projects as ESP's XML; parse_xml gives them back."""

from __future__ import annotations

from typing import Any

from lockstep.engine.model import xml_common_tables as t
from lockstep.engine.model.project import ConnectorGroup, ContinuousQuery, Project
from lockstep.engine.model.xml_common import Element, joined, render
from lockstep.engine.model.xml_writing_windows import attributes_of, holding, pairs, prose, window_element


def to_xml(project: Project) -> str:
    """The project as XML: within an engine element if it has a port, else alone."""
    element = _project(project)
    if project.port is not None:
        element = Element("engine", {"port": str(project.port)}, [holding("projects", [element])])
    return render(element)


def _project(project: Project) -> Element:
    children = [
        *prose(project.description),
        *pairs("metadata", "meta", project.metadata, "id"),
        holding("contqueries", [_query(query) for query in project.queries]),
    ]
    if project.connector_groups or project.connector_edges:
        groups = holding("connector-groups", [_group(group) for group in project.connector_groups])
        edges = holding("edges", [_edge(edge, t.GROUP_EDGE) for edge in project.connector_edges])
        children.append(holding("project-connectors", [groups, edges]))
    return Element("project", attributes_of(project, t.PROJECT), children)


def _group(group: ConnectorGroup) -> Element:
    entries = [Element("connector-entry", attributes_of(entry, t.ENTRY)) for entry in group.entries]
    return Element("connector-group", {"name": group.name}, entries)


def _query(query: ContinuousQuery) -> Element:
    children = [
        *prose(query.description),
        *pairs("metadata", "meta", query.metadata, "id"),
        holding("windows", [window_element(window) for window in query.windows]),
    ]
    if query.edges:
        children.append(holding("edges", [_edge(edge, t.EDGE) for edge in query.edges]))
    return Element("contquery", attributes_of(query, t.QUERY), children)


def _edge(edge: Any, table: t.Table) -> Element:
    ends = {"source": joined([edge.source], " "), "target": joined([edge.target], " ")}
    return Element("edge", ends | attributes_of(edge, table[2:]))
