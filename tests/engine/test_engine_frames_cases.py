"""Random schemas, rows and blocks for the tests of the event formats."""

from __future__ import annotations

from hypothesis import strategies as st

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Field, FieldType, Schema

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
DOUBLE = st.floats(allow_nan=True) | st.sampled_from(
    [0.0, -0.0, 1.0, 1e10, 1e15, 1e16, 1e-4, 1e-5, 5e-324, 1.5e300, 100.25]
)
TEXT = st.text(max_size=6) | st.sampled_from(
    ["", '"', 'a"b', "a,b", "a\nb", "\r\n", "\r", " x ", "0x1F", "nan", "IBM", "\ufeff"]
)
VALUES = {
    FieldType.INT32: INT32,
    FieldType.INT64: INT64,
    FieldType.DOUBLE: DOUBLE,
    FieldType.STRING: TEXT,
    FieldType.DATE: INT64,
    FieldType.STAMP: INT64,
    FieldType.MONEY: INT64,
    FieldType.BLOB: st.binary(max_size=5),
    FieldType.ARRAY_INT32: st.lists(st.none() | INT32, max_size=3).map(tuple),
    FieldType.ARRAY_INT64: st.lists(st.none() | INT64, max_size=3).map(tuple),
    FieldType.ARRAY_DOUBLE: st.lists(st.none() | DOUBLE, max_size=3).map(tuple),
}


@st.composite
def schemas(draw) -> Schema:
    kinds = draw(st.lists(st.sampled_from(FieldType), min_size=1, max_size=6))
    return Schema(tuple(Field(f"f{at}", kind, key=at == 0) for at, kind in enumerate(kinds)))


def rows(schema: Schema, nulls: bool = True):
    each = [VALUES[field.type] for field in schema]
    return st.tuples(*[(st.none() | values) if nulls else values for values in each])


def events(schema: Schema, nulls: bool = True):
    plain = st.builds(Event, st.just(Opcode.INSERT), st.just(Flag.NORMAL), rows(schema, nulls))
    flags = st.sampled_from([Flag(bits) for bits in range(1, 8)])
    return plain | st.builds(Event, st.sampled_from(Opcode), flags, rows(schema, nulls))


@st.composite
def numbered(draw, schema: Schema, nulls: bool = True):
    """Blocks with rising numbers, none empty."""
    many = draw(st.lists(st.lists(events(schema, nulls), min_size=1, max_size=3), max_size=6))
    steps = draw(st.lists(st.integers(1, 5), min_size=len(many), max_size=len(many)))
    start = draw(st.integers(-5, 2**62))
    return [(start + sum(steps[: at + 1]), block) for at, block in enumerate(many)]
