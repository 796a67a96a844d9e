"""Functions that belong together: properties and named functions, evaluated one after the other for each event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import Value
from lockstep.engine.model.windows import ContextProperty
from lockstep.engine.windows.function_calls import read_list, read_map
from lockstep.engine.windows.function_context import Context
from lockstep.engine.windows.function_texts import Function, Names, compile_function
from lockstep.engine.windows.function_values import seen, text


class FunctionSet:
    """Properties, then functions; each sees the fields and what was made before it."""

    def __init__(
        self, properties: Sequence[ContextProperty], functions: Sequence[tuple[str, str]], names: Names
    ) -> None:
        self._properties: list[tuple[ContextProperty, Function]] = []
        for each in properties:
            self._properties.append((each, compile_function(each.text, names)))
            names = Names(names.fields, (*names.properties, each.name), names.expressions)
        self._functions: list[tuple[str, Function]] = []
        for name, written in functions:
            self._functions.append((name, compile_function(written, names, prose=True)))
            names = Names((*names.fields, name), names.properties, names.expressions)
        self.names = names
        """What those who come after can speak of."""

    @property
    def functions(self) -> list[Function]:
        """All functions, properties included."""
        return [function for _, function in (*self._properties, *self._functions)]

    def run(self, context: Context) -> dict[str, Value]:
        """Evaluate all for an event; the context knows the results afterwards."""
        for each, function in self._properties:
            context.properties[each.name] = property_value(each, function.evaluate(context))
        results: dict[str, Value] = {}
        for name, function in self._functions:
            results[name] = context.values[name] = function.evaluate(context)
        return results


def property_value(described: ContextProperty, value: Value) -> Value:
    """A property as functions see it: lists, sets and maps are kept as JSON text, so that no separator can hurt."""
    if value is None:
        return None
    plain = text(value)
    if described.kind in ("list", "set"):
        items = read_list(plain, described.outer or ",")
        return _json(list(dict.fromkeys(items)) if described.kind == "set" else items)
    if described.kind == "map" and described.outer and described.inner:
        return _json(read_map(plain, described.outer, described.inner))
    return plain


def names_of(inputs: Iterable[Schema], expressions: Mapping[str, str] | None = None) -> Names:
    """The fields of all inputs; one that an event's own input lacks is null for it."""
    fields = dict.fromkeys(name for schema in inputs for name in schema.names)
    return Names(tuple(fields), (), expressions or {})


def values_of(schema: Schema, row: Row) -> dict[str, Value]:
    """The fields of a row by name, as functions see them."""
    return {field.name: seen(field.type, value) for field, value in zip(schema, row, strict=True)}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
