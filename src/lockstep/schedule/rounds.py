"""One round of a node: which due events fire, shared out by shard and tenant within rates and pauses."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

from lockstep.core.agenda import Event
from lockstep.errors import BadOffset, LockstepError, OutboxBlocked, Trimmed, Unavailable
from lockstep.runtime import Runtime, logger
from lockstep.schedule.delivery.port import Delivery, Result
from lockstep.schedule.rows import Change
from lockstep.schedule.shard import FRESH_MS, Shard
from lockstep.schedule.store.outbox import largest_record
from lockstep.schedule.store.port import Store
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Register, Tenant
from lockstep.streams.client import Lockstep
from lockstep.streams.cursor import Cursor
from lockstep.streams.shards import stream_name

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


ROUND_BYTES = 32 << 20
"""Payloads of one round at most, unless a single one is larger."""
READ_AT_FIRST = 64


def _reached(events: Mapping[bytes, Event], now: int) -> int:
    """No other event is due before this. Those of the backlog are read apart from fresh ones, the first of each."""
    dues = [event.due for event in events.values()]
    return max([due for due in dues if due < now - FRESH_MS] or dues)


class DueSelection:
    """Chooses among the shards that this node owns. `change_bytes` is what the store takes in one change."""

    def __init__(
        self, owned: Mapping[int, OwnedShard], register: Register, limits: TenantLimits, *, shards: int,
        round_events: int, change_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self._owned, self._register, self._limits = owned, register, limits
        self._shards, self._round_events = shards, round_events
        self._round_bytes = min(ROUND_BYTES, (change_bytes or sys.maxsize) // 2)
        self._turns: Counter[str] = Counter()
        """Of each tenant: which of its shards is next. Else those at the end would wait while others are busy."""
        self._at_once: dict[str, int] = {}
        """Of each tenant: how many events are read at once, so that they fit into a round."""

    def tenants_changed(self) -> None:
        """Forget what was true of tenants before."""
        self._at_once.clear()
        self._turns.clear()

    def fire(self, round_: Round, change_of: Callable[[int], Change]) -> None:
        """Fill the changes of shards with events that fire."""
        due = self._due_tenants(round_)
        if not due:
            return
        quota = max(self._round_events // len(due), 1)
        for name, numbers in due.items():
            tenant = self._register.tenants[name]
            limit = quota if tenant.stream is not None else min(quota, self._limits.room(round_, name))
            tokens = self._limits.tokens(tenant, self._share)
            limit = limit if tokens is None else min(limit, tokens)
            if limit > 0:
                fired = self._fire_tenant(round_, tenant, numbers, limit, change_of)
                round_.tokens[name] += fired
                round_.more |= fired >= limit

    @property
    def _share(self) -> float:
        return len(self._owned) / self._shards

    def _due_tenants(self, round_: Round) -> dict[str, list[int]]:
        """Tenants that have due events and may fire, each with the shards that have them."""
        found: dict[str, list[int]] = {}
        for number in round_.shards:
            owned = self._owned[number]
            if owned.leaving:
                continue
            for name, first in owned.shard.next_due.items():
                if first <= round_.now and self._limits.may_fire(name):
                    found.setdefault(name, []).append(number)
        return found

    def _fire_tenant(
        self, round_: Round, tenant: Tenant, numbers: list[int], limit: int, change_of: Callable[[int], Change]
    ) -> int:
        fired = 0
        share = max(limit // len(numbers), 1)
        for number in turned(numbers, self._turns[tenant.tenant]):
            self._turns[tenant.tenant] += 1
            events, is_all = self._due(round_, number, tenant.tenant, min(share, limit - fired))
            reached = None if is_all or not events else _reached(events, round_.now)
            round_.fired.setdefault(number, {})[tenant.tenant] = reached
            if not events:
                continue
            for delivery in self._owned[number].shard.fire(change_of(number), events, tenant, round_.now):
                round_.deliver(number, delivery)
            fired += len(events)
            if fired >= limit:
                break
        return fired

    def _due(self, round_: Round, number: int, tenant: str, limit: int) -> tuple[dict[bytes, Event], bool]:
        """Events of a tenant that are due, as many as fit into the round, and whether these are all.

        One at least is in a round, however large.
        """
        at_once = self._at_once.setdefault(tenant, READ_AT_FIRST)
        most = min(limit, at_once)
        found = self._owned[number].shard.due(tenant, round_.now, most)
        sizes = [len(event.payload or b"") for event in found.values()]
        if sum(sizes) > self._round_bytes:
            self._at_once[tenant] = max(at_once // 4, 1)
        elif len(found) >= at_once and sum(sizes) < self._round_bytes // 4:
            self._at_once[tenant] = min(at_once * 2, self._round_events)
        for kept, size in enumerate(sizes):
            if round_.payloads + size > self._round_bytes and round_.payloads:
                round_.more = True
                return dict(islice(found.items(), kept)), False
            round_.payloads += size
        return found, len(found) < most

    def delay_ms(self, now: int) -> float | None:
        """Milliseconds until an event is due that may fire; None if none is. The end of a commit wakes the loop."""
        nothing = Round(now)
        dues = [
            max(first - now, self._limits.throttled_ms(name, self._share))
            for owned in self._owned.values() if not owned.leaving and not owned.is_committing
            for name, first in owned.shard.next_due.items()
            if self._limits.may_fire(name) and (self._limits.is_stream(name) or self._limits.room(nothing, name) > 0)
        ]  # fmt: skip
        return min(dues, default=None)


BROKEN_S = 5.0
_COMMIT_MS = 1000.0
"""The end of a commit wakes the loop, so a wait for it may be long."""


class TenantLimits:
    """Says what may fire now. `in_flight` bounds deliveries of all tenants, `in_flight_tenant` those of one."""

    def __init__(
        self, bus: Lockstep, register: Register, streams: SchedulerStreams, store: Store, *,
        in_flight: int, in_flight_tenant: int,
    ) -> None:  # fmt: skip
        self._bus, self._register, self._streams, self._store = bus, register, streams, store
        self._runtime: Runtime = bus.runtime
        self._in_flight, self._in_flight_tenant = in_flight, in_flight_tenant
        self._under_way: Counter[str] = Counter()
        """Deliveries that have no result yet, by tenant."""
        self._rounds: list[Round] = []
        """Rounds whose commit is under way: what they claim and fire counts already."""
        self._buckets: dict[str, TokenBucket] = {}
        self._broken: dict[str, float] = {}
        """Streams of tenants that can't be published to, and until when they are not tried."""
        self._largest: dict[str, int] = {}
        """Of streams that were published to lately: how many bytes a record may have."""

    @property
    def under_way(self) -> int:
        """Deliveries that have no result yet."""
        return sum(list(self._under_way.values()))

    def count_under_way(self, tenants: Iterable[str]) -> None:
        """Count the deliveries under way: a name for each."""
        self._under_way = Counter(tenants)

    def tenants_changed(self) -> None:
        """Forget what was true of tenants before."""
        for name in list(self._buckets):
            tenant = self._register.tenants.get(name)
            if tenant is None or tenant.rate != self._buckets[name].rate:
                del self._buckets[name]
        self._broken.clear()

    def may_fire(self, name: str) -> bool:
        """Whether the events of a tenant may fire at all."""
        tenant = self._register.tenants.get(name)
        return tenant is not None and not tenant.paused and not self.is_broken(tenant)

    def is_broken(self, tenant: Tenant) -> bool:
        """Whether the tenant's stream was missing, or refused records, a moment ago."""
        stream = tenant.stream
        return stream is not None and self._broken.get(stream, 0.0) > self._runtime.monotonic()

    def streams_missing(self, name: str, changes: Sequence[Change]) -> None:
        """Streams of tenants do not exist: their events wait, those of others do not. All are looked up at once."""
        wanted = {record.stream for change in changes for record in change.outgoing}
        missing = {stream_name(name), *(wanted - set(self._bus.bus.names()))}  # the name may be that of a shard
        self._streams.create(self._bus)  # if it is one of the scheduler's own
        for stream in sorted(missing):
            self._store.forget_stream(stream)
            logger.error(
                "Stream %s does not exist, so its tenant's events wait; create it, or register the tenant with another",
                stream, extra={"action": "tenant_stream_missing", "stream": stream},
            )  # fmt: skip
            self._has_to_wait(stream)

    def streams_refuse(self, error: OutboxBlocked) -> None:
        """Streams of tenants do not take their events: these wait, those of other tenants do not."""
        if error.params["stream"] in self._streams.own:
            raise error
        for name in cast("list[str]", error.params["streams"]):
            self._has_to_wait(name)
        logger.error("%s", error, extra={"action": "tenant_stream_refuses", "stream": error.params["stream"]})

    def _has_to_wait(self, stream: str) -> None:
        self._broken[stream] = self._runtime.monotonic() + BROKEN_S

    def is_stream(self, name: str) -> bool:
        """Whether a tenant's events go to a stream of the bus."""
        tenant = self._register.tenants.get(name)
        return tenant is not None and tenant.stream is not None

    def room(self, round_: Round, tenant: str) -> int:
        """How many more deliveries of a tenant may be under way."""
        rounds = (*self._rounds, round_)
        total = self._in_flight - self._under_way.total() - sum(one.claimed.total() for one in rounds)
        claimed = sum(one.claimed[tenant] for one in rounds)
        return min(total, self._in_flight_tenant - self._under_way[tenant] - claimed)

    def tokens(self, tenant: Tenant, share: float) -> int | None:
        """How many events the tenant's rate lets fire, for a node with this share of the shards; None sets no limit."""
        if tenant.rate is None:
            return None
        now = self._runtime.monotonic()
        bucket = self._buckets.setdefault(tenant.tenant, TokenBucket(tenant.rate, now))
        return bucket.tokens(now, share) - self._promised(tenant.tenant)

    def _promised(self, name: str) -> int:
        return sum(one.tokens[name] for one in self._rounds)

    def begin(self, round_: Round) -> None:
        """The commit of a round begins."""
        self._rounds.append(round_)

    def end(self, round_: Round, *, is_stored: bool) -> None:
        """The commit of a round has ended: the events that it fired count for the rates of their tenants."""
        self._rounds.remove(round_)
        for name, count in round_.tokens.items() if is_stored else ():
            if name in self._buckets:
                self._buckets[name].take(count)

    def throttled_ms(self, name: str, share: float) -> float:
        """Milliseconds until the rate of a tenant lets its next event fire."""
        bucket = self._buckets.get(name)
        if bucket is None:
            return 0.0
        now = self._runtime.monotonic()
        if bucket.tokens(now, share) > 0 and bucket.tokens(now, share) <= self._promised(name):
            return _COMMIT_MS
        return 1000 * bucket.wait_s(now, share)

    def largest_record(self, stream: str) -> int:
        """How many bytes a record of a stream may have, as it was set in this second."""
        if stream not in self._largest:
            try:
                log = self._bus.logs(stream)[0]
            except Unavailable:
                raise
            except LockstepError:  # it is missing, or may not be opened
                return sys.maxsize  # the commit finds out
            self._largest[stream] = largest_record(log)
        return self._largest[stream]

    def look_again(self) -> None:
        """Ask for the sizes of streams anew."""
        self._largest.clear()
