"""Blocks: what is numbered, sequenced and evaluated as one."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.events.event import Event


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
