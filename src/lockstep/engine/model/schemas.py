"""What every window's rows look like, given the rows that come in; and the types of expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from lockstep.engine.errors import BadExpression, BadSchema
from lockstep.engine.events.schema import Field, FieldType, Schema
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    CounterWindow,
    CustomWindow,
    FilterWindow,
    FunctionalWindow,
    Initializer,
    JoinField,
    JoinWindow,
    NotificationWindow,
    PatternWindow,
    ProceduralWindow,
    RemoveStateWindow,
    SourceWindow,
    TransposeWindow,
    UnionWindow,
    Window,
)

if TYPE_CHECKING:
    from lockstep.engine.language.compiler import AggregateExpression, Expression

COUNTER = (
    "input*:string,totalCount:int64,totalSeconds:double,totalRate:double,"
    "intervalCount:int64,intervalSeconds:double,intervalRate:double"
)
NOTIFICATION = (
    "number*:int64,time:stamp,channel:string,kind:string,sender:string,recipient:string,subject:string,body:string"
)
EVENT_NUMBER = Field("eventNumber", FieldType.INT64, True)
TAG_NUMBER = Field("tagNum", FieldType.INT32, True)
LOG_FIELDS = (Field("originalOC", FieldType.STRING), Field("originalFL", FieldType.STRING))

DECLARED = (
    SourceWindow,
    AggregateWindow,
    ComputeWindow,
    PatternWindow,
    FunctionalWindow,
    ProceduralWindow,
    CustomWindow,
)
"""Windows that say themselves what their rows look like."""


def output_schema(window: Window, inputs: Sequence[Schema]) -> Schema | None:
    """The rows of a window whose parents have these rows, in the order of the edges."""
    if isinstance(window, DECLARED):
        return window.schema
    if isinstance(window, CounterWindow):
        return counter_schema()
    if isinstance(window, NotificationWindow):
        return notification_schema()
    if isinstance(window, JoinWindow):
        return join_schema(window, inputs[0], inputs[1]) if len(inputs) == 2 else None
    return _from_parent(window, inputs[0]) if inputs else None


def _from_parent(window: Window, parent: Schema) -> Schema | None:
    if isinstance(window, CopyWindow | FilterWindow | UnionWindow):
        return parent
    if isinstance(window, TransposeWindow):
        return transpose_schema(window, parent)
    if isinstance(window, RemoveStateWindow):
        return remove_state_schema(window, parent)
    return None


def counter_schema() -> Schema:
    """One row for each input window."""
    return Schema.parse(COUNTER)


def notification_schema() -> Schema:
    """One row for each message, numbered from 1; what the window declares only adds names for its functions."""
    return Schema.parse(NOTIFICATION)


def remove_state_schema(window: RemoveStateWindow, parent: Schema) -> Schema | None:
    """The number of the event, then the parent's fields, none of which is a key any more."""
    plain = [Field(field.name, field.type) for field in parent]
    return _made([EVENT_NUMBER, *(LOG_FIELDS if window.add_log_fields else ()), *plain])


def transpose_schema(window: TransposeWindow, parent: Schema) -> Schema | None:
    """Wide: a field for each tag and value, named TAG_VALUE. Long: a row for each tag, numbered from 0."""
    types = transpose_types(window, parent)
    if types is None:
        return None
    keys = [field for field in parent if field.key]
    if window.mode == "wide":
        turned = {window.tag_name, *window.tag_values}
        kept = [field for field in parent if not field.key and field.name not in turned]
        spread = [Field(f"{tag}_{value}", types[value]) for tag in window.tags_included for value in window.tag_values]
        return _made([*keys, *kept, *spread])
    endings = tuple(f"_{value}" for value in window.tag_values)
    kept = [field for field in parent if not field.key and not field.name.endswith(endings)]
    values = [Field(value, types[value]) for value in window.tag_values]
    return _made([*keys, TAG_NUMBER, Field(window.tag_name, FieldType.STRING), *values, *kept])


def transpose_types(window: TransposeWindow, parent: Schema) -> Mapping[str, FieldType] | None:
    """The types of the values; None if a field is missing, or the tags of a value differ in type."""
    found: dict[str, FieldType] = {}
    for value in window.tag_values:
        names = [value] if window.mode == "wide" else [f"{tag}_{value}" for tag in window.tags_included]
        types = {parent[name].type for name in names if name in parent}
        if len(types) != 1 or any(name not in parent for name in names):
            return None
        found[value] = types.pop()
    return found


def side_of(source: str) -> tuple[int, str] | None:
    """Which side (0 left, 1 right) and field l_NAME or r_NAME means; None if it is neither."""
    side = {"l_": 0, "r_": 1}.get(source[:2])
    return None if side is None else (side, source[2:])


def join_names(left: Schema, right: Schema) -> tuple[tuple[str, FieldType], ...]:
    """What the expressions of a join can name: l_NAME for the left side's fields, r_NAME for the right side's."""
    sides = (("l_", left), ("r_", right))
    return tuple((prefix + field.name, field.type) for prefix, schema in sides for field in schema)


def keys_covered(window: JoinWindow, left: Schema, right: Schema) -> tuple[bool, bool]:
    """For each side, whether the condition names its whole key, so that it can be looked up: a dimension."""
    lefts, rights = {pair[0] for pair in window.conditions}, {pair[1] for pair in window.conditions}
    return (
        all(left.names[place] in lefts for place in left.keys),
        all(right.names[place] in rights for place in right.keys),
    )


