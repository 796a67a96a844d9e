"""What goes into an evaluator and what comes out: a range of blocks as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from lockstep.engine.events.columns import EventBatch, Int64s, concat
from lockstep.engine.windows.operator import BadEvent, Notice


def no_blocks() -> Int64s:
    """No block numbers at all."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Span:
    """Blocks `first` to `last` (both included): the events for each source by its path, and the ticks among them.

    A source without events may be missing, and a column that is not needed is None. `transactional` holds the sorted
    numbers of the blocks that are taken whole or not at all.
    """

    first: int
    last: int
    inputs: Mapping[str, EventBatch] = field(default_factory=dict)
    ticks: tuple[tuple[int, int], ...] = ()
    """Pairs of a block number and the new time of the clock in microseconds."""
    transactional: Int64s = field(default_factory=no_blocks)
    lagging: frozenset[int] = frozenset()
    """The ticks among `ticks`, by block number, at which input that was there had not been taken yet."""


def join_spans(first: int, last: int, spans: Sequence[Span]) -> Span:
    """Spans that follow each other, as one."""
    if len(spans) == 1:
        return spans[0]
    paths = dict.fromkeys(path for span in spans for path in span.inputs)
    inputs = {path: concat([span.inputs[path] for span in spans if path in span.inputs]) for path in paths}
    ticks = tuple(tick for span in spans for tick in span.ticks)
    transactional = np.concatenate([no_blocks(), *(span.transactional for span in spans)])
    lagging = frozenset[int]().union(*(span.lagging for span in spans))
    return Span(first, last, inputs, ticks, transactional, lagging)


class History(Protocol):
    """The sequence log, read again: windows over what it holds keep no rows of their own."""

    def read(self, source: str, first_block: int, last_block: int) -> EventBatch:
        """The raw events of those blocks for one source, before its checks, with the columns the evaluator needs."""


@dataclass(frozen=True, slots=True)
class Results:
    """What the windows made of a span."""

    outputs: Mapping[str, EventBatch]
    """The output of each wanted window that had any chance to give some, by path."""
    places: Mapping[str, tuple[Int64s, Int64s]]
    """For windows divided over shards: the index of the causing event in its block, and the order below it."""
    bad: list[BadEvent]
    notices: list[Notice]
