"""The asyncio client: the same promises, and an event loop that is never blocked."""

from __future__ import annotations

import asyncio
import threading

import pytest

import lockstep
from lockstep import GroupOptions, StreamConfig
from lockstep.errors import (
    BadOffset,
    BufferFull,
    Closed,
    DecodeFailed,
    IllegalState,
    NoRoom,
    PublishFailed,
    StoreFull,
    StreamNotFound,
)

FAST = GroupOptions(lease_s=0.4, beat_s=0.05)


@pytest.fixture(params=["memory", "lmdb"])
def url(request, tmp_path):
    if request.param == "memory":
        name = f"memory:{tmp_path.name}"
        with lockstep.connect(name):
            yield name
    else:
        yield f"lmdb:{tmp_path / 'bus'}?map_bytes={1 << 26}"


def run(main):
    return asyncio.run(asyncio.wait_for(main, 60))


class SlowDisk:
    """Appends wait until they are let go."""

    def __init__(self, bus, monkeypatch):
        self.go = threading.Event()
        log = type(bus.client.bus.create("orders", StreamConfig(capacity=None)))
        append = log.append

        def slow(this, *arguments, **named):
            assert self.go.wait(30)
            return append(this, *arguments, **named)

        monkeypatch.setattr(log, "append", slow)


class Ticks:
    """Counts how often the loop came around, to see that nothing blocks it."""

    def __init__(self):
        self.count = 0

    async def __aenter__(self):
        self._task = asyncio.ensure_future(self._tick())
        return self

    async def __aexit__(self, *error):
        self._task.cancel()

    async def _tick(self):
        while True:
            self.count += 1
            await asyncio.sleep(0.001)


