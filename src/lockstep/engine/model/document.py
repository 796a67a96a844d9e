"""A project as a document of plain values: the common ground of YAML, of digests and of anything like them."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lockstep.engine.model.document_codecs import (
    Codec,
    Entry,
    entries_of,
    read_record,
    record,
    several,
    write_record,
)
from lockstep.engine.model.document_place import Place, Plain, Where
from lockstep.engine.model.document_windows import read_window, write_window
from lockstep.engine.model.project import ContinuousQuery, Edge, GroupEdge, Project

_NAME = re.compile(r"[^\s>,]+")


def to_document(project: Project) -> dict[str, Plain]:
    """The project as nested dicts and lists of plain values; what has its default is left out."""
    return write_record(project, _project_entries())


def from_document(document: Plain, where: Where | None = None) -> Project:
    """The project of a document; raises ModelUnreadable with the place of what is wrong in it."""
    return Project(**read_record(Place(document, where or Where()), _project_entries()))


@cache
def _project_entries() -> list[Entry]:
    queries = several(Codec(_read_query, _write_query))
    return entries_of(Project, {"queries": queries, "connector_edges": _edges(GroupEdge)})


@cache
def _query_entries() -> list[Entry]:
    windows = several(Codec(read_window, write_window))
    return entries_of(ContinuousQuery, {"windows": windows, "edges": _edges(Edge)})


def _read_query(place: Place) -> ContinuousQuery:
    return ContinuousQuery(**read_record(place, _query_entries()))


def _write_query(query: ContinuousQuery) -> Plain:
    return write_record(query, _query_entries())


def _edges(cls: Any) -> Codec[Any]:
    """A list of mappings, or of texts `source -> target` in which several names may stand on both sides."""

    def read(place: Place) -> tuple[Any, ...]:
        return tuple(edge for item in place.items() for edge in _read_edges(item, cls))

    return Codec(read, lambda edges: [_write_edge(edge, record(cls)) for edge in edges])


def _read_edges(place: Place, cls: Any) -> list[Any]:
    if isinstance(place.value, dict):
        return [record(cls).read(place)]
    sources, arrow, targets = place.text().partition("->")
    if not arrow or not sources.strip() or not targets.strip():
        place.refuse(f"{place.text()!r} is not an edge", "Write SOURCE -> TARGET.")
    return [cls(source=source, target=target) for source in _names(sources) for target in _names(targets)]


def _names(text: str) -> list[str]:
    return [name for name in re.split(r"[\s,]+", text) if name]


def _write_edge(edge: Any, whole: Codec[Any]) -> Plain:
    document = whole.write(edge)
    simple = document.keys() == {"source", "target"} and all(_NAME.fullmatch(name) for name in document.values())
    return f"{edge.source} -> {edge.target}" if simple else document
