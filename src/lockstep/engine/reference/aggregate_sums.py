"""Counts, sums, means and deviations: a few numbers for each group; adding and removing spoils none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import cast

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import INT_RANGE, FieldType, Value
from lockstep.engine.language.compiler import AggregateCall
from lockstep.engine.reference.aggregate_functions import Function, Maker, by_type, plain
from lockstep.engine.reference.operator import Tree

_LOW, _HIGH = INT_RANGE[FieldType.INT64]


class Count(Function):
    """ESP_aCount: all members."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, values: Row) -> None:  # noqa: ARG002 - every member counts
        """One more."""
        self.count += 1

    def remove(self, values: Row) -> None:  # noqa: ARG002 - every member counts
        """One less."""
        self.count -= 1

    def value(self) -> Value:
        """How many."""
        return self.count

    def dump(self) -> Tree:
        """The count."""
        return self.count

    def load(self, state: Tree) -> None:
        """Go on from a dumped count."""
        self.count = state


class CountNonNull(Count):
    """ESP_aCountNonNull."""

    __slots__ = ()

    def add(self, values: Row) -> None:
        """One more, if it is not null."""
        if values[0] is not None:
            self.count += 1

    def remove(self, values: Row) -> None:
        """One less, if it was not null."""
        if values[0] is not None:
            self.count -= 1


class CountNull(Count):
    """ESP_aCountNull."""

    __slots__ = ()

    def add(self, values: Row) -> None:
        """One more, if it is null."""
        if values[0] is None:
            self.count += 1

    def remove(self, values: Row) -> None:
        """One less, if it was null."""
        if values[0] is None:
            self.count -= 1