def test_publish_poll_iterate_confirm_and_groups(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            async with await bus.publisher("orders", value=lockstep.JSON, key=lockstep.TEXT) as publisher:
                receipt = await publisher.publish({"n": 0}, key="a")
                assert await receipt == 0
                assert await (await publisher.publish_many([{"n": 1}, {"n": 2}])) == [1, 2]
                assert await publisher.publish_and_wait({"n": 3}, headers={"h": b"1"}) == 3
            options = {"group": "kitchen", "value": lockstep.JSON, "group_options": FAST}
            async with await bus.subscriber("orders", **options) as subscriber:
                batch = await subscriber.poll(10, max_records=2, max_bytes=100)
                assert [record.value["n"] for record in batch] == [0, 1]
                await subscriber.confirm(batch, sync=True)
                async for record in subscriber:
                    await subscriber.confirm(record, sync=True)
                    break
                await subscriber.confirm(sync=True)
            view = await bus.groups.describe("kitchen")
            assert view.streams[0].confirmed == 2, "of what was fetched, only what was handed out is confirmed"
            async with await bus.subscriber("orders", **options) as later:
                assert [record.value["n"] async for record in later.records(idle_s=0.2)] == [3]
            assert await bus.groups.names() == ["kitchen"]
            assert await bus.groups.reset("kitchen", "orders", "earliest", force=True) == 0
            await bus.groups.delete("kitchen", force=True)
            assert (await bus.alter("orders", capacity=2)).capacity == 2
            assert await bus.streams() == ["orders"]
            assert (await bus.bounds("orders")).next == 4
            assert await bus.run(lambda client: client.offset_at("orders", 0)) == 0
            await bus.delete("orders")
            with pytest.raises(StreamNotFound):
                await bus.config("orders")

    run(main())


def test_a_full_buffer_does_not_block_the_loop_and_keeps_the_order(url, monkeypatch):
    async def main():
        async with lockstep.connect_async(url) as bus:
            disk = SlowDisk(bus, monkeypatch)
            publisher = await bus.publisher("orders", buffer_records=10)
            async with Ticks() as ticks:
                tasks = [asyncio.ensure_future(publisher.publish(b"%d" % number)) for number in range(30)]
                before = ticks.count
                done, waiting = await asyncio.wait(tasks, timeout=0.2)
                assert ticks.count - before > 20
                assert len(done) == 10
                assert len(waiting) == 20
                disk.go.set()
                offsets = await asyncio.gather(*[await task for task in tasks])
            assert offsets == list(range(30))
            await publisher.close()
            stored = [
                record.value async for record in (await bus.subscriber("orders", initial="earliest")).records(0.1)
            ]
            assert stored == [b"%d" % number for number in range(30)]

    run(main())


def test_a_publish_cancelled_while_it_waits_for_room_queues_nothing(url, monkeypatch):
    async def main():
        async with lockstep.connect_async(url) as bus:
            disk = SlowDisk(bus, monkeypatch)
            publisher = await bus.publisher("orders", buffer_records=1)
            first = await publisher.publish(b"first")
            waiting = asyncio.ensure_future(publisher.publish(b"never"))
            await asyncio.sleep(0.02)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            disk.go.set()
            await first
            assert await publisher.publish_and_wait(b"second") == 1

    run(main())


def test_room_that_does_not_come_is_an_error_that_says_that_nothing_was_queued(url, monkeypatch):
    async def main():
        async with lockstep.connect_async(url) as bus:
            disk = SlowDisk(bus, monkeypatch)
            waits = await bus.publisher("orders", buffer_records=1, delivery_timeout_s=0.1)
            await waits.publish(b"first")
            with pytest.raises(NoRoom, match="was not queued"):
                await waits.publish(b"never")
            raises = await bus.publisher("orders", buffer_records=1, when_full="raise")
            await raises.publish(b"second")
            with pytest.raises(BufferFull, match="was not queued"):
                await raises.publish(b"never")
            disk.go.set()

    run(main())


def test_a_cancelled_poll_loses_nothing_and_confirms_nothing(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            publisher = await bus.publisher("orders")
            subscriber = await bus.subscriber("orders", group="g", group_options=FAST)
            await publisher.publish_and_wait(b"0")
            assert (await subscriber.poll(10)).values() == [b"0"]
            found = []
            for number in range(1, 30):
                polling = asyncio.ensure_future(subscriber.poll(30))
                await asyncio.sleep(0.001 * (number % 3))
                await publisher.publish_and_wait(b"%d" % number)
                if number % 2:
                    await asyncio.sleep(0)
                polling.cancel()
                try:
                    found += (await polling).values()
                except asyncio.CancelledError:
                    await subscriber.confirm()
            while len(found) < 29:
                found += (await subscriber.poll(10, max_records=2)).values()
            assert found == [b"%d" % number for number in range(1, 30)]

    run(main())


def test_what_a_cancelled_poll_had_read_is_not_confirmed(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            publisher = await bus.publisher("orders")
            subscriber = await bus.subscriber("orders", group="g", group_options=FAST)
            await publisher.publish_and_wait(b"0")
            assert (await subscriber.poll(10)).values() == [b"0"]
            await publisher.publish_and_wait(b"1")
            polling = asyncio.ensure_future(subscriber.poll(10))
            await asyncio.sleep(0)
            polling.cancel()
            await asyncio.wait([polling])
            await subscriber.confirm(sync=True)
            assert (await bus.groups.describe("g")).streams[0].confirmed == 0
            assert (await subscriber.poll(10)).values() == [b"1"]

    run(main())


def test_waiting_readers_do_not_block_the_loop_and_closing_ends_them(url):
    async def main():
        bus = await lockstep.connect_async(url)
        readers = [await bus.subscriber("orders") for _ in range(3)]
        async with Ticks() as ticks:
            waiting = [asyncio.ensure_future(reader.poll(30)) for reader in readers]
            looping = asyncio.ensure_future(_all_of(await bus.subscriber("orders")))
            await asyncio.sleep(0.1)
            assert ticks.count > 20
            await bus.close()
            for one in waiting:
                with pytest.raises(Closed):
                    await one
            assert await looping == []
        with pytest.raises(Closed):
            await bus.streams()

    run(main())


async def _all_of(subscriber):
    return [record async for record in subscriber]


def test_a_connection_that_was_not_opened_says_how(url):
    async def main():
        with pytest.raises(IllegalState, match="async with"):
            await lockstep.connect_async(url).streams()

    run(main())


def test_seeking_forgets_what_was_fetched_before(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            publisher = await bus.publisher("orders")
            await (await publisher.publish_many([b"%d" % number for number in range(10)]))
            subscriber = await bus.subscriber("orders", initial="earliest")
            assert (await anext(aiter(subscriber))).offset == 0
            assert (await anext(aiter(subscriber))).offset == 1
            await subscriber.seek(8)
            assert (await subscriber.poll(5)).values() == [b"8", b"9"]
            await subscriber.seek_to_beginning()
            assert (await subscriber.poll(5, max_records=3)).values() == [b"0", b"1", b"2"]
            assert repr(subscriber) == "<AsyncSubscriber to 'orders'>"

    run(main())


def test_no_thread_is_left_behind(url):
    before = {thread.name for thread in threading.enumerate()}

    async def main():
        async with lockstep.connect_async(url) as bus:
            publisher = await bus.publisher("orders")
            await publisher.publish_and_wait(b"x")
            await (await bus.subscriber("orders", initial="earliest")).poll(1)

    run(main())
    for thread in threading.enumerate():
        if thread.name not in before:
            thread.join(5)
    assert {thread.name for thread in threading.enumerate()} <= before


async def ten_records(bus, *streams):
    for stream in streams:
        async with await bus.publisher(stream) as publisher:
            await (await publisher.publish_many(b"%d" % number for number in range(10)))  # any iterable


def test_seeking_in_one_stream_keeps_the_position_in_the_others(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            await ten_records(bus, "orders", "bills")
            subscriber = await bus.subscriber("orders", "bills", initial="earliest")
            first = await anext(aiter(subscriber))
            await subscriber.seek(8, stream="bills" if first.stream == "orders" else "orders")
            rest = [record.offset async for record in subscriber.records(idle_s=0.0) if record.stream == first.stream]
            assert rest == list(range(1, 10))

    run(main())


def test_a_seek_that_is_refused_or_cancelled_loses_nothing(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            await ten_records(bus, "orders")
            subscriber = await bus.subscriber("orders", initial="earliest")
            assert (await anext(aiter(subscriber))).offset == 0
            with pytest.raises(BadOffset):
                await subscriber.seek(99, check=True)
            assert (await anext(aiter(subscriber))).offset == 1
            polling = asyncio.ensure_future(subscriber.poll(0))
            await asyncio.sleep(0)
            polling.cancel()
            with pytest.raises(BadOffset):
                await subscriber.seek(-1)
            assert (await subscriber.poll(5)).first_offset == 2

    run(main())


def test_a_loop_goes_on_after_a_record_that_cant_be_decoded(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            publisher = await bus.publisher("orders")
            await (await publisher.publish_many([b"0", b"{", b"2"]))
            records = (await bus.subscriber("orders", initial="earliest", value=lockstep.JSON)).records(idle_s=0.0)
            assert (await anext(records)).value == 0
            with pytest.raises(DecodeFailed):
                await anext(records)
            assert [record.value async for record in records] == [2]

    run(main())


def test_whatever_is_called_after_close_says_so(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            await ten_records(bus, "orders")
            publisher = await bus.publisher("orders")
            subscriber = await bus.subscriber("orders", group="g", group_options=FAST)
            await publisher.close()
            await subscriber.close()
            for late in (
                publisher.publish(b"x"), publisher.publish_many([b"x"] * 200), publisher.flush(),
                subscriber.poll(), subscriber.confirm(1), subscriber.flush_confirms(), subscriber.seek(0),
            ):  # fmt: skip
                with pytest.raises(Closed):
                    await late
            await publisher.close()
            await subscriber.close()

    run(main())


def test_a_slow_loop_in_a_group_counts_as_progress_and_stops_when_the_stream_is_to_be_handed_over(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            await ten_records(bus, "orders")
            quick = GroupOptions(lease_s=0.4, beat_s=0.05, max_processing_s=0.4)
            first = await bus.subscriber("orders", group="g", group_options=quick)
            second = await bus.subscriber("orders", group="g", group_options=quick)
            member = first if (batch := await first.poll(0.3, max_records=1)) else second
            if not batch:
                assert await second.poll(10, max_records=1)
            # Each record takes less than max_processing_s, all of them together more
            records = member.records()
            for _ in range(6):
                record = await anext(records)
                await asyncio.sleep(0.12)
                await member.confirm(record, sync=True)
            # And when the stream is to be handed over, the loop ends its batch and the next member goes on
            await bus.run(lambda _: member._subscriber.deactivate())
            other = second if member is first else first
            assert (await anext(aiter(other))).offset == record.offset + 1

    run(main())


def test_an_error_in_a_with_block_is_not_hidden_by_records_that_failed(url):
    async def main():
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
            async with lockstep.connect_async(url) as bus, await bus.publisher("orders", pipeline=True) as publisher:
                await publisher.publish("no bytes")
                raise ZeroDivisionError
        bus = await lockstep.connect_async(url)
        publisher = await bus.publisher("orders", pipeline=True)
        await publisher.publish("no bytes")
        with pytest.raises(PublishFailed):
            await publisher.close()
        await publisher.close()
        await bus.close()

    run(main())


def test_closing_a_connection_that_is_being_opened_leaves_nothing_open(url):
    before = {thread.name for thread in threading.enumerate()}

    async def main():
        bus = lockstep.connect_async(url)
        opening = [asyncio.ensure_future(bus._open()) for _ in range(2)]
        await asyncio.sleep(0)
        await bus.close()
        assert all(
            isinstance(found, (Closed, type(bus))) for found in await asyncio.gather(*opening, return_exceptions=True)
        )
        with pytest.raises(Closed):
            await bus.streams()

    run(main())
    assert {thread.name for thread in threading.enumerate()} <= before


def test_tasks_publish_in_the_order_in_which_they_called(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            publisher = await bus.publisher("orders")
            receipts = await asyncio.gather(*(publisher.publish(b"%d" % number) for number in range(250)))
            assert [await receipt for receipt in receipts] == list(range(250))

    run(main())


def test_a_connection_waits_for_a_subscriber_whose_close_was_cancelled(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            await ten_records(bus, "orders")
            subscriber = await bus.subscriber("orders", group="g", group_options=FAST)
            assert await subscriber.poll(10)
            closing = asyncio.ensure_future(subscriber.close())
            await asyncio.sleep(0)
            closing.cancel()
        await subscriber.close()  # raises if the bus was closed under it

    run(main())


def test_a_record_that_fails_after_its_waiter_gave_up_is_an_error_at_close(url, monkeypatch, caplog):
    async def main():
        async with lockstep.connect_async(url) as bus:
            go = threading.Event()

            def full(*_, **__):
                assert go.wait(30)
                raise StoreFull(stream="orders", reason="a test")

            monkeypatch.setattr(type(bus.client.bus.create("orders", StreamConfig())), "append", full)
            publisher = await bus.publisher("orders")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(await publisher.publish(b"x"), 0.01)
            go.set()
            with pytest.raises(PublishFailed):
                await publisher.close()

    run(main())
    assert not [record for record in caplog.records if getattr(record, "action", None) == "callback_failed"]
