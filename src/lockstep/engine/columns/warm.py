"""Compiles all loops once: at install rather than when the first events come."""

from __future__ import annotations

import numpy as np

from lockstep.engine.columns import join_loops, loops
from lockstep.engine.columns.accumulators import (
    Accumulator,
    CountValid,
    Deviation,
    MeanInteger,
    Queued,
    Running,
    Steps,
    SumDouble,
    SumInteger,
    Weighted,
)
from lockstep.engine.columns.flow import NO_MASK, frozen
from lockstep.engine.columns.source import WordSet, folded

_FEW = 4


def warm_up() -> int:
    """Run every loop on a few rows, so that its machine code is on disk. How many accumulators were run."""
    _run_keys()
    _run_joins()
    steps = _steps()
    whole, double = frozen(np.arange(_FEW, dtype=np.int64)), frozen(np.arange(_FEW, dtype=np.float64))
    doubles: list[Accumulator] = [SumDouble(mean=True), Deviation(root=True)]
    doubles += [Running(largest=True, integer=False), Queued(largest=True, integer=False)]
    integers: list[Accumulator] = [SumInteger(), MeanInteger(), CountValid(nulls=True)]
    integers += [Running(largest=True, integer=True), Queued(largest=True, integer=True)]
    pairs = [(each, [(double, NO_MASK)]) for each in doubles] + [(each, [(whole, NO_MASK)]) for each in integers]
    pairs.append((Weighted(), [(double, NO_MASK), (double, NO_MASK)]))
    for accumulator, given in pairs:
        accumulator.grow_to(_FEW)
        accumulator.run(steps, list(given), emit=True)
        page = accumulator.page(0, _FEW)
        accumulator.restore(0, page)
    return len(pairs)


def _steps() -> Steps:
    """A few rows come into groups of their own, as an aggregate would see it."""
    opcode, numbers = frozen(np.ones(_FEW, np.uint8)), np.arange(_FEW, dtype=np.int64)
    none = np.zeros(0, np.int64)
    group, sign, rows, after, prev = (np.empty(_FEW, np.int64) for _ in range(5))
    shown, resets = np.empty(_FEW, np.bool_), np.empty(_FEW, np.bool_)
    count, last = np.zeros(_FEW, np.int64), np.full(_FEW, -1, np.int64)
    loops.frame(none, opcode, none, none, numbers, numbers, count, last, group, sign, rows, shown, after, resets, prev)
    inserts, deletes, updates = loops.tally(0, shown, prev, after)
    size = inserts + deletes + 2 * updates
    out = [np.zeros(size, np.int64) for _ in range(4)]
    loops.assemble(0, shown, prev, after, none, np.zeros(size, np.uint8), *out)
    blocks, bytes_ = np.empty((2, _FEW), np.int64), np.empty((2, _FEW), np.uint8)
    made = blocks[0], bytes_[0], bytes_[1], blocks[1], np.empty_like(numbers)
    loops.weave(none, none, none, none, none, frozen(numbers), opcode, numbers, *made)
    loops.follow(frozen(numbers), NO_MASK, 1, 1, 0, blocks[0])
    return Steps(group, sign, rows, after, resets)


def _run_keys() -> None:
    keys = WordSet()
    numbers = frozen(np.arange(_FEW, dtype=np.int64))
    keys.add(numbers, np.ones(_FEW, np.bool_))
    keys.holds(numbers)
    keys.add_folded(*folded(numbers))


def _run_joins() -> None:
    """A few rows of both sides of a join, and the same as those of a union."""
    opcode, numbers = frozen(np.ones(_FEW, np.uint8)), np.arange(_FEW, dtype=np.int64)
    rows, dimensions, kept = ([np.full(_FEW, -1, np.int64) for _ in range(4)] for _ in range(3))
    lists = np.full(_FEW, -1, np.int64), np.full(_FEW, -1, np.int64), np.zeros(_FEW, np.int64)
    order, fault, out = np.arange(2 * _FEW, dtype=np.int64), np.zeros(2 * _FEW, np.int64), np.empty((64, 4), np.int64)
    events, split = (opcode, numbers, numbers), (0, _FEW, _FEW)
    row = np.full(_FEW, -1, np.int64)
    for keeps in (True, False):
        state = rows[0], rows[1], rows[2], rows[3]
        join_loops.join(0, order, split, 0, keeps, events, state, 0, events, (dimensions[0], dimensions[1]), 0, lists,
                        row, fault, out)  # fmt: skip
    join_loops.link_all(numbers, numbers, numbers, *kept, *lists)
    starts = np.array([0, 2], np.int64)
    join_loops.unite(numbers, starts, True, opcode.copy(), numbers, 0, row.copy(), row.copy(), fault, out)
