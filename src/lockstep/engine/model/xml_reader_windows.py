"""The windows of ESP's XML."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lockstep.engine.model import windows as w
from lockstep.engine.model import xml_attributes as t
from lockstep.engine.model.document import WINDOWS
from lockstep.engine.model.document_codecs import nearest
from lockstep.engine.model.values import DURATION_REMEDY, parse_duration
from lockstep.engine.model.xml_cursor import UNSUPPORTED, Cursor

FUNCTIONS = ("function-context", "event-loops", "generate", "opcode")
"""The elements by which events are made by functions."""
_COMMON = ("description", "connectors", "splitter-expr")
_SCHEMA = ("schema", "schema-string")
_CONTEXT = ("expressions", "properties", "functions")

Body = Callable[[Cursor], dict[str, Any]]


def read_window(cursor: Cursor) -> w.Window:
    """The window of an element whose tag is window-KIND."""
    cls = WINDOWS[cursor.element.tag.removeprefix("window-")]
    children, body = _BODIES[cls]
    table = t.WINDOW + t.KINDS.get(cls, ())
    cursor.expect(names_of(table), (*_COMMON, *children))
    connectors = [item.attempt(_connector, None) for item in cursor.inside("connectors", "connector")]
    common: dict[str, Any] = {
        "description": cursor.description(),
        "connectors": tuple(one for one in connectors if one is not None),
        "splitter": _splitter(cursor),
    }
    return cls(**cursor.values(table, cls), **common, **body(cursor))


def place_window(cursor: Cursor, window: w.Window, path: str) -> None:
    """Note the lines of a window and its parts, by the names that faults have for them."""
    lines = cursor.notes.lines
    lines[path] = cursor.element.line
    for item in (one for found in cursor.all("connectors") for one in found.all("connector")):
        lines[f"{path} connector {item.element.attributes.get('name', '')}"] = item.element.line
    schema = getattr(window, "schema", None)
    made = [field.name for field in schema if not field.key] if schema is not None else []
    outputs = [item for found in cursor.all("output") for item in found.all("field-expr", "field-plug")]
    for name, item in zip(made, outputs, strict=False):
        lines[f"{path} field {name}"] = item.element.line
    for found in cursor.all("patterns"):
        for item in found.all("pattern"):
            lines[f"{path} pattern {item.element.attributes.get('name', '')}"] = item.element.line


def names_of(table: t.Table) -> tuple[str, ...]:
    """The names of the attributes in a table."""
    return tuple(attribute.name for attribute in table)


def read_as(cursor: Cursor, table: t.Table, cls: Any, *, children: tuple[str, ...] = (), **more: Any) -> Any:
    """A record whose fields are the attributes of an element."""
    cursor.expect(names_of(table), children, text="text" in more or "expression" in more)
    return cls(**cursor.values(table, cls), **more)


def _connector(cursor: Cursor) -> w.Connector:
    properties = cursor.pairs("property", "properties", "name")
    description = cursor.description()
    children = ("description", "properties")
    return read_as(  # type: ignore[no-any-return]
        cursor, t.CONNECTOR, w.Connector, children=children, properties=properties, description=description
    )


def _splitter(cursor: Cursor) -> w.Splitter | None:
    found = cursor.child("splitter-expr")
    if found is None:
        return None
    found.expect(children=("expression", "expr-initialize"))
    return w.Splitter(expression=found.child_text("expression") or "", initialize=_initializer(found))


def _initializer(cursor: Cursor) -> w.Initializer | None:
    found = cursor.child("expr-initialize")
    if found is None:
        return None
    found.expect(children=("initializer", "udfs"))
    functions = tuple(
        read_as(item, t.FUNCTION, w.UserFunction, text=item.text()) for item in found.inside("udfs", "udf")
    )
    first = found.child("initializer")
    if first is None:
        return w.Initializer(functions=functions)
    first.expect(("type",), text=True)
    return w.Initializer(text=first.text(), functions=functions, **first.values(t.INITIALIZER, w.Initializer))


def _schema(cursor: Cursor) -> dict[str, Any]:
    schema = cursor.schema()
    if schema is None:
        cursor.refuse(f"{cursor.element.tag} has no schema", "Add <schema-string>NAME*:TYPE,...</schema-string>.")
    return {"schema": schema}


def _retention(cursor: Cursor) -> dict[str, Any]:
    found = cursor.child("retention")
    if found is None:
        return {}
    found.expect(("type", "field", "unit"), text=True)
    kind, given = found.need("type"), found.element.attributes
    if kind not in w.RETENTION_KINDS:
        found.refuse(f"{kind!r} is not a kind of retention", nearest(kind, w.RETENTION_KINDS))
    by_time = kind.startswith("bytime")
    # A unit may be named without a number, as in unit='hour'.
    unit = _duration(found, re.sub(r"\A\s*(?=[a-z])", "1 ", given["unit"])) if "unit" in given else None
    limit = _duration(found, found.text()) if by_time else _count(found, found.text())
    return {"retention": w.Retention(kind=kind, limit=limit, field=given.get("field"), unit_us=unit)}


def _duration(cursor: Cursor, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        cursor.refuse(str(error), DURATION_REMEDY)


def _count(cursor: Cursor, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]+", text, re.ASCII):
        cursor.refuse(f"{text!r} is not a number of rows", "Write a whole number.")
    return int(text)


def _initialized(cursor: Cursor) -> dict[str, Any]:
    return {"initialize": _initializer(cursor)}


def _source(cursor: Cursor) -> dict[str, Any]:
    return _schema(cursor) | _retention(cursor) | {"avro_schema": cursor.child_text("avro-schema")}


def _aggregate(cursor: Cursor) -> dict[str, Any]:
    made = tuple(_made(item) for item in cursor.inside("output", "field-expr", "field-plug"))
    return {"fields": made} | _schema(cursor) | _initialized(cursor)


def _made(cursor: Cursor) -> str | w.FieldPlug:
    if cursor.element.tag == "field-plug":
        plug: w.FieldPlug = read_as(cursor, t.PLUG, w.FieldPlug)
        return plug
    cursor.expect(text=True)
    return cursor.text()


def _compute(cursor: Cursor) -> dict[str, Any]:
    for found in cursor.all("output"):
        for item in found.all("field-plug"):
            item.refuse("the element 'field-plug' is not supported", UNSUPPORTED["field-plug"])
    return _aggregate(cursor)


def _filter(cursor: Cursor) -> dict[str, Any]:
    expression = cursor.child_text("expression")
    if expression is None:
        cursor.refuse("window-filter has no expression", "Add <expression>...</expression>.")
    return {"expression": expression} | _initialized(cursor)


def _join(cursor: Cursor) -> dict[str, Any]:
    join = cursor.child("join")
    if join is None:
        cursor.refuse("window-join has no join", "Add <join type='leftouter'><conditions>...</conditions></join>.")
    join.expect(names_of(t.JOIN), ("conditions",))
    conditions = []
    for item in join.inside("conditions", "fields"):
        item.expect(("left", "right"))
        conditions.append((item.need("left"), item.need("right")))
    tags = ("field-selection", "field-expr", "left-select", "right-select", "left-expr", "right-expr")
    made = tuple(field for item in cursor.inside("output", *tags) for field in _join_fields(item))
    return {"conditions": tuple(conditions), "fields": made} | join.values(t.JOIN, w.JoinWindow)


def _join_fields(cursor: Cursor) -> list[w.JoinField]:
    tag = cursor.element.tag
    if tag == "field-selection":
        return [read_as(cursor, t.JOIN_FIELD, w.JoinField)]
    if tag == "field-expr":
        return [read_as(cursor, t.JOIN_FIELD, w.JoinField, expression=cursor.text())]
    cursor.expect(("exclude",), text=True)
    names = re.findall(r"[^\s,]+", cursor.text())
    if "*" in names or "exclude" in cursor.element.attributes:
        cursor.refuse("fields can't be chosen by leaving some out", "Write the names of the fields.")
    return [w.JoinField(name=name, source=f"{tag[0]}_{name}") for name in names]


def _pattern_window(cursor: Cursor) -> dict[str, Any]:
    return {"patterns": tuple(_pattern(item) for item in cursor.inside("patterns", "pattern"))} | _schema(cursor)


def _pattern(cursor: Cursor) -> w.Pattern:
    events = tuple(
        read_as(item, t.PATTERN_EVENT, w.PatternEvent, expression=item.text())
        for item in cursor.inside("events", "event")
    )
    output = []
    for item in cursor.inside("output", "field-selection", "field-expr"):
        made: dict[str, Any] = {"expression": item.text()} if item.element.tag == "field-expr" else {}
        output.append(read_as(item, t.PATTERN_OUTPUT, w.PatternOutput, **made))
    times = []
    for item in cursor.inside("timefields", "timefield"):
        item.expect(("field", "source"))
        times.append((item.need("field"), item.need("source")))
    cursor.expect(names_of(t.PATTERN), ("events", "logic", "output", "timefields"))
    return w.Pattern(
        events=events,
        logic=cursor.child_text("logic") or "",
        output=tuple(output),
        time_fields=tuple(times),
        **cursor.values(t.PATTERN, w.Pattern),
    )


def _context(cursor: Cursor, *, expressions: bool) -> dict[str, Any]:
    found = cursor.child("function-context")
    if found is None:
        return {"functions": ()}
    found.expect(children=_CONTEXT if expressions else _CONTEXT[1:])
    context: dict[str, Any] = {"functions": found.pairs("function", "functions", "name")}
    if expressions:
        context["expressions"] = found.pairs("expression", "expressions", "name")
    tags = tuple(f"property-{kind}" for kind in t.PROPERTY_DIVIDERS)
    return context | {"properties": tuple(_property(item) for item in found.inside("properties", *tags))}


def _property(cursor: Cursor) -> w.ContextProperty:
    kind = cursor.element.tag.removeprefix("property-")
    dividers = t.PROPERTY_DIVIDERS[kind]
    cursor.expect(("name", *dividers), text=True)
    given = (cursor.element.attributes.get(divider) for divider in dividers)
    divided = dict(zip(("outer", "inner"), given, strict=True))
    return w.ContextProperty(name=cursor.need("name"), kind=kind, text=cursor.text(), **divided)


def _functional(cursor: Cursor) -> dict[str, Any]:
    return read_functions(cursor) | _schema(cursor)


def read_functions(cursor: Cursor) -> dict[str, Any]:
    """How an element makes events by functions: generate, opcode, loops and their context."""
    tags = tuple(f"event-loop-{kind}" for kind in t.LOOP_WORDS)
    return {
        "generate": cursor.child_text("generate"),
        "opcode": cursor.child_text("opcode"),
        "loops": tuple(_loop(item) for item in cursor.inside("event-loops", *tags)),
        **_context(cursor, expressions=True),
    }


def _loop(cursor: Cursor) -> w.EventLoop:
    kind = cursor.element.tag.removeprefix("event-loop-")
    use, item = t.LOOP_WORDS[kind]
    cursor.expect(names_of(t.LOOP), (use, item, "function-context"))
    looked = cursor.child(item)
    if looked is None:
        cursor.refuse(f"{cursor.element.tag} has no {item}", f"Add <{item}>...</{item}>.")
    looked.expect(("group",), text=True)
    return w.EventLoop(
        kind=kind,
        use=cursor.child_text(use) or "",
        item=looked.text(),
        group=_count(looked, looked.element.attributes.get("group", "0")),
        **_context(cursor, expressions=False),
        **cursor.values(t.LOOP, w.EventLoop),
    )


def _notification(cursor: Cursor) -> dict[str, Any]:
    smtp = cursor.child("smtp")
    if smtp is None:
        cursor.refuse("window-notification has no smtp", "Add <smtp host='...'/>.")
    channels = cursor.inside("delivery-channels", *t.CHANNELS)
    return {
        "smtp": _smtp(smtp),
        "channels": tuple(_channel(item) for item in channels),
        "schema": cursor.schema(),
        **_context(cursor, expressions=False),
    }


def _smtp(cursor: Cursor) -> w.SmtpServer:
    made: w.SmtpServer = read_as(cursor, t.SMTP, w.SmtpServer)
    if "password" in cursor.element.attributes and made.password_variable is None:
        return replace(made, password_variable="LOCKSTEP_SMTP_PASSWORD")  # noqa: S106 - the name of a variable
    return made


def _channel(cursor: Cursor) -> w.Channel:
    kind = cursor.element.tag
    cursor.expect(names_of(t.CHANNEL), ("deliver", f"{kind}-info", f"{kind}-contents"))
    address = "recipients" if kind == "email" else "phone"
    words = {**dict(t.CHANNEL_INFO), address: "to", "to": "shown_to"}
    texts: dict[str, Any] = {"sender": "", "to": ""}
    for item in cursor.inside(f"{kind}-info", *words):
        item.expect(text=True)
        texts[words[item.element.tag]] = item.text()
    contents = dict(t.CHANNEL_CONTENTS)
    for item in cursor.inside(f"{kind}-contents", *contents):
        item.expect(("name",), text=True)
        field = contents[item.element.tag]
        texts[field] = f"{texts[field]}\n{item.text()}" if field in texts else item.text()
    return w.Channel(kind=kind, deliver=cursor.child_text("deliver"), **texts, **cursor.values(t.CHANNEL, w.Channel))


def _procedural(cursor: Cursor) -> dict[str, Any]:
    plugin = cursor.child("plugin")
    if plugin is None:
        cursor.refuse("window-procedural has no handler", "Add <plugin name='MODULE' function='HANDLER'/>.")
    plugin.expect(names_of(t.PROCEDURAL))
    return plugin.values(t.PROCEDURAL, w.ProceduralWindow) | _schema(cursor)


def _custom(cursor: Cursor) -> dict[str, Any]:
    for name in ("module", "class", "version"):
        cursor.need(name)
    return {"properties": cursor.pairs("property", "properties", "name"), **_schema(cursor)}


_BODIES: dict[type[w.Window], tuple[tuple[str, ...], Body]] = {
    w.SourceWindow: ((*_SCHEMA, "retention", "avro-schema"), _source),
    w.CopyWindow: (("retention",), _retention),
    w.AggregateWindow: ((*_SCHEMA, "output", "expr-initialize"), _aggregate),
    w.FilterWindow: (("expression", "expr-initialize"), _filter),
    w.ComputeWindow: ((*_SCHEMA, "output", "expr-initialize"), _compute),
    w.JoinWindow: (("join", "output"), _join),
    w.UnionWindow: ((), lambda _: {}),
    w.PatternWindow: ((*_SCHEMA, "patterns"), _pattern_window),
    w.FunctionalWindow: ((*_SCHEMA, *FUNCTIONS), _functional),
    w.CounterWindow: ((), lambda _: {}),
    w.TransposeWindow: ((), lambda _: {}),
    w.RemoveStateWindow: ((), lambda _: {}),
    w.NotificationWindow: ((*_SCHEMA, "smtp", "delivery-channels", "function-context"), _notification),
    w.ProceduralWindow: ((*_SCHEMA, "plugin"), _procedural),
    w.CustomWindow: ((*_SCHEMA, "properties"), _custom),
}
