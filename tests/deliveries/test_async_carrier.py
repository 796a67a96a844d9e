"""A carrier in an event loop: its handlers run there, it never blocks it, and what is begun is finished."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

import lockstep
from lockstep.errors import Closed, DeliveryRefused, IllegalState
from lockstep.streams.outbox import item_headers

FAST = {"backoff_s": 0.01, "backoff_max_s": 0.02}


@pytest.fixture
def url(request):
    name = f"memory:{abs(hash(request.node.name))}"
    with lockstep.connect(name) as bus:
        bus.create("outbox")
        yield name


def run(main):
    return asyncio.run(asyncio.wait_for(main, 60))


async def put(bus, *items, key=None):
    async with await bus.publisher("outbox") as publisher:
        for item in items:
            await publisher.publish(item.encode(), key=key, headers=item_headers(id=item, kind="job"))


def test_async_handlers_run_side_by_side_in_the_loop_of_the_program(url):
    async def main():
        done, here = [], asyncio.Event()

        async def handle(item):
            assert threading.current_thread() is threading.main_thread()
            done.append(item.id)
            if len(done) == 3:
                here.set()
            await here.wait()  # all three are inside at once

        async with lockstep.connect_async(url) as bus:
            await put(bus, "a", "b", "c")
            async with bus.carrier("outbox", group="g", workers=3) as carrier:
                carrier.on("job", handle)
                await carrier.start()
                assert await carrier.wait_idle(30)
                assert (carrier.outbox, carrier.group, carrier.options.workers) == ("outbox", "g", 3)
            assert carrier.is_closed
        assert sorted(done) == ["a", "b", "c"]
        assert carrier.counts["done"] == 3

    run(main())


def test_plain_functions_run_in_threads_and_do_not_block_the_loop(url):
    async def main():
        inside, go, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

        def handle(item):
            loop.call_soon_threadsafe(inside.set)
            assert go.wait(30)

        async with lockstep.connect_async(url) as bus:
            await put(bus, "a")
            async with bus.carrier("outbox", group="g") as carrier:
                carrier.on("*", handle)
                await carrier.start()
                await inside.wait()  # the loop goes on while the handler blocks
                go.set()
                assert await carrier.wait_idle(30)
        assert carrier.counts["done"] == 1

    run(main())


def test_a_handler_that_raises_is_called_again_and_one_that_refuses_is_not(url):
    async def main():
        calls = []

        async def handle(item):
            calls.append((item.id, item.attempt))
            await asyncio.sleep(0)
            if item.id == "b":
                raise DeliveryRefused(reason="never")
            if item.attempt < 3:
                message = "later"
                raise TimeoutError(message)  # the handler's own, and not that of a wait for it

        async with lockstep.connect_async(url) as bus:
            await put(bus, "a", "b", key=b"k")
            async with bus.carrier("outbox", group="g", **FAST) as carrier:
                carrier.on("job", handle)
                await carrier.start()
                assert await carrier.wait_idle(30)
            letters = await bus.run(lambda client: list(lockstep.dead_letters(client, "outbox.dlq")))
        assert calls == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
        assert [letter.reason for letter in letters] == ["never"]
        assert (carrier.counts["failed"], carrier.counts["refused"]) == (2, 1)

    run(main())


def test_closing_waits_for_what_is_begun_and_begins_nothing_more(url):
    async def main():
        inside, go, done = asyncio.Event(), asyncio.Event(), []

        async def handle(item):
            inside.set()
            await go.wait()
            done.append(item.id)

        async with lockstep.connect_async(url) as bus:
            await put(bus, "a", "b", key=b"k")
            carrier = bus.carrier("outbox", group="g")
            carrier.on("job", handle)
            await carrier.start()
            await inside.wait()
            closing = asyncio.ensure_future(bus.close())  # the connection closes it
            while not carrier._carrier._draining:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            go.set()
            await closing
            assert (done, carrier.is_closed) == (["a"], True)

        async with lockstep.connect_async(url) as bus, bus.carrier("outbox", group="g") as carrier:
            carrier.on("job", handle)
            await carrier.start()
            assert await carrier.wait_idle(30)
        assert done == ["a", "b"]

    run(main())


@pytest.mark.parametrize("how", ["cancelled", "signalled"])
def test_run_finishes_what_is_begun(url, how):
    async def main():
        inside, go, done = asyncio.Event(), asyncio.Event(), []

        async def handle(item):
            inside.set()
            await go.wait()
            done.append(item.id)

        async with lockstep.connect_async(url) as bus:
            await put(bus, "a")
            async with bus.carrier("outbox", group="g") as carrier:
                carrier.on("job", handle)
                running = asyncio.ensure_future(carrier.run())
                await inside.wait()
                if how == "cancelled":
                    running.cancel()
                else:
                    os.kill(os.getpid(), signal.SIGTERM)
                asyncio.get_running_loop().call_later(0.05, go.set)
                await asyncio.wait([running])
                assert running.cancelled() == (how == "cancelled")
        assert (done, carrier.is_closed, carrier.counts["done"]) == (["a"], True, 1)

    before = signal.getsignal(signal.SIGTERM)
    run(main())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_start_that_is_cancelled_leaves_nothing_running(url):
    async def main():
        async with lockstep.connect_async(url) as bus:
            async with bus.carrier("outbox", group="g") as carrier:
                carrier.on("job", lambda _: None)
                starting = asyncio.ensure_future(carrier.start())
                await asyncio.sleep(0)
                starting.cancel()
                await asyncio.wait([starting])
            assert carrier.is_closed

    run(main())
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("lockstep-carrier-worker")]


def test_a_loop_that_ends_under_a_handler_leaves_the_item_to_the_next_carrier(url):
    async def main():
        async def handle(item):
            inside.set()
            await asyncio.Event().wait()

        inside = asyncio.Event()
        bus = await lockstep.connect_async(url)
        await put(bus, "a")
        carrier = bus.carrier("outbox", group="g")
        carrier.on("job", handle)
        await carrier.start()
        await inside.wait()
        return carrier, bus.client  # neither is closed: asyncio.run cancels the handler

    carrier, client = run(main())
    client.close()
    assert carrier.is_closed
    done = []
    with lockstep.connect(url) as bus, bus.carrier("outbox", group="g", **FAST) as other:
        other.on("job", lambda item: done.append(item.id))
        assert other.start().wait_idle(30)
    assert done == ["a"]


def test_mistakes_are_told(url):
    async def main():
        with pytest.raises(IllegalState):
            lockstep.connect_async(url).carrier("outbox", group="g")
        async with lockstep.connect_async(url) as bus:
            carrier = bus.carrier("outbox", group="g")
            with pytest.raises(IllegalState, match="no handler"):
                await carrier.start()
            carrier.on("job", lambda _: None)
            await carrier.start()
            with pytest.raises(IllegalState, match="started before"):
                await carrier.start()
            await carrier.close()
            await carrier.close()
            with pytest.raises(Closed):
                await carrier.wait_idle()

    run(main())
