"""Events as people write and read them in Python: dictionaries by field name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.events.text import WRONG_TYPE, BadText, parse_flags, parse_opcode
from lockstep.engine.events.types import INT_RANGE, MONEY_SCALE, FieldType, Value, fits, is_writable
from lockstep.errors import BadRecord

Row = dict[str, Any]
"""An event by field names, with its opcode, flags and block."""
Item = Event | Mapping[str, Any] | Sequence[Any]
"""What can be published as an event: an Event, a row by names, or the values in the order of the schema."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _SECOND = timedelta(microseconds=1), timedelta(seconds=1)


def own_names(schema: Schema) -> tuple[str, str, str]:
    """What opcode, flags and block are called: with an @ if a field has one of these names."""
    names = ("opcode", "flags", "block")
    mark = "@" if any(name in schema for name in names) else ""
    opcode, flags, block = (mark + name for name in names)
    return opcode, flags, block


def row_of(event: Event, block: int, schema: Schema) -> Row:
    """An event of a block as a row."""
    opcode, flags, number = own_names(schema)
    head: Row = {opcode: event.opcode.name.lower(), flags: event.flags.letters, number: block}
    return head | dict(zip(schema.names, event.values, strict=True))


def event_of(item: Item, schema: Schema, stream: str) -> Event:
    """The event that is meant, checked; BadRecord says what is wrong with it."""
    try:
        return _event(item, schema)
    except BadText as fault:
        raise BadRecord(stream=stream, reason=fault.detail) from None


def _event(item: Item, schema: Schema) -> Event:
    if isinstance(item, Event):
        return Event(Opcode(item.opcode), Flag(item.flags), _values(item.values, schema))
    if isinstance(item, Mapping):
        return _named(item, schema)
    if isinstance(item, str | bytes):
        raise BadText(WRONG_TYPE, "an event is a mapping, a tuple or an Event, not text")
    return Event(Opcode.INSERT, Flag.NORMAL, _values(item, schema))


def _named(item: Mapping[str, Any], schema: Schema) -> Event:
    own = own_names(schema)
    unknown = [name for name in item if name not in schema and name not in own]
    if unknown:
        raise BadText(WRONG_TYPE, f"there is no field {unknown[0]!r}")
    opcode, flags = item.get(own[0], Opcode.INSERT), item.get(own[1], Flag.NORMAL)
    return Event(
        opcode if isinstance(opcode, Opcode) else parse_opcode(str(opcode)),
        flags if isinstance(flags, Flag) else parse_flags(str(flags)),
        tuple(_value(field, item.get(field.name)) for field in schema),
    )


def _values(values: Sequence[Any], schema: Schema) -> tuple[Value, ...]:
    if len(values) != len(schema):
        raise BadText(WRONG_TYPE, f"it has {len(values)} values, not {len(schema)}")
    return tuple(_value(field, value) for field, value in zip(schema, values, strict=True))


def _value(field: Field, given: Any) -> Value:
    value: Value = _plain(field.type, given)
    if not fits(field.type, value):
        raise BadText(WRONG_TYPE, f"field {field.name}: {given!r} is no {field.type.value}")
    if not is_writable(value):
        raise BadText(WRONG_TYPE, f"field {field.name}: half of a surrogate pair is no character")
    return value


def _plain(kind: FieldType, given: Any) -> Any:
    """A value as events hold it; what can't be one is left as it is."""
    if isinstance(given, datetime) and kind.is_time and given.tzinfo is not None:
        return (given - _EPOCH) // (_SECOND if kind is FieldType.DATE else _MICROSECOND)
    if isinstance(given, Decimal) and kind is FieldType.MONEY and given.is_finite():
        scaled = given * MONEY_SCALE
        return int(scaled) if scaled == int(scaled) else given
    if kind is FieldType.DOUBLE and type(given) is int:
        return float(given)
    if kind is FieldType.BLOB and isinstance(given, bytearray | memoryview):
        return bytes(given)
    if kind.element is not None and isinstance(given, list | tuple):
        return tuple(_plain(kind.element, one) for one in given)
    return int(given) if kind in INT_RANGE and _is_whole(given) else given


def _is_whole(given: Any) -> bool:
    """Whether it is a whole number of another library."""
    return not isinstance(given, bool) and hasattr(given, "__index__")
