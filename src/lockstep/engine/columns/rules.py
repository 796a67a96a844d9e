"""Retention as arithmetic on whole columns: a row leaves at the first cause whose key reaches the row's bound.

Causes are the window's own events, or ticks. Their keys (clock, period or number of the row) never fall, so that one
binary search finds for each row the cause that lets it go, and rows leave in the order in which they came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockstep.engine.columns import loops
from lockstep.engine.columns.flow import NO_MASK, Flow, frozen
from lockstep.engine.columns.runner import Span
from lockstep.engine.events.columns import Int64s
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.values import MAX_US
from lockstep.engine.model.windows import Retention
from lockstep.engine.reference.retention import MICROSECONDS

UNKNOWN = -(2**63)
"""The clock before anything is known about the time: none that counts is so far away, see MAX_US."""
NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Causes:
    """What may let rows go in a span.

    `keys` never fall; `number` says which cause each key is, `before` how many of the window's events come before what
    cause k deletes, `block` in which block that is.
    """

    keys: Int64s
    number: Int64s
    before: Int64s
    block: Int64s
    anchors: Int64s
    """The clock at which each of the span's own rows came."""

    def due(self, rule: Rule, anchors: Int64s, first: int) -> int:
        """How many rows leave that came at these clocks: the first ones, as bounds never fall."""
        if not len(self.keys):
            return 0
        last = int(self.keys[-1])

        def bound(row: int) -> int:
            return int(rule.bounds(anchors[row : row + 1], np.array([first + row], np.int64))[0])

        return bisect_right(range(len(anchors)), last, key=bound)

    def find(self, bounds: Int64s) -> Int64s:
        """The cause of each leave, given the bounds of rows that do leave."""
        return self.number[np.searchsorted(self.keys, bounds)]


class Rule(ABC):
    """One kind of retention; what it remembers is `state`."""

    uses_clock = True

    def __init__(self) -> None:
        self.total = 0
        """Rows that ever came."""

    @property
    def fields(self) -> frozenset[str]:
        """The fields of rows that it looks at."""
        return frozenset()

    @abstractmethod
    def causes(self, flow: Flow, span: Span) -> Causes:
        """Move on by a span."""

    @abstractmethod
    def bounds(self, anchors: Int64s, numbers: Int64s) -> Int64s:
        """What the key of a cause must reach to let rows go that came at these clocks, given their numbers."""

    def anchored(self, clock: Int64s) -> Int64s:
        """The clock from which rows count, given the one they met."""
        return clock

    def state(self) -> list[Any]:
        """What there is to keep."""
        return [self.total]

    def load(self, state: list[Any]) -> None:
        """Go on from kept state."""
        (self.total,) = state