class WholeSum(Function):
    """ESP_aSum of whole numbers: exact; null if there is no value, or the sum does not fit 64 bits."""

    __slots__ = ("count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0

    def add(self, values: Row) -> None:
        """Add a value."""
        x = values[0]
        if x is not None:
            self.count += 1
            self.sum += x  # type: ignore[operator, assignment]  # typed when the model was loaded

    def remove(self, values: Row) -> None:
        """Take a value out."""
        x = values[0]
        if x is not None:
            self.count -= 1
            self.sum -= x  # type: ignore[operator, assignment]  # typed when the model was loaded

    def value(self) -> Value:
        """The sum."""
        return self.sum if self.count and _LOW <= self.sum <= _HIGH else None

    def dump(self) -> Tree:
        """Count and sum; the sum may need more than 64 bits."""
        return [self.count, whole_tree(self.sum)]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self.count, self.sum = state[0], tree_whole(state[1])


class WholeMean(WholeSum):
    """ESP_aAve of whole numbers: the exact sum, rounded once, over the count."""

    __slots__ = ()

    def value(self) -> Value:
        """The mean."""
        return float(self.sum) / self.count if self.count else None


class DoubleSum(Function):
    """ESP_aSum of doubles; null if there is no value."""

    __slots__ = ("count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = DoubleDouble()

    def add(self, values: Row) -> None:
        """Add a value."""
        x = values[0]
        if x is not None:
            self.count += 1
            self.sum.add(x)  # type: ignore[arg-type]  # typed when the model was loaded

    def remove(self, values: Row) -> None:
        """Take a value out."""
        x = values[0]
        if x is not None:
            self.count -= 1
            self.sum.add(-x)  # type: ignore[operator]  # typed when the model was loaded

    def value(self) -> Value:
        """The sum."""
        return self.sum.hi if self.count else None

    def dump(self) -> Tree:
        """Count and sum."""
        return [self.count, self.sum.dump()]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self.count = state[0]
        self.sum.load(state[1])


class DoubleMean(DoubleSum):
    """ESP_aAve of doubles."""

    __slots__ = ()

    def value(self) -> Value:
        """The mean."""
        return self.sum.hi / self.count if self.count else None


class ArrayMean(Function):
    """ESP_aAve of arrays: the mean of each place, as long as the longest array; null where no array has a number."""

    __slots__ = ("lengths", "make", "places")

    def __init__(self, make: Callable[[], WholeMean | DoubleMean]) -> None:
        self.make = make
        self.places: list[WholeMean | DoubleMean] = []
        self.lengths: dict[int, int] = {}

    def add(self, values: Row) -> None:
        """Add an array; one that is longer than all others brings new places."""
        array = values[0]
        if isinstance(array, tuple):
            self.lengths[len(array)] = self.lengths.get(len(array), 0) + 1
            self.places += [self.make() for _ in range(len(array) - len(self.places))]
            for place, x in zip(self.places, array, strict=False):
                place.add((x,))

    def remove(self, values: Row) -> None:
        """Take an array out, and the places that no other one has."""
        array = values[0]
        if isinstance(array, tuple):
            for place, x in zip(self.places, array, strict=False):
                place.remove((x,))
            self.lengths[len(array)] -= 1
            if not self.lengths[len(array)]:
                del self.lengths[len(array)]
                del self.places[max(self.lengths, default=0) :]

    def value(self) -> Value:
        """The means; null if there is no array."""
        if not self.lengths:
            return None
        return tuple([cast(float | None, place.value()) for place in self.places])

    def dump(self) -> Tree:
        """How many arrays there are of each length, and the state of each place."""
        return [[[length, count] for length, count in self.lengths.items()], [place.dump() for place in self.places]]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self.lengths = dict(state[0])
        self.places = [self.make() for _ in state[1]]
        for place, kept in zip(self.places, state[1], strict=True):
            place.load(kept)


def _mean(call: AggregateCall) -> Callable[[], Function]:
    kind = call.arguments[0].type
    if kind.element is None:
        return DoubleMean if kind is FieldType.DOUBLE else WholeMean
    of_place = DoubleMean if kind is FieldType.ARRAY_DOUBLE else WholeMean
    return lambda: ArrayMean(of_place)


class WeightedMean(Function):
    """ESP_aWAve(weight, value): the sum of products over the sum of weights; null without members or weight."""

    __slots__ = ("count", "sums")

    def __init__(self) -> None:
        self.count = 0
        self.sums = TwoSums()  # of products, of weights

    def add(self, values: Row) -> None:
        """Add a weight and a value, if neither is null."""
        w, v = values
        if w is not None and v is not None:
            weight = float(w)  # type: ignore[arg-type]  # typed when the model was loaded
            self.count += 1
            self.sums.add(weight * float(v), weight)  # type: ignore[arg-type]

    def remove(self, values: Row) -> None:
        """Take a weight and a value out."""
        w, v = values
        if w is not None and v is not None:
            weight = float(w)  # type: ignore[arg-type]  # typed when the model was loaded
            self.count -= 1
            self.sums.add(-(weight * float(v)), -weight)  # type: ignore[arg-type]

    def value(self) -> Value:
        """The weighted mean."""
        products, weights = self.sums.first, self.sums.second
        return products / weights if self.count and weights != 0.0 else None

    def dump(self) -> Tree:
        """Count and both sums."""
        return [self.count, *self.sums.dump()]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self.count = state[0]
        self.sums.load(state[1:])


class Variance(Function):
    """ESP_aVar: of a sample (n - 1), from the sums of the distances to the first value and of their squares.

    One value: 0. The first value is the one that came when there was none; the sums start anew with it.
    """

    __slots__ = ("count", "shift", "sums")

    def __init__(self) -> None:
        self.count = 0
        self._start(0.0)

    def _start(self, shift: float) -> None:
        self.shift = shift
        self.sums = TwoSums()  # of distances, of their squares

    def add(self, values: Row) -> None:
        """Add a value."""
        x = values[0]
        if x is not None:
            if self.count == 0:
                self._start(float(x))  # type: ignore[arg-type]  # typed when the model was loaded
            d = float(x) - self.shift  # type: ignore[arg-type]
            self.count += 1
            self.sums.add(d, d * d)

    def remove(self, values: Row) -> None:
        """Take a value out."""
        x = values[0]
        if x is not None:
            d = float(x) - self.shift  # type: ignore[arg-type]  # typed when the model was loaded
            self.count -= 1
            self.sums.add(-d, -(d * d))

    def variance(self) -> float | None:
        """The variance; never below zero, whatever rounding does."""
        n = self.count
        if n < 2:
            return 0.0 if n else None
        s = self.sums.first
        return max(0.0, (self.sums.second - s * s / n) / (n - 1))

    def value(self) -> Value:
        """The variance."""
        return self.variance()

    def dump(self) -> Tree:
        """Count, first value and both sums."""
        return [self.count, self.shift, *self.sums.dump()]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self.count, self.shift = state[0], state[1]
        self.sums.load(state[2:])


class Deviation(Variance):
    """ESP_aStd: the root of the variance."""

    __slots__ = ()

    def value(self) -> Value:
        """The standard deviation."""
        variance = self.variance()
        return None if variance is None else sqrt(variance)


def makers() -> Mapping[str, Maker]:
    """The functions of this module by name."""
    return {
        "count": plain(Count),
        "countnonnull": plain(CountNonNull),
        "countnull": plain(CountNull),
        "sum": by_type(WholeSum, DoubleSum),
        "ave": _mean,
        "wave": plain(WeightedMean),
        "var": plain(Variance),
        "std": plain(Deviation),
    }


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
