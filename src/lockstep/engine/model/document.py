"""A project as a document of plain values, with the short forms that make models pleasant to write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from lockstep.engine.model.document_codecs import (
    PAIRS,
    SCHEMA,
    Codec,
    Entry,
    Place,
    Plain,
    Where,
    entries_of,
    nearest,
    read_duration,
    read_pair,
    read_record,
    record,
    several,
    write_record,
)
from lockstep.engine.model.project import ContinuousQuery, Edge, GroupEdge, Project
from lockstep.engine.model.values import duration_text
from lockstep.engine.model.windows import (
    RETENTION_KINDS,
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    CounterWindow,
    CustomWindow,
    FieldPlug,
    FilterWindow,
    FunctionalWindow,
    Initializer,
    JoinField,
    JoinWindow,
    NotificationWindow,
    Pattern,
    PatternOutput,
    PatternWindow,
    ProceduralWindow,
    RemoveStateWindow,
    Retention,
    SourceWindow,
    Splitter,
    TransposeWindow,
    UnionWindow,
    Window,
)

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


WINDOWS: Mapping[str, type[Window]] = {
    cls.kind: cls
    for cls in (
        SourceWindow,
        CopyWindow,
        AggregateWindow,
        FilterWindow,
        ComputeWindow,
        JoinWindow,
        UnionWindow,
        PatternWindow,
        FunctionalWindow,
        CounterWindow,
        TransposeWindow,
        RemoveStateWindow,
        NotificationWindow,
        ProceduralWindow,
        CustomWindow,
    )
}
"""The classes of windows by kind."""

_WINDOW_NAME = re.compile(r"[^\s.=]+")
"""A name that may stand in a short form as it is."""
_RETENTION = re.compile(r"(\w+)\s+(.+?)(?:\s+on\s+(\S+))?(?:\s+by\s+(.+))?")


def read_retention(place: Place) -> Retention:
    """A mapping with kind, limit, field and unit, or a text: bytime_sliding 5 minutes on time."""
    parts = place.record(("kind", "limit", "field", "unit")) if isinstance(place.value, dict) else _split(place)
    for key in ("kind", "limit"):
        if key not in parts:
            place.refuse(f"{key!r} is missing", f"Add {key}.")
    kind = parts["kind"].text()
    if kind not in RETENTION_KINDS:
        parts["kind"].refuse(f"{kind!r} is not a kind of retention", nearest(kind, RETENTION_KINDS))
    by_time = kind.startswith("bytime")
    return Retention(
        kind=kind,
        limit=read_duration(parts["limit"]) if by_time else _count(parts["limit"]),
        field=parts["field"].text() if "field" in parts else None,
        unit_us=read_duration(parts["unit"]) if "unit" in parts else None,
    )


def _split(place: Place) -> dict[str, Place]:
    found = _RETENTION.fullmatch(place.text())
    if found is None:
        place.want("a retention such as bytime_sliding 5 minutes on time")
    named = zip(("kind", "limit", "field", "unit"), found.groups(), strict=True)
    return {key: Place(text, place.where, place.path) for key, text in named if text is not None}


def _count(place: Place) -> int:
    text = place.text()
    if not re.fullmatch(r"-?[0-9]+", text, re.ASCII):
        place.want("a number of rows")
    return int(text)


def _write_retention(retention: Retention) -> Plain:
    limit = duration_text(retention.limit) if retention.by_time else retention.limit
    unit = None if retention.unit_us is None else duration_text(retention.unit_us)
    parts = {"kind": retention.kind, "limit": limit, "field": retention.field, "unit": unit}
    return {key: part for key, part in parts.items() if part is not None}


def _read_made(place: Place) -> str | FieldPlug:
    return record(FieldPlug).read(place) if isinstance(place.value, dict) else place.text()


def _write_made(value: str | FieldPlug) -> Plain:
    return value if isinstance(value, str) else record(FieldPlug).write(value)


def _read_fields(place: Place) -> Any:
    """Expressions in the order of the schema, or by the name of the field they make."""
    if isinstance(place.value, dict):
        return {name: (item, _read_made(item)) for name, item in place.entries().items()}
    return tuple(_read_made(item) for item in place.items())


def _read_expressions(place: Place) -> Any:
    for item in place.entries().values() if isinstance(place.value, dict) else place.items():
        item.text()
    return _read_fields(place)


def _read_join_fields(place: Place) -> tuple[JoinField, ...]:
    if isinstance(place.value, dict):
        return tuple(_read_join_field(name, item) for name, item in place.entries().items())
    return several(record(JoinField)).read(place)


def _read_join_field(name: str, place: Place) -> JoinField:
    if not isinstance(place.value, dict):
        return JoinField(name=name, source=place.text())
    values = read_record(place, [entry for entry in entries_of(JoinField, {}) if entry.key != "name"])
    return JoinField(name=name, **values)


def _write_join_fields(made: tuple[JoinField, ...]) -> Plain:
    documents = [record(JoinField).write(field) for field in made]
    if len({field.name for field in made}) < len(made):
        return documents
    return {document.pop("name"): _shortened(document) for document in documents}


def _shortened(document: dict[str, Plain]) -> Plain:
    return document["source"] if document.keys() == {"source"} else document


def _read_condition(place: Place) -> tuple[str, str]:
    if isinstance(place.value, list):
        return read_pair(place)
    left, _, right = place.text().partition("==")
    return left.strip(), right.strip() or left.strip()


def _write_condition(pair: tuple[str, str]) -> Plain:
    if not all(_WINDOW_NAME.fullmatch(name) for name in pair):
        return list(pair)
    return pair[0] if pair[0] == pair[1] else f"{pair[0]} == {pair[1]}"


def _read_output(place: Place) -> PatternOutput:
    """A mapping, or a text: event.field."""
    if isinstance(place.value, dict):
        return PatternOutput(**read_record(place, entries_of(PatternOutput, {})))
    node, dot, name = place.text().partition(".")
    if not dot:
        place.want("EVENT.FIELD")
    return PatternOutput(node=node, field=name)


def _write_output(output: PatternOutput) -> Plain:
    names = (output.node or "", output.field or "")
    if output.expression is None and all(_WINDOW_NAME.fullmatch(name) for name in names):
        return ".".join(names)
    return record(PatternOutput).write(output)


def _read_times(place: Place) -> tuple[tuple[str, str], ...]:
    """Windows by field, or a list of pairs, which may name a field for several windows."""
    if isinstance(place.value, dict):
        return PAIRS.read(place)
    pairs = place.value if isinstance(place.value, list) else [None]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        place.refuse(
            "time_fields must name a field and its source window", "Write {FIELD: WINDOW}, or [[FIELD, WINDOW], ...]."
        )
    return PAIRS.read(place)


def _or_text(cls: Any, key: str, special: Mapping[str, Codec[Any]] | None = None) -> Codec[Any]:
    """A record that may be written as the text of its main key alone."""
    entries = entries_of(cls, special or {})
    whole: Codec[Any] = Codec(
        lambda place: cls(**read_record(place, entries)), lambda value: write_record(value, entries)
    )

    def read(place: Place) -> Any:
        return whole.read(place) if isinstance(place.value, dict) else cls(**{key: place.text()})

    def write(value: Any) -> Plain:
        document = whole.write(value)
        return document[key] if document.keys() == {key} else document

    return Codec(read, write)


def _patterns() -> Codec[Any]:
    special: dict[str, Codec[Any]] = {
        "output": several(Codec(_read_output, _write_output)),
        "time_fields": Codec(_read_times, PAIRS.write),
    }
    entries = entries_of(Pattern, special)

    def read(place: Place) -> Pattern:
        return Pattern(**read_record(place, entries))

    return several(Codec(read, lambda value: write_record(value, entries)))


@cache
def window_entries(kind: str) -> list[Entry]:
    """The entries of a kind of window."""
    cls = WINDOWS[kind]
    made = several(Codec(_read_made, _write_made))
    special: dict[type[Window], dict[str, Codec[Any]]] = {
        AggregateWindow: {"fields": Codec(_read_fields, made.write)},
        ComputeWindow: {"fields": Codec(_read_expressions, list)},
        JoinWindow: {
            "fields": Codec(_read_join_fields, _write_join_fields),
            "conditions": several(Codec(_read_condition, _write_condition)),
        },
        PatternWindow: {"patterns": _patterns()},
    }
    first = _or_text(Initializer, "text")
    shared: dict[str, Codec[Any]] = {
        "retention": Codec(read_retention, _write_retention),
        "initialize": first,
        "splitter": _or_text(Splitter, "expression", {"initialize": first}),
        "schema": SCHEMA,
    }
    return entries_of(cls, shared | special.get(cls, {}))


def read_window(place: Place) -> Window:
    """A window by its kind."""
    found = place.entries()
    if "kind" not in found:
        place.refuse("'kind' is missing", f"Add kind: one of {', '.join(WINDOWS)}.")
    kind = found["kind"].text()
    if kind not in WINDOWS:
        found["kind"].refuse(f"{kind!r} is not a kind of window", nearest(kind, list(WINDOWS)))
    values = read_record(place, window_entries(kind), ("kind",))
    if isinstance(values.get("fields"), dict):
        values["fields"] = _in_order(values["fields"], values["schema"], found["fields"])
    return WINDOWS[kind](**values)


def _in_order(made: dict[str, tuple[Place, Any]], schema: Any, place: Place) -> tuple[Any, ...]:
    wanted = [field.name for field in schema if not field.key]
    for name in made:
        if name not in wanted:
            place.refuse(f"{name!r} is not a field of the schema", nearest(name, wanted), key=name)
    for name in wanted:
        if name not in made:
            place.refuse(f"nothing makes field {name!r}", f"Add {name} with an expression.")
    return tuple(made[name][1] for name in wanted)


def write_window(window: Window) -> dict[str, Plain]:
    """The document of a window: its kind first."""
    document = {"kind": window.kind, **write_record(window, window_entries(window.kind))}
    if isinstance(window, AggregateWindow | ComputeWindow):
        names = [field.name for field in window.schema if not field.key]
        if names and len(names) == len(window.fields):
            document["fields"] = dict(zip(names, document["fields"], strict=True))
    return document
