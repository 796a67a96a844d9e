"""Windows as they are built: each knows its query, and which windows can follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from lockstep.engine.errors import BadSchema
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.model import windows as w
from lockstep.engine.model.builder_parts import (
    Duration,
    Fields,
    Kept,
    Made,
    Pairs,
    as_pairs,
    as_retention,
    as_schema,
    made_fields,
    maybe_microseconds,
    names,
    place_of,
)
from lockstep.errors import BadArgument


class Query(Protocol):
    """What a window needs of the query it stands in."""

    def add(self, window: w.Window, *inputs: Stream) -> Stream:
        """Add a window that reads the outputs of others."""
        ...

    def put(self, window: w.Window) -> None:
        """Put a window in the place of the one with its name."""
        ...

    def get(self, name: str) -> w.Window:
        """A window by name."""
        ...

    def schema(self, name: str) -> Schema | None:
        """The fields of a window; None if they can't be inferred."""
        ...


class Stream:
    """The output of a window, or of one of its slots: add a window that reads it by calling the method of its kind."""

    def __init__(self, query: Query, name: str, slot: int = -1, role: str | None = None) -> None:
        self._query = query
        self.name = name
        self.slot_number = slot
        self.role_name = role

    @property
    def window(self) -> w.Window:
        """The window as it is now."""
        return self._query.get(self.name)

    @property
    def schema(self) -> Schema | None:
        """The fields of the window; None if they can't be inferred while the model is being built."""
        return self._query.schema(self.name)

    def slot(self, number: int) -> Stream:
        """Only what the window's splitter sends to this slot."""
        return Stream(self._query, self.name, number, self.role_name)

    def role(self, name: str) -> Stream:
        """The same, with a role for the edge that is drawn next."""
        return Stream(self._query, self.name, self.slot_number, name)

    def options(
        self,
        *,
        pubsub: bool | None = None,
        index: str | None = None,
        pubsub_index: str | None = None,
        output_insert_only: bool | None = None,
        collapse_updates: bool | None = None,
        pulse: Duration | None = None,
        splitter: str | w.Splitter | None = None,
        connectors: Sequence[w.Connector] | None = None,
        description: str | None = None,
    ) -> Stream:
        """Set what every window has; what is not given stays as it is."""
        given: dict[str, Any] = {
            "pubsub": pubsub,
            "index": index,
            "pubsub_index": pubsub_index,
            "output_insert_only": output_insert_only,
            "collapse_updates": collapse_updates,
            "pulse_us": maybe_microseconds(pulse),
            "splitter": w.Splitter(expression=splitter) if isinstance(splitter, str) else splitter,
            "connectors": None if connectors is None else tuple(connectors),
            "description": description,
        }
        self._query.put(replace(self.window, **{name: value for name, value in given.items() if value is not None}))
        return self

    def connector(self, kind: str, name: str = "", /, *, direction: str | None = None, **properties: str) -> Stream:
        """Connect the window to the outside."""
        new = w.Connector(kind=kind, name=name, direction=direction, properties=tuple(properties.items()))
        return self.options(connectors=(*self.window.connectors, new))

    def copy(self, name: str, *, retain: Kept = None) -> Stream:
        """The same rows, as long as `retain` keeps them."""
        return self._query.add(w.CopyWindow(name=name, retention=as_retention(retain)), self)

    def filter(self, name: str, expression: str, *, initialize: w.Initializer | str | None = None) -> Stream:
        """The rows for which an expression holds."""
        first = _initializer(initialize)
        return self._query.add(w.FilterWindow(name=name, expression=expression, initialize=first), self)

    def aggregate(
        self,
        name: str,
        /,
        *,
        by: str | Iterable[str] = (),
        schema: Fields | None = None,
        fields: Mapping[str, Made] | Sequence[str | w.FieldPlug] | None = None,
        initialize: w.Initializer | str | None = None,
        **made: Made,
    ) -> Stream:
        """One row for each group of the fields `by`; every other argument is a field and the expression that makes it.

        trades.aggregate("Vwap", by="symbol", vwap="ESP_aWAve(quantity,price)", trades="ESP_aCount()")

        Types are inferred from simple expressions, else given: low=("expression", "double"). Instead of
        `by` a whole schema may be given. Names that are arguments here go into `fields`.
        """
        shape = None if schema is None else as_schema(schema)
        keys = [_key(self.schema, key) for key in names(by)]
        whole, makers = _computed(shape, keys, fields, made, self.schema)
        window = w.AggregateWindow(name=name, schema=whole, fields=makers, initialize=_initializer(initialize))
        return self._query.add(window, self)

    def compute(
        self,
        name: str,
        /,
        *,
        schema: Fields | None = None,
        fields: Mapping[str, Made] | Sequence[str] | None = None,
        initialize: w.Initializer | str | None = None,
        **made: Made,
    ) -> Stream:
        """For each row a row with the same key; every other argument is a field and the expression that makes it.

        trades.compute("Value", symbol="symbol", value=("price * quantity", "double"))
        """
        shape = None if schema is None else as_schema(schema)
        keys = [field for field in self.schema or () if field.key]
        whole, makers = _computed(shape, keys, fields, made, self.schema)
        texts = tuple(maker for maker in makers if isinstance(maker, str))
        if len(texts) < len(makers):
            raise BadSchema(text=str(whole), reason="a compute window has no plugs; write an expression")
        window = w.ComputeWindow(name=name, schema=whole, fields=texts, initialize=_initializer(initialize))
        return self._query.add(window, self)

    def join(
        self,
        name: str,
        right: Stream,
        /,
        *,
        on: str | Pairs,
        type: str = "leftouter",  # noqa: A002 - the model's own word
        select: str | Iterable[str] = (),
        fields: Sequence[w.JoinField] = (),
        no_regenerates: bool = False,
        left_index: str | None = None,
        right_index: str | None = None,
        **made: str | tuple[str, str],
    ) -> Stream:
        """Rows of this window and of `right` where the fields `on` are equal: one name, or left names and right names.

        `select` names fields as l_NAME and r_NAME, which become NAME; every other argument is a field and the input
        field or (expression, type) that makes it.

        trades.join("Named", traders, on={"traderID": "ID"}, select="l_symbol l_price", trader="r_name")
        """
        pairs = tuple((both, both) for both in names(on)) if isinstance(on, str) else as_pairs(on)
        chosen = [w.JoinField(name=source[2:], source=source) for source in names(select)]
        window = w.JoinWindow(
            name=name,
            type=type,
            conditions=pairs,
            fields=(*fields, *chosen, *(_join_field(key, value) for key, value in made.items())),
            no_regenerates=no_regenerates,
            left_index=left_index,
            right_index=right_index,
        )
        return self._query.add(window, self, right)

    def union(self, name: str, *others: Stream, strict: bool = False) -> Stream:
        """The rows of this window and others."""
        return self._query.add(w.UnionWindow(name=name, strict=strict), self, *others)

    def pattern(self, name: str, schema: Fields, *patterns: w.Pattern, also: Iterable[Stream] = ()) -> Stream:
        """A row for every match of a pattern in this window, and in others that its events come from."""
        window = w.PatternWindow(name=name, schema=as_schema(schema), patterns=patterns)
        return self._query.add(window, self, *also)

    def functional(
        self,
        name: str,
        schema: Fields,
        functions: Pairs = (),
        *,
        generate: str | None = None,
        opcode: str | None = None,
        loops: Iterable[w.EventLoop] = (),
        properties: Iterable[w.ContextProperty] = (),
        also: Iterable[Stream] = (),
    ) -> Stream:
        """Rows whose fields are made by functions, written $field."""
        window = w.FunctionalWindow(
            name=name,
            schema=as_schema(schema),
            functions=as_pairs(functions),
            generate=generate,
            opcode=opcode,
            loops=tuple(loops),
            properties=tuple(properties),
        )
        return self._query.add(window, self, *also)

    def counter(
        self, name: str, *others: Stream, every: Duration | None = None, clear: Duration | None = None
    ) -> Stream:
        """How many events came, in all and in the last interval."""
        window = w.CounterWindow(name=name, count_us=maybe_microseconds(every), clear_us=maybe_microseconds(clear))
        return self._query.add(window, self, *others)

    def transpose(
        self,
        name: str,
        *,
        mode: str,
        tag: str,
        values: str | Iterable[str],
        tags: str | Iterable[str] = (),
        group_by: str | Iterable[str] = (),
        clear: Duration | None = None,
    ) -> Stream:
        """Rows into columns (mode wide) or columns into rows (mode long)."""
        window = w.TransposeWindow(
            name=name,
            mode=mode,
            tag_name=tag,
            tag_values=names(values),
            tags_included=names(tags),
            group_by=names(group_by),
            clear_us=maybe_microseconds(clear),
        )
        return self._query.add(window, self)

    def remove_state(self, name: str, *, remove: str | Iterable[str] = (), log_fields: bool = False) -> Stream:
        """Every event as an insert with a number; what `remove` names is left out."""
        window = w.RemoveStateWindow(name=name, remove=names(remove), add_log_fields=log_fields)
        return self._query.add(window, self)

    def notify(self, name: str, smtp: str | w.SmtpServer, *channels: w.Channel, functions: Pairs = ()) -> Stream:
        """Messages about events, handed over to a mail server."""
        server = w.SmtpServer(host=smtp) if isinstance(smtp, str) else smtp
        window = w.NotificationWindow(name=name, smtp=server, channels=channels, functions=as_pairs(functions))
        return self._query.add(window, self)

    def procedural(self, name: str, schema: Fields, handler: str | Callable[..., object], *others: Stream) -> Stream:
        """Rows that a Python handler makes: the handler itself, or "module:name"."""
        module, function = place_of(handler)
        window = w.ProceduralWindow(name=name, schema=as_schema(schema), module=module, handler=function)
        return self._query.add(window, self, *others)

    def custom(
        self,
        name: str,
        schema: Fields,
        cls: str | type,
        *others: Stream,
        version: str | None = None,
        properties: Pairs = (),
        tick: Duration | None = None,
    ) -> Stream:
        """Rows that a window class of yours makes: the class itself, or "module:Class" with its version."""
        module, class_ = place_of(cls)
        known = getattr(cls, "version", None) if version is None else version
        if not isinstance(known, str):
            raise BadArgument(name="version", value=known, reason="give the version of the class, as a text")
        window = w.CustomWindow(
            name=name,
            schema=as_schema(schema),
            module=module,
            class_=class_,
            version=known,
            properties=as_pairs(properties),
            tick_us=maybe_microseconds(tick),
        )
        return self._query.add(window, self, *others)


