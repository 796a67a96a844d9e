"""What a node removes or gives up once its time is over, a little at a time: ended events, runs, missed events."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.runtime import Runtime
from lockstep.schedule.rounds import OwnedShard, Round, TenantLimits
from lockstep.schedule.rows import Change
from lockstep.schedule.shard import Shard
from lockstep.schedule.store.port import Store

EVERY_S = 1.0
FORGET_TENANTS_S = 600.0
AT_ONCE = 500


class Expiry:
    """Looks through each shard that this node owns once a second."""

    def __init__(
        self, owned: Mapping[int, OwnedShard], store: Store, limits: TenantLimits, runtime: Runtime, *, keep_ms: int
    ) -> None:
        self._owned, self._store, self._limits = owned, store, limits
        self._runtime, self._keep_ms = runtime, keep_ms
        self._forget_due = runtime.monotonic() + FORGET_TENANTS_S

    def fill(self, round_: Round, change_of: Callable[[int], Change]) -> None:
        """Fill the changes of shards with what is over."""
        now = self._runtime.monotonic()
        for number in round_.shards:
            owned = self._owned[number]
            if now >= owned.purge_due:
                owned.purge_due = now + EVERY_S
                self._purge(round_, number, owned.shard, change_of)

    def _purge(self, round_: Round, number: int, shard: Shard, change_of: Callable[[int], Change]) -> None:
        for event in self._store.expired(number, round_.now - self._keep_ms, AT_ONCE):
            shard.forget(change_of(number), event)
        self._give_up(round_, number, shard, change_of)
        if shard.crons:
            self._store.forget_runs(number, shard.fence, round_.now)

    def _give_up(self, round_: Round, number: int, shard: Shard, change_of: Callable[[int], Change]) -> None:
        """End events that are too old to be tried, of tenants that are away."""
        away = {name for name in shard.next_due if not self._limits.may_fire(name)}
        away |= {event.tenant for event in shard.orphans if not self._limits.may_fire(event.tenant)}
        for name in away:
            events = shard.overdue(name, round_.now, AT_ONCE)
            if events:
                shard.give_up(change_of(number), events, round_.now)
                round_.fired.setdefault(number, {})[name] = None

    def forget_tenants(self) -> None:
        """Every few minutes, remove what is stored of tenants that have no unfired event any more."""
        now = self._runtime.monotonic()
        if now >= self._forget_due:
            self._forget_due = now + FORGET_TENANTS_S
            for number, owned in self._owned.items():
                self._store.forget_tenants(number, owned.shard.fence)
