"""The owner of one shard at work: requests, due events, results and ticks become changes. Nothing is written here.

A step fills a Change, which the node commits. What is kept in memory follows only after the commit, in `committed`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from lockstep.core import agenda
from lockstep.core.agenda import UNFIRED, Answer, Event, Remove, Replay, Status, Upsert, Verdict
from lockstep.errors import DataError, RecordTooLarge
from lockstep.schedule import bodies, requests
from lockstep.schedule.delivery.port import Delivery, Outcome, Result
from lockstep.schedule.requests import Ask, DryRun, Request
from lockstep.schedule.rows import Change, Fence, Outgoing, ShardState, event_key, row_key
from lockstep.schedule.shard_crons import ShardContext, ShardCrons
from lockstep.schedule.tenants import Tenant
from lockstep.streams.shards import check_size

FRESH_MS = 60_000
"""Events that are due for longer are backlog, and get half of a round at most while others are fresh."""
_BESIDE_BODY = 8192
"""More than the key and the headers of an event have."""


class Shard:
    """One shard, its owner's view of it: its crons, the due times of its tenants, and deliveries without a result."""

    def __init__(self, number: int, fence: Fence, state: ShardState, context: ShardContext) -> None:
        self.number, self.fence, self.context = number, fence, context
        self.position = state.position
        """The next offset of its requests."""
        self.crons = ShardCrons(number, context, state.mark, self._publish_tick)
        self.next_due = context.store.tenants(number)
        """By tenant: no unfired event is due before this."""
        self.in_flight: dict[bytes, Event] = {}
        """Events claimed by this owner, as stored."""
        self.orphans = context.store.firing(number)
        """Events that an earlier owner claimed: they are delivered again."""

    def change(self) -> Change:
        """A change of this shard with nothing in it."""
        return Change(self.number, self.fence)

    # requests

    def take(self, change: Change, records: Sequence[tuple[int, bytes]], now: int) -> list[DryRun]:
        """Carry out requests in order; return the dry runs, which change nothing."""
        asked = list(_decoded(records))
        stored = self._stored(change, [request for _, request, _ in asked])
        dry_runs: list[DryRun] = []
        for offset, request, ask in asked:
            if isinstance(request, DataError):
                self._refuse(change, offset, ask, request, now)
                continue
            answer = self._carry_out(change, stored, request, now)
            if isinstance(request, DryRun) and answer.event is not None:
                dry_runs.append(request)
            if ask is not None:
                self._answer(change, ask, answer)
        change.position = records[-1][0] + 1
        change.requests += len(records)
        return dry_runs

    def _refuse(self, change: Change, offset: int, ask: Ask | None, error: DataError, now: int) -> None:
        """A record is no request: say so, and pass it by."""
        reason = str(error.params["reason"])
        self.context.history(change, _bad_request(self.context.node, now, offset, reason))
        if ask is not None:
            self._answer(change, ask, Answer(Verdict.ERROR, code=agenda.BAD_REQUEST, message=reason))

    def _stored(self, change: Change, asked: Iterable[Request | DataError]) -> dict[bytes, Event]:
        events = [one for one in asked if isinstance(one, Upsert | Remove | Replay | DryRun)]
        keys = {event_key(one.tenant, one.id) for one in events} - change.events.keys()
        return self.context.store.get(self.number, list(keys))

    def _carry_out(self, change: Change, stored: dict[bytes, Event], request: Request, now: int) -> Answer:
        if isinstance(request, Upsert | Remove | Replay | DryRun):
            key = event_key(request.tenant, request.id)
            event = change.events[key][1] if key in change.events else stored.get(key)
            if isinstance(request, DryRun):
                return Answer(Verdict.UNKNOWN if event is None else Verdict.TRIGGERED, event)
            step = agenda.apply(event, request, now, lapse_ms=self.context.lapse_ms)
            if step.event is not event:
                change.put(key, event, step.event)
            if step.news is not None and event is not None:
                self.context.tell(change, step.news, event, now)
            return step.answer
        return self.crons.carry_out(change, request, now)

    def _answer(self, change: Change, ask: Ask, answer: Answer) -> None:
        fields = {"number": ask.number, **bodies.answer_fields(answer)}
        value = json.dumps(fields, separators=(",", ":")).encode()
        change.outgoing.append(Outgoing(self.context.streams.answers, value, ask.client.encode()))

    # firing

    def due(self, tenant: str, now: int, limit: int) -> dict[bytes, Event]:
        """Unfired events of a tenant that are due, by row key.

        The oldest come first, but at least half of them are fresh, if there are any.
        """
        store, number = self.context.store, self.number
        first, fresh_from = self.next_due.get(tenant, now), now - FRESH_MS
        backlog = (
            store.due_events(number, tenant, first, fresh_from - 1, max(limit // 2, 1)) if first < fresh_from else {}
        )
        fresh = store.due_events(number, tenant, max(first, fresh_from), now, max(limit - len(backlog), 1))
        if len(backlog) + len(fresh) < limit and backlog:
            backlog = store.due_events(number, tenant, first, fresh_from - 1, limit - len(fresh))
        return {**backlog, **fresh}

    def fire(self, change: Change, events: Mapping[bytes, Event], tenant: Tenant, now: int) -> list[Delivery]:
        """Publish or claim events that are due; return the deliveries that begin after the commit."""
        deliveries: list[Delivery] = []
        for key, event in events.items():
            if key in change.events:
                continue  # a request or result of this step was about it: look again in the next one
            if agenda.is_too_old(event, now, self.context.ladder):
                self._end(change, key, event, agenda.missed(event, now), "missed", now)
            elif tenant.stream is not None:
                self._publish(change, key, event, tenant.stream, now)
            else:
                claimed = agenda.claimed(event, now, self.fence.epoch)
                change.put(key, event, claimed)
                deliveries.append(Delivery(claimed, tenant))
        return deliveries

    def _publish(self, change: Change, key: bytes, event: Event, stream: str, now: int, *, stored: bool = True) -> None:
        done = agenda.published(event, now, self.fence.epoch)
        error = self._send(change, done, stream)
        if error is None:
            self._end(change, key, event if stored else None, done, "fired", now)
        else:
            self._end(change, key, event if stored else None, agenda.refused(event, now, error), "failed", now)

    def _publish_tick(self, change: Change, key: bytes, event: Event, stream: str, now: int) -> None:
        self._publish(change, key, event, stream, now, stored=False)

    def _send(self, change: Change, event: Event, stream: str, *, dry_run: bool = False) -> str | None:
        """Have an event published with the step, and return None; or why its stream does not take it."""
        record = Outgoing(
            stream, bodies.body(event), event.id.encode(), bodies.record_headers(event, dry_run=dry_run)
        )  # fmt: skip
        largest = self.context.largest(stream)
        if len(record.value) + _BESIDE_BODY > largest:
            try:
                check_size(record.value, record.key, record.headers, largest, stream)
            except RecordTooLarge as error:
                return str(error)
        change.outgoing.append(record)
        return None

    def _end(self, change: Change, key: bytes, before: Event | None, after: Event, what: str, now: int) -> None:
        """Store an event that ended; a tick, stored or not, leaves only its run and the history."""
        if before is not None:
            change.put(key, before, None if after.tick else after)
        fired = now if after.triggered is None or what == "missed" else after.triggered
        late, begun = after.late_ms(fired), {} if fired == now else {"triggeredAt": fired}
        self.context.tell(change, what, after, now, lateMs=late, **begun)
        if after.status is Status.DONE:
            change.late_ms.append(late)
        else:
            change.failed += 1
        if after.tick:
            self.crons.ended(change, after)

    def dry_run(
        self, change: Change, request: DryRun, tenant: Tenant | None, now: int, *, has_stream: bool = True
    ) -> Delivery | None:
        """Deliver an event and change nothing: to a stream at once, else the delivery is returned."""
        key = event_key(request.tenant, request.id)
        stored = self.context.store.get(self.number, [key]).get(key)
        event = change.events[key][1] if key in change.events else stored
        if event is None or tenant is None:
            return None
        event = replace(event, triggered=now)
        if tenant.stream is None:
            return Delivery(event, tenant, dry_run=True)
        error: str | None = f"stream {tenant.stream!r} does not exist, or refuses records"
        if has_stream:
            error = self._send(change, event, tenant.stream, dry_run=True)
        if error is not None:
            self.context.tell(change, "dry run failed", replace(event, error=error), now)
        return None

    def settle(self, change: Change, results: Iterable[Result], now: int) -> None:
        """Apply the outcomes of deliveries."""
        for result in results:
            event, key = result.delivery.event, row_key(result.delivery.event)
            if result.delivery.dry_run:
                if result.outcome is not Outcome.TAKEN:
                    failed = replace(event, error=result.error)
                    self.context.tell(change, "dry run failed", failed, now)
                continue
            current = change.events[key][1] if key in change.events else self.in_flight.get(key)
            if current is None or current.status is not Status.FIRING or current.event_id != event.event_id:
                self.context.tell(change, f"{result.outcome.value} too late", event, now)
                continue
            self._settle(change, key, current, result, now)

    def _settle(self, change: Change, key: bytes, event: Event, result: Result, now: int) -> None:
        if result.outcome is Outcome.TAKEN:
            self._end(change, key, event, agenda.delivered(event, now), "fired", now)
            return
        error = result.error or "no reason was given"
        after = agenda.refused(event, now, error)
        if result.outcome is Outcome.FAILED:
            after = agenda.failed(event, now, error, self.context.ladder)
        if after.status is Status.FAILED:
            self._end(change, key, event, after, "failed", now)
            return
        change.put(key, event, after)
        change.retries += 1
        self.context.tell(change, "retry", after, now, next=after.due)

    def republish(self, change: Change, event: Event, stream: str, now: int) -> None:
        """Publish an event that was claimed for a delivery, as its tenant has a stream by now."""
        self._publish(change, row_key(event), event, stream, now)

    def resume(self, under_way: Mapping[bytes, Event]) -> None:
        """Wait for the results of this owner's deliveries, which have not ended, and begin none of them again."""
        known = [event for event in self.orphans if under_way.get(row_key(event)) == event]
        self.adopt(known)
        self.orphans = [event for event in self.orphans if event not in known]

    def adopt(self, events: Iterable[Event]) -> None:
        """Wait for the results of deliveries that an earlier owner had begun."""
        self.in_flight.update((row_key(event), event) for event in events)

    def forget(self, change: Change, event: Event) -> None:
        """Remove an event whose keep time is over."""
        key = row_key(event)
        if key not in change.events:
            change.put(key, event, None)

    def overdue(self, tenant: str, now: int, limit: int) -> list[Event]:
        """Events of a tenant that is away, unfired or claimed by an earlier owner, which are too old to be tried."""
        last = now - self.context.ladder.limit_ms - 1
        events = list[Event]()
        first = self.next_due.get(tenant, now)
        if first <= last:
            due = self.context.store.due(self.number, tenant, first, last, limit)
            events += self.context.store.get(self.number, [one.key for one in due]).values()
        events += (event for event in self.orphans if event.tenant == tenant)
        return [event for event in events if agenda.is_too_old(event, now, self.context.ladder)]

    def give_up(self, change: Change, events: Iterable[Event], now: int) -> None:
        """Mark events whose tenant is away as missed."""
        for event in events:
            key = row_key(event)
            if key not in change.events:
                self._end(change, key, event, agenda.missed(event, now), "missed", now)

    # after the commit

    def committed(self, change: Change, fired: Mapping[str, int | None] = MappingProxyType({})) -> None:
        """Have memory follow what was stored. Of tenants that `fired`: no other event is due before this time.

        If that is not known, it is looked up.
        """
        self._follow_dues(change, fired)  # first, as it may read the store: if that fails, all is read again
        for key, (_, after) in change.events.items():
            if after is not None and after.status is Status.FIRING:
                self.in_flight[key] = after
            else:
                self.in_flight.pop(key, None)
        if self.orphans:  # a request may have made another event of one
            self.orphans = [event for event in self.orphans if row_key(event) not in change.events]
        self.crons.committed(change)
        self.position = self.position if change.position is None else change.position

    def _follow_dues(self, change: Change, fired: Mapping[str, int | None]) -> None:
        for tenant, reached in fired.items():
            if reached is not None:
                self.next_due[tenant] = max(self.next_due.get(tenant, reached), reached)
        for _, after in change.events.values():
            if after is not None and after.status in UNFIRED:
                self.next_due[after.tenant] = min(after.due, self.next_due.get(after.tenant, after.due))
        for tenant in (tenant for tenant, reached in fired.items() if reached is None):
            first = self.context.store.next_due(self.number, tenant, self.next_due.get(tenant, 0))
            if first is None:
                self.next_due.pop(tenant, None)
            else:
                self.next_due[tenant] = first


def _decoded(records: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, Request | DataError, Ask | None]]:
    for offset, value in records:
        try:
            request, ask = requests.decode(value)
        except DataError as error:
            yield offset, error, requests.ask_in(value)
        else:
            yield offset, request, ask


def _bad_request(node: str, now: int, offset: int, reason: str) -> bytes:
    fields = {"at": now, "what": "bad request", "offset": offset, "node": node, "reason": reason[:1000]}
    return json.dumps(fields, separators=(",", ":")).encode()