def _initializer(given: w.Initializer | str | None) -> w.Initializer | None:
    return w.Initializer(text=given) if isinstance(given, str) else given


def _key(parent: Schema | None, name: str) -> Field:
    """A key field by name; its type is the parent's, or given as NAME:TYPE."""
    if ":" in name:
        return replace(Schema.parse(name).fields[0], key=True)
    if parent is None or name not in parent:
        remedy = f"write {name}:TYPE" if parent is None else f"it has {', '.join(parent.names)}"
        raise BadArgument(name="by", value=name, reason=f"the input has no field {name!r} to group by; {remedy}")
    return replace(parent[name], key=True)


def _join_field(name: str, maker: str | tuple[str, str]) -> w.JoinField:
    if isinstance(maker, str):
        return w.JoinField(name=name, source=maker)
    expression, kind = maker
    return w.JoinField(name=name, expression=expression, type=Schema.parse(f"{name}:{kind}")[name].type)


def _computed(
    shape: Schema | None,
    keys: Sequence[Field],
    given: Mapping[str, Made] | Sequence[str | w.FieldPlug] | None,
    made: Mapping[str, Made],
    parent: Schema | None,
) -> tuple[Schema, tuple[str | w.FieldPlug, ...]]:
    """Schema and makers of a window whose fields are given by name or, with a schema, in order."""
    if given is not None and not isinstance(given, Mapping):
        if shape is None or made:
            raise BadSchema(text=str(given), reason="a list of expressions needs a schema, and no more fields by name")
        return shape, tuple(given)
    by_name = {**(given or {}), **made}
    if shape is None:
        return made_fields(by_name, keys, parent)
    wanted = [field.name for field in shape if not field.key]
    if set(by_name) != set(wanted):
        raise BadSchema(text=str(shape), reason=f"its fields are made by name, and those names are {sorted(by_name)}")
    makers = [by_name[name] for name in wanted]
    return shape, tuple(maker[0] if isinstance(maker, tuple) else maker for maker in makers)
