"""The nodes of a scheduler as one of them sees them, and what this node has done since it started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.errors import Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.port import Log
from lockstep.runtime import Runtime, logger
from lockstep.schedule.rows import Change
from lockstep.schedule.times import FIRST_MS, LAST_MS
from lockstep.streams.metrics import LATENCY_BOUNDS_S, Histogram

JUMP_S = 1.0
SKEW_MS = 1000
_TEXTS, _NUMBERS = ("node", "member", "host"), ("port", "wall", "underWay")


class Roster:
    """The cards of a scheduler's nodes, which are records of one stream."""

    def __init__(self, log: Log, runtime: Runtime, node: str, every_s: float) -> None:
        self.log = log
        self._runtime, self._node, self._every_s = runtime, node, every_s
        self._next = log.bounds().next
        self._due = runtime.monotonic()
        self._skewed: set[str] = set()
        """Nodes whose clocks were found to be ahead."""
        self._clock = (runtime.wall_ns(), self._due)

    def is_due(self) -> bool:
        """Whether it is time for a card."""
        return self._runtime.monotonic() >= self._due

    def delay(self) -> float:
        """Seconds until the next card."""
        return self._due - self._runtime.monotonic()

    def show(self, fields: dict[str, Any]) -> None:
        """Write this node's card, and look at those of others."""
        self._due = self._runtime.monotonic() + self._every_s
        wall = self._runtime.wall_ns()
        card = {"node": self._node, "wall": wall // 10**6, "every": self._every_s, **fields}
        value = json.dumps(card, separators=(",", ":")).encode()
        self.log.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=wall)])
        self._compare_clocks()

    def jump(self) -> float | None:
        """Return by how many seconds the wall clock jumped since the last call; None if it did not."""
        wall, monotonic = self._runtime.wall_ns(), self._runtime.monotonic()
        jump = (wall - self._clock[0]) / 1e9 - (monotonic - self._clock[1])
        self._clock = (wall, monotonic)
        return None if abs(jump) < JUMP_S else jump

    def _compare_clocks(self) -> None:
        """Warn of nodes whose clocks are ahead of this one's; they hear of those that are late in the same way."""
        try:
            entries = self.log.read(self._next)
        except Trimmed:  # a slow node: what it missed was about earlier seconds
            self._next = self.log.bounds().next
            return
        for entry in entries:
            view = BatchView(entry.base, entry.data, self.log.name)
            self._next = view.end
            for value in view.values():
                self._compare_clock(value)

    def _compare_clock(self, value: bytes) -> None:
        card = decode_card(value)
        if card is None:
            return
        node, ahead_ms = card["node"], card["wall"] - self._runtime.wall_ns() // 10**6
        if ahead_ms <= SKEW_MS or node in self._skewed:
            return
        self._skewed.add(node)
        logger.warning(
            "The clock of node %s is %.1f s ahead of that of node %s; events fire by the clock of the node that owns"
            " them. Synchronize the clocks", node, ahead_ms / 1000, self._node,
            extra={"action": "clock_skew", "node": node},
        )  # fmt: skip


def decode_card(value: bytes) -> Mapping[str, Any] | None:
    """Return the card that a record holds; None if it holds none, so that readers pass it by."""
    try:
        card = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return card if isinstance(card, dict) and _is_card(card) else None


def _is_card(card: Mapping[str, Any]) -> bool:
    shards = card.get("shards")
    return (
        all(isinstance(card.get(name), str) for name in _TEXTS)
        and all(type(card.get(name)) is int for name in _NUMBERS)
        and FIRST_MS <= card["wall"] <= LAST_MS
        and isinstance(shards, list)
        and all(type(shard) is int for shard in shards)
        and isinstance(card.get("master"), bool)
    )


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
