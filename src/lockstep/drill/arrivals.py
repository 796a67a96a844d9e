"""What arrived at the subscriber and what engines reported, read from the lines that they leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from lockstep.drill.options import Fault
from lockstep.engine.runtime.control.reports import Report, parse_report
from lockstep.errors import DataError, Trimmed
from lockstep.log.batch import BatchView
from lockstep.log.port import Log


@dataclass(frozen=True, slots=True)
class Arrival:
    """A piece of output that is in the subscriber's file. The last one says where to go on."""

    at: float
    """Monotonic time, the same for all processes of a machine."""
    first: int
    last: int
    """Its first and last block."""
    blocks: int
    events: int
    """Input events up to here: with blocks of one length they follow from the last block."""
    size: int
    """Bytes of the file with it."""
    offset: int
    """Where the out stream goes on."""
    part: int = 0
    """Pieces of its last block that are out, if that goes on."""

    def line(self) -> str:
        """As it is written."""
        return " ".join(map(repr, astuple(self))) + "\n"


def parse(text: str) -> list[Arrival]:
    """All complete lines; one that a kill cut off does not count."""
    complete = text[: text.rfind("\n") + 1]
    return [_arrival(line.split()) for line in complete.splitlines()]


def _arrival(words: Sequence[str]) -> Arrival:
    return Arrival(float(words[0]), *map(int, words[1:]))


def first_behind(arrivals: Iterable[Arrival], block: int, since: float) -> Arrival | None:
    """Return the first arrival with a block after `block`, not before `since`; None if there is none."""
    return next((arrival for arrival in arrivals if arrival.last > block and arrival.at >= since), None)


def longest_gap(arrivals: Sequence[Arrival], start: float, end: float) -> tuple[float, float]:
    """The longest stretch without an arrival that touches start..end: from when, and to when."""
    times = [arrival.at for arrival in arrivals]
    gaps = [(max(one, start), other) for one, other in pairwise([start, *times]) if other > start and one < end]
    return max(gaps, key=lambda gap: gap[1] - gap[0], default=(start, start))


def rates(arrivals: Sequence[Arrival], step_s: float) -> list[tuple[float, float]]:
    """Events a second over time: the middle of each step, and the rate in it."""
    if not arrivals:
        return []
    begin, steps = arrivals[0].at, int((arrivals[-1].at - arrivals[0].at) / step_s) + 1
    counts, before = [0] * steps, 0
    for arrival in arrivals:
        counts[min(int((arrival.at - begin) / step_s), steps - 1)] += arrival.events - before
        before = arrival.events
    return [(begin + (place + 0.5) * step_s, count / step_s) for place, count in enumerate(counts)]


@dataclass(frozen=True, slots=True)
class Takeover:
    """An engine says that it leads from now on."""

    at: float
    engine: str
    epoch: int
    last: int
    """The last block that it found on the out stream."""
    current: int
    """The last block that it had computed by then."""
    drained_s: float


@dataclass(slots=True)
class Injected:
    """A fault that was done, and what came of it."""

    kind: Fault
    at: float
    engine: str
    events: int
    block: int
    """What had arrived by then."""
    takeovers: list[Takeover] = field(default_factory=list)
    settled_at: float = 0.0
    in_step_s: float | None = None
    """From the start of a process that was started again until it was in step."""
    stopped_again: int = 0
    """How often it had to go on for a moment, because it was stopped within a write to the bus."""


def takeover(at: float, engine: str, told: dict[str, Any]) -> Takeover:
    """From the line that an engine prints."""
    numbers = {name: int(told.get(name) or 0) for name in ("epoch", "last", "current")}
    return Takeover(at, engine, drained_s=float(told.get("drained_s") or 0.0), **numbers)


class Notes:
    """The notes of a subscriber, as they come. What it cuts off after a kill was never complete, so never read."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> list[Arrival]:
        """Those that came since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._at += len(complete)
        return parse(complete.decode())


class Reports:
    """What engines say of themselves, as it comes; what was trimmed unread is passed over, newer ones say it again."""

    def __init__(self, log: Log) -> None:
        self._log, self._at = log, log.bounds().first

    def new(self) -> list[Report]:
        """Those that came since the last call."""
        found: list[Report] = []
        while True:
            try:
                entries = self._log.read(self._at)
            except Trimmed:
                self._at = self._log.bounds().first
                continue
            if not entries:
                return found
            for entry in entries:
                view = BatchView(entry.base, entry.data, self._log.name)
                found += [report for value in view.values() if (report := _report(value)) is not None]
                self._at = view.end


def _report(value: bytes) -> Report | None:
    try:
        return parse_report(value)
    except DataError:  # of another version: it says nothing to us
        return None
