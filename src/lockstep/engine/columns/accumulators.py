"""The aggregate functions that have a column form: state as one array entry for each group, and the loop that moves it.

Every accumulator keeps its arrays in `arrays`, so that growing, paging and restoring are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.engine.columns import extremes, loops
from lockstep.engine.columns.flow import Mask, Numbers, frozen
from lockstep.engine.events.columns import Int64s

Array = npt.NDArray[Any]
Given = tuple[Numbers, Mask]
"""An argument of a function: the values of all rows, and which are not null."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What happens to which group, in order; see `loops`."""

    group: Int64s
    sign: npt.NDArray[np.int64]
    rows: Int64s
    after: Int64s
    resets: Mask


class Accumulator(ABC):
    """One aggregate function over all groups."""

    spec: tuple[tuple[str, type[Any]], ...] = ()
    result: type[Any] = np.float64

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {name: np.zeros(0, kind) for name, kind in self.spec}

    capacity = 0

    def grow_to(self, capacity: int) -> None:
        """Make room for so many groups."""
        if capacity > self.capacity:
            self.grow(capacity)
            self.capacity = capacity

    def grow(self, capacity: int) -> None:
        """Copy the arrays into larger ones."""
        for name, old in self.arrays.items():
            fresh = np.zeros((capacity, *old.shape[1:]), old.dtype)
            fresh[: len(old)] = old
            self.arrays[name] = fresh

    def run(self, steps: Steps, given: list[Given], emit: bool) -> tuple[Numbers, Mask]:
        """Take the steps; with `emit` give the value after each of them, and which are not null."""
        size = len(steps.group) if emit else 0
        out, ok = np.zeros(size, self.result), np.ones(size, np.bool_)
        self.loop(steps, given, emit, out, ok)
        return out, ok

    @abstractmethod
    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Run the compiled loop."""

    def page(self, start: int, stop: int) -> dict[str, Array]:
        """The state of some groups."""
        return {name: array[start:stop] for name, array in self.arrays.items()}

    def restore(self, start: int, page: dict[str, Array]) -> None:
        """Put the state of some groups back; there is room for them."""
        for name, array in self.arrays.items():
            array[start : start + len(page[name])] = page[name]


class Count(Accumulator):
    """ESP_aCount: all rows of the group, which the frame has counted already."""

    result = np.int64

    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Copy the count."""
        del given, ok
        if emit:
            out[:] = steps.after


class CountValid(Accumulator):
    """ESP_aCountNonNull and ESP_aCountNull."""

    spec = (("n", np.int64),)
    result = np.int64

    def __init__(self, nulls: bool) -> None:
        super().__init__()
        self._nulls = nulls

    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Count."""
        del ok
        ((_, valid),) = given
        n = self.arrays["n"]
        loops.count_valid(steps.group, steps.sign, steps.rows, steps.resets, valid, self._nulls, n, emit, out)


class SumDouble(Accumulator):
    """ESP_aSum and ESP_aAve of doubles."""

    spec = (("hi", np.float64), ("lo", np.float64), ("n", np.int64))

    def __init__(self, mean: bool) -> None:
        super().__init__()
        self._mean = mean

    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Add and subtract."""
        ((x, valid),) = given
        state = self.arrays.values()
        loops.sum_double(steps.group, steps.sign, steps.rows, steps.resets, x, valid, self._mean, *state, emit, out, ok)


class SumInteger(Accumulator):
    """ESP_aSum of whole numbers."""

    spec = (("high", np.int64), ("low", np.int64), ("n", np.int64))
    result = np.int64

    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Add and subtract."""
        ((x, valid),) = given
        state = self.arrays.values()
        loops.sum_integer(steps.group, steps.sign, steps.rows, steps.resets, x, valid, *state, emit, out, ok)


class MeanInteger(Accumulator):
    """ESP_aAve of whole numbers."""

    spec = SumInteger.spec

    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Add and subtract."""
        ((x, valid),) = given
        state = self.arrays.values()
        loops.mean_integer(steps.group, steps.sign, steps.rows, steps.resets, x, valid, *state, emit, out, ok)


