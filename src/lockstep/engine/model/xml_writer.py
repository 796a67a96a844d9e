"""Projects as ESP's XML; parse_xml gives them back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any

from lockstep.engine.errors import ModelUnwritable
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.model import windows as w
from lockstep.engine.model import xml_attributes as t
from lockstep.engine.model.project import ConnectorGroup, ContinuousQuery, Project
from lockstep.engine.model.values import duration_text
from lockstep.engine.model.xml_elements import Element, dedented, joined, render, text_element


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


def window_element(window: w.Window) -> Element:
    """The element of a window."""
    table = t.WINDOW + t.KINDS.get(type(window), ())
    children = [
        *prose(window.description),
        *_splitter(window.splitter),
        *_BODIES[type(window)](window),
        *_connectors(window.connectors),
    ]
    return Element(f"window-{window.kind}", attributes_of(window, table), children)


def attributes_of(value: Any, table: t.Table) -> dict[str, str]:
    """The attributes in a table whose fields differ from their defaults."""
    defaults = {field.name: field.default for field in fields(value)}
    given = ((attribute, getattr(value, attribute.field)) for attribute in table)
    return {
        attribute.name: attribute.form.write(item) for attribute, item in given if item != defaults[attribute.field]
    }


def holding(tag: str, children: Iterable[Element]) -> Element:
    """An element that does nothing but hold others."""
    return Element(tag, children=list(children))


def prose(description: str) -> list[Element]:
    """The description, unless there is none."""
    return [text_element("description", description, trim=dedented)] if description else []


def pairs(container: str, tag: str, items: Sequence[tuple[str, str]], key: str = "name") -> list[Element]:
    """Names and texts in a container, unless there are none."""
    elements = [text_element(tag, text, {key: name}) for name, text in items]
    return [holding(container, elements)] if elements else []


def _known(kind: str, kinds: Collection[str], what: str) -> str:
    if kind not in kinds:
        reason = f"there is no {what} of kind {kind!r}, only {', '.join(kinds)}"
        raise ModelUnwritable(form="XML", reason=reason)
    return kind


def _texts(tag: str, text: str | None) -> list[Element]:
    return [] if text is None else [text_element(tag, text)]


def _connectors(connectors: tuple[w.Connector, ...]) -> list[Element]:
    elements = [
        Element(
            "connector",
            attributes_of(connector, t.CONNECTOR),
            [*prose(connector.description), *pairs("properties", "property", connector.properties)],
        )
        for connector in connectors
    ]
    return [holding("connectors", elements)] if elements else []


def _splitter(splitter: w.Splitter | None) -> list[Element]:
    if splitter is None:
        return []
    return [holding("splitter-expr", [*_initialize(splitter.initialize), *_texts("expression", splitter.expression)])]


def _initialize(initializer: w.Initializer | None) -> list[Element]:
    if initializer is None:
        return []
    first = text_element("initializer", initializer.text, {"type": initializer.type.value})
    functions = [
        text_element("udf", function.text, {"name": function.name, "type": function.type.value})
        for function in initializer.functions
    ]
    return [holding("expr-initialize", [first, *([holding("udfs", functions)] if functions else [])])]


def _schema(schema: Schema | None) -> list[Element]:
    if schema is None:
        return []
    return [holding("schema", [holding("fields", [_field(field) for field in schema])])]


def _field(field: Field) -> Element:
    key = {"key": "true"} if field.key else {}
    return Element("field", {"name": field.name, "type": field.type.value} | key)


def _retention(retention: w.Retention | None) -> list[Element]:
    if retention is None:
        return []
    unit = None if retention.unit_us is None else duration_text(retention.unit_us)
    given = {"type": retention.kind, "field": retention.field, "unit": unit}
    text = duration_text(retention.limit) if retention.by_time else str(retention.limit)
    attributes = {name: value for name, value in given.items() if value is not None}
    return [Element("retention", attributes, text=text)]


def _source(window: w.SourceWindow) -> list[Element]:
    return [*_schema(window.schema), *_retention(window.retention), *_texts("avro-schema", window.avro_schema)]


def _copy(window: w.CopyWindow) -> list[Element]:
    return _retention(window.retention)


def _computed(window: w.AggregateWindow | w.ComputeWindow) -> list[Element]:
    output = holding("output", [_made(made) for made in window.fields])
    return [*_initialize(window.initialize), *_schema(window.schema), output]


def _made(made: str | w.FieldPlug) -> Element:
    return (
        text_element("field-expr", made)
        if isinstance(made, str)
        else Element("field-plug", attributes_of(made, t.PLUG))
    )


def _filter(window: w.FilterWindow) -> list[Element]:
    return [*_initialize(window.initialize), text_element("expression", window.expression)]


def _join(window: w.JoinWindow) -> list[Element]:
    conditions = [Element("fields", {"left": left, "right": right}) for left, right in window.conditions]
    join = Element(
        "join", {"type": window.type} | attributes_of(window, t.JOIN[1:]), [holding("conditions", conditions)]
    )
    return [join, holding("output", [_selected(field, t.JOIN_FIELD) for field in window.fields])]


def _selected(field: w.JoinField | w.PatternOutput, table: t.Table) -> Element:
    attributes = attributes_of(field, table)
    if field.expression is None:
        return Element("field-selection", attributes)
    return text_element("field-expr", field.expression, attributes)


def _pattern_window(window: w.PatternWindow) -> list[Element]:
    return [*_schema(window.schema), holding("patterns", [_pattern(pattern) for pattern in window.patterns])]


def _pattern(pattern: w.Pattern) -> Element:
    events = [
        text_element("event", event.expression, attributes_of(event, t.PATTERN_EVENT)) for event in pattern.events
    ]
    times = [Element("timefield", {"field": field, "source": source}) for field, source in pattern.time_fields]
    children = [
        holding("events", events),
        text_element("logic", pattern.logic),
        holding("output", [_selected(output, t.PATTERN_OUTPUT) for output in pattern.output]),
        *([holding("timefields", times)] if times else []),
    ]
    return Element("pattern", attributes_of(pattern, t.PATTERN), children)


def _context(
    functions: Sequence[tuple[str, str]],
    properties: Sequence[w.ContextProperty],
    expressions: Sequence[tuple[str, str]] = (),
) -> list[Element]:
    held = [_property(item) for item in properties]
    children = [
        *pairs("expressions", "expression", expressions),
        *([holding("properties", held)] if held else []),
        *pairs("functions", "function", functions),
    ]
    return [holding("function-context", children)] if children else []


def _property(item: w.ContextProperty) -> Element:
    names = t.PROPERTY_DIVIDERS[_known(item.kind, t.PROPERTY_DIVIDERS, "property")]
    dividers = zip(names, (item.outer, item.inner), strict=True)
    given = {name: value for name, value in dividers if value is not None}
    return text_element(f"property-{item.kind}", item.text, {"name": item.name} | given)


def _functional(window: w.FunctionalWindow) -> list[Element]:
    loops = [_loop(loop) for loop in window.loops]
    return [
        *_schema(window.schema),
        *_texts("opcode", window.opcode),
        *_texts("generate", window.generate),
        *_context(window.functions, window.properties, window.expressions),
        *([holding("event-loops", loops)] if loops else []),
    ]


def _loop(loop: w.EventLoop) -> Element:
    use, item = t.LOOP_WORDS[_known(loop.kind, t.LOOP_WORDS, "event loop")]
    group = {"group": str(loop.group)} if loop.group else {}
    children = [text_element(use, loop.use), text_element(item, loop.item, group)]
    context = _context(loop.functions, loop.properties)
    return Element(f"event-loop-{loop.kind}", attributes_of(loop, t.LOOP), [*children, *context])


def _notification(window: w.NotificationWindow) -> list[Element]:
    return [
        *_schema(window.schema),
        *_context(window.functions, window.properties),
        Element("smtp", attributes_of(window.smtp, t.SMTP)),
        holding("delivery-channels", [_channel(channel) for channel in window.channels]),
    ]


def _channel(channel: w.Channel) -> Element:
    _known(channel.kind, t.CHANNELS, "channel")
    address = "recipients" if channel.kind == "email" else "phone"
    words = [*t.CHANNEL_INFO, (address, "to"), ("to", "shown_to")]
    info, contents = (
        [text_element(tag, getattr(channel, field)) for tag, field in rows if getattr(channel, field)]
        for rows in (words, t.CHANNEL_CONTENTS)
    )
    children = [
        *_texts("deliver", channel.deliver),
        holding(f"{channel.kind}-info", info),
        holding(f"{channel.kind}-contents", contents),
    ]
    return Element(channel.kind, attributes_of(channel, t.CHANNEL), children)


def _procedural(window: w.ProceduralWindow) -> list[Element]:
    return [*_schema(window.schema), Element("plugin", attributes_of(window, t.PROCEDURAL))]


def _custom(window: w.CustomWindow) -> list[Element]:
    return [*_schema(window.schema), *pairs("properties", "property", window.properties)]


def _nothing(_: w.Window) -> list[Element]:
    return []


_BODIES: dict[type[w.Window], Callable[[Any], list[Element]]] = {
    w.SourceWindow: _source,
    w.CopyWindow: _copy,
    w.AggregateWindow: _computed,
    w.FilterWindow: _filter,
    w.ComputeWindow: _computed,
    w.JoinWindow: _join,
    w.UnionWindow: _nothing,
    w.PatternWindow: _pattern_window,
    w.FunctionalWindow: _functional,
    w.CounterWindow: _nothing,
    w.TransposeWindow: _nothing,
    w.RemoveStateWindow: _nothing,
    w.NotificationWindow: _notification,
    w.ProceduralWindow: _procedural,
    w.CustomWindow: _custom,
}
