"""Functions over the values in order: smallest, largest, middle, most frequent, how many different. Nulls are skipped.

NaN stands outside the order: it is the result only if there is nothing else. A zero is given back as 0.0, whichever
signs the zeros had.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from math import nan
from typing import Any

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Value
from lockstep.engine.reference.aggregate_functions import Function, Maker, plain
from lockstep.engine.reference.operator import Tree


class Sorted(Function):
    """Keeps the values of a group in order."""

    __slots__ = ("nans", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.nans = 0

    def add(self, values: Row) -> None:
        """Put a value in its place."""
        x = values[0]
        if x is None:
            return
        if x != x:
            self.nans += 1
        else:
            insort(self.values, x + 0.0 if x == 0.0 and type(x) is float else x)

    def remove(self, values: Row) -> None:
        """Take a value out."""
        x = values[0]
        if x is None:
            return
        if x != x:
            self.nans -= 1
        else:
            del self.values[bisect_left(self.values, x)]

    def value(self) -> Value:
        """Null if there is no value, NaN if there is nothing else."""
        if self.values:
            return self.pick()
        return nan if self.nans else None

    def pick(self) -> Value:
        """The value that is asked for; there is at least one that is not NaN."""
        raise NotImplementedError

    def dump(self) -> Tree:
        """The values in order; arrays can't be among them."""
        return [list(self.values), self.nans]

    def load(self, state: Tree) -> None:
        """Go on from dumped values."""
        self.values, self.nans = list(state[0]), state[1]


class Smallest(Sorted):
    """ESP_aMin."""

    __slots__ = ()

    def value(self) -> Value:
        """The first."""
        return self.values[0] if self.values else super().value()


class Largest(Sorted):
    """ESP_aMax."""

    __slots__ = ()

    def value(self) -> Value:
        """The last."""
        return self.values[-1] if self.values else super().value()


class Median(Sorted):
    """ESP_aMedian: a double; the mean of the two in the middle if their number is even."""

    __slots__ = ()

    def pick(self) -> Value:
        """The middle."""
        half, odd = divmod(len(self.values), 2)
        if odd:
            return float(self.values[half])
        return (float(self.values[half - 1]) + float(self.values[half])) / 2


class Mode(Sorted):
    """ESP_aMode: the most frequent value, the smallest if several are."""

    __slots__ = ()

    def pick(self) -> Value:
        """The value with the longest run."""
        best, most, start = self.values[0], 0, 0
        while start < len(self.values):
            value = self.values[start]
            end = bisect_right(self.values, value, start)
            if end - start > most:
                best, most = value, end - start
            start = end
        return best  # type: ignore[no-any-return]


class CountDistinct(Function):
    """ESP_aCountDistinct: how many different values there are; all NaN are one."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[Value, int] = {}

    def add(self, values: Row) -> None:
        """One more of a value."""
        x = _one_nan(values[0])
        if x is not None:
            self.counts[x] = self.counts.get(x, 0) + 1

    def remove(self, values: Row) -> None:
        """One less of a value."""
        x = _one_nan(values[0])
        if x is not None:
            self.counts[x] -= 1
            if not self.counts[x]:
                del self.counts[x]

    def value(self) -> Value:
        """How many."""
        return len(self.counts)

    def dump(self) -> Tree:
        """The values and how often each is there."""
        return [[list(x) if type(x) is tuple else x, count] for x, count in self.counts.items()]

    def load(self, state: Tree) -> None:
        """Go on from dumped counts."""
        self.counts = {_one_nan(tuple(x) if type(x) is list else x): count for x, count in state}


def _one_nan(x: Value) -> Value:
    # A dict finds a NaN again only if it is the same object.
    return nan if x != x else x


def makers() -> Mapping[str, Maker]:
    """The functions of this module by name."""
    return {
        "min": plain(Smallest),
        "max": plain(Largest),
        "median": plain(Median),
        "mode": plain(Mode),
        "countdistinct": plain(CountDistinct),
    }
