"""What a node keeps for one round of its loop, for a shard that it owns, and for a tenant with a rate."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from lockstep.core.agenda import Event
from lockstep.errors import BadOffset, LockstepError, Trimmed
from lockstep.runtime import logger
from lockstep.schedule.delivery.port import Delivery, Result
from lockstep.schedule.rows import Change
from lockstep.schedule.shard import Shard
from lockstep.streams.cursor import Cursor

READ_BYTES = 1 << 20


class OwnedShard:
    """A shard of this node: its requests, and what it does."""

    def __init__(self, shard: Shard, cursor: Cursor) -> None:
        self.shard, self.cursor = shard, cursor
        self.leaving = False
        self.in_doubt = False
        """A commit failed, and may have happened: what is stored has to be read again."""
        self.is_committing = False
        """What it changed is being stored: its next step begins when the outcome is known."""
        self.turn = 0
        """The round that it was in last, where rounds take a part of the shards."""
        self.purge_due = -math.inf
        """When it is looked through for what has expired, on the monotonic clock."""

    @property
    def is_idle(self) -> bool:
        """Whether neither a delivery nor a commit is under way."""
        return not self.shard.in_flight and not self.is_committing

    def requests(self, limit: int) -> list[tuple[int, bytes]]:
        """Return the next requests with their offsets; they stay the next until they are handed out."""
        try:
            segments, _ = self.cursor.peek(limit, READ_BYTES)
        except (Trimmed, BadOffset) as error:
            self._go_on_after_loss(error)
            return []
        found = []
        for segment in segments:
            values = segment.view.values()
            found += [(segment.view.base + index, values[index]) for index in range(segment.start, segment.stop)]
        return found

    def _go_on_after_loss(self, error: LockstepError) -> None:
        """Requests were trimmed, or the bus lost them: say so, and go on with what is there."""
        bounds = self.cursor.log.bounds()
        resumed = min(max(self.cursor.position, bounds.first), bounds.next)
        logger.error(
            "Requests of %s are lost; going on at offset %d: %s", self.cursor.log.name, resumed, error,
            extra={"action": "requests_lost", "stream": self.cursor.log.name},
        )  # fmt: skip
        self.cursor.seek(resumed)


@dataclass(eq=False, slots=True)
class Round:
    """What one round of the loop is going to change."""

    now: int
    shards: list[int] = field(default_factory=list)
    """Those that it is about."""
    changes: dict[int, Change] = field(default_factory=dict)
    deliveries: list[tuple[int, Delivery]] = field(default_factory=list)
    """What begins after the commit, with the shard."""
    claimed: Counter[str] = field(default_factory=Counter)
    """Of these, how many of each tenant."""
    results: list[tuple[int, Result]] = field(default_factory=list)
    """Outcomes that this round applies."""
    fired: dict[int, dict[str, int | None]] = field(default_factory=dict)
    """By shard: tenants some of whose events fire, and before what time no other one is due, if that is known."""
    handed_out: dict[int, int] = field(default_factory=dict)
    """By shard: the last request that this round carries out."""
    adopted: dict[int, list[Event]] = field(default_factory=dict)
    """By shard: deliveries of an earlier owner that begin again."""
    orphans: dict[int, list[Event]] = field(default_factory=dict)
    """By shard: deliveries of an earlier owner that still have to wait."""
    tokens: Counter[str] = field(default_factory=Counter)
    """By tenant: how many events fire, for its rate."""
    payloads: int = 0
    """Bytes of the events that this round fires."""
    more: bool = False
    """There is more to do at once."""

    def deliver(self, number: int, delivery: Delivery) -> None:
        """Have a delivery begin after the commit."""
        self.deliveries.append((number, delivery))
        if not delivery.dry_run:
            self.claimed[delivery.event.tenant] += 1


class TokenBucket:
    """How many events of a tenant may fire now, at a rate for all nodes together."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens, self._at = 1.0, now

    def tokens(self, now: float, share: float) -> int:
        """Whole tokens at a time, for a node that has this share of the shards."""
        rate = self.rate * share
        self._tokens = min(self._tokens + (now - self._at) * rate, max(rate, 1.0))
        self._at = now
        return int(self._tokens)

    def wait_s(self, now: float, share: float) -> float:
        """Seconds until there is a token."""
        return 0.0 if self.tokens(now, share) > 0 else (1.0 - self._tokens) / (self.rate * share) + 0.001

    def take(self, count: int) -> None:
        """Use tokens."""
        self._tokens -= count


def turned(numbers: list[int], turn: int) -> list[int]:
    """Return numbers in their order, beginning at another one each turn."""
    first = turn % len(numbers) if numbers else 0
    return numbers[first:] + numbers[:first]
