"""The compiled loops of minimum and maximum; see `loops` for what the arguments mean.

Where the oldest row of a group is always the first to leave, a queue of those values that can still become the
answer is enough. All queues live in one pool of linked nodes. NaN stands outside the order: it is only counted, and is
the answer if there is nothing else. Zeros have no sign.
"""

from __future__ import annotations

import numpy as np

from lockstep.engine.columns.loops import compiled

# ruff: noqa: ANN001, ANN201 - the types are those of the arrays that a loop is called with
# mypy: disable-error-code="no-untyped-def"


@compiled
def running(group, sign, rows, resets, x, valid, largest, best, n, nans, emit, out, ok):
    """Minimum or maximum where no row ever leaves."""
    whole = len(valid) == 0
    for i in range(len(group)):
        g = group[i]
        if sign[i] != 0 and (whole or valid[rows[i]]):
            v = x[rows[i]]
            if v != v:
                nans[g] += 1
            else:
                if n[g] == 0 or (v > best[g] if largest else v < best[g]):
                    best[g] = v + 0
                n[g] += 1
        if resets[i]:
            n[g] = 0
            nans[g] = 0
        if emit:
            ok[i] = n[g] + nans[g] > 0
            if n[g] > 0:
                out[i] = best[g]
            elif nans[g] > 0:
                out[i] = np.nan


@compiled
def push(ends, q, v, number, value, node_of, free):
    """Put a value at the end of queue `q`."""
    node = free[0]
    free[0] = node_of[node, 0]
    value[node] = v
    last = ends[q, 1]
    node_of[node, 0] = -1
    node_of[node, 1] = last
    node_of[node, 2] = number
    if last < 0:
        ends[q, 0] = node
    else:
        node_of[last, 0] = node
    ends[q, 1] = node


@compiled
def drop_first(ends, q, node_of, free):
    """Take the first value of queue `q` away."""
    node = ends[q, 0]
    behind = node_of[node, 0]
    ends[q, 0] = behind
    if behind < 0:
        ends[q, 1] = -1
    else:
        node_of[behind, 1] = -1
    node_of[node, 0] = free[0]
    free[0] = node


@compiled
def queued(start, group, sign, rows, resets, x, valid, largest, ends, seen, value, node_of, free, emit, out, ok):
    """Minimum or maximum where the oldest row of a group leaves first.

    `seen` counts the values that came and those that left, and the NaN that are there. Begins with step `start`; gives
    the step at which all nodes were in use, or the number of steps.
    """
    whole = len(valid) == 0
    for i in range(start, len(group)):
        g = group[i]
        s = sign[i]
        if s != 0 and (whole or valid[rows[i]]):
            v = x[rows[i]]
            if v != v:
                seen[g, 2] += s
            elif s > 0:
                if free[0] < 0:
                    return i
                last = ends[g, 1]
                reused = -1
                while last >= 0 and (value[last] <= v if largest else value[last] >= v):
                    if reused >= 0:
                        node_of[reused, 0] = free[0]
                        free[0] = reused
                    reused = last
                    last = node_of[last, 1]
                if reused < 0:
                    reused = free[0]
                    free[0] = node_of[reused, 0]
                value[reused] = v + 0
                node_of[reused, 0] = -1
                node_of[reused, 1] = last
                node_of[reused, 2] = seen[g, 0]
                if last < 0:
                    ends[g, 0] = reused
                else:
                    node_of[last, 0] = reused
                ends[g, 1] = reused
                seen[g, 0] += 1
            else:
                if ends[g, 0] >= 0 and node_of[ends[g, 0], 2] == seen[g, 1]:
                    drop_first(ends, g, node_of, free)
                seen[g, 1] += 1
        if resets[i]:
            while ends[g, 0] >= 0:
                drop_first(ends, g, node_of, free)
            seen[g, 0] = 0
            seen[g, 1] = 0
            seen[g, 2] = 0
        if emit:
            some = seen[g, 0] > seen[g, 1]
            ok[i] = some or seen[g, 2] > 0
            if some:
                out[i] = value[ends[g, 0]]
            elif seen[g, 2] > 0:
                out[i] = np.nan
    return len(group)


@compiled
def thread_free(node_of, start):
    """Make the nodes from `start` on a list of free ones."""
    for node in range(start, len(node_of)):
        node_of[node, 0] = node + 1
    node_of[len(node_of) - 1, 0] = -1


@compiled
def queue_sizes(ends, start, stop, node_of, sizes):
    """How long the queues of some groups are."""
    total = 0
    for g in range(start, stop):
        size = 0
        node = ends[g, 0]
        while node >= 0:
            size += 1
            node = node_of[node, 0]
        sizes[g - start] = size
        total += size
    return total


@compiled
def queue_out(ends, start, stop, value, node_of, values, orders):
    """The queues of some groups, one after the other."""
    at = 0
    for g in range(start, stop):
        node = ends[g, 0]
        while node >= 0:
            values[at] = value[node]
            orders[at] = node_of[node, 2]
            at += 1
            node = node_of[node, 0]


@compiled
def queue_in(ends, start, sizes, values, orders, value, node_of, free):
    """Fill the queues of some groups again; there are enough free nodes."""
    at = 0
    for k in range(len(sizes)):
        for _ in range(sizes[k]):
            push(ends, start + k, values[at], orders[at], value, node_of, free)
            at += 1
