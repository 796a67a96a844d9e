"""A node of a scheduler: it owns a share of the shards, and one loop does everything for them.

Nodes are a group over the shards of the requests stream: election, balance and fencing are those of every group. One
round of the loop reads requests and results, decides ticks, picks due events, and commits all of it in one step.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from lockstep.core.agenda import Event
from lockstep.core.ladder import Ladder
from lockstep.errors import LockstepError, OutboxBlocked, StoreMismatch, StreamNotFound, Unavailable
from lockstep.log.port import Log
from lockstep.runtime import logger
from lockstep.schedule.commits import Commit, Commits
from lockstep.schedule.delivery.port import Courier, Delivery, Outcome, Result
from lockstep.schedule.expiry import Expiry
from lockstep.schedule.handover import ShardHandover
from lockstep.schedule.requests import DryRun
from lockstep.schedule.roster import Backlog, NodeCounts, Roster
from lockstep.schedule.rounds import DueSelection, OwnedShard, Round, TenantLimits, turned
from lockstep.schedule.rows import Change, Outgoing, row_key
from lockstep.schedule.shard_crons import ShardContext
from lockstep.schedule.store.port import Store
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Register
from lockstep.streams.client import Lockstep
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.member import GroupMember, seat_name
from lockstep.streams.options import GroupOptions

DAY_MS = 86_400_000
CONFIRM_S = TIDY_S = 1.0
RETRY_S = 0.5
BACKLOG_COUNTED = 100_000
TICK_RECORDS = 50_000
"""Of a round: once ticks make so many records, other shards wait for the next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeOptions:
    """How a node works. All nodes of a scheduler should use the same."""

    ladder: Ladder = field(default_factory=Ladder)
    keep_ms: int = 30 * DAY_MS
    """How long events that ended can be found."""
    lapse_ms: int = 0
    """Events requested for less than this ahead fire at once."""
    in_flight: int = 1000
    """Deliveries under way at most."""
    in_flight_tenant: int = 250
    """Of these, deliveries of one tenant."""
    round_events: int = 2000
    """Events of one round."""
    round_requests: int = 4000
    """Requests of one round."""
    card_s: float = 1.0
    """How often a node shows that it is there, for the list of nodes."""
    group: GroupOptions = field(default_factory=GroupOptions)
    host: str = "127.0.0.1"
    port: int = 0
    """Where its API is, for the list of nodes."""


