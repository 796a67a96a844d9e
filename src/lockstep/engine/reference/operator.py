"""What every window is to the interpreter: blocks in, a block out, state that is kept, and counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.engine.events.event import Event, Opcode, Row, changes
from lockstep.engine.model.graph import Node
from lockstep.engine.model.values import MAX_US

Tree = Any
"""State to be kept: None, bool, int, float, str, bytes, and lists and string-keyed dicts of these."""


@dataclass(frozen=True, slots=True)
class BadEvent:
    """An event that a window refused: counted by reason, and put on the project's bad-record stream."""

    block: int
    window: str
    reason: str
    detail: str
    event: Event
    index: int | None = field(default=None, compare=False)
    """Which event of its block it was, if that is known: some of its fields may not have been read."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that happened beside the rows and must be done once, outside: a message to be sent.

    A mail has its texts as `content`. What a custom window gives has a body, headers, and a key: those with the same
    key are carried out in their order.
    """

    block: int
    window: str
    kind: str
    content: tuple[tuple[str, str], ...] = ()
    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    id: str | None = None
    """The id that the window gave it; None: an id is derived from its place in the log."""


@dataclass(slots=True)
class Moment:
    """What is going on: the block, the model's clock (it moves only with ticks), and where to report."""

    block: int
    clock_us: int
    is_tick: bool
    transactional: bool
    report: Callable[[BadEvent], None]
    notify: Callable[[Notice], None]
    is_lagging: bool = False
    """At a tick: input that was there is left to a later block."""

    @property
    def known_us(self) -> int | None:
        """The model's clock, or None before the first tick: what comes then counts as come at that tick."""
        return self.clock_us or None


def moves_clock(tick_us: int) -> bool:
    """Whether a tick counts: the clock begins at 0, and times too far away do not move it."""
    return 0 < tick_us <= MAX_US


class Operator(ABC):
    """The meaning of one window. Everything it does follows from its blocks, in order; nothing else may matter."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def evaluate(self, inputs: Sequence[Sequence[Event]], moment: Moment) -> list[Event]:
        """The output block for one input block: parents in edge order, event by event; then the tick, if it is one.

        A source gets the injected events as its only input.
        """
        out: list[Event] = []
        for port, events in enumerate(inputs):
            if len(events) == 1 and events[0].opcode is not Opcode.UPDATE_BLOCK:
                self.on_change(port, events[0], None, moment, out)
                continue
            for event, old in changes(events):
                self.on_change(port, event, old, moment, out)
        if moment.is_tick:
            self.on_tick(moment, out)
        return out

    @abstractmethod
    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        """Take one event; `old` is the old row if it is an update. What it causes is added to `out`."""

    def on_tick(self, moment: Moment, out: list[Event]) -> None:  # noqa: B027 - most windows have no clock
        """The model's clock moved."""

    @abstractmethod
    def dump(self) -> Tree:
        """The whole state."""

    @abstractmethod
    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""

    def refuse(self, event: Event, reason: str, detail: str, moment: Moment) -> None:
        """Count and report an event that can't be taken."""
        moment.report(BadEvent(moment.block, self.node.path, reason, detail, event))


INSERT, DELETE, UPDATE_BLOCK = Opcode.INSERT, Opcode.DELETE, Opcode.UPDATE_BLOCK


@dataclass(slots=True)
class WindowCounts:
    """Rows that are there (inserts minus deletes), events in and out, and bad events by reason.

    Rows are counted as the window made them; events out are those that its output options let pass.
    """

    rows: int = 0
    events_in: int = 0
    events_out: int = 0
    bad: dict[str, int] = field(default_factory=dict)

    def count_bad(self, reason: str) -> None:
        """One more bad event."""
        self.bad[reason] = self.bad.get(reason, 0) + 1

    def __add__(self, other: WindowCounts) -> WindowCounts:
        """The counts of a window that is divided over shards."""
        bad = {reason: self.bad.get(reason, 0) + other.bad.get(reason, 0) for reason in {**self.bad, **other.bad}}
        return WindowCounts(
            self.rows + other.rows, self.events_in + other.events_in, self.events_out + other.events_out, bad
        )

    def dump(self) -> Tree:
        """To be kept."""
        return [self.rows, self.events_in, self.events_out, dict(self.bad)]

    @classmethod
    def load(cls, state: Tree) -> WindowCounts:
        """Go on from dumped counts."""
        rows, events_in, events_out, bad = state
        return cls(rows, events_in, events_out, dict(bad))


def rows_added(events: Iterable[Event]) -> int:
    """How many rows more there are after these events; the two halves of an update cancel each other."""
    added = 0
    for opcode, _, _ in events:
        if opcode is INSERT or opcode is UPDATE_BLOCK:
            added += 1
        elif opcode is DELETE:
            added -= 1
    return added
