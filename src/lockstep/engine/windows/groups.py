"""What an aggregate computes, made ready: the functions that its groups need, and how their values become a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import nan
from operator import itemgetter
from typing import cast

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.events.types import Value
from lockstep.engine.expressions.compiler import (
    AggregateCall,
    Environment,
    Expression,
    Scope,
    compile_aggregate,
)
from lockstep.engine.model.windows import AggregateWindow, FieldPlug
from lockstep.engine.windows.functions import Function, function_maker
from lockstep.engine.windows.index import Key
from lockstep.engine.windows.plugs import Plug, load_function
from lockstep.engine.windows.results import Converter, converter

_SINGLE_CALL = re.compile(r"\s*ESP_a\w+\s*\(([^()]*)\)\s*", re.IGNORECASE)
"""An expression that is nothing but one call, with nothing but names and constants in it."""

Arguments = Callable[[Row, Environment, Key], Row]
"""Takes what a function wants to see out of a member's row."""


class Group:
    """The members of a group, as functions see them, and the row that was last said about them."""

    __slots__ = ("functions", "keys", "row", "size")

    def __init__(self, keys: Row, functions: list[Function]) -> None:
        self.keys = keys
        self.functions = functions
        self.size = 0
        self.row: Row | None = None


class Output:
    """One field: which function's value it is, or an expression over several of them."""

    __slots__ = ("combine", "convert", "field", "places")

    def __init__(
        self, field: Field, places: Sequence[int], combine: Expression | None, convert: Converter | None
    ) -> None:
        self.field = field
        self.places = places
        self.combine = combine
        self.convert = convert

    def value(self, results: list[Value], environment: Environment) -> Value:
        """The field's value before it is converted."""
        if self.combine is None:
            value = results[self.places[0]]
            return value if value == value else nan  # of all NaN only one comes out
        return self.combine.evaluate([results[place] for place in self.places], environment)


class Recipe:
    """All functions of an aggregate, and how its fields are made of their values, in order."""

    def __init__(self, window: AggregateWindow, schema: Schema, parent: Schema, path: str) -> None:
        self._parent = parent
        self._initialize = window.initialize
        self.makers: list[Callable[[], Function]] = []
        self.arguments: list[Arguments] = []
        self.takes: list[Callable[[Row], Row]] = []
        """Take the arguments of each function out of a row, if all of them are plain fields; else empty."""
        self.is_pure = True
        """No field depends on the moment or on variables."""
        self.initial: list[Value] = []
        """The first values of the initializer's variables."""
        fields = [field for field in schema if not field.key]
        self.outputs = [
            self._plug(made, field, path) if isinstance(made, FieldPlug) else self._field(made, field)
            for made, field in zip(window.fields, fields, strict=True)
        ]
        if len(self.takes) < len(self.makers):
            self.takes = []
        self.is_direct = all(output.combine is None and output.convert is None for output in self.outputs)
        """The values of the functions are the fields: each field is just one call."""

    def new_functions(self) -> list[Function]:
        """The functions of a group without members."""
        return [make() for make in self.makers]

    def _field(self, text: str, field: Field) -> Output:
        scope = Scope.of(self._parent)
        expression = compile_aggregate(text, scope, initialize=self._initialize, wanted=field.type)
        plain = compile_aggregate(text, scope, initialize=self._initialize)
        single = _SINGLE_CALL.fullmatch(text)
        names = [name.strip() for name in single[1].split(",")] if single else []
        places = [self._call(call, names) for call in expression.calls]
        self.is_pure &= expression.combine.is_pure
        self.initial = self.initial or expression.combine.initial()
        combine = None if single and plain.type is expression.type else expression.combine
        return Output(field, places, combine, converter(expression.type, field.type))

    def _call(self, call: AggregateCall, names: Sequence[str]) -> int:
        make = function_maker(call)
        sees = make().sees
        take = None if sees else field_getter(call.arguments, names, self._parent)
        if take is not None:
            self.takes.append(take)
        return self._add(make, argument_getter(call.arguments, sees))

    def _plug(self, plug: FieldPlug, field: Field, path: str) -> Output:
        function = load_function(plug.module, plug.function, path)
        places = [self._parent.places[name] for name in plug.fields or self._parent.names]
        kind = field.type

        def arguments(row: Row, environment: Environment, key: Key) -> Row:  # noqa: ARG001 - as all have it
            return (*[row[place] for place in places], cast(Value, key))

        return Output(field, [self._add(lambda: Plug(function, kind), arguments)], None, None)

    def _add(self, make: Callable[[], Function], arguments: Arguments) -> int:
        self.makers.append(make)
        self.arguments.append(arguments)
        return len(self.makers) - 1


def field_getter(arguments: Sequence[Expression], names: Sequence[str], parent: Schema) -> Callable[[Row], Row] | None:
    """What just takes the arguments out of a row, if all of them are fields: by far the most frequent case."""
    if not arguments:
        return itemgetter(slice(0, 0))
    if len(names) != len(arguments) or any(name not in parent for name in names):
        return None
    if any(argument.type is not parent[name].type for argument, name in zip(arguments, names, strict=True)):
        return None
    places = [parent.places[name] for name in names]
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


def argument_getter(arguments: Sequence[Expression], sees: str) -> Arguments:
    """What evaluates the arguments of a call on a row, and puts behind them what else the function sees."""
    runs = [argument.evaluate for argument in arguments]
    if sees == "key":
        return lambda row, env, key: (*[run(row, env) for run in runs], cast(Value, key))
    if sees == "clock":
        return lambda row, env, _: (*[run(row, env) for run in runs], env.clock_us)
    if len(runs) == 1:
        only = runs[0]
        return lambda row, env, _: (only(row, env),)
    return lambda row, env, _: tuple([run(row, env) for run in runs])
