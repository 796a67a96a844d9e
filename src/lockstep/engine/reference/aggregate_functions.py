"""Aggregate functions by name: what they have in common, and how to get one.

A function sees the members of one group come and go, as the values of its arguments, and always knows its value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import FieldType, Value
from lockstep.engine.language.compiler import AggregateCall
from lockstep.engine.reference.operator import Tree


class Function(ABC):
    """One aggregate function over one group.

    `sees` says what follows the arguments: the member's "key" for functions that depend on the order of members,
    the model's "clock" for timed ones.
    """

    __slots__ = ()
    sees: ClassVar[str] = ""

    @abstractmethod
    def add(self, values: Row) -> None:
        """A member came."""

    @abstractmethod
    def remove(self, values: Row) -> None:
        """A member left; `values` are those that it came with."""

    def ticked(self, clock_us: int) -> None:  # noqa: B027 - only timed functions look at it
        """The model's clock is known for the first time."""

    @abstractmethod
    def value(self) -> Value:
        """The value for the members that are there."""

    @abstractmethod
    def dump(self) -> Tree:
        """The state."""

    @abstractmethod
    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""


Maker = Callable[[AggregateCall], Callable[[], Function]]
"""Looks at a call once, and gives what makes the function anew for each group."""


def plain(function: Callable[[], Function]) -> Maker:
    """For functions that look at their values only."""
    return lambda _: function


def by_type(whole: Callable[[], Function], double: Callable[[], Function]) -> Maker:
    """For functions that are exact on whole numbers."""
    return lambda call: double if call.arguments[0].type is FieldType.DOUBLE else whole


def known_functions() -> Mapping[str, Maker]:
    """All functions, by their names in lower case without ESP_a."""
    from lockstep.engine.reference import aggregate_members, aggregate_sorted, aggregate_sums, aggregate_timed

    return {
        **aggregate_sums.makers(),
        **aggregate_sorted.makers(),
        **aggregate_members.makers(),
        **aggregate_timed.makers(),
    }


def function_maker(call: AggregateCall) -> Callable[[], Function]:
    """What makes the function of a call for a new group."""
    return known_functions()[call.function](call)
