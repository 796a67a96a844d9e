"""What a model defines for the expressions of a window: variables with their first values, and functions."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.events.types import FieldType


@dataclass(frozen=True, kw_only=True, slots=True)
class UserFunction:
    """A function written in the expression language, for the expressions of one window."""

    name: str
    text: str
    type: FieldType = FieldType.INT32


@dataclass(frozen=True, kw_only=True, slots=True)
class Initializer:
    """Variables of a window's expressions, with their first values, kept from event to event."""

    text: str = ""
    type: FieldType = FieldType.INT32
    functions: tuple[UserFunction, ...] = ()
