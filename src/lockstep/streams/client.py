"""The front door: connect to a bus, make streams, publish, subscribe."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

from lockstep.errors import BadArgument, BadConfig, Closed, PositionNotFound, RecordNotFound, StreamNotFound, TimedOut
from lockstep.log.batch import BatchView
from lockstep.log.config import StreamConfig, check_name
from lockstep.log.embedded.bus import OpenHistory
from lockstep.log.port import Bounds, Bus, Log, Promises
from lockstep.log.urls import Backend, open_bus
from lockstep.runtime import Runtime, ThreadRuntime, logger
from lockstep.streams import seen
from lockstep.streams.admin import Groups
from lockstep.streams.cursor import first_at
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.handling import Handler
from lockstep.streams.lane import Lane
from lockstep.streams.member import GroupMember, seat_name
from lockstep.streams.metrics import Metrics, PublisherMeter, SubscriberMeter
from lockstep.streams.options import INITIAL, GroupOptions, PublisherOptions, SubscriberOptions
from lockstep.streams.publisher import Publisher
from lockstep.streams.receiver import Receiver
from lockstep.streams.record import Record, RecordBatch, Segment
from lockstep.streams.serializers import BYTES, Serializer
from lockstep.streams.shards import SEPARATOR, check_stream, logs_of, only_log, shard_name
from lockstep.streams.subscriber import Subscriber
from lockstep.streams.transaction import GroupTransaction, Transaction


def connect(
    url: str,
    *,
    create: bool = True,
    runtime: Runtime | None = None,
    backends: Mapping[str, Backend] | None = None,
    histories: Mapping[str, OpenHistory] | None = None,
) -> Lockstep:
    """Open the bus at a URL: lmdb:FOLDER for all processes of this machine, memory:NAME within this one.

    `backends` and `histories` add schemes of your own: for buses, and for stores of records beyond a capacity.
    """
    runtime = runtime or ThreadRuntime()
    return Lockstep(open_bus(url, runtime, create=create, backends=backends, histories=histories), runtime)


class Lockstep:
    """A connection to a bus. Safe to share between threads; not to be carried through a fork."""

    def __init__(self, bus: Bus, runtime: Runtime) -> None:
        self.bus, self.runtime = bus, runtime
        self.metrics = Metrics()
        self._opened: list[Publisher | Subscriber | Receiver] = []
        self._books = threading.Lock()
        self._closed = False

    @property
    def url(self) -> str:
        """Where it is connected to."""
        return self.bus.url

    @property
    def promises(self) -> Promises:
        """What the bus keeps: durability, retention, who may open it, and what it can do."""
        return self.bus.promises

    def create(self, name: str, config: StreamConfig | None = None) -> StreamConfig:
        """Make a stream; nothing happens if it is there with the same configuration."""
        check_name("Stream", name)
        config = config or StreamConfig()
        is_new = name not in self.bus.names()
        if not is_new:
            self.bus.open(name).config.check_same(name, config)  # before shards are looked at one by one
        for shard in range(config.shards if config.shards > 1 else 0):
            self.bus.create(shard_name(name, shard), config)  # before the stream itself, so that it is never half there
        log = self.bus.create(name, config)
        if is_new and config.sync_replicas > self.promises.sync_replicas:
            logger.info(
                "The stream wants more copies than the bus has",
                extra={"action": "too_few_replicas", "stream": name, "bus": self.url},
            )
        return log.config

    def config(self, name: str) -> StreamConfig:
        """The configuration a stream was made with."""
        return self._open(name).config

    def streams(self) -> list[str]:
        """The names of all streams."""
        return [name for name in self.bus.names() if not name.startswith("_") and SEPARATOR not in name]

    def delete(self, name: str) -> None:
        """Remove a stream and what it holds."""
        check_name("Stream", name)
        config = self._open(name).config
        present = set(self.bus.names())
        shards = [shard_name(name, shard) for shard in range(config.shards)]
        for shard in present.intersection(shards):  # a delete that was cut short can be done again
            self.bus.delete(shard)
        self.bus.delete(name)

    def wait_for(self, name: str, timeout: float = 10.0) -> StreamConfig:
        """The configuration of a stream that somebody else makes, as soon as it is there."""
        end = self.runtime.monotonic() + timeout
        waiter = self.runtime.waiter()
        while self.runtime.monotonic() < end:
            if name in self.bus.names():
                return self.config(name)
            waiter.wait(0.02)
        raise TimedOut(what=f"Waiting for stream {name!r}", seconds=timeout)

    def logs(self, name: str) -> list[Log]:
        """The logs of a stream: one, or one for each shard."""
        self._open(name)
        return logs_of(self.bus, name)

    def bounds(self, name: str) -> Bounds:
        """First readable offset and the one after the last."""
        return self._only_log(name).bounds()

    def get(self, name: str, offset: int) -> Record:
        """The record at an offset, found directly."""
        log = self._only_log(name)
        for entry in log.read(offset, max_bytes=1):
            view = BatchView(entry.base, entry.data, name)
            if view.base <= offset < view.end:
                index = offset - view.base
                return RecordBatch(name, [Segment(view, index, index + 1)]).first()
        raise RecordNotFound(stream=name, offset=offset)

    def offset_at(self, name: str, time_ns: int) -> int:
        """The first offset appended at or after a time; the end of the stream if there is none."""
        return first_at(self._only_log(name), time_ns)

    def trim(self, name: str, before: int) -> None:
        """Make everything below an offset unreadable, for good."""
        if before < 0:
            raise BadArgument(name="before", value=before, reason="offsets begin at 0")
        for log in self.logs(name):
            log.trim(before)

    def publisher(
        self,
        stream: str,
        *,
        config: StreamConfig | None = None,
        create: bool = True,
        value: Serializer = BYTES,
        key: Serializer = BYTES,
        **options: Any,
    ) -> Publisher:
        """A publisher to a stream, which is made if it is missing. `options`: see PublisherOptions."""
        logs = self._prepare(stream, config, create)
        settings = _within(_options(PublisherOptions, options), logs[0])
        lanes = []
        for log in logs:
            meter = PublisherMeter(stream)
            lane = Lane(log, self.runtime, settings, meter, value=value, key=key)
            meter.queued = lambda lane=lane: lane.queued  # type: ignore[misc]
            self.metrics.add(meter)
            lanes.append(lane)
        publisher = Publisher(stream, lanes, self.runtime, settings, value=value, key=key)
        self._remember(publisher)
        return publisher

    def subscriber(
        self,
        *streams: str,
        group: str | None = None,
        initial: str = "auto",
        config: StreamConfig | None = None,
        create: bool = True,
        value: Serializer = BYTES,
        key: Serializer = BYTES,
        group_options: GroupOptions | None = None,
        **options: Any,
    ) -> Subscriber:
        """A subscriber to one stream or several, alone or in a group. `options`: see SubscriberOptions.

        `initial` says where to begin without a stored position: earliest, latest, none (refuse), or auto: latest
        alone, earliest in a group.
        """
        settings = _options(SubscriberOptions, options)
        if not streams:
            raise BadArgument(name="streams", value=streams, reason="name at least one")
        if initial not in INITIAL:
            raise BadConfig(field="initial", value=initial, reason=f"choose one of {', '.join(INITIAL)}")
        if group is None and initial == "none":
            raise BadConfig(
                field="initial", value=initial, reason="a subscriber without a group has no stored position"
            )
        if group is not None:
            check_name("Group", group)
        logs = [log for name in streams for log in self._prepare(name, config, create)]
        meter = SubscriberMeter(group or "")
        if group is None:
            subscriber = self._alone(logs, initial, settings, meter, value, key)
        else:
            subscriber = self._in_group(logs, group, initial, settings, group_options, meter, value, key)
        self.metrics.add(meter)
        self._remember(subscriber)
        return subscriber

    def transaction(self) -> Transaction:
        """Publish to several streams, and set small state, in one step: all or nothing."""
        return Transaction(self.bus, self.runtime)

    def group_transaction(self, subscriber: Subscriber) -> GroupTransaction:
        """As transaction, and confirm what the subscriber's group has processed: exactly once."""
        return GroupTransaction(self.bus, self.runtime, subscriber)

    def receive(self, subscriber: Subscriber, handler: Handler, **options: Any) -> Receiver:
        """Have records handed to a function in the background. `options`: see Receiver."""
        receiver = Receiver(subscriber, handler, self.runtime, self._open_publisher, **options)
        self._remember(receiver)
        return receiver

    @property
    def groups(self) -> Groups:
        """The groups of this bus, to look at and to change."""
        return Groups(self.bus, self.runtime)

    def first_time(self, space: str, key: str) -> bool:
        """True for a key that is new to the space, which remembers a million: for handlers that must not act twice."""
        return self.bus.atomic(lambda changes: seen.first_time(changes, space, key))

    def close(self) -> None:
        """Close every publisher and subscriber opened here, then the bus."""
        if self._closed:
            return
        self._closed = True
        with ExitStack() as closing:  # one that fails to close must not keep the others open
            closing.callback(self.bus.close)
            with self._books:
                for opened in self._opened:
                    closing.callback(opened.close)

    def __enter__(self) -> Lockstep:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _remember(self, opened: Publisher | Subscriber | Receiver) -> None:
        with self._books:
            self._opened = [known for known in self._opened if not known.is_closed]
            self._opened.append(opened)

    def _open_publisher(self, stream: str) -> Publisher:
        return self.publisher(stream)

    def _open(self, name: str) -> Log:
        if self._closed:
            raise Closed(what=f"The connection to {self.url}")
        return self.bus.open(check_stream(name))

    def _only_log(self, name: str) -> Log:
        self._open(name)
        return only_log(self.bus, name)

    def _prepare(self, name: str, config: StreamConfig | None, create: bool) -> list[Log]:
        """Open a stream, making it if that is wanted; a given configuration must be the stored one."""
        try:
            stored = self._open(name).config
        except StreamNotFound:
            if not create:
                raise
            stored = self.create(name, config)
        if config is not None:
            stored.check_same(name, config)
        return self.logs(name)

    def _alone(
        self,
        logs: Sequence[Log],
        initial: str,
        settings: SubscriberOptions,
        meter: SubscriberMeter,
        value: Serializer,
        key: Serializer,
    ) -> Subscriber:
        positions = {log.name: _start(log, "latest" if initial == "auto" else initial) for log in logs}
        dedupe = not self.promises.dedupe
        return Subscriber(
            logs, self.bus.waiter(), self.runtime, settings, meter,
            positions=positions, dedupe=dedupe, value=value, key=key,
        )  # fmt: skip

    def _in_group(
        self,
        logs: Sequence[Log],
        group: str,
        initial: str,
        settings: SubscriberOptions,
        group_options: GroupOptions | None,
        meter: SubscriberMeter,
        value: Serializer,
        key: Serializer,
    ) -> Subscriber:
        grouplog = GroupLog(self.bus, group, self.runtime)
        seats = {seat_name(log): log for log in logs}
        if initial == "none":
            _check_stored(grouplog, seats)
        with ExitStack() as undo:
            waiter, members_waiter = self.bus.waiter(), self.bus.waiter()
            undo.callback(waiter.close)
            undo.callback(members_waiter.close)
            member = GroupMember(
                grouplog,
                members_waiter,
                seats,
                self.runtime,
                group_options or GroupOptions(),
                starts=lambda log: _start(log, "earliest" if initial == "auto" else initial),
                changed=waiter,
                on_error=settings.on_error or _log_error,
            )
            undo.pop_all()
        return Subscriber(
            logs, waiter, self.runtime, settings, meter,
            member=member, seats=seats, group=group, dedupe=not self.promises.dedupe, value=value, key=key,
        )  # fmt: skip


def _within(options: PublisherOptions, log: Log) -> PublisherOptions:
    """Batches no larger than the log takes them."""
    most = log.limits.batch_records
    return options if most is None else replace(options, batch_records=min(most, options.batch_records))


def _start(log: Log, initial: str) -> int:
    bounds = log.bounds()
    return bounds.next if initial == "latest" else bounds.first


def _check_stored(grouplog: GroupLog, seats: Mapping[str, Log]) -> None:
    state = grouplog.load()
    for seat, log in seats.items():
        if state.seat(seat).resume is None:
            raise PositionNotFound(group=grouplog.group, stream=log.name)


def _options(kind: type[Any], given: dict[str, Any]) -> Any:
    try:
        return kind(**given)
    except TypeError as error:
        stray = sorted(name for name in given if name in GroupOptions.__dataclass_fields__)
        hint = f"; give {stray[0]} in group_options=GroupOptions(...)" if stray else ""
        raise BadConfig(field="options", value=sorted(given), reason=str(error).split(") ")[-1] + hint) from error


def _log_error(summary: str, error: BaseException | None) -> None:
    logger.warning(summary, exc_info=error, extra={"action": "group_error"})
