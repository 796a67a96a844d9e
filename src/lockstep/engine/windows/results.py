"""What an expression made, put into a field of the declared type."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.engine.events.event import Event
from lockstep.engine.events.types import INT_RANGE, FieldType, Value
from lockstep.engine.expressions.compiler import Environment
from lockstep.engine.windows.operator import Moment

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
