"""The scheduler of a bus, for Python programs: events at a time, crons, cancels, and functions that get what fires.

with lockstep.connect("lmdb:./events") as bus, bus.scheduler("jobs") as scheduler:
    scheduler.after("30m", {"mail": 7}, id="mail-7")

A scheduler runs a node in this process unless that is turned off; then other processes have to.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from lockstep.core.agenda import Event, Option, Remove, Replay, Status, Upsert
from lockstep.core.group import GroupState
from lockstep.cron import parse
from lockstep.errors import BadArgument, NotFound, SchedulerNotFound, StoreMismatch, UnsupportedByBackend
from lockstep.log.port import Transaction
from lockstep.schedule import validation
from lockstep.schedule.client import ANSWER_S, SchedulerClient
from lockstep.schedule.cron_ticks import count_ticks
from lockstep.schedule.delivery.port import Courier
from lockstep.schedule.fired import Fired, encoded_payload, fired_from
from lockstep.schedule.requests import ALL_TYPES, PauseCron, PutCron, RemoveCron, TriggerCron, checked
from lockstep.schedule.rows import CronRow
from lockstep.schedule.store.port import Filter, Page, Store
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import (
    Paused,
    Register,
    Registered,
    Removed,
    StoreNamed,
    Tenant,
    TenantType,
    checked_tenant,
)
from lockstep.schedule.times import instant, java_text, parse_time, span_ms, span_s, to_datetime
from lockstep.streams.client import Lockstep
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.handlers import OnFailure
from lockstep.streams.options import GroupOptions, ReceiverSettings
from lockstep.streams.receiver import Receiver
from lockstep.streams.record import Record

if TYPE_CHECKING:
    from lockstep.schedule.node import Node, NodeOptions

DEFAULT_TENANT = "default"
OpenStore = Callable[[Callable[[Transaction], GroupState]], Store]


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An event as it is scheduled now. `triggered_at` is given if it fired already, and is not fired again."""

    tenant: str
    id: str
    event_id: str
    at: datetime
    status: str
    triggered_at: datetime | None = None
    attempt: int = 0
    error: str | None = None
    payload: bytes | None = None

    @classmethod
    def of(cls, event: Event) -> Scheduled:
        """An event as stored."""
        triggered = None if event.triggered is None else to_datetime(event.triggered)
        return cls(
            event.tenant, event.id, event.event_id, to_datetime(event.at), event.status.name, triggered,
            event.attempt, event.error, event.payload,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The cancel won: the event does not fire, or had ended."""

    event_id: str


@dataclass(frozen=True, slots=True)
class TooLate:
    """The fire won: the event's delivery had begun."""

    triggered_at: datetime


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is no such event."""


class Scheduler:
    """Schedules and cancels events and crons. Safe to share between threads; close it, or use it in a with block."""

    def __init__(
        self,
        bus: Lockstep,
        name: str = "default",
        *,
        node: bool = True,
        open_store: OpenStore,
        courier: Courier,
        options: NodeOptions | None = None,
        node_name: str | None = None,
    ) -> None:
        self.bus, self.name = bus, name
        self.streams = SchedulerStreams(name)
        if node:
            self.streams.create(bus)
        elif self.streams.requests not in bus.bus.names():
            raise SchedulerNotFound(name=name, bus=bus.url)
        self._courier = courier
        self._grouplog = GroupLog(bus.bus, self.streams.group, bus.runtime)
        self.node: Node | None = None
        self.store = self._opened(open_store, is_node=node)
        self.client = SchedulerClient(bus, self.streams, self.store)
        self._receivers: list[Receiver] = []
        self._receiving: GroupOptions | None = None
        self._closed = False
        if node:
            from lockstep.schedule.node import Node  # it needs numpy, and clients do not

            made = node_name or f"{socket.gethostname()}-{os.getpid()}"
            self.node = Node(bus, self.streams, self.store, courier, self._grouplog, name=made, options=options)

    def _opened(self, open_store: OpenStore, *, is_node: bool) -> Store:
        """Open the store. The first node writes down which it is; StoreMismatch if this is another one."""
        register = Register(self.bus.logs(self.streams.control)[0])
        register.refresh()
        try:
            store = open_store(self._owners)
        except UnsupportedByBackend:  # it is the bus itself, and this one can't be a store
            if register.store is None:
                raise
            raise StoreMismatch(name=self.name, known=register.store.url, given="the bus itself") from None
        try:
            own = StoreNamed(*store.identity())
            if register.store is None and is_node:
                register.append(own, self.bus.runtime)
            if register.store is not None and register.store.id != own.id:
                raise StoreMismatch(name=self.name, known=register.store.url, given=own.url)
        except BaseException:
            store.close()
            raise
        return store

    def _owners(self, changes: Transaction) -> GroupState:
        node = self.node
        return self._grouplog.state_in(changes, GroupState() if node is None else node.member.group_state)

    # events

    def at(
        self,
        time: str | datetime,
        payload: Any = None,
        *,
        id: str | None = None,  # noqa: A002
        tenant: str = DEFAULT_TENANT,
        payload_only: bool = False,
    ) -> Scheduled:
        """Have an event fire at an instant; the same id again changes it. Without an id it gets a random one."""
        return self.schedule_many([(instant(time), payload, id)], tenant=tenant, payload_only=payload_only)[0]

    def after(
        self,
        delay: str | float | timedelta,
        payload: Any = None,
        *,
        id: str | None = None,  # noqa: A002
        tenant: str = DEFAULT_TENANT,
        payload_only: bool = False,
    ) -> Scheduled:
        """Have an event fire after a delay: 30m, 1h30m, a number of seconds, or a timedelta."""
        moment = self.bus.runtime.wall_ns() // 10**6 + span_ms(delay, "delay")
        return self.schedule_many([(moment, payload, id)], tenant=tenant, payload_only=payload_only)[0]

    def schedule_many(
        self,
        events: Sequence[tuple[int | str | datetime, Any, str | None]],
        *,
        tenant: str = DEFAULT_TENANT,
        payload_only: bool = False,
    ) -> list[Scheduled]:
        """Schedule many events at once: (time, payload, id). A time may also be milliseconds since 1970."""
        option = Option.PAYLOAD_ONLY if payload_only else Option.FULL_EVENT
        asked = [self._upsert(event, tenant, option) for event in events]
        for request in asked:  # all of them before the first is stored
            checked(request)
        self._ensure(tenant)
        answers = self.client.ask(asked)
        return [_scheduled(request, answer) for request, answer in zip(asked, answers, strict=True)]

    def _upsert(self, event: tuple[int | str | datetime, Any, str | None], tenant: str, option: Option) -> Upsert:
        if not isinstance(event, (tuple, list)) or len(event) != 3:
            raise BadArgument(name="events", value=event, reason="each must be (time, payload, id)")
        time, payload, name = event
        data, form = encoded_payload(payload)
        if option is Option.PAYLOAD_ONLY and data is None:
            raise BadArgument(name="payload", value=None, reason="it must be given with payload_only")
        made = validation.event_id(self.bus.runtime.new_id, option)
        moment = time if type(time) is int else instant(time)  # type: ignore[arg-type]
        return Upsert(tenant, made if name is None else name, moment, made, data, form, option)

    def cancel(
        self,
        id: str,  # noqa: A002
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> Cancelled | TooLate | Unknown:
        """Cancel an event, and tell who won. One that has fired is removed too, and the fire won."""
        [answer] = self.client.ask([Remove(tenant, id)])
        if answer["verdict"] == "UNKNOWN":
            return Unknown()
        event = answer["event"]
        if answer["verdict"] == "DELETED" and answer["status"] != Status.DONE.name:
            return Cancelled(event["key"])
        return TooLate(to_datetime(parse_time(event["triggeredAt"])))

    def find(
        self,
        id: str,  # noqa: A002
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> Scheduled | None:
        """Return an event, or None."""
        event = self.client.find(tenant, id)
        return None if event is None else Scheduled.of(event)

    def events(
        self,
        *,
        tenant: str | None = None,
        status: Sequence[str] | None = None,
        start: str | datetime | None = None,
        stop: str | datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of events in the order of time; `cursor` is `next` of the page before."""
        if type(limit) is not int or limit < 1:
            raise BadArgument(name="limit", value=limit, reason="it must be a positive integer")
        begin, end = (None if time is None else instant(time) for time in (start, stop))
        chosen = Filter(tenant=tenant, status=_statuses(status), start=begin, stop=end)
        return self.client.events(chosen, limit, cursor)

    def replay(
        self,
        id: str,  # noqa: A002
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> bool:
        """Fire a FAILED event again; return whether it was one."""
        [answer] = self.client.ask([Replay(tenant, id)])
        return bool(answer["verdict"] == "UPDATED")

    # crons

    def every(
        self,
        expression: str,
        payload: Any = None,
        *,
        id: str,  # noqa: A002
        tenant: str = DEFAULT_TENANT,
        type: str = "UNIX",  # noqa: A002
        tz: str = "UTC",
        dst: str = "once",
        misfire: str = "once",
        grace: str | float | timedelta = 60,
        catch_up: str | float | timedelta = 86_400,
        jitter: str | float | timedelta = 0,
        overlap: str = "allow",
        log: str | None = None,
        keep: str | float | timedelta | None = None,
    ) -> str:
        """Set up a cron, or replace it, and return its description. `log` groups its runs by MINUTES up to YEARS."""
        data, form = encoded_payload(payload)
        self._ensure(tenant)
        fields = {
            "id": id, "tenant": tenant, "expression": expression, "type": type, "tz": tz, "dst": dst,
            "misfire": misfire, "grace": span_s("grace", grace), "catchUp": span_s("catch_up", catch_up),
            "jitter": span_s("jitter", jitter), "overlap": overlap, "logGranularity": log,
            "retention": None if keep is None else span_s("keep", keep, least=1), "retentionUnits": "SECONDS",
        }  # fmt: skip
        row = validation.checked_cron(fields, self.client.is_known)
        self.client.ask([PutCron(replace(row, payload=data, form=form))])
        return parse(expression, type).describe()

    def crons(self) -> list[CronRow]:
        """Return all crons."""
        return self.client.all_crons()

    def remove_cron(
        self,
        id: str,  # noqa: A002
        *,
        tenant: str = DEFAULT_TENANT,
        type: str = ALL_TYPES,  # noqa: A002
    ) -> bool:
        """Remove a cron, of all types unless one is named; return whether there was one."""
        [answer] = self.client.ask([RemoveCron(tenant, id, type)])
        return bool(answer["verdict"] != "UNKNOWN")

    def pause(
        self,
        id: str,  # noqa: A002
        *,
        tenant: str = DEFAULT_TENANT,
        type: str = ALL_TYPES,  # noqa: A002
    ) -> bool:
        """Have the ticks of a cron skipped; return whether there is one."""
        return self._set_paused(tenant, id, type, paused=True)

    def resume(
        self,
        id: str,  # noqa: A002
        *,
        tenant: str = DEFAULT_TENANT,
        type: str = ALL_TYPES,  # noqa: A002
    ) -> bool:
        """Let a cron tick again; return whether there is one."""
        return self._set_paused(tenant, id, type, paused=False)

    def trigger(
        self,
        id: str,  # noqa: A002
        *,
        tenant: str = DEFAULT_TENANT,
        type: str = ALL_TYPES,  # noqa: A002
    ) -> bool:
        """Fire a cron now, beside its ticks; return whether there is one."""
        [answer] = self.client.ask([TriggerCron(tenant, id, type)])
        return bool(answer["verdict"] != "UNKNOWN")

    def backfill(
        self,
        id: str,  # noqa: A002
        start: str | datetime,
        stop: str | datetime,
        *,
        tenant: str = DEFAULT_TENANT,
        type: str = ALL_TYPES,  # noqa: A002
    ) -> int:
        """Fire a cron for its nominal ticks from `start` until `stop`; return how many, 0 also if there is no cron.

        BadArgument if there are more than 10,000, or if `stop` is in the future; then none fires.
        """
        count = self.would_backfill(id, start, stop, tenant=tenant, type=type)
        first, last = _seconds(start, stop)
        self.client.ask([TriggerCron(tenant, id, type, first - 1, last - 1)])
        return count

    def would_backfill(
        self,
        id: str,  # noqa: A002
        start: str | datetime,
        stop: str | datetime,
        *,
        tenant: str = DEFAULT_TENANT,
        type: str = ALL_TYPES,  # noqa: A002
    ) -> int:
        """How many ticks `backfill` would fire; BadArgument where it would refuse."""
        first, last = _seconds(start, stop)
        rows = [row for row in self.client.crons(tenant, id) if type in (ALL_TYPES, row.type)]
        return count_ticks(rows, first - 1, last - 1, self.client.bus.runtime.wall_ns() // 10**6, "stop")

    def _set_paused(self, tenant: str, name: str, kind: str, *, paused: bool) -> bool:
        [answer] = self.client.ask([PauseCron(tenant, name, kind, paused)])
        return bool(answer["verdict"] != "UNKNOWN")

    # tenants

    def register(self, tenant: str, type: str, props: dict[str, Any], *, rate: float | None = None) -> None:  # noqa: A002
        """Register a tenant, or give it other settings; BadArgument if they can't work, and nothing is stored."""
        made = checked_tenant({"tenant": tenant, "type": type, "props": props, "rate": rate})
        self._courier.check(made)
        self.client.control(Registered(made))
        self._courier.forget(tenant)

    def tenants(self) -> dict[str, Tenant]:
        """Return all tenants."""
        return self.client.tenants()

    def remove_tenant(self, tenant: str) -> None:
        """Remove a tenant; its events wait until it is registered again."""
        self._change_tenant(Removed(tenant))

    def pause_tenant(self, tenant: str) -> None:
        """Have the events of a tenant wait."""
        self._change_tenant(Paused(tenant, True))

    def resume_tenant(self, tenant: str) -> None:
        """Let the events of a tenant fire again."""
        self._change_tenant(Paused(tenant, False))

    def _change_tenant(self, change: Removed | Paused) -> None:
        if not self.client.is_known(change.tenant):
            raise NotFound(what="Tenant", name=change.tenant)
        self.client.control(change)

    def on(self, tenant: str = DEFAULT_TENANT, **options: Unpack[ReceiverSettings]) -> Callable[
        [Callable[[Fired], Any]], Callable[[Fired], Any]
    ]:  # fmt: skip
        """Have a function called with every event of a tenant that fires: in a group, with retries and dead letters.

        By default an event that the function fails on four times becomes a dead letter, and the next one follows.
        """
        self._ensure(tenant)
        stream = self.tenants()[tenant].stream
        if stream is None:
            raise BadArgument(name="tenant", value=tenant, reason="its events do not go to a stream of this bus")

        settings: ReceiverSettings = {"on_failure": OnFailure(then="dead-letter"), **options}

        def register(function: Callable[[Fired], Any]) -> Callable[[Fired], Any]:
            if not callable(function):
                raise BadArgument(name="function", value=function, reason="it must be a function of a Fired")

            def handle(record: Record[Any, Any]) -> Any:
                fired = fired_from(record)
                return function(fired) if fired.tenant == tenant else None  # tenants may share a stream

            group = f"{self.name}.on.{_group_part(tenant)}"
            subscriber = self.bus.subscriber(stream, group=group, create=False, group_options=self._receiving)
            self._receivers.append(self.bus.receive(subscriber, handle, **settings))
            return function

        return register

    def _ensure(self, tenant: str) -> None:
        """The default tenant needs no registration: its events go to a stream of their own."""
        if tenant == DEFAULT_TENANT and not self.client.is_known(tenant):
            props = {"topic": self.streams.fired(DEFAULT_TENANT)}
            self.client.control(Registered(Tenant(tenant=tenant, type=TenantType.MESSAGING, props=props)))
        if not self.client.is_known(tenant):
            reason = "it is not registered; use Scheduler.register or 'lockstep tenant add'"
            raise BadArgument(name="tenant", value=tenant, reason=reason)

    def close(self) -> None:
        """Hand this node's shards over and end. Events that wait are stored, and fire where a node runs."""
        if self._closed:
            return
        self._closed = True
        for receiver in self._receivers:
            receiver.close()
        if self.node is not None:
            self.node.close()
        self.client.close()
        self._courier.close()
        self.store.close()

    def __repr__(self) -> str:
        role = "client only" if self.node is None else f"node {self.node.name}, {len(self.node.shards)} shards"
        return f"<Scheduler {self.name} on {self.bus.url}: {role}>"

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _statuses(names: Sequence[str] | None) -> frozenset[Status] | None:
    if names is None:
        return None
    chosen = [names] if isinstance(names, str) else names
    unknown = [name for name in chosen if name not in Status.__members__]
    if unknown:
        raise BadArgument(name="status", value=unknown[0], reason=f"it must be one of {', '.join(Status.__members__)}")
    return frozenset(Status[name] for name in chosen)


def _seconds(start: str | datetime, stop: str | datetime) -> tuple[int, int]:
    """The first whole second of a range, and the first after it; BadArgument for an empty range."""
    first, last = -(-instant(start) // 1000), -(-instant(stop) // 1000)
    if first >= last:
        raise BadArgument(name="stop", value=_shown(stop), reason=f"it must be after start, {_shown(start)}")
    return first, last


def _shown(time: str | datetime) -> str:
    return java_text(instant(time))


def _scheduled(request: Upsert, answer: dict[str, Any]) -> Scheduled:
    event = answer["event"]
    triggered = None if event["triggeredAt"] is None else to_datetime(parse_time(event["triggeredAt"]))
    return Scheduled(
        request.tenant, request.id, event["key"], to_datetime(request.at), answer["status"], triggered,
        payload=request.payload,
    )  # fmt: skip


def _group_part(tenant: str) -> str:
    """A tenant's name as part of a group's; where letters have to be replaced, a hash keeps it apart from others."""
    part = re.sub(r"[^A-Za-z0-9._-]", "_", tenant)[:40]
    return part if part == tenant else f"{part}-{blake2b(tenant.encode(), digest_size=6).hexdigest()}"


__all__ = ["ANSWER_S", "Cancelled", "Scheduled", "Scheduler", "TooLate", "Unknown"]