def fact_sides(window: JoinWindow, left: Schema, right: Schema) -> tuple[int, ...]:
    """The sides whose keys are the key of the join: 0 left, 1 right.

    A full outer join has the key of its left side, which is that of the right side too. An inner join's fact is the
    side that the condition can't look up; the left one if it can look up both. If it can look up neither, each row may
    meet many, and both are facts.
    """
    if window.type == "fullouter":
        return (0,)
    if window.type == "rightouter":
        return (1,)
    if window.type == "inner":
        covered = keys_covered(window, left, right)
        return {(True, False): (1,), (False, False): (0, 1)}.get(covered, (0,))
    return (0,)


def meets_many(window: JoinWindow, left: Schema, right: Schema) -> bool:
    """Whether a row of either side may meet many of the other."""
    return len(fact_sides(window, left, right)) > 1


def changes_key(window: Window, parent: Schema) -> bool:
    """Whether a compute window gives rows another key than they have in its input."""
    if not isinstance(window, ComputeWindow):
        return False
    return set(_key_names(window.schema)) != set(_key_names(parent))


def _key_names(schema: Schema) -> list[str]:
    return [schema.names[place] for place in schema.keys]


def fact_keys(window: JoinWindow, left: Schema, right: Schema) -> tuple[str, ...]:
    """The key fields of the fact side as l_NAME or r_NAME."""
    schemas = (left, right)
    return tuple(
        "lr"[side] + "_" + schemas[side].names[place]
        for side in fact_sides(window, left, right)
        for place in schemas[side].keys
    )


def join_fields(window: JoinWindow, left: Schema, right: Schema) -> tuple[JoinField, ...]:
    """The fields of a join: those it lists, and before them the keys of the fact side that it does not.

    An added key is called as in its input, or l_NAME or r_NAME if something else has that name.
    """
    listed = {field.source for field in window.fields}
    taken = {field.name for field in window.fields}
    added = []
    for source in fact_keys(window, left, right):
        if source not in listed:
            name = source[2:] if source[2:] not in taken else source
            taken.add(name)
            added.append(JoinField(name=name, source=source))
    return (*added, *window.fields)


def join_schema(window: JoinWindow, left: Schema, right: Schema) -> Schema | None:
    """The fields of a join; key fields are the first ones that take the fact side's keys."""
    keys = set(fact_keys(window, left, right))
    fields = []
    for field in join_fields(window, left, right):
        kind = join_type(field, left, right)
        if kind is None:
            return None
        fields.append(Field(field.name, kind, field.source in keys))
        keys.discard(field.source or "")
    return _made(fields)


def join_type(field: JoinField, left: Schema, right: Schema) -> FieldType | None:
    """The type of a join's field: its side's, else the declared one, else its expression's."""
    if field.source is not None:
        place = side_of(field.source)
        schema = (left, right)[place[0]] if place else left
        return schema[place[1]].type if place and place[1] in schema else None
    if field.type is not None or field.expression is None:
        return field.type
    return type_of(field.expression, join_names(left, right))


def _made(fields: Sequence[Field]) -> Schema | None:
    """The schema, unless its names can't be: the checks report those."""
    try:
        return Schema(tuple(fields))
    except BadSchema:
        return None


Names = tuple[tuple[str, FieldType], ...]
_KEPT = 4096
"""Expressions that are kept compiled: checks, the plan and the guard ask for the same ones many times."""


def names_of(schema: Schema) -> Names:
    """What expressions over rows of this schema can name."""
    return tuple((field.name, field.type) for field in schema)


def compiled(
    text: str, names: Names, initialize: Initializer | None = None, wanted: FieldType | None = None
) -> Expression:
    """The expression over these names, for a field of type `wanted`; raises BadExpression."""
    from lockstep.engine.language.compiler import Scope, compile_expression

    return compile_expression(text, Scope(names), initialize=initialize, wanted=wanted)


def compiled_aggregate(
    text: str, names: Names, initialize: Initializer | None = None, wanted: FieldType | None = None
) -> AggregateExpression:
    """The expression with aggregate functions over these names, for a field of type `wanted`; raises BadExpression."""
    if initialize is None:  # nothing of an earlier call can show in the result
        return _plain_aggregate(text, names, wanted)
    return _aggregate(text, names, initialize, wanted)


def _aggregate(
    text: str, names: Names, initialize: Initializer | None, wanted: FieldType | None
) -> AggregateExpression:
    from lockstep.engine.language.compiler import Scope, compile_aggregate

    return compile_aggregate(text, Scope(names), initialize=initialize, wanted=wanted)


@lru_cache(maxsize=_KEPT)
def _plain_aggregate(text: str, names: Names, wanted: FieldType | None) -> AggregateExpression:
    return _aggregate(text, names, None, wanted)


def type_of(text: str, names: Names) -> FieldType | None:
    """The type of an expression; None if it is not valid."""
    try:
        return compiled(text, names).type
    except BadExpression:
        return None


_CONVERSIONS = {
    FieldType.INT32: (FieldType.INT64, FieldType.DOUBLE, FieldType.DATE, FieldType.STAMP),
    FieldType.INT64: (FieldType.INT32, FieldType.DOUBLE, FieldType.DATE, FieldType.STAMP),
    FieldType.DATE: (FieldType.INT64, FieldType.DOUBLE),
    FieldType.STAMP: (FieldType.INT64, FieldType.DOUBLE),
}


def takes(declared: FieldType, made: FieldType) -> bool:
    """Whether a field of the declared type can take what an expression makes.

    Whole numbers fit into each other (one too large for int32 is reported when it comes) and into doubles. What can be
    turned into the type was turned into it before, when the expression was compiled for its field.
    """
    return declared is made or declared in _CONVERSIONS.get(made, ())
