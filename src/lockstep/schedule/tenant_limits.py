"""Which tenants of a node may fire now, and how much: pauses, rates, deliveries under way, unusable streams."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import cast

from lockstep.errors import LockstepError, OutboxBlocked, Unavailable
from lockstep.runtime import Runtime, logger
from lockstep.schedule.rounds import Round, TokenBucket
from lockstep.schedule.rows import Change
from lockstep.schedule.store.outbox import largest_record
from lockstep.schedule.store.port import Store
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Register, Tenant
from lockstep.streams.client import Lockstep
from lockstep.streams.shards import stream_name

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
        """Streams of tenants do not exist: their events wait, and nobody else's do. All are looked for at once."""
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
        """Streams of tenants do not take their events: these wait, and nobody else's do."""
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
