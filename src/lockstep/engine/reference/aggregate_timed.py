"""Timed functions: over what came since a period began, by the model's clock.

A member that comes more than the limit after the period began begins a new one, alone. Deletes are ignored: a period is
about what came, not about what is there. The state ends with its group. Before the first tick the clock is not known:
what comes then counts as come at that tick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Value
from lockstep.engine.language.compiler import AggregateCall
from lockstep.engine.reference.aggregate_functions import Function, Maker
from lockstep.engine.reference.aggregate_sorted import makers as sorted_makers
from lockstep.engine.reference.aggregate_sums import makers as sum_makers
from lockstep.engine.reference.operator import Tree


class Timed(Function):
    """Another function, begun anew with each period."""

    __slots__ = ("began_us", "inner", "limit_us", "make")
    sees: ClassVar[str] = "clock"

    def __init__(self, make: Callable[[], Function], limit_us: int) -> None:
        self.make = make
        self.limit_us = limit_us
        self.began_us: int | None = None
        self.inner = make()

    def add(self, values: Row) -> None:
        """Add a member at the time that is passed after its arguments."""
        *arguments, now = values
        assert isinstance(now, int), "the clock stands behind the arguments"
        if self.began_us is None:
            self.ticked(now)
        elif now - self.began_us > self.limit_us:
            self.began_us = now
            self.inner = self.make()
        self.inner.add(tuple(arguments))

    def ticked(self, clock_us: int) -> None:
        """A period that began before the clock was known begins with its first value."""
        if self.began_us is None and clock_us:
            self.began_us = clock_us

    def remove(self, values: Row) -> None:
        """Nothing: deletes don't count."""

    def value(self) -> Value:
        """The value of the period so far."""
        return self.inner.value()

    def dump(self) -> Tree:
        """When the period began, and what came in it."""
        return [self.began_us, self.inner.dump()]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self.began_us = state[0]
        self.inner.load(state[1])


def _timed(maker: Maker) -> Maker:
    def make(call: AggregateCall) -> Callable[[], Function]:
        seconds = call.constants[-1]
        assert isinstance(seconds, int | float), "typed when the model was loaded"
        inner, limit_us = maker(call), int(seconds * 1_000_000)
        return lambda: Timed(inner, limit_us)

    return make


def makers() -> Mapping[str, Maker]:
    """The functions of this module by name: those of a few numbers, and the ordered ones."""
    return {f"{name}timed": _timed(maker) for name, maker in {**sum_makers(), **sorted_makers()}.items()}
