"""Which due events a round fires: of each tenant its share, of each shard in turn, as much as fits into a round."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice

from lockstep.core.agenda import Event
from lockstep.schedule.rounds import OwnedShard, Round, turned
from lockstep.schedule.rows import Change
from lockstep.schedule.shard import FRESH_MS
from lockstep.schedule.tenant_limits import TenantLimits
from lockstep.schedule.tenants import Register, Tenant

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
