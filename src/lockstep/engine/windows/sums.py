"""Sums that adding and removing values for years does not spoil.

Every faster path does the same operations in the same order: the bits of a sum are part of the answer.
"""

from __future__ import annotations

from lockstep.engine.windows.operator import Tree


class DoubleDouble:
    """A sum of doubles kept in two of them: `hi` is the sum, `lo` what rounding left over. Removing is adding -x."""

    __slots__ = ("hi", "lo")

    def __init__(self) -> None:
        self.hi = 0.0
        self.lo = 0.0

    def add(self, x: float) -> None:
        """Add a value: the sum rounded, its exact error to what was left over, and both put in order again.

        Once the sum is infinite or NaN there is nothing left over.
        """
        hi = self.hi
        s = hi + x
        if s - s != 0.0:
            self.hi, self.lo = s, 0.0
            return
        b = s - hi
        lo = self.lo + ((hi - (s - b)) + (x - b))
        self.hi = hi = s + lo
        self.lo = lo - (hi - s)

    def dump(self) -> Tree:
        """Both halves."""
        return [self.hi, self.lo]

    def load(self, state: Tree) -> None:
        """Go on from dumped halves."""
        self.hi, self.lo = state


class TwoSums:
    """Two such sums that always grow together: `first` and `second`, and what rounding left over of each."""

    __slots__ = ("first", "rest_of_first", "rest_of_second", "second")

    def __init__(self) -> None:
        self.first = self.rest_of_first = 0.0
        self.second = self.rest_of_second = 0.0

    def add(self, x: float, y: float) -> None:
        """Add a value to each, as DoubleDouble does."""
        hi = self.first
        s = hi + x
        if s - s != 0.0:
            self.first, self.rest_of_first = s, 0.0
        else:
            b = s - hi
            lo = self.rest_of_first + ((hi - (s - b)) + (x - b))
            self.first = hi = s + lo
            self.rest_of_first = lo - (hi - s)
        hi = self.second
        s = hi + y
        if s - s != 0.0:
            self.second, self.rest_of_second = s, 0.0
            return
        b = s - hi
        lo = self.rest_of_second + ((hi - (s - b)) + (y - b))
        self.second = hi = s + lo
        self.rest_of_second = lo - (hi - s)

    def dump(self) -> list[Tree]:
        """Both halves of both."""
        return [[self.first, self.rest_of_first], [self.second, self.rest_of_second]]

    def load(self, state: Tree) -> None:
        """Go on from dumped sums."""
        (self.first, self.rest_of_first), (self.second, self.rest_of_second) = state


def whole_tree(value: int) -> str:
    """A whole number of any size to be kept."""
    return str(value)


def tree_whole(tree: str) -> int:
    """A kept whole number."""
    return int(tree)
