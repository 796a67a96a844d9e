"""When each fault comes, and how far the publisher may go before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.drill.options import HEAD_S, SPACING_S, DrillOptions, Fault

_FIRST, _SECOND = 0.30, 0.65
"""Where two faults lie in a run: each with enough before and behind it."""
_RUN_UP = 8
"""The publisher waits one such part of the way to a fault before it, until all engines are in step."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault: it comes when the subscriber has seen `at` events; before that, nothing behind `gate` is published."""

    number: int
    kind: Fault
    at: int
    gate: int


def plan(options: DrillOptions) -> list[Planned]:
    """All faults of a drill, in order."""
    found, before = [], 0
    for number, at in enumerate(_places(options), 1):
        kind = options.kinds[(number - 1) % len(options.kinds)]
        found.append(Planned(number, kind, at, at - max((at - before) // _RUN_UP, 1)))
        before = at
    return found


def allowed(planned: Sequence[Planned], settled: int, events: int) -> int:
    """How many events may be published when so many faults are over and all engines are in step again."""
    return planned[settled + 1].gate if settled + 1 < len(planned) else events


def _places(options: DrillOptions) -> list[int]:
    events, faults = options.total, options.faults
    if options.repeat is not None and options.events is None and options.pace is not None:
        return [round(options.pace * (HEAD_S + SPACING_S * number)) for number in range(faults)]
    if faults == 2:
        return [max(round(events * _FIRST), 1), max(round(events * _SECOND), 1)]
    return [max(events * number // (faults + 1), 1) for number in range(1, faults + 1)]
