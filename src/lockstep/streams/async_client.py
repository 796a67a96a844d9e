"""The client for asyncio: the same publishers, subscribers and groups, and nothing that blocks the event loop.

    async with lockstep.connect_async("lmdb:./events") as bus:
        async with await bus.publisher("orders") as publisher:
            receipt = await publisher.publish(b"one coffee")
            offset = await receipt
        async with await bus.subscriber("orders", group="kitchen") as subscriber:
            async for record in subscriber:
                await subscriber.confirm(record)

Calls that may wait for a disk or a server run in threads: a few for each connection, and one for each publisher and
subscriber, which keeps its calls in order. A call that is cancelled leaves its object usable: what a cancelled poll has
read is returned by the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from lockstep.errors import BufferFull, Closed, IllegalState, NoRoom, PublishFailed
from lockstep.log.config import StreamConfig
from lockstep.log.embedded.bus import OpenHistory
from lockstep.log.port import Bounds, Promises
from lockstep.log.urls import Backend
from lockstep.runtime import Runtime
from lockstep.streams import arguments
from lockstep.streams.admin import GroupView
from lockstep.streams.client import Lockstep, connect
from lockstep.streams.cursors import RecordsInTurn
from lockstep.streams.options import GroupOptions, Initial, PublisherSettings, StreamSettings, SubscriberSettings
from lockstep.streams.publisher import Publisher
from lockstep.streams.receipt import Callback, ManyReceipt, Receipt
from lockstep.streams.record import Record, RecordBatch
from lockstep.streams.serializers import BYTES, K, Serializer, V
from lockstep.streams.shards import HeaderPairs
from lockstep.streams.subscriber import Subscriber

P = ParamSpec("P")
T = TypeVar("T")

CONNECTION_THREADS = 4
_ROOM_S = 0.05
_SLICE_S = 1.0
_YIELD_EVERY = 100
"""A loop that publishes lets others run after so many records, even if it never has to wait."""


class Threads:
    """A few threads for calls that block; their results come back to the event loop."""

    def __init__(self, name: str, count: int, what: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self._what, self._closed = what, False

    def start(self, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Begin a call. It runs to its end even if the caller stops waiting for it."""
        if self._closed:
            raise Closed(what=self._what)
        return asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *given, **named))

    async def run(self, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """The result of a call."""
        return await self.start(call, *given, **named)

    def close(self) -> None:
        """Take no more calls; those under way end by themselves."""
        self._closed = True
        self._pool.shutdown(wait=False)


def connect_async(
    url: str,
    *,
    create: bool = True,
    runtime: Runtime | None = None,
    backends: Mapping[str, Backend] | None = None,
    histories: Mapping[str, OpenHistory] | None = None,
) -> AsyncLockstep:
    """Open the bus at a URL, for asyncio; the arguments are those of `connect`.

    async with lockstep.connect_async("lmdb:./events") as bus: ...
    bus = await lockstep.connect_async("lmdb:./events")
    """
    return AsyncLockstep(
        partial(connect, url, create=create, runtime=runtime, backends=backends, histories=histories), url
    )


class AsyncLockstep:
    """A connection to a bus, for one event loop."""

    def __init__(self, opening: Callable[[], Lockstep], url: str) -> None:
        self.url = url
        self._opening = opening
        self._threads = Threads("lockstep-async", CONNECTION_THREADS, f"The connection to {url}")
        self._opens = asyncio.Lock()
        self._client: Lockstep | None = None
        self._opened: list[AsyncPublisher[Any, Any] | AsyncSubscriber[Any, Any]] = []
        self._closed = False

    @property
    def client(self) -> Lockstep:
        """The connection as the synchronous client; its calls block."""
        if self._closed:
            raise Closed(what=f"The connection to {self.url}")
        if self._client is None:
            reason = "write 'async with lockstep.connect_async(...) as bus', or await it"
            raise IllegalState(what=f"The connection to {self.url}", action="be used before it is open", reason=reason)
        return self._client

    @property
    def promises(self) -> Promises:
        """What the bus keeps: durability, retention, who may open it, and what it can do."""
        return self.client.promises

    @property
    def groups(self) -> AsyncGroups:
        """The groups of this bus, to look at and to change."""
        return AsyncGroups(self)

    async def run(self, work: Callable[[Lockstep], T]) -> T:
        """Call a function with the synchronous client in a thread, for example one that does a transaction."""
        return await self._threads.run(work, self.client)

    async def create(self, name: str, config: StreamConfig | None = None) -> StreamConfig:
        """Create a stream and return its configuration; if it exists, return the stored one."""
        return await self._threads.run(self.client.create, name, config)

    async def alter(self, name: str, **settings: Unpack[StreamSettings]) -> StreamConfig:
        """Change settings of a stream; returns all of them."""
        return await self._threads.run(partial(self.client.alter, name, **settings))

    async def config(self, name: str) -> StreamConfig:
        """The configuration a stream was made with."""
        return await self._threads.run(self.client.config, name)

    async def streams(self) -> list[str]:
        """The names of all streams."""
        return await self._threads.run(self.client.streams)

    async def delete(self, name: str) -> None:
        """Remove a stream and what it holds."""
        await self._threads.run(self.client.delete, name)

    async def bounds(self, name: str) -> Bounds:
        """First readable offset and the one after the last."""
        return await self._threads.run(self.client.bounds, name)

    async def get(self, name: str, offset: int) -> Record:
        """The record at an offset, found directly."""
        return await self._threads.run(self.client.get, name, offset)

    async def trim(self, name: str, before: int) -> None:
        """Make everything below an offset unreadable, for good."""
        await self._threads.run(self.client.trim, name, before)

    async def publisher(
        self,
        stream: str,
        *,
        config: StreamConfig | None = None,
        create: bool = True,
        value: Serializer[V] = BYTES,  # type: ignore[assignment]
        key: Serializer[K] = BYTES,  # type: ignore[assignment]
        **options: Unpack[PublisherSettings],
    ) -> AsyncPublisher[V, K]:
        """A publisher to a stream, which is made if it is missing.

        With when_full="block", publish() waits for room without blocking the loop.
        """
        waits = options.get("when_full", "block") == "block"
        if waits:
            options["when_full"] = "raise"  # this side waits
        made = partial(self.client.publisher, stream, config=config, create=create, value=value, key=key, **options)
        publisher = AsyncPublisher(await self._run_to_its_end(made, lambda late: late.close()), waits=waits)
        self._remember(publisher)
        return publisher

    async def subscriber(
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
    ) -> AsyncSubscriber[V, K]:
        """A subscriber to streams, alone or in a group. Callbacks in the options are called in its thread."""
        made = partial(
            self.client.subscriber, *streams, group=group, initial=initial, config=config, create=create,
            value=value, key=key, group_options=group_options, **options,
        )  # fmt: skip
        subscriber = AsyncSubscriber(await self._run_to_its_end(made, lambda late: late.close()))
        self._remember(subscriber)
        return subscriber

    async def close(self) -> None:
        """Close every publisher and subscriber opened here, then the bus."""
        if self._closed:
            return
        self._closed = True
        try:
            for opened in self._opened:
                opened._begin_close()
            if self._client is not None:
                await asyncio.shield(self._threads.start(self._client.close))
        finally:
            for opened in self._opened:
                opened._end_close()
            self._threads.close()

    def __repr__(self) -> str:
        state = " closed" if self._closed else "" if self._client is not None else " not open yet"
        return f"<AsyncLockstep {self.url}{state}>"

    def __await__(self) -> Generator[Any, None, AsyncLockstep]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncLockstep:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await _closed_after(self.close, error)

    async def _open(self) -> AsyncLockstep:
        async with self._opens:  # two tasks that open it share one connection
            if self._client is None and not self._closed:
                client = await self._run_to_its_end(self._opening, lambda late: late.close())
                if self._closed:  # meanwhile, by another task
                    await asyncio.to_thread(client.close)
                    raise Closed(what=f"The connection to {self.url}")
                self._client, self.url = client, client.url
        return self

    async def _run_to_its_end(self, call: Callable[[], T], undo: Callable[[T], None]) -> T:
        """As run; what a call opens after its caller was cancelled is closed again."""
        opening = self._threads.start(call)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:

            def finish(opened: asyncio.Future[T]) -> None:
                if not opened.cancelled() and opened.exception() is None:
                    with suppress(Closed):  # the connection is closed by now, and with it what was opened
                        self._threads.start(undo, opened.result())

            opening.add_done_callback(finish)
            raise

    def _remember(self, opened: AsyncPublisher[Any, Any] | AsyncSubscriber[Any, Any]) -> None:
        self._opened = [known for known in self._opened if not known.is_closed]
        self._opened.append(opened)


class AsyncGroups:
    """The groups of a bus, to look at and to change."""

    def __init__(self, connection: AsyncLockstep) -> None:
        self._connection = connection

    async def names(self) -> list[str]:
        """All groups."""
        return await self._connection.run(lambda client: client.groups.names())

    async def describe(self, group: str) -> GroupView:
        """Members, owners, positions and lag."""
        return await self._connection.run(lambda client: client.groups.describe(group))

    async def reset(self, group: str, stream: str, to: str | int, *, force: bool = False, timeout: float = 10.0) -> int:
        """Have a group read a stream from another position, and return it. The owner of the stream loses it."""
        return await self._connection.run(
            lambda client: client.groups.reset(group, stream, to, force=force, timeout=timeout)
        )

    async def delete(self, group: str, *, force: bool = False) -> None:
        """Forget a group and its positions. Refused while a live member works, unless forced."""
        await self._connection.run(lambda client: client.groups.delete(group, force=force))


class AsyncPublisher(Generic[V, K]):
    """Writes to one stream, from any number of tasks of one event loop."""

    def __init__(self, publisher: Publisher[V, K], *, waits: bool) -> None:
        self._publisher, self._waits = publisher, waits
        self._threads = Threads(f"lockstep-publish-{publisher.stream}", 1, f"The publisher to {publisher.stream}")
        self._order = asyncio.Lock()
        self._closing: asyncio.Future[None] | None = None
        self._told = False
        self._published = 0

    @property
    def stream(self) -> str:
        """The stream it publishes to."""
        return self._publisher.stream

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self._publisher.is_closed

    async def publish(
        self,
        value: V,
        *,
        key: K | None = None,
        headers: HeaderPairs = (),
        created_ns: int | None = None,
        callback: Callback | None = None,
    ) -> Receipt:
        """Queue a record, waiting for room in the buffer, and return its receipt: `offset = await receipt`.

        Cancelled while it waits for room, nothing was queued. `callback` is called from a background thread.
        """
        call = partial(
            self._publisher.publish, value, key=key, headers=headers, created_ns=created_ns, callback=callback
        )
        async with self._order:  # tasks publish in the order in which they asked
            self._published += 1
            if self._published % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            return await self._when_there_is_room(call)

    async def publish_many(self, values: Iterable[V], *, keys: Iterable[K | None] | None = None) -> ManyReceipt:
        """Queue many records that are stored in one step, and return their receipt: `offsets = await receipt`."""
        values = arguments.several("values", values)
        keys = None if keys is None else arguments.several("keys", keys)
        call = partial(self._publisher.publish_many, values, keys=keys)
        async with self._order:
            return await self._when_there_is_room(call, in_thread=len(values) > _YIELD_EVERY)

    async def publish_and_wait(self, value: V, *, key: K | None = None, headers: HeaderPairs = ()) -> int:
        """Publish a record, and return its offset when it is stored as promised."""
        return await (await self.publish(value, key=key, headers=headers))

    async def flush(self, timeout: float | None = None) -> None:
        """Return when everything queued so far is stored or has failed."""
        await self._threads.run(self._publisher.flush, timeout)

    async def close(self) -> None:
        """Flush and stop; whatever can't be stored in time fails. A second call waits for the first."""
        if self._closing is None:
            if self._publisher.is_closed:
                return
            self._closing = self._threads.start(self._publisher.close)
            self._end_close()
        try:
            await asyncio.shield(self._closing)
        except PublishFailed:
            told, self._told = self._told, True
            if not told:
                raise

    def _begin_close(self) -> None:
        """The connection is about to close it."""

    def _end_close(self) -> None:
        """Let its thread go."""
        self._threads.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self._publisher)[1:]}"

    async def __aenter__(self) -> AsyncPublisher[V, K]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await _closed_after(self.close, error)

    async def _when_there_is_room(self, call: Callable[[], T], *, in_thread: bool = False) -> T:
        loop = asyncio.get_running_loop()
        seconds = self._publisher.options.delivery_timeout_s
        end = loop.time() + seconds
        while True:
            try:
                return await asyncio.shield(self._threads.start(call)) if in_thread else call()
            except BufferFull as error:
                if not self._waits:
                    raise
                if loop.time() >= end:
                    raise NoRoom(stream=self.stream, seconds=seconds) from error
            await self._threads.run(self._publisher._wait_for_room, _ROOM_S)