class Weighted(Accumulator):
    """ESP_aWAve."""

    spec = (("hi", np.float64), ("lo", np.float64), ("whi", np.float64), ("wlo", np.float64), ("n", np.int64))

    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Add and subtract products and weights."""
        (w, w_valid), (x, x_valid) = given
        w, x = _doubles(w), _doubles(x)
        state = self.arrays.values()
        loops.weighted(steps.group, steps.sign, steps.rows, steps.resets, w, w_valid, x, x_valid, *state, emit, out, ok)


class Deviation(Accumulator):
    """ESP_aVar and ESP_aStd."""

    spec = (
        ("shift", np.float64),
        ("hi", np.float64),
        ("lo", np.float64),
        ("hi2", np.float64),
        ("lo2", np.float64),
        ("n", np.int64),
    )

    def __init__(self, root: bool) -> None:
        super().__init__()
        self._root = root

    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Add and subtract distances from the shift, and their squares."""
        ((x, valid),) = given
        state = self.arrays.values()
        x = _doubles(x)
        loops.deviation(steps.group, steps.sign, steps.rows, steps.resets, x, valid, self._root, *state, emit, out, ok)


class Running(Accumulator):
    """ESP_aMin and ESP_aMax where no row ever leaves."""

    def __init__(self, largest: bool, integer: bool) -> None:
        self.result = np.int64 if integer else np.float64
        self.spec = (("best", self.result), ("n", np.int64), ("nans", np.int64))
        super().__init__()
        self._largest = largest

    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Keep the best."""
        ((x, valid),) = given
        state = self.arrays.values()
        extremes.running(
            steps.group, steps.sign, steps.rows, steps.resets, x, valid, self._largest, *state, emit, out, ok
        )


class Queued(Accumulator):
    """ESP_aMin and ESP_aMax where the oldest row of a group leaves first."""

    def __init__(self, largest: bool, integer: bool) -> None:
        super().__init__()
        self.result = np.int64 if integer else np.float64
        self._largest = largest
        self.arrays = {"seen": np.zeros((0, 3), np.int64)}
        self._ends = np.zeros((0, 2), np.int64)
        self._value: Array = np.zeros(0, self.result)
        self._nodes: Int64s = np.zeros((0, 3), np.int64)
        self._free = np.array([-1], np.int64)

    def grow(self, capacity: int) -> None:
        """Copy the arrays into larger ones."""
        super().grow(capacity)
        ends = np.full((capacity, 2), -1, np.int64)
        ends[: len(self._ends)] = self._ends
        self._ends = ends

    def loop(self, steps: Steps, given: list[Given], emit: bool, out: Numbers, ok: Mask) -> None:
        """Move the queues; whenever all nodes are in use, make more and go on."""
        ((x, valid),) = given
        moves = (steps.group, steps.sign, steps.rows, steps.resets, x, valid, self._largest)
        at = 0
        while True:
            state = (self._ends, self.arrays["seen"], self._value, self._nodes, self._free)
            at = extremes.queued(at, *moves, *state, emit, out, ok)
            if at == len(steps.group):
                return
            self._make_nodes(max(1024, 2 * len(self._value)))

    def _make_nodes(self, size: int) -> None:
        """Have so many nodes; the new ones are free."""
        old = len(self._value)
        if size <= old:
            return
        value, nodes = np.zeros(size, self.result), np.zeros((size, 3), np.int64)
        value[:old], nodes[:old] = self._value, self._nodes
        extremes.thread_free(nodes, old)
        nodes[size - 1, 0] = self._free[0]
        self._free[0] = old
        self._value, self._nodes = value, nodes

    def page(self, start: int, stop: int) -> dict[str, Array]:
        """The state of some groups, their queues included."""
        sizes = np.zeros(stop - start, np.int64)
        total = extremes.queue_sizes(self._ends, start, stop, self._nodes, sizes)
        values, orders = np.zeros(total, self.result), np.zeros(total, np.int64)
        extremes.queue_out(self._ends, start, stop, self._value, self._nodes, values, orders)
        return {**super().page(start, stop), "sizes": sizes, "values": values, "orders": orders}

    def restore(self, start: int, page: dict[str, Array]) -> None:
        """Put the state of some groups back; their queues are empty."""
        super().restore(start, page)
        self._make_nodes(len(self._value) + len(page["values"]))
        kept = (page["sizes"], page["values"], page["orders"])
        extremes.queue_in(self._ends, start, *kept, self._value, self._nodes, self._free)


def _doubles(values: Numbers) -> npt.NDArray[np.float64]:
    return frozen(values.astype(np.float64, copy=False))
