"""The crons of one shard at work: requests for them, and their ticks up to a mark. Nothing is written here.

Ticks up to the mark are decided, and mark and decisions are stored together. A step fills a Change, which the node
commits; memory follows in `committed`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from lockstep.core.agenda import UNFIRED, Answer, Event, Verdict
from lockstep.core.ladder import Ladder
from lockstep.core.ticks import Decision, Overlap
from lockstep.runtime import logger
from lockstep.schedule import bodies, cron_ticks
from lockstep.schedule.cron_columns import Crons
from lockstep.schedule.cron_ticks import (
    BACKFILL_MAX,
    after_ticks,
    bucket_of,
    decided,
    expiry_of,
    nominal_ticks,
    tick_event,
    trigger_event,
)
from lockstep.schedule.requests import ALL_TYPES, CRON_TYPES, CronRequest, PauseCron, PutCron, TriggerCron
from lockstep.schedule.rows import Change, CronRow, Outgoing, Run, cron_key, row_key, tick_key
from lockstep.schedule.store.port import Store
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Tenant
from lockstep.schedule.times import java_text

MARK_EVERY_S = 60
"""Without ticks the mark is stored so often, which bounds the search for ticks after a takeover."""
CHUNK_S, CHUNK_MAX_S = 60, 86_400
"""After a pause, ticks of so many seconds are decided at once: of a day, or of a minute if very many fire."""
TICKS_AT_ONCE, FIRED_AT_ONCE = 2_000_000, 20_000
"""Ticks of a longer time are decided at once up to so many, and up to so many that fire."""
JUMP_S = BEHIND_S = 60
"""A mark that is this far from the clock: the computer slept, the shard had no owner, or the clock was set."""
SET_BACK_AFTER_S = 60.0
"""For so long the clock must be behind the mark before the mark follows it."""

Publish = Callable[[Change, bytes, Event, str, int], None]


class ShardCrons:
    """Decides the ticks of the crons of one shard. `publish` has a tick fired to a stream."""

    def __init__(self, number: int, context: ShardContext, mark: int | None, publish: Publish) -> None:
        self._number, self._context, self._publish = number, context, publish
        self.known = Crons(context.store.crons(number))
        self.mark = mark
        """Ticks up to this second are decided."""
        self._stored_mark = mark or 0
        if self.known:  # without crons no mark is stored: it may be missing or old, but no cron wants earlier ticks
            self.mark = max(self.known.first_since(), self._stored_mark)
        self._behind_from: float | None = None
        """When the clock was first seen to be behind the mark, by the monotonic clock."""

    def __len__(self) -> int:
        """The number of crons."""
        return len(self.known)

    # requests

    def carry_out(self, change: Change, request: CronRequest, now: int) -> Answer:
        """Carry out a request."""
        if isinstance(request, PutCron):
            self._put(change, request.row, now)
            return Answer(Verdict.ACCEPTED)
        kinds = CRON_TYPES if request.type == ALL_TYPES else (request.type,)
        found = [self._row(change, cron_key(request.tenant, request.id, kind)) for kind in kinds]
        for row in found:
            if row is not None:
                self._change(change, row, request, now)
        return Answer(Verdict.UPDATED if any(found) else Verdict.UNKNOWN)

    def _row(self, change: Change, key: bytes) -> CronRow | None:
        return change.crons[key] if key in change.crons else self.known.get(key)

    def _put(self, change: Change, row: CronRow, now: int) -> None:
        """Set up a cron from now on. One that ticks as before keeps what is undecided of it."""
        key = cron_key(row.tenant, row.id, row.type)
        before = self._row(change, key)
        since, caught_up, running, fired = max(now // 1000, self.mark or 0), 0, None, tuple[int, ...]()
        if before is not None:
            running, fired = before.running, cron_ticks.closed(before)
            if row.ticks_like(before):
                since, caught_up = before.since, before.caught_up
            else:
                self._skip_undecided(change, before, now, "replaced")
        change.crons[key] = replace(
            row, since=since, updated=now, executed=None, caught_up=caught_up, running=running, fired=fired
        )

    def _change(self, change: Change, row: CronRow, request: CronRequest, now: int) -> None:
        key = cron_key(row.tenant, row.id, row.type)
        if isinstance(request, PauseCron):
            change.crons[key] = replace(row, paused=request.paused)
        elif isinstance(request, TriggerCron):
            self._trigger(change, row, request, now)
        else:
            self._skip_undecided(change, row, now, "removed")
            change.crons[key] = None

    def _skip_undecided(self, change: Change, row: CronRow, now: int, reason: str) -> None:
        """Write into the history that ticks of a cron up to now are skipped, as it is gone."""
        start, stop = max(self.mark or 0, row.since), now // 1000
        seconds = list(islice(nominal_ticks(row, start, stop), BACKFILL_MAX + 1))
        counted = cron_ticks.unfired(row, seconds[:BACKFILL_MAX]) if seconds else []
        if counted:
            self._tell_skipped(change, row, counted[0], counted[-1], len(counted), reason, now)
        if len(seconds) > BACKFILL_MAX:
            rest = f"{reason}; so are all later ones up to {java_text(stop * 1000)}"
            self._tell_skipped(change, row, seconds[-1], seconds[-1], 1, rest, now)

    def _tell_skipped(
        self, change: Change, row: CronRow, first: int, last: int, count: int, reason: str, now: int
    ) -> None:
        """Write one record of the history for consecutive ticks that are skipped for one reason."""
        event = tick_event(row, first, now)
        run = {} if count == 1 else {"lastTime": last * 1000, "count": count}
        self._context.tell(change, "skipped", event, now, reason=reason, **run)

    def _trigger(self, change: Change, row: CronRow, request: TriggerCron, now: int) -> None:
        """Fire now, or for a range of nominal ticks; as rows, so that they are delivered like all others."""
        events = [trigger_event(row, now)]
        if request.start is not None and request.stop is not None:
            seconds = islice(nominal_ticks(row, request.start, request.stop), BACKFILL_MAX)
            events = [replace(tick_event(row, second, now), lapsed=True) for second in seconds]
        keys = [row_key(event) for event in events]
        stored = self._context.store.get(self._number, keys)
        for before, (key, event) in enumerate(zip(reversed(keys), reversed(events), strict=True)):
            if key in stored or key in change.events:
                continue  # this very tick waits or is under way
            change.put(key, None, replace(event, due=now - before))  # in the order of the ticks
            self._context.tell(change, "triggered", event, now)

    # ticks

    def wants_ticks(self, now: int) -> bool:
        """Whether seconds have passed whose ticks are not decided, or the clock is not where it should be."""
        second = now // 1000
        return self.mark is None or second > self.mark or self._behind_from is not None or self._is_behind(second)

    def _is_behind(self, second: int) -> bool:
        return self.mark is not None and second < self.mark - BEHIND_S

    def tick(self, change: Change, tenants: Mapping[str, Tenant], now: int, monotonic: float) -> bool:
        """Decide ticks between the mark and now, not all at once; return whether there is more to do."""
        second = now // 1000
        if self._is_behind(second):
            self._wait_for_clock(change, second, now, monotonic)
            return False
        self._behind_from = None
        if self.mark is None or not self.known:
            self.mark = max(second, self.mark or 0)
            return False
        if second <= self.mark:
            return False  # the clock was set back a little: nothing is decided twice
        stop, decisions = self._decisions(change, second)
        is_jump = second - self.mark > JUMP_S
        for key, row, made in decisions:
            self._fire_or_skip(change, key, row, made, tenants.get(row.tenant), now, is_jump=is_jump)
        if not change.is_empty or stop - self._stored_mark >= MARK_EVERY_S:
            change.mark = stop
        change.ticked = stop
        return stop < second or bool(change.events)

    def _decisions(self, change: Change, second: int) -> tuple[int, list[tuple[bytes, CronRow, list[Decision]]]]:
        """What is decided in this step, and up to which second; if very many ticks fire, of a short time only."""
        assert self.mark is not None
        for span in (CHUNK_MAX_S, CHUNK_S):
            stop, found = self._decided(change, min(second, self.mark + span), second)
            decisions, fired = [], 0
            for one in found:
                decisions.append(one)
                fired += sum(decision.skipped is None for decision in one[2])
                if fired > FIRED_AT_ONCE and stop > self.mark + CHUNK_S:
                    break
            else:
                return stop, decisions
        return stop, decisions

    def _decided(
        self, change: Change, stop: int, second: int
    ) -> tuple[int, Iterator[tuple[bytes, CronRow, list[Decision]]]]:
        assert self.mark is not None
        stop, due = self.known.due(self.mark, stop, TICKS_AT_ONCE)

        def rows() -> Iterator[tuple[bytes, CronRow, list[Decision]]]:
            for key, known, seconds in due:
                row = change.crons.get(key, known)
                if row is not None and row.ticks_like(known):  # else this step reported what became of its ticks
                    yield key, row, decided(row, seconds, second, seconds[-1] if stop == second else None)

        return stop, rows()

    def _fire_or_skip(
        self, change: Change, key: bytes, row: CronRow, decisions: Sequence[Decision], tenant: Tenant | None, now: int,
        *, is_jump: bool,
    ) -> None:  # fmt: skip
        after = after_ticks(row, decisions, is_jump=is_jump)
        for one in decisions:
            if one.skipped is not None:
                self._tell_skipped(change, row, one.first, one.last, one.count, one.skipped, now)
                continue
            event = tick_event(row, one.first, now)
            if tenant is not None and tenant.stream is not None and not row.jitter_s and not tenant.paused:
                self._publish(change, row_key(event), event, tenant.stream, now)
            else:
                change.put(row_key(event), None, event)
                if row.policy.overlap is Overlap.SKIP:
                    after = replace(after, running=event.event_id)
        if after != row:
            change.crons[key] = after

    # a clock behind the mark

    def _wait_for_clock(self, change: Change, second: int, now: int, monotonic: float) -> None:
        """The clock was ahead when ticks were decided, or is behind now: say so, and follow it if it stays there."""
        assert self.mark is not None
        ahead = self.mark - second
        if self._behind_from is None:
            self._behind_from = monotonic
            if not self.known:
                return
            self._note_clock(change, "ticks ahead of the clock", now, seconds=ahead)
            logger.warning(
                "Ticks of shard %d are decided up to %d s ahead of the clock of node %s. They follow the clock if it"
                " stays there for %.0f s", self._number, ahead, self._context.node, SET_BACK_AFTER_S,
                extra={"action": "ticks_ahead", "shard": self._number},
            )  # fmt: skip
        elif monotonic - self._behind_from >= SET_BACK_AFTER_S:
            self._set_back(change, second, now)

    def _set_back(self, change: Change, second: int, now: int) -> None:
        """Decide ticks after the clock's second anew; those that fired do not fire again."""
        assert self.mark is not None
        rows = dict(self.known.rows()) | change.crons
        for key, row in rows.items():
            after = None if row is None else self._row_set_back(row, second, now)
            if after != row:
                change.crons[key] = after
        self._behind_from, change.ticked = None, second
        if not rows:
            return
        change.mark = second
        self._note_clock(change, "ticks set back", now, seconds=self.mark - second, **{"from": self.mark, "to": second})

    def _row_set_back(self, row: CronRow, second: int, now: int) -> CronRow:
        after = cron_ticks.set_back(row, second)
        if after.running is None:
            return after
        key = tick_key(row.tenant, after.running)
        event = self._context.store.get(self._number, [key]).get(key)
        waits_for_clock = event is not None and event.status in UNFIRED and event.due > now
        return replace(after, running=None) if waits_for_clock else after

    def _note_clock(self, change: Change, what: str, now: int, **more: int) -> None:
        fields = {"at": now, "what": what, "shard": self._number, "node": self._context.node, **more}
        self._context.history(change, json.dumps(fields, separators=(",", ":")).encode())

    # afterwards

    def ended(self, change: Change, event: Event) -> None:
        """Log the run of a tick that ended, if its cron asks for it, and let the next one fire."""
        row = self.known.named(event.tenant, event.id)
        if row is None:
            return
        if row.log_granularity is not None:
            bucket = bucket_of(event.at, row.log_granularity)
            run = Run(row.log_name, bucket, event.at, bodies.run(event), expiry_of(row, event.ended or event.at))
            change.runs.append(run)
        key = cron_key(row.tenant, row.id, row.type)
        current = change.crons.get(key, row)
        if current is not None and current.running == event.event_id:
            change.crons[key] = replace(current, running=None)

    def committed(self, change: Change) -> None:
        """Have memory follow what was stored."""
        for key, row in change.crons.items():
            if row is None:
                self.known.drop(key)
            else:
                self.known.put(row)
        self.mark = self.mark if change.ticked is None else change.ticked
        self._stored_mark = self._stored_mark if change.mark is None else change.mark


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardContext:
    """Store, streams and settings that all shards of a node use."""

    streams: SchedulerStreams
    store: Store
    node: str
    ladder: Ladder
    keep_ms: int
    lapse_ms: int = 0
    largest: Callable[[str], int] = lambda _: sys.maxsize
    """How many bytes a record of a stream may have."""

    def history(self, change: Change, value: bytes) -> None:
        """Have a record of the history written with a change."""
        change.outgoing.append(Outgoing(self.streams.history, value))

    def tell(self, change: Change, what: str, event: Event, now: int, **more: int | str) -> None:
        """Have the history tell what happened to an event."""
        self.history(change, bodies.history(what, event, now, self.node, **more))
