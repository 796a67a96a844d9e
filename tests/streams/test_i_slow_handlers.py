"""Part I, continued: a receiver stays a good member whatever its handler does, and ends whole."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest
from worlds import BOUND_S, CALM, HASTY, offsets, publish, take

from lockstep import GroupOptions, OnFailure
from lockstep.errors import HandlerFailed
from lockstep.streams.workers import Progress

RESTLESS = GroupOptions(lease_s=0.4, beat_s=0.1, confirm_s=0.01, revoke_s=0.3, max_processing_s=2.0)


def member_of(node, *streams, timing=CALM, **options):
    return node.subscriber(*(streams or ("orders",)), group="g", group_options=timing, **options)


def numbers(count):
    return [b"%d" % number for number in range(count)]


def publish_keys(node, count):
    with node.publisher("orders") as publisher:
        for number in range(count):
            publisher.publish(b"x", key=b"%d" % number)


def slow(world, seen, seconds):
    """A handler that takes time; in virtual time everything else goes on meanwhile."""

    def handle(record):
        world.runtime.waiter().wait(seconds)
        seen.append((record.stream, record.offset))

    return handle


def task_count(world, name):
    return world.runtime.task_names.count(name)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_done_is_confirmed_while_the_rest_waits(virtual, workers):
    bus, seen = virtual.node(), []
    publish(bus, "orders", *numbers(100))
    subscriber = member_of(bus)
    bus.receive(subscriber, slow(virtual, seen, 0.1), workers=workers)
    virtual.until(lambda: subscriber.confirmed_offset() is not None)
    assert len(seen) < 10


@pytest.mark.parametrize("workers", [1, 2])
def test_closing_leaves_what_was_only_fetched_to_the_next_member(virtual, workers):
    # Given a receiver that fetched much more than it has handled
    bus, seen = virtual.node(), []
    publish_keys(bus, 100)
    receiver = bus.receive(member_of(bus), slow(virtual, seen, 0.1), workers=workers)
    virtual.until(lambda: len(seen) >= 3)
    # When it is closed
    before, handled = virtual.runtime.monotonic(), len(seen)
    receiver.close()
    # Then it finishes what was begun (with workers: and the holes before it), and the next one goes on right behind
    assert len(seen) <= handled + 8
    assert virtual.runtime.monotonic() < before + 2.0
    done = sorted(offset for _, offset in seen)
    assert done == list(range(len(done)))
    assert offsets(take(member_of(bus), 1)) == [len(done)]


def test_closing_does_not_wait_longer_than_told_and_closes_all_the_same(threads):
    # Given a handler that does not return
    started, go_on, handled = threading.Event(), threading.Event(), []

    def handle(record):
        started.set()
        assert go_on.wait(20)
        handled.append(record.offset)

    bus = threads.node()
    publish(bus, "orders", *numbers(20))
    subscriber = member_of(bus)
    receiver = bus.receive(subscriber, handle)
    assert started.wait(5)
    # When the receiver is closed
    receiver.close(timeout=0.05)
    # Then the stream is free, and nothing more is handled when the handler returns
    assert subscriber.is_closed
    assert not receiver.is_running
    other = member_of(bus)
    assert offsets(take(other, 1)) == [0]
    go_on.set()
    threads.until(lambda: all(worker.ended for worker in receiver._workers))
    assert handled == [0]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_stream_that_moves_is_handled_once(virtual, workers):
    # Given a member with two streams, a slow handler, and everything fetched
    streams, seen = ("a", "b"), []
    nodes = [virtual.node(), virtual.node()]
    for stream in streams:
        publish(nodes[0], stream, *numbers(60))
    first = member_of(nodes[0], *streams)
    nodes[0].receive(first, slow(virtual, seen, 0.03), workers=workers)
    virtual.until(lambda: len(seen) >= 5)
    # When another one joins
    second = member_of(nodes[1], *streams)
    nodes[1].receive(second, slow(virtual, seen, 0.03), workers=workers)
    # Then one stream moves at once, and no record is handled twice
    virtual.until(lambda: second.is_assigned)
    assert len(seen) < 60
    virtual.until(lambda: len(set(seen)) == 120)
    assert set(Counter(seen).values()) == {1}


def test_work_on_a_lost_stream_is_dropped_even_without_room_for_more(virtual):
    # Given a receiver that has as much at hand as it may
    node, begin, _ = virtual.outage()
    mine, theirs = [], []
    publish(node, "orders", *numbers(10))
    subscriber = member_of(node, timing=HASTY, on_error=lambda summary, error: None)
    receiver = node.receive(subscriber, slow(virtual, mine, 0.2), prefetch=10)
    virtual.until(lambda: len(mine) == 2)
    # When it is cut off, and another member takes over
    begin("g")
    other = virtual.node()
    other.receive(member_of(other, timing=HASTY), slow(virtual, theirs, 0.01))
    virtual.until(lambda: len(theirs) >= 7)
    # Then it begins nothing after its lease ended
    at_the_time = len(mine)
    virtual.runtime.advance(3.0)
    assert at_the_time <= 5
    assert len(mine) <= at_the_time + 1
    receiver.close()


def test_a_handler_that_does_not_return_costs_the_stream(virtual):
    stuck, seen = [], []
    nodes = [virtual.node(), virtual.node()]

    def hang(record):
        # Given a handler that hangs, in a receiver with room for more; when another member wants the stream
        nodes[1].receive(member_of(nodes[1], timing=RESTLESS), slow(virtual, seen, 0.0))
        # Then it gets it
        virtual.until(lambda: len(seen) == 3)
        stuck.append(record.offset)

    publish(nodes[0], "orders", *numbers(3))
    nodes[0].receive(member_of(nodes[0], timing=RESTLESS, on_error=lambda summary, error: None), hang)
    virtual.until(lambda: stuck)
    # And the first one begins nothing more
    virtual.runtime.advance(5.0)
    assert stuck == [0]


def test_records_behind_the_last_begun_one_are_no_holes():
    progress = Progress()
    for offset in (3, 5, 6):
        progress.add(offset)
    assert not progress.has_begun
    progress.begin(5)
    assert [progress.fills_a_hole(offset) for offset in (3, 5, 6)] == [True, True, False]
    progress.done(5)
    assert progress.has_begun, "offset 3 is missing"
    progress.done(3)
    assert (progress.has_begun, progress.prefix) == (False, 5)


class Awaited:
    """A handler that is an object."""

    def __init__(self):
        self.seen = []

    async def __call__(self, record):
        await asyncio.sleep(0)
        self.seen.append(record.offset)


@pytest.mark.parametrize("wrap", [lambda handler: handler, lambda handler: lambda record: handler(record)])
def test_i2_whatever_is_to_be_awaited_runs_before_it_is_confirmed(world, bus, wrap):
    handler = Awaited()
    publish(bus, "orders", *numbers(5))
    subscriber = member_of(bus)
    bus.receive(subscriber, wrap(handler))
    world.until(lambda: subscriber.confirmed_offset() == 4)
    assert handler.seen == [0, 1, 2, 3, 4]


def test_i2_closing_inside_an_event_loop(threads):
    bus, handler = threads.node(), Awaited()
    publish(bus, "orders", *numbers(3))
    subscriber = member_of(bus)

    async def work():
        receiver = bus.receive(subscriber, handler, workers=2)
        await asyncio.to_thread(threads.until, lambda: len(handler.seen) == 3)
        receiver.close()

    asyncio.run(work())
    assert subscriber.is_closed


def test_i2_async_handlers_of_different_keys_meet_in_one_event_loop(threads):
    # Given two workers, and handlers that can go on only together, by means of an object that belongs to one loop
    bus, meeting, seen = threads.node(), asyncio.Barrier(2), []

    async def handle(record):
        seen.append((record.key, "begins"))
        async with asyncio.timeout(BOUND_S):
            await meeting.wait()
        seen.append((record.key, "ends"))

    receiver = bus.receive(member_of(bus), handle, workers=2)
    with bus.publisher("orders") as publisher:
        for key in (b"a", b"d"):
            publisher.publish(b"x", key=key)
    # Then both are under way at the same time
    threads.until(lambda: len(seen) == 4 or receiver.error is not None)
    assert receiver.error is None
    assert [what for _, what in seen] == ["begins", "begins", "ends", "ends"]
    receiver.close()


def test_i2_async_handlers_of_one_key_run_one_after_the_other(threads):
    bus, seen = threads.node(), []

    async def handle(record):
        seen.append(("begins", record.offset))
        for _ in range(3):
            await asyncio.sleep(0)
        seen.append(("ends", record.offset))

    with bus.publisher("orders") as publisher:
        for _ in range(20):
            publisher.publish(b"x", key=b"a")
    receiver = bus.receive(member_of(bus), handle, workers=4)
    threads.until(lambda: len(seen) == 40)
    assert seen == [(what, offset) for _, offset in seen[::2] for what in ("begins", "ends")]
    receiver.close()


def test_i2_an_async_handler_confirms_its_own_record_and_may_close_the_receiver(threads):
    # Given handlers that share a thread, one of which waits while the other confirms
    bus, other, seen = threads.node(), asyncio.Event(), []

    async def handle(record):
        if record.key == b"d":
            await other.wait()
            return
        subscriber.confirm()
        receiver.close()  # does not wait for the handler that calls it
        seen.append(subscriber._confirmable("orders"))
        other.set()

    subscriber = member_of(bus)
    receiver = bus.receive(subscriber, handle, workers=2, confirm="off")
    with bus.publisher("orders") as publisher:
        for key in (b"a", b"d"):
            publisher.publish(b"x", key=key)
    threads.until(lambda: subscriber.is_closed)
    assert seen == [0]
    # And its event loop ends with it
    threads.until(lambda: "lockstep-loop" not in [thread.name for thread in threading.enumerate()])


def test_i2_a_handler_that_exits_ends_no_handler_beside_it(threads):
    bus, exits, seen = threads.node(), asyncio.Event(), []

    async def handle(record):
        if record.key == b"a":
            exits.set()
            raise SystemExit
        await exits.wait()
        await asyncio.sleep(0)
        seen.append(record.key)

    with bus.publisher("orders") as publisher:
        for key in (b"d", b"a"):
            publisher.publish(b"x", key=key)
    subscriber = member_of(bus)
    receiver = bus.receive(subscriber, handle, workers=2, on_failure=OnFailure(retries=0, then="skip"))
    threads.until(lambda: subscriber.confirmed_offset() == 1)
    assert seen == [b"d"]
    assert receiver.error is None
    receiver.close()


class Crash(BaseException):
    """Not a failure of the handler: the policy has no say in it."""


@pytest.mark.parametrize("end", ["subscriber", "receiver", "crash"])
def test_no_worker_outlives_its_receiver(virtual, end):
    # Given a receiver with several workers, and much to do
    bus, seen = virtual.node(), []

    def handle(record):
        virtual.runtime.waiter().wait(0.05)
        if end == "crash" and len(seen) == 5:
            raise Crash
        seen.append(record.offset)

    publish_keys(bus, 100)
    subscriber = member_of(bus, on_error=lambda summary, error: None)
    receiver = bus.receive(subscriber, handle, workers=4)
    virtual.until(lambda: len(seen) == 5)
    # When it ends, for whatever reason
    if end == "subscriber":
        subscriber.close()
    if end == "receiver":
        receiver.close()
    virtual.until(lambda: not receiver.is_running)
    # Then its workers end, too, after what they had begun
    virtual.until(lambda: task_count(virtual, "lockstep-worker") == 0)
    assert len(seen) < 20
    assert isinstance(receiver.error, Crash if end == "crash" else type(None))
    receiver.close()
    assert subscriber.is_closed


def test_closing_ends_the_workers_threads(threads):
    before = set(threading.enumerate())
    bus, seen = threads.node(), []
    publish_keys(bus, 50)
    receiver = bus.receive(member_of(bus), seen.append, workers=4)
    threads.until(lambda: seen)
    receiver.close()
    threads.until(lambda: not [t for t in set(threading.enumerate()) - before if t.name == "lockstep-worker"])
    assert receiver.is_closed
    assert not receiver.is_running


def test_i3_a_poisoned_stream_that_moves_stops_the_next_member_and_is_not_skipped(virtual):
    # Given two streams, one of them poisoned, and a member that stands still
    def refuse(record):
        raise ValueError

    def join():
        node = virtual.node()
        subscriber = member_of(node, "a", "b", timing=HASTY, on_error=lambda summary, error: None)
        return node.receive(subscriber, refuse, on_failure=OnFailure(retries=0))

    bus = virtual.node()
    bus.create("b")
    publish(bus, "a", b"poison")
    receivers = [join()]
    virtual.until(lambda: receivers[0].error is not None)
    # When others join
    receivers += [join(), join()]
    virtual.runtime.advance(10.0)
    # Then whoever was given the stream stands still, it has one owner, and the record is not done
    [owner] = {stream.owner for stream in bus.groups.describe("g").streams if stream.stream == "a"}
    [keeper] = [receiver for receiver in receivers if receiver.subscriber._member.id == owner]
    assert isinstance(keeper.error, HandlerFailed)
    assert keeper.subscriber.confirmed_offset("a") is None


def test_i6_a_handler_may_close_its_receiver(world, bus):
    # Given a handler that has seen enough after the second record
    seen, receivers = [], []

    def handle(record):
        seen.append(record.offset)
        if record.offset == 1:
            receivers[0].drain()
            receivers[0].close()

    subscriber = member_of(bus)
    receivers.append(bus.receive(subscriber, handle))
    publish(bus, "orders", *numbers(5))
    # When it closes its receiver
    world.until(lambda: subscriber.is_closed)
    # Then that ends after the record, which is confirmed
    assert not receivers[0].is_running
    receivers[0].close()  # waits for the end of what the handler began
    assert seen == [0, 1]
    assert [stream.confirmed for stream in bus.groups.describe("g").streams] == [1]


PROGRAM = (
    "import lockstep, signal, sys, threading\n"
    "bus = lockstep.connect(sys.argv[1])\n"
    "go_on = threading.Event()\n"
    "def handle(record):\n"
    "    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL: pass\n"
    "    {body}\n"
    "receiver = bus.receive(bus.subscriber('orders', group='g'), handle, on_failure=lockstep.OnFailure(retries=0))\n"
    "threading.Thread(target=lambda: (sys.stdin.readline(), go_on.set()), daemon=True).start()\n"
    "receiver.run()\n"
    "print('ended well', flush=True)\n"
)


def start(tmp_path, body):
    command = [sys.executable, "-c", PROGRAM.format(body=body), f"lmdb:{tmp_path / 'bus'}"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def test_i6_a_second_sigterm_does_not_cut_the_drain_short(disk, tmp_path):
    bus = disk.node()
    publish(bus, "orders", b"0")
    child = start(tmp_path, "print('begun', flush=True); go_on.wait(20); print('handled', flush=True)")
    try:
        assert child.stdout.readline() == "begun\n"
        for _ in range(3):
            os.kill(child.pid, signal.SIGTERM)
        rest, _ = child.communicate("go on\n", timeout=30)
    finally:
        child.kill()
        child.wait()
    assert (rest, child.returncode) == ("handled\nended well\n", 0)
    assert [stream.confirmed for stream in bus.groups.describe("g").streams] == [0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("print('x', flush=True); raise ValueError", 1),
        ("print('x', flush=True); raise SystemExit(3)", 1),
    ],
)
def test_i6_run_raises_what_ended_it_or_what_it_stood_still_at(disk, tmp_path, body, code):
    bus = disk.node()
    publish(bus, "orders", b"0")
    child = start(tmp_path, body)
    try:
        if code == 1:  # it stands still until it is told to end
            assert child.stdout.readline() == "x\n"
            disk.until(lambda: [stream.owner for stream in bus.groups.describe("g").streams] != [None])
            os.kill(child.pid, signal.SIGTERM)
        rest, _ = child.communicate(timeout=30)
    finally:
        child.kill()
        child.wait()
    assert (rest, child.returncode) == ("", code)


def test_i6_run_puts_the_signal_handlers_back(virtual, monkeypatch):
    """One that was not set from Python is None, and can't be set."""
    bus, set_to = virtual.node(), []
    receiver = bus.receive(member_of(bus), print)
    monkeypatch.setattr(signal, "signal", lambda name, handler: set_to.append((name, handler)))
    receiver.close()
    receiver.run()
    assert set_to[2:] == [(signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.SIG_DFL)]
