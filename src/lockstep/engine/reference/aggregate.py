"""Aggregate windows: one row for each group of the parent's rows, and what a group computes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import nan
from operator import itemgetter
from typing import cast

from lockstep.engine.errors import UserCodeFailed
from lockstep.engine.events.event import Event, Row
from lockstep.engine.events.schema import Field, Schema, Value
from lockstep.engine.language.compiler import AggregateCall, Environment, Expression, Scope, compile_aggregate
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import AggregateWindow, FieldPlug
from lockstep.engine.reference.aggregate_functions import Function, function_maker
from lockstep.engine.reference.compute import Converter, converter, look
from lockstep.engine.reference.index import (
    DELETE,
    INSERT,
    UPDATE_BLOCK,
    Key,
    add_change,
    add_update,
    key_getter,
    row_tree,
    tree_row,
)
from lockstep.engine.reference.operator import Moment, Operator, Tree
from lockstep.engine.reference.user_code import Plug, PlugFailed, describe, load_function


class AggregateOperator(Operator):
    """Keeps the functions of every group; a group without members is forgotten."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window, parent, schema = cast(AggregateWindow, node.window), node.inputs[0], node.schema
        self._recipe = Recipe(window, schema, parent, node.path)
        self._places = [parent.places[schema.names[place]] for place in schema.keys]
        self._group_of = key_getter(parent, self._places)
        self._key_of = key_getter(parent)
        self._groups: dict[Key, Group] = {}
        self._environment = Environment(variables=list(self._recipe.initial))
        self._waits_for_clock = any(function.sees == "clock" for function in self._recipe.new_functions())
        self._keys_first = schema.keys == tuple(range(len(schema.keys)))

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - one input
        """Take one change."""
        opcode = event.opcode
        if opcode is INSERT:
            self._join(self._group_of(event.values), event, moment, out)
        elif opcode is DELETE:
            self._leave(self._group_of(event.values), event, moment, out)
        elif opcode is UPDATE_BLOCK and old is not None:
            self._move(event, event._replace(opcode=DELETE, values=old), moment, out)
        else:
            self.refuse(event, "bad-opcode", f"{opcode.name.lower()} is not resolved: the parent has no index", moment)

    def on_tick(self, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - nothing is said by the clock
        """With the first tick timed functions know when what came before it counts as come."""
        if self._waits_for_clock:
            self._waits_for_clock = False
            for group in self._groups.values():
                for function in group.functions:
                    function.ticked(moment.clock_us)

    def _join(self, key: Key, event: Event, moment: Moment, out: list[Event]) -> None:
        group = self._groups.get(key)
        if group is None:
            keys = tuple([event.values[place] for place in self._places])
            group = self._groups[key] = Group(keys, self._recipe.new_functions())
        self._add(group, event, moment)
        self._tell(key, group, event, moment, out)

    def _leave(self, key: Key, event: Event, moment: Moment, out: list[Event]) -> None:
        group = self._groups.get(key)
        if group is None:
            self.refuse(event, "unknown-key", "its group has no members", moment)
            return
        self._remove(group, event)
        self._tell(key, group, event, moment, out)

    def _move(self, event: Event, leaving: Event, moment: Moment, out: list[Event]) -> None:
        before, after = self._group_of(leaving.values), self._group_of(event.values)
        group = self._groups.get(before)
        if before == after and group is not None:
            self._remove(group, leaving)
            self._add(group, event, moment)
            self._tell(after, group, event, moment, out)
            return
        self._leave(before, leaving, moment, out)
        self._join(after, event, moment, out)

    def _add(self, group: Group, event: Event, moment: Moment) -> None:
        row, takes = event.values, self._recipe.takes
        group.size += 1
        if takes:
            for function, take in zip(group.functions, takes):  # noqa: B905 - strict takes its time
                function.add(take(row))
            return
        environment, key = self._environment, self._key_of(row)
        environment.clock_us = moment.clock_us
        for function, arguments in zip(group.functions, self._recipe.arguments):  # noqa: B905 - strict takes its time
            function.add(arguments(row, environment, key))

    def _remove(self, group: Group, event: Event) -> None:
        row, takes = event.values, self._recipe.takes
        group.size -= 1
        if not group.size:
            # Sums start again from exact zero, also for an update of the only member.
            group.functions = self._recipe.new_functions()
            return
        if takes:
            for function, take in zip(group.functions, takes):  # noqa: B905 - strict takes its time
                function.remove(take(row))
            return
        environment, key = self._environment, self._key_of(row)
        for function, arguments in zip(group.functions, self._recipe.arguments):  # noqa: B905 - strict takes its time
            function.remove(arguments(row, environment, key))

    def _tell(self, key: Key, group: Group, event: Event, moment: Moment, out: list[Event]) -> None:
        """Say what became of a group."""
        old, new = group.row, None
        if group.size:
            new = self._row(group, event, moment)
        else:
            del self._groups[key]
        group.row = new
        if new is not None and old is not None:
            add_update(new, old, event.flags, out)
        else:
            add_change(new, old, event.flags, out)

    def _row(self, group: Group, event: Event, moment: Moment) -> Row:
        is_direct = self._recipe.is_direct
        try:
            if is_direct:  # of all NaN only one comes out
                made = [value if (value := function.value()) == value else nan for function in group.functions]
            else:
                results = [function.value() for function in group.functions]
        except PlugFailed as error:
            raise UserCodeFailed(
                what="A field plug", window=self.node.path, block=moment.block, event=describe(event), reason=error
            ) from error
        if not is_direct:
            made = self._combined(results, event, moment)
        if self._keys_first:
            return (*group.keys, *made)
        keys, others = iter(group.keys), iter(made)
        return tuple([next(keys) if field.key else next(others) for field in self.node.schema])

    def _combined(self, results: list[Value], event: Event, moment: Moment) -> list[Value]:
        if not self._recipe.is_pure:
            look(self._environment, event, moment)
        return [self._field(output, results, event, moment) for output in self._recipe.outputs]

    def _field(self, output: Output, results: list[Value], event: Event, moment: Moment) -> Value:
        value = output.value(results, self._environment)
        if output.convert is None or value is None:
            return value
        converted = output.convert(value)
        if converted is None:
            field = output.field
            self.refuse(event, "overflow", f"{field.name} is {value!r}, too large for {field.type.value}", moment)
        return converted

    def dump(self) -> Tree:
        """The groups in the order in which they began, and the variables."""
        groups = [
            [row_tree(group.keys), group.size, row_tree(group.row or ()), [each.dump() for each in group.functions]]
            for group in self._groups.values()
        ]
        return {"groups": groups, "variables": row_tree(tuple(self._environment.variables))}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._groups = {}
        for keys, size, row, functions in state["groups"]:
            group = Group(tree_row(keys), self._recipe.new_functions())
            group.size, group.row = size, tree_row(row)
            for function, kept in zip(group.functions, functions, strict=True):
                function.load(kept)
            self._groups[self._group_key(group.keys)] = group
        self._environment.variables = list(tree_row(state["variables"]))

    def _group_key(self, keys: Row) -> Key:
        """The key of a group by its values, in the same form as taken out of a member."""
        row: list[Value] = [None] * len(self.node.inputs[0])
        for place, value in zip(self._places, keys, strict=True):
            row[place] = value
        return cast(Key, self._group_of(tuple(row)))


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
    """Return a function that evaluates a call's arguments on a row, and adds the key or clock if the call sees it."""
    runs = [argument.evaluate for argument in arguments]
    if sees == "key":
        return lambda row, env, key: (*[run(row, env) for run in runs], cast(Value, key))
    if sees == "clock":
        return lambda row, env, _: (*[run(row, env) for run in runs], env.clock_us)
    if len(runs) == 1:
        only = runs[0]
        return lambda row, env, _: (only(row, env),)
    return lambda row, env, _: tuple([run(row, env) for run in runs])
