"""Windows that look at one row at a time: compute and filter; results fit the declared types."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lockstep.engine.events.event import Event, Flag, Row
from lockstep.engine.events.schema import INT_RANGE, Field, FieldType, Value
from lockstep.engine.language.compiler import Environment, Expression, Scope, compile_expression
from lockstep.engine.model.graph import Node
from lockstep.engine.model.schemas import changes_key
from lockstep.engine.model.windows import ComputeWindow, FilterWindow
from lockstep.engine.reference.index import (
    DELETE,
    INSERT,
    SAFEDELETE,
    UPDATE_BLOCK,
    Key,
    OwnedRows,
    add_change,
    add_update,
    key_getter,
    key_tree,
    row_tree,
    tree_key,
    tree_row,
)
from lockstep.engine.reference.operator import Moment, Operator, Tree
from lockstep.engine.reference.source import details

Converter = Callable[[Value], Value]


def converter(made: FieldType, declared: FieldType) -> Converter | None:
    """How a value gets into a field; None if it just fits. A whole number too large for the field becomes null."""
    if made is declared:
        return None
    if declared is FieldType.DOUBLE:
        return lambda value: None if value is None else float(value)  # type: ignore[arg-type]  # checked at load
    if declared is FieldType.INT32:
        low, high = INT_RANGE[FieldType.INT32]
        return lambda value: value if value is not None and low <= value <= high else None  # type: ignore[operator]
    return None


def look(environment: Environment, event: Event, moment: Moment) -> None:
    """Let expressions see the event and the moment; only those that are not pure do."""
    environment.clock_us = moment.clock_us
    environment.block = moment.block
    environment.opcode = event.opcode.letter
    environment.flags = event.flags.letters


Step = tuple[Expression, Converter | None, Field]
"""What makes a field, and how it gets into it."""


class ComputeOperator(Operator):
    """One out for one in.

    If all expressions are pure, an old row is computed again; else it is the one that was given out, kept by key.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window, parent = cast(ComputeWindow, node.window), node.inputs[0]
        scope = Scope.of(parent)
        made = [field for field in node.schema if not field.key]
        self._expressions = [
            compile_expression(text, scope, initialize=window.initialize, wanted=field.type)
            for text, field in zip(window.fields, made, strict=True)
        ]
        self._steps: list[Step] = [
            (each, converter(each.type, field.type), field) for each, field in zip(self._expressions, made, strict=True)
        ]
        self._copied = [parent.places[field.name] if field.key else None for field in node.schema]
        self._key_of = key_getter(parent)
        first = self._expressions[0].initial() if self._expressions else []
        self._environment = Environment(variables=list(first))
        self._looks = not all(each.is_pure for each in self._expressions)
        self._new_key = key_getter(node.schema) if changes_key(window, parent) else None
        self._owned = OwnedRows(node.schema, parent) if self._new_key is not None and node.is_indexed else None
        self._given: dict[Key, Row] | None = {} if self._looks and self._owned is None else None

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - one input
        """Compute one change, the new half first."""
        if self._owned is not None:
            row = None if event.opcode is DELETE or event.opcode is SAFEDELETE else self._row(event, moment)
            reason = self._owned.change(event, row, out)
            if reason is not None:
                self.refuse(event, reason, details(reason), moment)
        elif event.opcode is UPDATE_BLOCK and old is not None:
            before = Event(DELETE, event.flags, old)
            was = self._take_given(before)
            new = self._row(event, moment)
            self._add_update(new, self._row(before, moment) if was is None else was, event.flags, out)
        elif event.opcode is DELETE:
            was = self._take_given(event)
            out.append(event._replace(values=self._row(event, moment) if was is None else was))
        else:
            out.append(event._replace(values=self._row(event, moment)))

    def _add_update(self, new: Row, old: Row, flags: Flag, out: list[Event]) -> None:
        """A pair; what has another key now is another row."""
        if self._new_key is None or self._new_key(new) == self._new_key(old):
            add_update(new, old, flags, out)
        else:
            out += [Event(DELETE, flags, old), Event(INSERT, flags, new)]

    def _take_given(self, event: Event) -> Row | None:
        """The row that was given out for this key, if such rows are kept."""
        return None if self._given is None else self._given.pop(self._key_of(event.values), None)

    def _row(self, event: Event, moment: Moment) -> Row:
        environment, values = self._environment, event.values
        if self._looks:
            look(environment, event, moment)
        steps = iter(self._steps)
        made = tuple(
            [self._made(next(steps), event, moment) if place is None else values[place] for place in self._copied]
        )
        if self._given is not None and event.opcode is not DELETE:
            self._given[self._key_of(values)] = made
        return made

    def _made(self, step: Step, event: Event, moment: Moment) -> Value:
        expression, convert, field = step
        value = expression.evaluate(event.values, self._environment)
        if convert is None or value is None:
            return value
        converted = convert(value)
        if converted is None:
            self.refuse(event, "overflow", f"{field.name} is {value!r}, too large for {field.type.value}", moment)
        return converted

    def dump(self) -> Tree:
        """Variables, and the rows given out if they are kept."""
        given = None if self._given is None else [[key_tree(key), row_tree(row)] for key, row in self._given.items()]
        state = {"variables": row_tree(tuple(self._environment.variables)), "given": given}
        return state if self._owned is None else {**state, "owned": self._owned.dump()}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._environment.variables = list(tree_row(state["variables"]))
        if self._given is not None:
            self._given = {tree_key(key): tree_row(row) for key, row in state["given"]}
        if self._owned is not None:
            self._owned.load(state["owned"])


class FilterOperator(Operator):
    """Has no rows; its only state are the variables of its initializer."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = cast(FilterWindow, node.window)
        scope = Scope.of(node.inputs[0])
        self._expression = compile_expression(window.expression, scope, initialize=window.initialize)
        self._environment = Environment(variables=list(self._expression.initial()))

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - one input
        """Test one change, the new half first."""
        if event.opcode is UPDATE_BLOCK and old is not None:
            new = event.values if self._holds(event, moment) else None
            was = old if self._holds(Event(DELETE, event.flags, old), moment) else None
            add_change(new, was, event.flags, out)
        elif self._holds(event, moment):
            out.append(event)

    def _holds(self, event: Event, moment: Moment) -> bool:
        if not self._expression.is_pure:
            look(self._environment, event, moment)
        return bool(self._expression.evaluate(event.values, self._environment))

    def dump(self) -> Tree:
        """The variables."""
        return row_tree(tuple(self._environment.variables))

    def load(self, state: Tree) -> None:
        """Go on from dumped variables."""
        self._environment.variables = list(tree_row(state))
