"""Small things that windows are built of: retention, patterns, messages, and types inferred from expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.events.schema import Field, FieldType, Schema
from lockstep.engine.model.document import read_retention
from lockstep.engine.model.document_codecs import Place, Where
from lockstep.engine.model.values import parse_duration
from lockstep.engine.model.windows import Channel, FieldPlug, Pattern, PatternEvent, PatternOutput, Retention
from lockstep.errors import BadArgument

Duration = str | int | timedelta
"""A time: "5 minutes", a number of seconds, or a timedelta."""
Pairs = Mapping[str, str] | Sequence[tuple[str, str]]
Made = str | FieldPlug | tuple[str | FieldPlug, str]
"""What makes a field: an expression or a plug; with the name of its type if that can't be inferred."""

Fields = Schema | str | Mapping[str, str]
"""A schema: itself, as text, or types by name, with a star after the names of key fields."""
Kept = Retention | str | None
"""How long rows are kept: a retention, or one as text; None is for ever."""

MODEL_MODULE = "lockstep_model"
"""What a model file is called while it runs."""

_CALL = re.compile(r"\s*ESP_a(\w+)\s*\((.*)\)\s*", re.DOTALL | re.IGNORECASE)
_DOUBLES = frozenset({"ave", "wave", "std", "var", "median"})
_COUNTS = frozenset({"count", "countnonnull", "countnull", "countdistinct"})
_SAME = frozenset({"min", "max", "first", "last", "lag", "mode"})


def microseconds(duration: Duration) -> int:
    """How long a duration is."""
    return duration // timedelta(microseconds=1) if isinstance(duration, timedelta) else parse_duration(duration)


def maybe_microseconds(duration: Duration | None) -> int | None:
    """How long a duration is, if there is one."""
    return None if duration is None else microseconds(duration)


def as_schema(schema: Fields) -> Schema:
    """A schema, or the one that a text or a mapping of names to types means."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, Mapping):
        schema = ",".join(f"{name}:{kind}" for name, kind in schema.items())
    if not isinstance(schema, str):
        raise BadArgument(name="schema", value=schema, reason='write a text such as "ID*:int32,symbol:string"')
    return Schema.parse(schema)


def as_retention(retain: Kept) -> Retention | None:
    """A retention, or the one that a text means: bytime_sliding 5 minutes on time."""
    if retain is None or isinstance(retain, Retention):
        return retain
    reason = 'write sliding("5 minutes", field="time"), or as text "bytime_sliding 5 minutes on time"'
    if not isinstance(retain, str):
        raise BadArgument(name="retain", value=retain, reason=reason)
    try:
        return read_retention(Place(retain, Where()))
    except ModelUnreadable as error:
        raise BadArgument(name="retain", value=retain, reason=f"{error.params['reason']}; {reason}") from None


def as_pairs(pairs: Pairs) -> tuple[tuple[str, str], ...]:
    """Pairs, in order."""
    return tuple(pairs.items() if isinstance(pairs, Mapping) else ((left, right) for left, right in pairs))


def names(given: str | Iterable[str]) -> tuple[str, ...]:
    """Names given as one text, divided by blanks or commas, or one by one."""
    return tuple(re.findall(r"[^\s,]+", given)) if isinstance(given, str) else tuple(given)


def sliding(limit: Duration, *, field: str | None = None) -> Retention:
    """Rows no older than `limit`, by the clock of a field or the model's clock."""
    return Retention(kind="bytime_sliding", limit=microseconds(limit), field=field)


def jumping(limit: Duration, *, field: str | None = None) -> Retention:
    """The rows of the current period of length `limit`."""
    return Retention(kind="bytime_jumping", limit=microseconds(limit), field=field)


def lookback(limit: Duration, *, unit: Duration, field: str | None = None) -> Retention:
    """Rows no older than `limit`; old ones leave together, when the clock enters another `unit`."""
    kind = "bytime_jumping_lookback"
    return Retention(kind=kind, limit=microseconds(limit), field=field, unit_us=microseconds(unit))


def sliding_rows(limit: int) -> Retention:
    """The last `limit` rows."""
    return Retention(kind="bycount_sliding", limit=limit)


def jumping_rows(limit: int) -> Retention:
    """Up to `limit` rows, then begin anew."""
    return Retention(kind="bycount_jumping", limit=limit)


