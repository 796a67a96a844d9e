"""Rates from counts: what was added between two looks, by the clock of the process that looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

STEP_S = 1.0
"""The shortest interval between measurements; requests in between get the last one."""
SPAN_S = 10.0
"""Rates are those of the last seconds."""
PAUSE_S = 60.0
"""After a longer pause measuring begins again: a rate of an hour says nothing of now."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one window, since the project began."""

    rows: int
    taken: int
    made: int
    bad: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """What was counted, and when this process saw it."""

    at_s: float
    block: int
    events: int
    windows: Mapping[str, Counts]


@dataclass(frozen=True, slots=True)
class Rates:
    """What was added a second."""

    seconds: float
    """Between the two looks."""
    blocks: float
    events: float
    taken: Mapping[str, float]
    """Events in, by the paths of windows; what is not known is left out. Below: events out."""
    made: Mapping[str, float]


class CountRates:
    """The looks of the last seconds."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()

    def add(self, look: Look) -> None:
        """Take a look; one that comes too soon after the last is left out."""
        if self._looks:
            last = self._looks[-1]
            if look.at_s - last.at_s < STEP_S:
                return
            if look.at_s - last.at_s > PAUSE_S or look.block < last.block:
                self._looks.clear()
        self._looks.append(look)
        while len(self._looks) > 2 and look.at_s - self._looks[1].at_s >= SPAN_S:
            self._looks.popleft()

    def rates(self) -> Rates | None:
        """From the oldest look to the newest; None before there are two."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0], self._looks[-1]
        seconds = last.at_s - first.at_s
        both = [(path, first.windows[path], now) for path, now in last.windows.items() if path in first.windows]
        whole = [(path, was, now) for path, was, now in both if now.taken >= was.taken and now.made >= was.made]
        return Rates(
            seconds, (last.block - first.block) / seconds, max(0, last.events - first.events) / seconds,
            {path: (now.taken - was.taken) / seconds for path, was, now in whole},
            {path: (now.made - was.made) / seconds for path, was, now in whole},
        )  # fmt: skip
