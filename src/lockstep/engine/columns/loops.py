"""The compiled loops of aggregates, one pass over a batch for each function; and how loops are compiled."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numba import njit

logger = logging.getLogger(__name__)


def compiled(function: Any) -> Any:
    """A function as machine code; kept on disk if there is a folder for it that can be written to.

    Other threads run meanwhile: an engine that computes in its own process still says in time that it is there.
    """
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError as error:  # the package, the home folder and NUMBA_CACHE_DIR are all read-only
        logger.debug("Compiled again in each process", extra={"action": "no_cache", "reason": str(error)})
        return njit(nogil=True)(function)


# ruff: noqa: ANN001, ANN201 - the types are those of the arrays that a loop is called with
# mypy: disable-error-code="no-untyped-def"


@compiled
def dd_add(hi, lo, x):
    """A sum of two doubles plus a value: rounded, with its exact error put to what was left over.

    Once the sum is infinite or NaN there is nothing left over.
    """
    s = hi + x
    if s - s != 0.0:
        return s, 0.0
    b = s - hi
    e = (hi - (s - b)) + (x - b)
    lo = lo + e
    hi2 = s + lo
    return hi2, lo - (hi2 - s)


@compiled
def frame(looked, opcode, order, index, codes, table, count, last, group, sign, rows, shown, after, resets, prev):
    """The steps of a batch: a look at each group that exists, then the events, an update's old row before its new one.

    `order` is empty if there are no updates, `index` if the rows are those of the events in order. A row's group is
    `table[codes[row]]`. Filled in are for each step its group, sign and row, whether its result is shown,
    the members of the group after it, whether that makes it empty, and the step its last output came from.
    """
    looks = len(looked)
    for i in range(looks + len(opcode)):
        show = True
        if i < looks:
            g, s, r = looked[i], 0, 0
        else:
            k = i - looks
            e = order[k] if len(order) else k
            r = index[e] if len(index) else e
            g = table[codes[r]]
            s = -1 if opcode[e] == 4 else 1
            if len(order) and e > k:
                # The first half of an update within one group is not shown: the update is one change.
                new = index[k] if len(index) else k
                show = table[codes[new]] != g
        c = count[g] + s
        count[g] = c
        group[i] = g
        sign[i] = s
        rows[i] = r
        shown[i] = show
        after[i] = c
        resets[i] = c == 0 and s != 0
        prev[i] = last[g]
        if show:
            last[g] = i
    for i in range(len(group)):
        last[group[i]] = -1


@compiled
def tally(first, shown, prev, after):
    """How many inserts, deletes and updates the steps from `first` on give."""
    inserts, deletes, updates = 0, 0, 0
    for i in range(first, len(prev)):
        if shown[i]:
            was = prev[i] >= 0 and after[prev[i]] > 0
            if after[i] == 0:
                if was:
                    deletes += 1
            elif was:
                updates += 1
            else:
                inserts += 1
    return inserts, deletes, updates


@compiled
def assemble(first, shown, prev, after, order, opcode, source, cause, half, inner):
    """The output events: opcode, the step whose values it shows, the step that caused it, and its place below that.

    With `order`, that of the steps among those with the same cause, `inner` is that of the events.
    """
    at = 0
    is_ordered = len(order) > 0
    for i in range(first, len(prev)):
        if not shown[i]:
            continue
        was = prev[i] >= 0 and after[prev[i]] > 0
        if after[i] > 0:
            opcode[at] = 6 if was else 1
            source[at] = i
            cause[at] = i
            half[at] = 0
            if is_ordered:
                inner[at] = order[i - first] * 4
            at += 1
        if was:
            opcode[at] = 4
            source[at] = prev[i]
            cause[at] = i
            half[at] = 1
            if is_ordered:
                inner[at] = order[i - first] * 4 + 1
            at += 1


@compiled
def count_valid(group, sign, rows, resets, valid, invert, n, emit, out):
    """ESP_aCountNonNull, and with `invert` ESP_aCountNull."""
    whole = len(valid) == 0
    for i in range(len(group)):
        g = group[i]
        s = sign[i]
        if s != 0 and (whole or valid[rows[i]]) != invert:
            n[g] += s
        if resets[i]:
            n[g] = 0
        if emit:
            out[i] = n[g]


@compiled
def sum_double(group, sign, rows, resets, x, valid, mean, hi, lo, n, emit, out, ok):
    """ESP_aSum of doubles, and with `mean` ESP_aAve."""
    whole = len(valid) == 0
    for i in range(len(group)):
        g = group[i]
        s = sign[i]
        if s != 0 and (whole or valid[rows[i]]):
            v = x[rows[i]]
            hi[g], lo[g] = dd_add(hi[g], lo[g], v if s > 0 else -v)
            n[g] += s
        if resets[i]:
            hi[g] = 0.0
            lo[g] = 0.0
            n[g] = 0
        if emit:
            ok[i] = n[g] > 0
            if n[g] > 0:
                out[i] = hi[g] / n[g] if mean else hi[g]


@compiled
def wide_add(high, low, x):
    """A whole number of two words plus one of one word, exactly."""
    total = np.uint64(low) + np.uint64(x)
    carry = np.int64(1) if total < np.uint64(low) else np.int64(0)
    return high + (np.int64(-1) if x < 0 else np.int64(0)) + carry, np.int64(total)


@compiled
def wide_subtract(high, low, x):
    """A whole number of two words minus one of one word, exactly."""
    total = np.uint64(low) - np.uint64(x)
    borrow = np.int64(1) if np.uint64(low) < np.uint64(x) else np.int64(0)
    return high - (np.int64(-1) if x < 0 else np.int64(0)) - borrow, np.int64(total)


@compiled
def wide_float(high, low):
    """The double nearest to a whole number of two words, halves to even."""
    if high == (low >> np.int64(63)):
        return np.float64(low)
    top, bottom = np.uint64(high), np.uint64(low)
    negative = high < 0
    if negative:
        bottom = ~bottom + np.uint64(1)
        top = ~top + (np.uint64(1) if bottom == 0 else np.uint64(0))
    shift = 0
    while top != 0 or bottom >= np.uint64(1) << np.uint64(62):
        # The bit that falls out stays as the lowest one, so that the conversion below rounds as if it saw all bits.
        bottom = ((bottom >> np.uint64(1)) | (bottom & np.uint64(1))) | (top << np.uint64(63))
        top = top >> np.uint64(1)
        shift += 1
    value = np.float64(np.int64(bottom)) * 2.0**shift
    return -value if negative else value


@compiled
def sum_integer(group, sign, rows, resets, x, valid, high, low, n, emit, out, ok):
    """ESP_aSum of whole numbers: exact, null where the sum does not fit 64 bits."""
    whole = len(valid) == 0
    for i in range(len(group)):
        g = group[i]
        s = sign[i]
        if s != 0 and (whole or valid[rows[i]]):
            if s > 0:
                high[g], low[g] = wide_add(high[g], low[g], x[rows[i]])
            else:
                high[g], low[g] = wide_subtract(high[g], low[g], x[rows[i]])
            n[g] += s
        if resets[i]:
            high[g] = 0
            low[g] = 0
            n[g] = 0
        if emit:
            out[i] = low[g]
            ok[i] = n[g] > 0 and high[g] == (low[g] >> np.int64(63))


@compiled
def mean_integer(group, sign, rows, resets, x, valid, high, low, n, emit, out, ok):
    """ESP_aAve of whole numbers: the exact sum, rounded once, over the count."""
    whole = len(valid) == 0
    for i in range(len(group)):
        g = group[i]
        s = sign[i]
        if s != 0 and (whole or valid[rows[i]]):
            if s > 0:
                high[g], low[g] = wide_add(high[g], low[g], x[rows[i]])
            else:
                high[g], low[g] = wide_subtract(high[g], low[g], x[rows[i]])
            n[g] += s
        if resets[i]:
            high[g] = 0
            low[g] = 0
            n[g] = 0
        if emit:
            ok[i] = n[g] > 0
            if n[g] > 0:
                out[i] = wide_float(high[g], low[g]) / n[g]


@compiled
def weighted(group, sign, rows, resets, w, w_valid, x, x_valid, hi, lo, whi, wlo, n, emit, out, ok):
    """ESP_aWAve: the sum of weight times value over the sum of weights."""
    whole, x_whole = len(w_valid) == 0, len(x_valid) == 0
    for i in range(len(group)):
        g = group[i]
        s = sign[i]
        if s != 0:
            r = rows[i]
            if (whole or w_valid[r]) and (x_whole or x_valid[r]):
                weight = np.float64(w[r])
                product = weight * np.float64(x[r])
                hi[g], lo[g] = dd_add(hi[g], lo[g], product if s > 0 else -product)
                whi[g], wlo[g] = dd_add(whi[g], wlo[g], weight if s > 0 else -weight)
                n[g] += s
        if resets[i]:
            hi[g] = 0.0
            lo[g] = 0.0
            whi[g] = 0.0
            wlo[g] = 0.0
            n[g] = 0
        if emit:
            good = n[g] > 0 and whi[g] != 0.0
            ok[i] = good
            if good:
                out[i] = hi[g] / whi[g]


@compiled
def deviation(group, sign, rows, resets, x, valid, root, shift, hi, lo, hi2, lo2, n, emit, out, ok):
    """ESP_aVar, and with `root` ESP_aStd, of a sample, around the first value that a group saw."""
    whole = len(valid) == 0
    for i in range(len(group)):
        g = group[i]
        s = sign[i]
        if s != 0 and (whole or valid[rows[i]]):
            v = np.float64(x[rows[i]])
            if n[g] == 0 and s > 0:
                shift[g] = v
                hi[g] = 0.0
                lo[g] = 0.0
                hi2[g] = 0.0
                lo2[g] = 0.0
            d = v - shift[g]
            q = d * d
            hi[g], lo[g] = dd_add(hi[g], lo[g], d if s > 0 else -d)
            hi2[g], lo2[g] = dd_add(hi2[g], lo2[g], q if s > 0 else -q)
            n[g] += s
        if resets[i]:
            n[g] = 0
        if emit:
            c = n[g]
            ok[i] = c > 0
            if c == 1:
                out[i] = 0.0
            elif c > 1:
                var = (hi2[g] - hi[g] * hi[g] / c) / (c - 1)
                if not var > 0.0:
                    var = 0.0
                out[i] = np.sqrt(var) if root else var


@compiled
def follow(values, valid, most, scale, now, out):
    """The running maximum of times, from `now` on; nulls and those farther away than `most` do not move it."""
    whole = len(valid) == 0
    for i in range(len(values)):
        v = values[i]
        if (whole or valid[i]) and -most <= v <= most:
            v *= scale  # fits, as it is no farther away
            if v > now:
                now = v
        out[i] = now


@compiled
def weave(
    before, left_block, left_rows, numbers, places, came_block, came_flags, came_rows, block, opcode, flags, rows, order
):
    """Rows that came and rows that left in one order: the k-th one that left comes after `before[k]` that came.

    If only some that came are here, `places` says which of all they are. Filled in is the order among those with the
    same cause: 0 for what came, and from the number of the row for what left.
    """
    at, k = 0, 0
    is_part = len(places) > 0
    for i in range(len(came_rows) + 1):
        place = i
        if is_part and i < len(came_rows):
            place = places[i]
        while k < len(before) and (before[k] <= place or i == len(came_rows)):
            order[at] = 1 + numbers[k]
            block[at] = left_block[k]
            opcode[at] = 4
            flags[at] = 4
            rows[at] = left_rows[k]
            at += 1
            k += 1
        if i < len(came_rows):
            order[at] = 0
            block[at] = came_block[i]
            opcode[at] = 1
            flags[at] = came_flags[i]
            rows[at] = came_rows[i]
            at += 1
