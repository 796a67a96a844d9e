"""The front door: connect to a bus, make streams, publish, subscribe."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Unpack
from weakref import WeakSet

from lockstep.errors import (
    BadArgument,
    BadConfig,
    Closed,
    PositionNotFound,
    PublishFailed,
    RecordNotFound,
    StreamNotFound,
    TimedOut,
)
from lockstep.log.batch import BatchView
from lockstep.log.config import RETAIN_AGE_DEFAULT_S, StreamConfig, check_name
from lockstep.log.embedded.bus import OpenHistory
from lockstep.log.port import Bounds, Bus, Log, Promises
from lockstep.log.urls import Backend, open_bus
from lockstep.runtime import Runtime, ThreadRuntime, logger
from lockstep.streams import arguments, seen
from lockstep.streams.admin import Groups
from lockstep.streams.cursor import first_at
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.handlers import LETTER_BYTES, Handler
from lockstep.streams.lag import LagReader
from lockstep.streams.lane import Lane
from lockstep.streams.member import GroupMember, seat_name
from lockstep.streams.metrics import Metrics, PublisherMeter, SubscriberMeter
from lockstep.streams.options import (
    INITIAL,
    GroupOptions,
    Initial,
    PublisherOptions,
    PublisherSettings,
    ReceiverSettings,
    StreamSettings,
    SubscriberOptions,
    SubscriberSettings,
    check_options,
    made,
)
from lockstep.streams.publisher import Publisher, close_lanes, raise_failures
from lockstep.streams.receiver import Receiver
from lockstep.streams.record import Record, RecordBatch, Segment
from lockstep.streams.serializers import BYTES, K, Serializer, V
from lockstep.streams.shards import SEPARATOR, check_stream, logs_of, only_log, shard_name
from lockstep.streams.subscriber import Subscriber
from lockstep.streams.threads import PUBLISHER_THREADS, Process, SharedThread
from lockstep.streams.transaction import GroupTransaction, Transaction

_CREATED_AT_ONCE = 1000


def connect(
    url: str,
    *,
    create: bool = True,
    runtime: Runtime | None = None,
    backends: Mapping[str, Backend] | None = None,
    histories: Mapping[str, OpenHistory] | None = None,
) -> Lockstep:
    """Open the bus at a URL: lmdb:FOLDER for all processes of this machine, memory:NAME within this one, or a server.

    Servers are kafka://, rabbitmq://, redis:// and hazelcast:// with host and port; see docs/reference/urls.md.
    `backends` and `histories` add schemes of your own: for buses, and for stores of records beyond a capacity.
    """
    runtime = runtime or ThreadRuntime()
    return Lockstep(open_bus(url, runtime, create=create, backends=backends, histories=histories), runtime)


class Lockstep:
    """A connection to a bus. Safe to share between threads; not to be carried through a fork."""

    def __init__(self, bus: Bus, runtime: Runtime) -> None:
        self.bus, self.runtime = bus, runtime
        self._lags = LagReader(bus, runtime)
        self.metrics = Metrics(self._lags)
        self._opened: WeakSet[Publisher[Any, Any] | Subscriber[Any, Any]] = WeakSet()
        self._lanes: list[Lane] = []
        self._receivers: list[Receiver] = []
        self._books = threading.Lock()
        self._process = Process(bus.url)
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
        """Create a stream and return its configuration; if it exists, return the stored one.

        Without a configuration it keeps seven days. One that was created without takes the first that is given, as far
        as it can be altered; any other difference is a ConfigMismatch.
        """
        check_name("Stream", name)
        if config is not None:
            arguments.instance("config", config, StreamConfig)
        try:
            return self._agreed(name, self._open(name).config, config)
        except StreamNotFound:
            config = self._default_config(name) if config is None else config
        for shard in range(config.shards if config.shards > 1 else 0):
            self.bus.create(shard_name(name, shard), config)  # before the stream itself, so that it is never half there
        log = self.bus.create(name, config)
        if config.sync_replicas > self.promises.sync_replicas:
            logger.warning(
                "The stream wants %d more copies before an acknowledgement than the bus writes",
                config.sync_replicas - self.promises.sync_replicas,
                extra={"action": "too_few_replicas", "stream": name, "bus": self.url},
            )
        return log.config

    def create_many(self, names: Sequence[str], config: StreamConfig | None = None) -> None:
        """As create, for many streams with one configuration: where the bus can, thousands are stored in one step."""
        if isinstance(names, str):
            raise BadArgument(name="names", value=names, reason="give a list of names")
        store = getattr(self.bus, "create_many", None)
        settings = config or StreamConfig()
        if store is not None:
            for part in range(0, len(names), _CREATED_AT_ONCE):
                some = [check_name("Stream", name) for name in names[part : part + _CREATED_AT_ONCE]]
                shards = range(settings.shards if settings.shards > 1 else 0)
                store([*(shard_name(name, shard) for name in some for shard in shards), *some], settings)
        for name in names:
            self.create(name, config)

    def alter(self, name: str, **settings: Unpack[StreamSettings]) -> StreamConfig:
        """Change settings of a stream; returns all of them. Shards and history are fixed when a stream is created.

        Every process follows with its next append, or after a second or so. What a lower bound gives up goes with the
        next append.
        """
        check_name("Stream", name)
        return self._alter(name, self._open(name).config.altered(name, settings))

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
        for shard in range(config.shards if config.shards > 1 else 0):
            with suppress(StreamNotFound):  # a delete that was cut short can be done again
                self.bus.delete(shard_name(name, shard))
        self.bus.delete(name)

    def wait_for(self, name: str, timeout: float = 10.0) -> StreamConfig:
        """Wait until another process has made a stream, and return its configuration; TimedOut if it does not come."""
        end = self.runtime.monotonic() + arguments.seconds("timeout", timeout)
        waiter = self.runtime.waiter()
        while self.runtime.monotonic() < end:
            try:
                return self.config(name)
            except StreamNotFound:
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
        offset = arguments.offset("offset", offset)
        for entry in log.read(offset, max_bytes=1):
            view = BatchView(entry.base, entry.data, name)
            if view.base <= offset < view.end:
                index = offset - view.base
                return RecordBatch(name, [Segment(view, index, index + 1)]).first()
        raise RecordNotFound(stream=name, offset=offset)

    def offset_at(self, name: str, time_ns: int) -> int:
        """The first offset appended at or after a time; the end of the stream if there is none."""
        return first_at(self._only_log(name), arguments.time_ns("time_ns", time_ns))

    def trim(self, name: str, before: int) -> None:
        """Make everything below an offset unreadable, for good."""
        before = arguments.offset("before", before)
        for log in self.logs(name):
            log.trim(before)

    def publisher(
        self,
        stream: str,
        *,
        config: StreamConfig | None = None,
        create: bool = True,
        value: Serializer[V] = BYTES,  # type: ignore[assignment]
        key: Serializer[K] = BYTES,  # type: ignore[assignment]
        **options: Unpack[PublisherSettings],
    ) -> Publisher[V, K]:
        """A publisher to a stream, which is made if it is missing. `options`: see PublisherOptions."""
        chosen = made(PublisherOptions, "a publisher", {**options})
        logs = self._prepare(stream, config, create, chosen.partitioner)
        settings = _within(chosen, logs[0])
        threads = [SharedThread(self.runtime, f"lockstep-publish-{stream}") for _ in logs[:PUBLISHER_THREADS]]
        lanes = []
        for number, log in enumerate(logs):
            meter = PublisherMeter(stream)
            thread = threads[number % len(threads)] if len(logs) > len(threads) else None
            lane = Lane(log, self.runtime, settings, meter, value=value, key=key, thread=thread)
            meter.queued = lambda lane=lane: lane.queued  # type: ignore[misc]
            self.metrics._add(meter)
            lanes.append(lane)
        publisher = Publisher(stream, lanes, self.runtime, settings, value=value, key=key)
        with self._books:
            self._opened.add(publisher)
            self._lanes = [lane for lane in self._lanes if not lane.has_ended]
            self._lanes += lanes
        return publisher

    def subscriber(
        self,
        *streams: str,
        group: str | None = None,
        initial: Initial = "auto",
        config: StreamConfig | None = None,
        create: bool = True,
        value: Serializer[V] = BYTES,  # type: ignore[assignment]
        key: Serializer[K] = BYTES,  # type: ignore[assignment]
        group_options: GroupOptions | None = None,
        **options: Unpack[SubscriberSettings],
    ) -> Subscriber[V, K]:
        """A subscriber to one stream or several, alone or in a group. `options`: see SubscriberOptions.

        `initial` says where to begin without a stored position: earliest, latest, none (refuse), or auto: latest
        alone, earliest in a group.
        """
        settings = made(SubscriberOptions, "a subscriber", {**options})
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
        self.metrics._add(meter)
        with self._books:
            self._opened.add(subscriber)
        return subscriber

    def transaction(self) -> Transaction:
        """Publish to several streams, and set small state, in one step: all or nothing."""
        self._check_open()
        return Transaction(self.bus, self.runtime)

    def group_transaction(self, subscriber: Subscriber[Any, Any]) -> GroupTransaction:
        """As transaction, and confirm what the subscriber's group has processed: exactly once."""
        self._check_open()
        return GroupTransaction(self.bus, self.runtime, subscriber)

    def receive(
        self, subscriber: Subscriber[Any, Any], handler: Handler, **options: Unpack[ReceiverSettings]
    ) -> Receiver:
        """Have records handed to a function in the background. `options`: see Receiver."""
        check_options("a receiver", options, ReceiverSettings.__annotations__)
        arguments.function("handler", handler)
        receiver = Receiver(subscriber, handler, self.runtime, self._open_letters, **options)
        with self._books:  # it keeps working when no reference to it is kept
            self._receivers = [known for known in self._receivers if not known.is_closed]
            self._receivers.append(receiver)
        return receiver

    @property
    def groups(self) -> Groups:
        """The groups of this bus, to look at and to change."""
        return Groups(self.bus, self.runtime)

    def first_time(self, space: str, key: str, *, remember: int | None = None) -> bool:
        """True for a key that is new to the space: for handlers that must not act twice.

        Keys are remembered for ever; with `remember`, only the last so many of the space.
        """
        self._check_open()
        arguments.text("space", space)
        arguments.text("key", key)
        limit = None if remember is None else arguments.integer("remember", remember, least=1)
        return self.bus.atomic(lambda changes: seen.first_time(changes, space, key, limit))

    def close(self) -> None:
        """Close every publisher and subscriber opened here, then the bus.

        PublishFailed, after all is closed, if failed records were not yet reported. In a forked child that inherited
        the connection it does nothing: streams, locks and group memberships are the parent's.
        """
        if self._closed:
            return
        self._closed = True
        if self._process.is_forked:
            return
        with ExitStack() as closing:  # one that fails to close must not keep the others open
            closing.callback(self.bus.close)
            closing.callback(self._lags.close)
            with self._books:
                opened: list[Publisher[Any, Any] | Subscriber[Any, Any] | Receiver] = [*self._opened, *self._receivers]
                closing.callback(_close_dropped, [lane for lane in self._lanes if not lane.has_ended])
            for one in opened:
                closing.callback(one.close)

    def __repr__(self) -> str:
        return f"<Lockstep {self.url}{' closed' if self._closed else ''}>"

    def __enter__(self) -> Lockstep:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.close()
        except PublishFailed:
            if error is None:  # else the error that ended the block is the one to be seen
                raise

    def _default_config(self, name: str) -> StreamConfig:
        """The default configuration: seven days, or what comes nearest on this bus, which is then logged."""
        extra = {"action": "default_retention", "stream": name, "bus": self.url}
        if "age" not in self.promises.retention:
            logger.warning("Stream %s keeps all records: the bus can't bound it by age", name, extra=extra)
            return StreamConfig(capacity=None)
        ask_room = getattr(self.bus, "room", None)
        room: int | None = ask_room(name) if ask_room is not None else None
        if room is None:
            return StreamConfig()
        logger.warning(
            "Stream %s keeps the last %d records of seven days: its ring on the server has room for no more",
            name, room, extra=extra,
        )  # fmt: skip
        return StreamConfig(capacity=room, retain_age_s=RETAIN_AGE_DEFAULT_S)

    def _agreed(self, name: str, stored: StreamConfig, given: StreamConfig | None) -> StreamConfig:
        """The configuration of a stream that exists, checked against the given one, if any."""
        if given is None or not stored.differences(given):
            return stored
        stored.check_alterable(name, given)
        if not self._is_default(stored):
            stored.check_same(name, given)
        logger.info("Stream %s takes its settings", name, extra={"action": "settings_taken", "stream": name})
        return self._alter(name, given)

    def _is_default(self, stored: StreamConfig) -> bool:
        """Whether a stream was made without settings."""
        default = StreamConfig(shards=stored.shards, history=stored.history)
        if getattr(self.bus, "has_rings", False):
            default = replace(default, capacity=stored.capacity)
        return not stored.differences(default)

    def _alter(self, name: str, config: StreamConfig) -> StreamConfig:
        if config.protect and not self._open(name).config.protect:
            self.groups._hold_positions(self.logs(name))  # before the first append that would drop something
        for shard in range(config.shards if config.shards > 1 else 0):
            self.bus.alter(shard_name(name, shard), config)
        return self.bus.alter(name, config).config

    def _open_letters(self, stream: str, source: str) -> Publisher:
        """A publisher to a dead-letter stream; one that is made takes the largest record of its source, and headers."""
        try:
            self._open(stream)
        except StreamNotFound:
            largest = self._open(source).config.max_record_bytes + LETTER_BYTES
            self.create(stream, replace(self._default_config(stream), max_record_bytes=largest))
        return self.publisher(stream)

    def _open(self, name: str) -> Log:
        self._check_open()
        return self.bus.open(check_stream(name))

    def _check_open(self) -> None:
        self._process.check()
        if self._closed:
            raise Closed(what=f"The connection to {self.url}")

    def _only_log(self, name: str) -> Log:
        self._open(name)
        return only_log(self.bus, name)

    def _prepare(
        self, name: str, config: StreamConfig | None, create: bool, partitioner: str | None = None
    ) -> list[Log]:
        """Open a stream, creating it if asked to; a given configuration must be the stored one."""
        if config is not None:
            arguments.instance("config", config, StreamConfig)
            config = config if partitioner is None else replace(config, partitioner=partitioner)
        try:
            stored = self._open(name).config
        except StreamNotFound:
            if not create:
                raise
            if config is None and partitioner is not None:
                config = replace(self._default_config(name), partitioner=partitioner)
            stored = self.create(name, config)
        if config is None and partitioner not in (None, stored.partitioner):
            config = replace(stored, partitioner=str(partitioner))
        self._agreed(name, stored, config)
        return self.logs(name)

    def _alone(
        self,
        logs: Sequence[Log],
        initial: str,
        settings: SubscriberOptions,
        meter: SubscriberMeter,
        value: Serializer[V],
        key: Serializer[K],
    ) -> Subscriber[V, K]:
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
        value: Serializer[V],
        key: Serializer[K],
    ) -> Subscriber[V, K]:
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
                shares_work=True,
            )
            undo.pop_all()
        return Subscriber(
            logs, waiter, self.runtime, settings, meter,
            member=member, seats=seats, group=group, dedupe=not self.promises.dedupe, value=value, key=key,
        )  # fmt: skip


def _close_dropped(lanes: Sequence[Lane]) -> None:
    """Wait for what publishers that were not closed still send; PublishFailed for what they could not."""
    close_lanes(lanes)
    for lane in lanes:
        raise_failures([lane], lane.log.name)


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


def _log_error(summary: str, error: BaseException | None) -> None:
    logger.warning(summary, exc_info=error, extra={"action": "group_error"})
