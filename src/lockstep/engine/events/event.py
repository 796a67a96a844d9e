"""Events: an opcode, flags and the values of a row; and blocks, which are evaluated as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

from lockstep.engine.events.schema import Value

Row = tuple[Value, ...]


class Opcode(IntEnum):
    """What an event does to the row of its key."""

    INSERT = 1
    UPDATE = 2
    UPSERT = 3
    DELETE = 4
    SAFEDELETE = 5
    UPDATE_BLOCK = 6

    @property
    def letter(self) -> str:
        """How it is written in text."""
        return _LETTERS[self]


_LETTERS = {
    Opcode.INSERT: "I",
    Opcode.UPDATE: "U",
    Opcode.UPSERT: "P",
    Opcode.DELETE: "D",
    Opcode.SAFEDELETE: "S",
    Opcode.UPDATE_BLOCK: "UB",
}
OPCODES = {letter: opcode for opcode, letter in _LETTERS.items()}
"""The opcodes by their letters, upper case."""


class Flag(IntFlag):
    """Why an event came, and how complete it is; several may be set."""

    NORMAL = 1
    PARTIAL = 2
    RETENTION = 4

    @property
    def letters(self) -> str:
        """How the flags are written in text."""
        return FLAG_LETTERS[int(self)]


FLAG_LETTERS = {
    bits: "".join(letter for bit, letter in ((1, "N"), (2, "P"), (4, "R")) if bits & bit) for bits in range(1, 8)
}
FLAGS = {letters: Flag(bits) for bits, letters in FLAG_LETTERS.items()}


class Event(NamedTuple):
    """One event; `values` are in the order of the window's schema."""

    opcode: Opcode
    flags: Flag
    values: Row


def changes(events: Iterable[Event]) -> Iterator[tuple[Event, Row | None]]:
    """Events one by one; an update pair as one change, with the old row."""
    waiting: Event | None = None
    for event in events:
        if waiting is not None:
            yield waiting, event.values
            waiting = None
        elif event.opcode is Opcode.UPDATE_BLOCK:
            waiting = event
        else:
            yield event, None


@dataclass(frozen=True, slots=True)
class InputBlock:
    """Block `number` of a project: events for one source window, or a tick of the model's clock.

    A transactional block is taken whole or not at all. `tick_us` is the new time of the clock, in microseconds;
    `lagging`: input that was there at this tick comes in a later block.
    """

    number: int
    window: str = ""
    events: tuple[Event, ...] = ()
    transactional: bool = False
    tick_us: int | None = None
    lagging: bool = False


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """What a window made of input block `number`; it has the same number, and may be empty."""

    number: int
    events: tuple[Event, ...]
    transactional: bool = False
