"""What arrived at the subscriber, when: read from the lines it leaves, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise


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
    """The first arrival with a block behind `block`, not before `since`."""
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