class Node:
    """Owns shards of a scheduler and fires their events. Close it to hand its shards over."""

    def __init__(
        self,
        bus: Lockstep,
        streams: SchedulerStreams,
        store: Store,
        courier: Courier,
        grouplog: GroupLog,
        *,
        name: str,
        options: NodeOptions | None = None,
    ) -> None:
        self.name, self.options = name, options or NodeOptions()
        self._bus, self._runtime, self._streams = bus, bus.runtime, streams
        self._store, self._courier = store, courier
        logs = bus.logs(streams.requests)
        self._logs: dict[int, Log] = dict(enumerate(logs))
        self._roster = Roster(bus.logs(streams.nodes)[0], bus.runtime, name, self.options.card_s)
        self._master_seat = seat_name(self._roster.log)
        self.register = Register(bus.logs(streams.control)[0])
        self.register.refresh()
        self._first_store = self.register.store
        self._limits = TenantLimits(
            bus, self.register, streams, store,
            in_flight=self.options.in_flight, in_flight_tenant=self.options.in_flight_tenant,
        )  # fmt: skip
        self._owned: dict[int, OwnedShard] = {}
        self._selection = DueSelection(
            self._owned,
            self.register,
            self._limits,
            shards=len(logs),
            round_events=self.options.round_events,
            change_bytes=store.change_bytes,
        )
        self._expiry = Expiry(self._owned, store, self._limits, self._runtime, keep_ms=self.options.keep_ms)
        self._results: deque[tuple[int, Result]] = deque()
        self._request_turn = 0
        self._is_behind = False
        """The last round left more to do."""
        self._stopping = False
        self.error: BaseException | None = None
        self.counts = NodeCounts()
        self._confirm_due = self._tidy_due = self._runtime.monotonic()
        self._waiter = bus.bus.waiter()
        for log in (*logs, self.register.log):
            self._waiter.watch(log)
        self._commits = Commits(store)
        self.member = self._joined(grouplog)
        self._handover = ShardHandover(
            self._owned, self._logs, self.member, self._context, dedupe=not bus.promises.dedupe
        )
        self._task = self._runtime.spawn(f"lockstep-schedule-{streams.name}", self._step, self._waiter, self._crashed)

    def _joined(self, grouplog: GroupLog) -> GroupMember:
        logs = {seat_name(log): log for log in self._logs.values()}
        return GroupMember(
            grouplog,
            self._bus.bus.waiter(),
            {**logs, self._master_seat: self._roster.log},
            self._runtime,
            self.options.group,
            starts=lambda log: log.bounds().first,
            changed=self._waiter,
            on_error=_log_error,
        )

    def _context(self) -> ShardContext:
        options = self.options
        return ShardContext(
            streams=self._streams, store=self._store, node=self.name, ladder=options.ladder, keep_ms=options.keep_ms,
            lapse_ms=options.lapse_ms, largest=self._limits.largest_record,
        )  # fmt: skip

    @property
    def is_master(self) -> bool:
        """Whether this node owns the stream of nodes."""
        return self._master_seat in self.member.held()

    @property
    def shards(self) -> list[int]:
        """The shards of this node."""
        return sorted(self._owned)

    @property
    def under_way(self) -> int:
        """Deliveries that have no result yet."""
        return self._limits.under_way

    def backlog(self, limit: int = BACKLOG_COUNTED) -> Backlog:
        """Count unfired events of this node's shards that are due, up to a limit; from any thread."""
        now = self._runtime.wall_ns() // 10**6
        events, oldest = 0, now
        for number, owned in list(self._owned.items()):
            for tenant, first in list(owned.shard.next_due.items()):
                if first < now and events < limit:
                    found = self._store.due(number, tenant, first, now, limit - events)
                    events += len(found)
                    oldest = min([oldest, *(one.due for one in found[:1])])
        return Backlog(events, (now - oldest) / 1000)

    def wake(self) -> None:
        """Have the loop look at once."""
        self._waiter.wake()

    def close(self, timeout: float = 5.0) -> None:
        """Wait for deliveries under way, hand the shards over, and end."""
        end = self._runtime.monotonic() + timeout
        self._stopping = True
        pause = self._runtime.waiter()
        while self.error is None and any(not one.is_idle for one in list(self._owned.values())):
            if self._runtime.monotonic() >= end:
                break
            self._waiter.wake()
            pause.wait(0.02)
        self._task.stop()
        self._commits.close()
        if self.error is None:
            self.member.close()
        self._waiter.close()

    # the loop

    def _step(self) -> float:
        try:
            delay = self._round()
        except Unavailable as error:
            logger.warning(
                "Scheduler %s could not work, and tries again: %s", self._streams.name, error,
                extra={"action": "schedule_retry", "reason": str(error)},
            )  # fmt: skip
            self._is_behind = False
            return RETRY_S
        self.member.touch()
        return delay

    def _round(self) -> float:
        if not self._is_behind:
            self._end_commit()  # a round failed during it
        if self._handover.follow(takes_more=not self._stopping):
            self._count_under_way()
        if self.register.refresh():
            self._check_store()
            self._limits.tenants_changed()
            self._selection.tenants_changed()
        now = self._runtime.wall_ns() // 10**6
        round_ = Round(now, self._commits.next_shards(self._owned, is_behind=self._is_behind))
        is_part = len(round_.shards) < len(self._owned)
        try:
            self._fill(round_)
            self._end_commit()
        except LockstepError:
            self._results.extendleft(reversed(round_.results))
            raise
        self._commit(round_)
        self._is_behind = round_.more
        if not (self._is_behind and is_part):
            self._end_commit()
        self._confirm()
        self._show_card()
        return 0.0 if round_.more or is_part else self._delay(now)

    def _fill(self, round_: Round) -> None:
        self._note_clock(round_)
        self._take_requests(round_)
        self._settle(round_)
        self._redeliver(round_)
        self._tick(round_)
        self._fire(round_)
        self._expiry.fill(round_, lambda number: self._change(round_, number))
        self._tidy(round_)

    def _change(self, round_: Round, number: int) -> Change:
        if number not in round_.changes:
            round_.changes[number] = self._owned[number].shard.change()
        return round_.changes[number]

    def _count_under_way(self) -> None:
        events = (event for owned in self._owned.values() for event in owned.shard.in_flight.values())
        self._limits.count_under_way(event.tenant for event in events)

    def _check_store(self) -> None:
        """End this node if the scheduler has another store than when the node began."""
        now = self.register.store
        if self._first_store is not None and now is not None and now.id != self._first_store.id:
            raise StoreMismatch(name=self._streams.name, known=now.url, given=self._first_store.url)

    def _note_clock(self, round_: Round) -> None:
        """Write into the history that the wall clock jumped."""
        if self._owned and not round_.shards:
            return  # the next round does
        jump = self._roster.jump()
        if jump is None or not self._owned:
            return
        fields = {"at": round_.now, "what": "clock jumped", "seconds": round(jump, 3), "node": self.name}
        number = min(round_.shards)
        value = json.dumps(fields, separators=(",", ":")).encode()
        self._change(round_, number).outgoing.append(Outgoing(self._streams.history, value))
        logger.warning("The clock of node %s jumped by %.3f s", self.name, jump, extra={"action": "clock_jumped"})

    # requests and results

    def _take_requests(self, round_: Round) -> None:
        left = self.options.round_requests
        for number in turned(round_.shards, self._request_turn):
            owned = self._owned[number]
            if left <= 0:
                break
            self._request_turn += 1
            records = owned.requests(left)
            if not records:
                continue
            left -= len(records)
            change = self._change(round_, number)
            for request in owned.shard.take(change, records, round_.now):
                self._dry_run(round_, number, request)
            round_.handed_out[number] = records[-1][0]
        round_.more |= left <= 0

    def _dry_run(self, round_: Round, number: int, request: DryRun) -> None:
        tenant = self.register.tenants.get(request.tenant)
        delivery = self._owned[number].shard.dry_run(
            self._change(round_, number), request, tenant, round_.now,
            has_stream=tenant is None or not self._limits.is_broken(tenant),
        )  # fmt: skip
        if delivery is not None:
            round_.deliver(number, delivery)

    def _settle(self, round_: Round) -> None:
        """Apply results, but for those of shards that are not in this round."""
        by_shard: dict[int, list[Result]] = {}
        left = list[tuple[int, Result]]()
        others = self._owned.keys() - round_.shards
        while self._results:
            number, result = self._results.popleft()
            if number in others:
                left.append((number, result))
            else:
                round_.results.append((number, result))
                by_shard.setdefault(number, []).append(result)
        self._results.extendleft(reversed(left))
        for number, results in by_shard.items():
            owned = self._owned.get(number)
            if owned is not None:
                owned.shard.settle(self._change(round_, number), results, round_.now)

    def _done(self, number: int, result: Result) -> None:
        """Called by couriers, from any thread."""
        self._results.append((number, result))
        self._waiter.wake()

    def _redeliver(self, round_: Round) -> None:
        """Deliver again what an earlier owner had claimed: it may or may not have arrived."""
        for number in round_.shards:
            owned = self._owned[number]
            if not owned.shard.orphans or self._stopping:
                continue
            waiting = list[Event]()
            decided = self._change(round_, number).events
            for event in owned.shard.orphans:
                if row_key(event) in decided:
                    continue  # a request of this step made another event of it
                tenant = self.register.tenants.get(event.tenant)
                if (
                    tenant is None
                    or not self._limits.may_fire(event.tenant)
                    or self._limits.room(round_, event.tenant) <= 0
                ):
                    waiting.append(event)
                elif tenant.stream is not None:
                    owned.shard.republish(self._change(round_, number), event, tenant.stream, round_.now)
                else:
                    round_.deliver(number, Delivery(event, tenant))
                    round_.adopted.setdefault(number, []).append(event)
            round_.orphans[number] = waiting

    # ticks and due events

    def _tick(self, round_: Round) -> None:
        """Decide ticks, of the shard that is furthest behind first; what is left after a long pause takes turns."""
        owned = {number: self._owned[number] for number in round_.shards if not self._owned[number].leaving}
        wanting = [
            number for number, one in owned.items() if not self._stopping and one.shard.crons.wants_ticks(round_.now)
        ]
        if not wanting:
            return
        ready = {name: tenant for name, tenant in self.register.tenants.items() if not self._limits.is_broken(tenant)}
        records, monotonic = 0, self._runtime.monotonic()
        for number in sorted(wanting, key=lambda number: self._owned[number].shard.crons.mark or 0):
            change = self._change(round_, number)
            before = len(change.outgoing)
            round_.more |= self._owned[number].shard.crons.tick(change, ready, round_.now, monotonic)
            records += len(change.outgoing) - before
            if records > TICK_RECORDS:
                round_.more = True
                return

    def _fire(self, round_: Round) -> None:
        if not self._stopping:
            self._selection.fire(round_, lambda number: self._change(round_, number))

    def _tidy(self, round_: Round) -> None:
        now = self._runtime.monotonic()
        if now >= self._tidy_due:
            self._tidy_due = now + TIDY_S
            self._limits.look_again()
            if self.is_master:
                self.register.compact(self._runtime)
        if not round_.more and len(round_.shards) == len(self._owned):
            self._expiry.forget_tenants()

    # the commit

    def _commit(self, round_: Round) -> None:
        changes = [change for change in round_.changes.values() if not change.is_empty]
        changed = {change.shard: self._owned[change.shard] for change in changes}
        others = (round_.changes.keys() | round_.fired.keys()) - changed.keys()
        self._limits.begin(round_)
        self._commits.begin(Commit(round_, changed, changes))
        self._go_on(round_, {number: self._owned[number] for number in sorted(others)})  # nothing of them is stored

    def _end_commit(self) -> None:
        """Have memory follow what the commit that is under way has stored."""
        commit = self._commits.end()
        if commit is not None:
            self._limits.end(commit.round_, is_stored=commit.error is None)
            if commit.error is not None:
                self._failed(commit, commit.error)
            else:
                self._stored(commit)

    def _failed(self, commit: Commit, error: LockstepError) -> None:
        self._results.extendleft(reversed(commit.round_.results))
        if isinstance(error, StreamNotFound):
            self._limits.streams_missing(str(error.params["name"]), commit.changes)
        elif isinstance(error, OutboxBlocked):
            self._limits.streams_refuse(error)
        else:
            for owned in commit.owned.values():
                owned.in_doubt = True
            raise error

    def _stored(self, commit: Commit) -> None:
        round_ = commit.round_
        for number in commit.refused:
            logger.warning("Shard %d has another owner by now", number, extra={"action": "shard_fenced"})
            if self._owned.get(number) is commit.owned[number]:
                del self._owned[number]
        for change in commit.changes:
            if change.shard not in commit.refused:
                self.counts.committed(change)
        # Those that went to another owner, or came back from one, are read by that owner
        self._go_on(round_, {number: one for number, one in commit.owned.items() if self._owned.get(number) is one})
        if commit.refused:
            self._count_under_way()

    def _go_on(self, round_: Round, shards: Mapping[int, OwnedShard]) -> None:
        """Have memory follow what was stored of shards, and begin their deliveries."""
        for owned in shards.values():
            owned.in_doubt = True  # until memory has followed, for which the store may have to be read
        try:
            for number, owned in shards.items():
                self._follow(round_, number, owned)
                owned.in_doubt = False
        finally:
            if round_.deliveries or round_.results:
                self._count_under_way()
            for number, delivery in round_.deliveries:
                if number in shards and (delivery.dry_run or not shards[number].in_doubt):
                    self._deliver(number, delivery)  # nobody would find a dry run again: its request is carried out

    def _deliver(self, number: int, delivery: Delivery) -> None:
        """Hand a delivery to the courier; one that raises has failed to deliver, and must not end the node."""
        try:
            self._courier.deliver(delivery, partial(self._done, number))
        except Exception as error:  # noqa: BLE001 - the other deliveries go on
            logger.error("A courier raised an error", exc_info=error, extra={"action": "courier_failed"})
            reason = f"The courier failed: {type(error).__name__}."
            self._done(number, Result(delivery, Outcome.FAILED, reason))

    def _follow(self, round_: Round, number: int, owned: OwnedShard) -> None:
        """Have memory follow what was stored of a shard."""
        shard = owned.shard
        if number in round_.handed_out:
            owned.cursor.hand_out(round_.handed_out[number])
        shard.orphans = round_.orphans.get(number, shard.orphans)
        shard.committed(round_.changes.get(number) or shard.change(), round_.fired.get(number, {}))
        shard.adopt(round_.adopted.get(number, ()))  # last: if the store could not be read, they do not begin

    def _confirm(self) -> None:
        """Tell the group how far the requests are carried out: for lags, and for what retention may drop."""
        now = self._runtime.monotonic()
        if now < self._confirm_due:
            return
        self._confirm_due = now + CONFIRM_S
        for owned in self._owned.values():
            fence, position = owned.shard.fence, owned.shard.position
            confirmed = self.member.confirmed(fence.seat)
            if position > 0 and (confirmed is None or confirmed < position - 1):
                self.member.confirm(fence.seat, fence.epoch, position - 1)

    def _show_card(self) -> None:
        if self._roster.is_due():
            self._roster.show({
                "member": self.member.id, "host": self.options.host, "port": self.options.port, "shards": self.shards,
                "master": self.is_master, "underWay": self.under_way,
            })  # fmt: skip

    def _delay(self, now: int) -> float:
        """Seconds until something is due, at most until the next card."""
        soonest = self._selection.delay_ms(now)
        dues = [] if soonest is None else [soonest]
        if any(owned.shard.crons for owned in self._owned.values()):
            dues.append(1000 - now % 1000)
        return min(max(min(dues, default=1000) / 1000, 0.001), max(self._roster.delay(), 0.001))

    def _crashed(self, error: BaseException) -> None:
        self.error = error
        logger.error("Node %s of scheduler %s ended", self.name, self._streams.name, exc_info=error,
                     extra={"action": "node_ended"})  # fmt: skip
        self.member.close()  # others take over at once, and not when they miss its progress


def _log_error(summary: str, error: BaseException | None) -> None:
    logger.warning(summary, exc_info=error, extra={"action": "schedule_group_error"})
