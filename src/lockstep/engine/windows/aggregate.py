"""Aggregate windows: one row for each group of the parent's rows.

A change is the old row leaving its group, then the new row joining its group. What is said about a group: an insert
when its first member comes, a delete when its last one leaves, else an update pair, even if all values stayed the same.
"""

from __future__ import annotations

from math import nan
from typing import cast

from lockstep.engine.errors import UserCodeFailed
from lockstep.engine.events.event import Event, Row
from lockstep.engine.events.types import Value
from lockstep.engine.expressions.compiler import Environment
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import AggregateWindow
from lockstep.engine.windows.groups import Group, Output, Recipe
from lockstep.engine.windows.index import (
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
from lockstep.engine.windows.operator import Moment, Operator, Tree
from lockstep.engine.windows.plugs import PlugFailed, describe
from lockstep.engine.windows.results import look


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
