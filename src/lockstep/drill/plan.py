"""When each fault comes, how far the publisher may go before it, and its even pace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.drill.options import HEAD_S, SPACING_S, DrillOptions, Fault

_FIRST, _SECOND = 0.30, 0.65
"""Where two faults lie in a run: each with enough before and after it."""
_RUN_UP = 8
"""Without a pace, the publisher waits one such part of the way to a fault before it, until all engines are in step."""
_TAIL_S = 8.0
"""At a pace the publisher goes on all the time; for each fault that is not over yet so many seconds of it are kept."""
_KEPT = 4
"""Before a fault is done, one such part of what may be published is kept: something must come after it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault: it comes when the subscriber has seen `at` events, and `run_up` since all engines are in step again.

    Until they are, nothing after event `gate` is published; until the fault is done, nothing after `hold`.
    """

    number: int
    kind: Fault
    at: int
    gate: int
    run_up: int
    hold: int

    def due(self, seen: int) -> int:
        """How many events must be seen, if so many are at the moment when all engines are in step."""
        return min(max(self.at, seen + self.run_up), self.hold)


def plan(options: DrillOptions) -> list[Planned]:
    """All faults of a drill, in order."""
    places = _places(options)
    gates, run_ups = zip(*_gates(options, places), strict=True) if places else ((), ())
    found = []
    for number, (at, gate, run_up) in enumerate(zip(places, gates, run_ups, strict=True)):
        limit = gates[number + 1] if number + 1 < len(gates) else options.total
        hold = max(at, limit - (limit - max(at, gate)) // _KEPT)
        kind = options.kinds[number % len(options.kinds)]
        found.append(Planned(number + 1, kind, at, gate, run_up, hold))
    return found


def _gates(options: DrillOptions, places: Sequence[int]) -> list[tuple[int, int]]:
    """For each fault its gate, and how many events are to be seen between that and the fault."""
    found, before = [], 0
    for number, at in enumerate(places):
        run_up = max((at - before) // _RUN_UP, 1)
        gate, before = at - run_up, at
        if options.pace is not None:
            tail = _tail(options, options.pace)
            gate = max(gate, options.total - tail * (len(places) - number))
            run_up = max(min(run_up, tail // _KEPT), 1)
        found.append((gate, run_up))
    return found


def _tail(options: DrillOptions, pace: float) -> int:
    return max(min(round(pace * _TAIL_S), options.total // (2 * options.faults)), 1)


def allowed(planned: Sequence[Planned], settled: int, events: int) -> int:
    """Return how many events may be published, given the number of faults that are over."""
    return planned[settled + 1].gate if settled + 1 < len(planned) else events


def _places(options: DrillOptions) -> list[int]:
    events, faults = options.total, options.faults
    if options.repeat is not None and options.events is None and options.pace is not None:
        return [round(options.pace * (HEAD_S + SPACING_S * number)) for number in range(faults)]
    if faults == 2:
        return [max(round(events * _FIRST), 1), max(round(events * _SECOND), 1)]
    return [max(events * number // (faults + 1), 1) for number in range(1, faults + 1)]


_BEHIND_S_MAX = 0.25


class Pace:
    """Returns how long to wait before the next events; more than a moment of lost time is not made up for."""

    def __init__(self, rate: float | None) -> None:
        self._rate, self._due = rate, 0.0

    def wait_s(self, now: float, events: int) -> float:
        """How long from now until `events` more may go."""
        if self._rate is None:
            return 0.0
        if now - self._due > _BEHIND_S_MAX:
            self._due = now
        wait = max(0.0, self._due - now)
        self._due += events / self._rate
        return wait
