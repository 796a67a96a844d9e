"""Which tenants of a node may fire now, and how much: pauses, rates, deliveries under way, unusable streams."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping

from lockstep.errors import LockstepError, Unavailable
from lockstep.runtime import Runtime
from lockstep.schedule.rounds import Round, TokenBucket
from lockstep.schedule.store.outbox import largest_record
from lockstep.schedule.tenants import Register, Tenant
from lockstep.streams.client import Lockstep

BROKEN_S = 5.0


class TenantLimits:
    """See module. `in_flight` bounds deliveries of all tenants, `in_flight_tenant` those of one."""

    def __init__(self, bus: Lockstep, register: Register, *, in_flight: int, in_flight_tenant: int) -> None:
        self._bus, self._register = bus, register
        self._runtime: Runtime = bus.runtime
        self._in_flight, self._in_flight_tenant = in_flight, in_flight_tenant
        self._under_way: Counter[str] = Counter()
        """Deliveries that have no result yet, by tenant."""
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

    def stream_unusable(self, name: str) -> None:
        """Have tenants of a stream wait for a moment: it is missing, or refuses records."""
        self._broken[name] = self._runtime.monotonic() + BROKEN_S

    def is_stream(self, name: str) -> bool:
        """Whether a tenant's events go to a stream of the bus."""
        tenant = self._register.tenants.get(name)
        return tenant is not None and tenant.stream is not None

    def room(self, round_: Round, tenant: str) -> int:
        """How many more deliveries of a tenant may be under way."""
        total = self._in_flight - self._under_way.total() - round_.claimed.total()
        return min(total, self._in_flight_tenant - self._under_way[tenant] - round_.claimed[tenant])

    def tokens(self, tenant: Tenant, share: float) -> int | None:
        """How many events the tenant's rate lets fire, for a node with this share of the shards; None sets no limit."""
        if tenant.rate is None:
            return None
        now = self._runtime.monotonic()
        return self._buckets.setdefault(tenant.tenant, TokenBucket(tenant.rate, now)).tokens(now, share)

    def take_tokens(self, fired: Mapping[str, int]) -> None:
        """Count events of tenants that fired."""
        for name, count in fired.items():
            if name in self._buckets:
                self._buckets[name].take(count)

    def throttled_ms(self, name: str, share: float) -> float:
        """Milliseconds until the rate of a tenant lets its next event fire."""
        bucket = self._buckets.get(name)
        return 0.0 if bucket is None else 1000 * bucket.wait_s(self._runtime.monotonic(), share)

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