class CountRule(Rule):
    """bycount_sliding and bycount_jumping: a row leaves because of the row with a certain number."""

    uses_clock = False

    def __init__(self, limit: int, jumping: bool) -> None:
        super().__init__()
        self._limit, self._jumping = limit, jumping

    def causes(self, flow: Flow, span: Span) -> Causes:
        """The rows that come, by number."""
        del span
        size = len(flow)
        numbers = np.arange(size, dtype=np.int64)
        keys = numbers + self.total
        self.total += size
        return Causes(keys, numbers, numbers + 1, flow.block, keys)

    def bounds(self, anchors: Int64s, numbers: Int64s) -> Int64s:
        """The number of the row that pushes them out."""
        del anchors
        return (numbers // self._limit + 1) * self._limit if self._jumping else numbers + self._limit


class TimeRule(Rule):
    """The kinds by time, on a field or on ticks."""

    def __init__(self, retention: Retention, schema: Schema) -> None:
        super().__init__()
        self._limit = retention.limit
        self.field = retention.field
        self._scale = 1 if retention.field is None else MICROSECONDS[schema[retention.field].type]
        self._step = {"bytime_sliding": None, "bytime_jumping": retention.limit}.get(
            retention.kind, retention.unit_us or retention.limit
        )
        self._looks_back = retention.kind != "bytime_jumping"
        self.now = self._was = self.start = UNKNOWN

    @property
    def fields(self) -> frozenset[str]:
        """The time field."""
        return frozenset() if self.field is None else frozenset({self.field})

    def state(self) -> list[Any]:
        """The clock, its first value, and how many rows came."""
        return [self.total, self.now, self.start]

    def load(self, state: list[Any]) -> None:
        """Go on from kept state."""
        self.total, self.now, self.start = state

    def causes(self, flow: Flow, span: Span) -> Causes:
        """The events of the window, or the ticks."""
        made = self._by_ticks(flow, span) if self.field is None else self._by_events(flow)
        self.total += len(flow)
        return self._in_steps(made) if self._step else made

    def _by_events(self, flow: Flow) -> Causes:
        clock, numbers = self._clock(flow)
        self._begin(clock)
        self._was = self.now
        self.now = int(clock[-1]) if len(clock) else self.now
        return Causes(clock, numbers[:-1], numbers[1:], flow.block, self.anchored(clock))

    def _clock(self, flow: Flow) -> tuple[Int64s, Int64s]:
        """The clock at each event, and numbers from 0 on, one more than events; windows of one field share them."""
        assert self.field is not None
        part, key = flow.parts[0], (self.field, self.now)
        is_whole = flow.index is None and len(flow.parts) == 1
        found = part.clocks.get(key) if is_whole else None
        if found is None:
            values, valid = flow.numbers(self.field)
            if flow.index is not None:
                values, valid = values[flow.index], valid if valid is NO_MASK else valid[flow.index]
            found = self.follow(values, valid, self.now), np.arange(len(flow) + 1, dtype=np.int64)
            if is_whole:
                part.clocks[key] = found
        return found

    def follow(self, values: Any, valid: Any, now: int) -> Int64s:
        """The running maximum of a time field; nulls and times too far away do not move it."""
        clock = np.empty(len(values), np.int64)
        loops.follow(frozen(values), frozen(valid), MAX_US // self._scale, self._scale, now, clock)
        return clock

    def _by_ticks(self, flow: Flow, span: Span) -> Causes:
        blocks = np.array([block for block, _ in span.ticks], np.int64)
        times = np.array([time for _, time in span.ticks], np.int64)
        self._was = self.now
        clock = np.maximum.accumulate(np.maximum(times, self.now)) if len(times) else times
        self._begin(clock)
        met = np.concatenate([np.array([self.now], np.int64), clock])[np.searchsorted(blocks, flow.block)]
        self.now = int(clock[-1]) if len(clock) else self.now
        numbers = np.arange(len(times), dtype=np.int64)
        before = np.searchsorted(flow.block, blocks, "right").astype(np.int64)  # a tick may release a pulse: rows first
        return Causes(clock, numbers, before, blocks, self.anchored(met))

    def _begin(self, clock: Int64s) -> None:
        if self.start == UNKNOWN and len(clock) and clock[-1] != UNKNOWN:
            known = clock[clock != UNKNOWN]
            self.start = int(known[0]) if len(known) else UNKNOWN

    def anchored(self, clock: Int64s) -> Int64s:
        """Rows that came before the clock was known count from its first value."""
        if self.start == UNKNOWN or (len(clock) and clock[0] >= self.start):  # it never falls
            return clock
        return np.maximum(clock, self.start)

    def _in_steps(self, made: Causes) -> Causes:
        """Only where a period ends may rows leave."""
        assert self._step is not None
        if self.start == UNKNOWN:
            return replace(made, keys=made.keys[:0], number=made.number[:0])
        periods = (np.maximum(made.keys, self.start) - self.start) // self._step
        was = (max(self._was, self.start) - self.start) // self._step
        if not self._looks_back:
            return replace(made, keys=periods)
        crossing = np.flatnonzero(np.diff(periods, prepend=was) > 0)
        return replace(made, keys=made.keys[crossing], number=made.number[crossing])

    def bounds(self, anchors: Int64s, numbers: Int64s) -> Int64s:
        """The clock at which they are old enough, or the period after theirs."""
        del numbers
        if self.start == UNKNOWN:
            return np.full(len(anchors), NEVER, np.int64)
        if not self._looks_back:
            assert self._step is not None
            return (anchors - self.start) // self._step + 1
        return anchors + self._limit


def make_rule(retention: Retention, schema: Schema) -> Rule:
    """The rule that a model asks for."""
    if retention.by_time:
        return TimeRule(retention, schema)
    return CountRule(retention.limit, retention.kind == "bycount_jumping")
