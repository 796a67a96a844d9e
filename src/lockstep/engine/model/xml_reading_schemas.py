"""Schemas that say `copy='WINDOW'`: the fields of another window of the query are put in, before windows are read."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.engine.errors import BadSchema
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.xml_common import Element
from lockstep.engine.model.xml_reading_cursor import Cursor

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
