"""Whether a row from outside fits the schema of the window it is for."""

from __future__ import annotations

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import INT_RANGE, fits

_KNOWN_MAX = 4096


class RowCheck:
    """Finds values of a wrong type.

    The Python types of a row are looked at together, once for each combination that occurs; then only whole numbers
    (they have bounds) and arrays (they have elements) need a look of their own.
    """

    __slots__ = ("_arrays", "_known", "_ranges", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: set[tuple[type, ...]] = set()
        kinds = [(place, field.type) for place, field in enumerate(schema)]
        self._ranges = [(place, *INT_RANGE[kind]) for place, kind in kinds if kind in INT_RANGE]
        self._arrays = [place for place, kind in kinds if kind.element is not None]

    def fault(self, values: Row) -> str | None:
        """What is wrong with a row, if something is."""
        types = tuple(map(type, values))
        if types not in self._known:
            fault = self._slow(values)
            if fault is None and len(self._known) < _KNOWN_MAX:
                self._known.add(types)
            return fault
        for place, low, high in self._ranges:
            value = values[place]
            if value is not None and not low <= value <= high:  # type: ignore[operator]  # its type was looked at
                return self._slow(values)
        return self._slow(values) if self._arrays else None

    def _slow(self, values: Row) -> str | None:
        if len(values) != len(self._schema):
            return f"{len(values)} values for {len(self._schema)} fields"
        for field, value in zip(self._schema, values, strict=True):
            if not fits(field.type, value):
                return f"{field.name} is {value!r:.80}, not of type {field.type.value}"
        return None