def plug(function: str | Callable[..., object], *fields: str, additive: bool | None = None) -> FieldPlug:
    """A Python function as a field of an aggregate: the function itself, or "module:name"."""
    module, name = place_of(function)
    return FieldPlug(module=module, function=name, fields=fields, additive=additive)


def place_of(function: str | Callable[..., object]) -> tuple[str, str]:
    """Module and name of a function, given as itself or as "module:name"."""
    if not isinstance(function, str):
        if function.__module__ in (MODEL_MODULE, "__main__"):
            # Workers import functions by name, and a model file is not a module to them.
            msg = f"{function.__qualname__} must be in a module of its own, not in the model file"
            raise ValueError(msg)
        return function.__module__, function.__qualname__
    module, colon, name = function.partition(":")
    if not colon:
        msg = f"{function!r} must be MODULE:NAME"
        raise ValueError(msg)
    return module, name


def pattern(
    logic: str,
    *,
    events: Mapping[str, tuple[str, str]],
    output: Iterable[str | PatternOutput],
    index: str | Iterable[str] = (),
    times: Pairs = (),
    name: str = "",
) -> Pattern:
    """A pattern: events by name, each a source window and an expression; output as "event.field" or an expression.

    pattern("fby{1 hour}(a, b)", events={"a": ("Trades", "price > 100"), "b": ("Trades", "price < 50")},
            output=["a.ID", "b.ID"])
    """
    return Pattern(
        name=name,
        events=tuple(PatternEvent(name=key, source=of, expression=text) for key, (of, text) in events.items()),
        logic=logic,
        output=tuple(_output(item, events) for item in output),
        index=names(index),
        time_fields=as_pairs(times),
    )


def _output(item: str | PatternOutput, events: Mapping[str, object]) -> PatternOutput:
    if isinstance(item, PatternOutput):
        return item
    node, dot, field = item.partition(".")
    if dot and node in events and field.isidentifier():
        return PatternOutput(node=node, field=field)
    return PatternOutput(expression=item)


def email(
    sender: str,
    to: str,
    subject: str = "",
    body: str = "",
    *,
    deliver: str | None = None,
    throttle: Duration | None = None,
) -> Channel:
    """A mail for every event, or for those that `deliver` says; at most one in `throttle`."""
    limit = maybe_microseconds(throttle)
    return Channel(kind="email", sender=sender, to=to, subject=subject, body=body, deliver=deliver, throttle_us=limit)


def made_fields(
    made: Mapping[str, Made], keys: Sequence[Field], parent: Schema | None
) -> tuple[Schema, tuple[str | FieldPlug, ...]]:
    """Schema and expressions of a window whose computed fields are given by name; its key fields come first."""
    fields, makers = list(keys), []
    for name, maker in made.items():
        maker, kind = maker if isinstance(maker, tuple) else (maker, None)
        fields.append(Field(name, _type(name, kind, maker, parent)))
        makers.append(maker)
    return Schema(tuple(fields)), tuple(makers)


def _type(name: str, given: str | None, maker: str | FieldPlug, parent: Schema | None) -> FieldType:
    if given is not None:
        return Schema.parse(f"{name}:{given}")[name].type
    found = type_of(maker, parent) if isinstance(maker, str) else None
    if found is None:
        said = repr(maker) if isinstance(maker, str) else "..."
        reason = f'the type of {name!r} can\'t be told from what makes it; add it: {name}=({said}, "double")'
        raise BadArgument(name=name, value=maker, reason=reason)
    return found


def type_of(expression: str, parent: Schema | None) -> FieldType | None:
    """The type of an expression where that is simple: a field, or one aggregate function of a field."""
    if parent is not None and expression.strip() in parent:
        return parent[expression.strip()].type
    call = _CALL.fullmatch(expression)
    if call is None or "(" in call[2] or ")" in call[2]:
        return None
    function, argument = call[1].lower(), call[2].split(",")[0].strip()
    if function in _COUNTS:
        return FieldType.INT64
    if function in _DOUBLES:
        return FieldType.DOUBLE
    if function == "cat":
        return FieldType.STRING
    if parent is None or argument not in parent:
        return None
    kind = parent[argument].type
    if function == "sum":
        return FieldType.INT64 if kind in (FieldType.INT32, FieldType.INT64) else kind
    return kind if function in _SAME else None
