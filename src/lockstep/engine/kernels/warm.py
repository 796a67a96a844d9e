"""Compiles all loops once: at install rather than when the first events come."""

from __future__ import annotations

import numpy as np

from lockstep.engine.kernels import loops
from lockstep.engine.kernels.accumulators import (
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
from lockstep.engine.kernels.flow import NO_MASK, frozen
from lockstep.engine.kernels.wordset import WordSet, folded

_FEW = 4


def warm_up() -> int:
    """Run every loop on a few rows, so that its machine code is on disk. How many accumulators were run."""
    _run_keys()
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
    out = [np.zeros(size, np.int64) for _ in range(3)]
    loops.assemble(0, shown, prev, after, np.zeros(size, np.uint8), *out)
    blocks, bytes_ = np.empty((2, _FEW), np.int64), np.empty((2, _FEW), np.uint8)
    loops.weave(none, none, none, frozen(numbers), opcode, numbers, blocks[0], bytes_[0], bytes_[1], blocks[1])
    return Steps(group, sign, rows, after, resets)


def _run_keys() -> None:
    keys = WordSet()
    numbers = frozen(np.arange(_FEW, dtype=np.int64))
    keys.add(numbers, np.ones(_FEW, np.bool_))
    keys.holds(numbers)
    keys.add_folded(*folded(numbers))