class AsyncSubscriber(Generic[V, K]):
    """Reads one stream or several, for one task at a time."""

    def __init__(self, subscriber: Subscriber[V, K]) -> None:
        self._subscriber = subscriber
        self._threads = Threads("lockstep-subscribe", 1, "The subscriber")
        self._reading: asyncio.Future[RecordBatch[V, K]] | None = None
        """A read under way, or done and not handed out because its caller was cancelled."""
        self._closing: asyncio.Future[None] | None = None
        self._last: str | None = None
        """The stream of the last record that was handed out."""

    @property
    def group(self) -> str | None:
        """Its group, if it is in one."""
        return self._subscriber.group

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self._subscriber.is_closed

    @property
    def assigned(self) -> list[str]:
        """The streams it may read now."""
        return self._subscriber.assigned

    async def poll(
        self, timeout: float = 0.0, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> RecordBatch[V, K]:
        """The next records, or an empty batch after `timeout` seconds.

        Cancelled, it loses nothing: what was read meanwhile is returned by the next poll.
        """
        most = self._subscriber.options.max_records
        if max_records is not None:
            most = arguments.integer("max_records", max_records, least=1)
        if max_bytes is not None:
            max_bytes = arguments.integer("max_bytes", max_bytes, least=1)
        batch = (await self._next(arguments.seconds("timeout", timeout), most, max_bytes))[:most]
        if batch:
            self._last = batch.stream
            self._subscriber._hand_out(batch)
        return batch

    def records(self, idle_s: float | None = None) -> AsyncIterator[Record[V, K]]:
        """Records one by one, until closed, or until none came for `idle_s` seconds. See Subscriber.records."""
        return _Records(self, None if idle_s is None else arguments.seconds("idle_s", idle_s))

    def __aiter__(self) -> AsyncIterator[Record[V, K]]:
        return self.records()

    async def confirm(
        self,
        offset: int | Record[V, K] | RecordBatch[V, K] | None = None,
        *,
        stream: str | None = None,
        sync: bool = False,
        timeout: float = 10.0,
    ) -> None:
        """Everything up to an offset, record or batch is done; by default, the last record that was handed out.

        With `sync` it returns once the confirmation was read back and counts.
        """
        if offset is None:
            stream = stream or self._last
            if stream is None:
                return
        await self._threads.run(self._subscriber.confirm, offset, stream=stream, sync=sync, timeout=timeout)

    async def flush_confirms(self, timeout: float = 10.0) -> None:
        """Return when everything confirmed so far was read back and counts."""
        await self._threads.run(self._subscriber.flush_confirms, timeout)

    async def seek(self, offset: int, *, stream: str | None = None, check: bool = False) -> None:
        """Read on from an offset."""
        await self._threads.run(self._subscriber.seek, offset, stream=stream, check=check)

    async def seek_to_beginning(self, stream: str | None = None) -> None:
        """Read on from the first readable record."""
        await self._threads.run(self._subscriber.seek_to_beginning, stream)

    async def seek_to_end(self, stream: str | None = None) -> None:
        """Read only what is published from now on."""
        await self._threads.run(self._subscriber.seek_to_end, stream)

    async def seek_to_time(self, time_ns: int, *, stream: str | None = None) -> None:
        """Read on from the first record appended at or after a time."""
        await self._threads.run(self._subscriber.seek_to_time, time_ns, stream=stream)

    async def close(self) -> None:
        """Write what is confirmed, hand streams over, stop."""
        if self._closing is None:
            if self._subscriber.is_closed:
                return
            self._begin_close()
            self._closing = self._threads.start(self._subscriber.close)
            self._end_close()
        await asyncio.shield(self._closing)

    def _begin_close(self) -> None:
        """End a wait for records, so that its thread can close it."""
        self._subscriber._waiter.wake()

    def _end_close(self) -> None:
        """Let its thread go."""
        self._threads.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self._subscriber)[1:]}"

    async def __aenter__(self) -> AsyncSubscriber[V, K]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _next(self, timeout: float, max_records: int, max_bytes: int | None) -> RecordBatch[V, K]:
        """The next records. They are not handed out yet: the position stays, so nothing is lost if this is cancelled.

        They may be more than `max_records`, if a poll with another limit read them and was cancelled.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        size = self._subscriber.options.max_bytes if max_bytes is None else max_bytes
        while True:
            if self._reading is None:
                self._reading = self._threads.start(self._subscriber._peek, max_records, size)
            batch = await self._read()
            if batch and not self._subscriber._is_next(batch):  # read before a seek, or before the stream was lost
                continue
            left = end - loop.time()
            if batch or batch.gap is not None or left <= 0:
                return batch
            await self._wait(min(left, _SLICE_S))

    async def _read(self) -> RecordBatch[V, K]:
        """The batch that is being read. If this is cancelled, the next call gets it."""
        reading = self._reading
        assert reading is not None, "it was begun"
        await asyncio.wait([reading])
        self._reading = None
        return reading.result()

    async def _wait(self, timeout: float) -> None:
        """Wait until there may be something to read; cancelled, the thread does not wait either."""
        try:
            await self._threads.run(self._subscriber._waiter.wait, timeout)
        except asyncio.CancelledError:
            self._subscriber._waiter.wake()
            raise


class _Records(Generic[V, K]):
    """Records one by one. As in a thread, the position is after the last record handed out."""

    def __init__(self, subscriber: AsyncSubscriber[V, K], idle_s: float | None) -> None:
        self._subscriber, self._idle_s = subscriber, idle_s
        self._batch: RecordsInTurn | None = None

    def __aiter__(self) -> AsyncIterator[Record[V, K]]:
        return self

    async def __anext__(self) -> Record[V, K]:
        reader = self._subscriber._subscriber
        while not reader.is_closed:
            if self._batch is not None and reader._goes_on(self._batch.stream):
                self._subscriber._last = self._batch.stream
                for record in self._batch:
                    return record
            self._batch = await self._next_batch()
        raise StopAsyncIteration

    async def _next_batch(self) -> RecordsInTurn | None:
        reader = self._subscriber._subscriber
        timeout = _SLICE_S if self._idle_s is None else self._idle_s
        try:
            batch = await self._subscriber._next(timeout, reader.options.max_records, None)
        except Closed:  # by another task, while waiting: that is how such a loop is ended
            raise StopAsyncIteration from None
        if not batch and batch.gap is None and self._idle_s is not None:
            raise StopAsyncIteration
        return reader._one_by_one(batch) if batch else None


async def _closed_after(close: Callable[[], Awaitable[None]], error: BaseException | None) -> None:
    """Close at the end of a with block; an error that ended the block is the one to be seen."""
    try:
        await close()
    except PublishFailed:
        if error is None:
            raise
