"""What a node has done since it started, for its metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.schedule.rows import Change
from lockstep.streams.metrics import LATENCY_BOUNDS_S, Histogram


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unfired events that are due: how many, at most so many as were counted, and for how long the first has been."""

    events: int = 0
    oldest_s: float = 0.0


@dataclass(slots=True)
class NodeCounts:
    """Counters of a node; only what was committed counts."""

    requests: int = 0
    fired: int = 0
    retries: int = 0
    failed: int = 0
    late: Histogram = field(default_factory=Histogram)
    """Seconds between an event's time and its first try; counted when it was delivered."""

    def committed(self, change: Change) -> None:
        """Count what a change did."""
        self.requests += change.requests
        self.retries += change.retries
        self.failed += change.failed
        self.fired += len(change.late_ms)
        for late in change.late_ms:
            self.late.observe(late / 1000)

    def late_quantile(self, share: float) -> float:
        """Estimate how late this share of the events was at most, in seconds, from the histogram."""
        counts = self.late.counts
        wanted, below = share * sum(counts), 0
        for place, count in enumerate(counts):
            if count and below + count >= wanted:
                if place == len(LATENCY_BOUNDS_S):
                    return LATENCY_BOUNDS_S[-1]
                low = LATENCY_BOUNDS_S[place - 1] if place else 0.0
                return low + (LATENCY_BOUNDS_S[place] - low) * (wanted - below) / count
            below += count
        return 0.0
