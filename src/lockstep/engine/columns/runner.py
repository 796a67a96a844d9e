"""A window on columns: the range of blocks that goes in, flows of its parents, a flow out, state in pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from lockstep.engine.columns.flow import DELETE, INSERT, UPDATE_BLOCK, Flow
from lockstep.engine.events.columns import EventBatch, Int64s, concat
from lockstep.engine.model.graph import Node
from lockstep.engine.reference.operator import BadEvent, Notice

Pages = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Moments:
    """What is going on: the blocks, the model's clock before them, and where to report."""

    span: Span
    clock_us: int
    report: Callable[[BadEvent], None]
    notify: Callable[[Notice], None]


@dataclass(frozen=True, slots=True)
class Yield:
    """What a window gave: the events (None if they are not asked for) and how many there were."""

    flow: Flow | None
    events: int
    rows: int
    """Inserts minus those deletes that are not the old half of an update."""
    taken: int | None = None
    """How many of the events that came were its own, if not all."""

    @classmethod
    def of(cls, flow: Flow) -> Yield:
        """Count a flow."""
        inserts, deletes, updates = (
            int(np.count_nonzero(flow.opcode == code)) for code in (INSERT, DELETE, UPDATE_BLOCK)
        )
        return cls(flow, len(flow), inserts - deletes + updates)


class ColumnOperator(ABC):
    """The meaning of one window, on columns; the same as that of its row form, whatever the cut."""

    loads_rows: ClassVar[bool] = False
    """Whether it can go on from what its row form kept."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @abstractmethod
    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Take the parents' events of all blocks; without `emit` the output itself need not be made."""

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """The pages of its state that changed since the last call; None: the page is gone."""
        return iter(())

    def load(self, pages: Pages) -> None:
        """Go on from pages."""
        del pages

    def earliest_block(self) -> int | None:
        """The first block that it still needs from the log."""
        return None


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
