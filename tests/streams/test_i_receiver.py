"""Part I: receivers call a handler for every record; E13 and E19: when they confirm, how they work in parallel."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest
from worlds import CALM, offsets, publish, take, values

from lockstep import OnFailure
from lockstep.errors import BadConfig, IllegalState
from lockstep.streams.workers import Progress


def member_of(node, timing=CALM, **options):
    return node.subscriber("orders", group="g", group_options=timing, **options)


def poison(record):
    if record.value == b"poison":
        raise ValueError("can't swallow that")


def test_i1_a_receiver_hands_over_every_record_in_order(world, bus):
    seen = []
    bus.receive(bus.subscriber("orders", initial="earliest"), seen.append)
    publish(bus, "orders", *(b"%d" % n for n in range(100)))
    world.until(lambda: len(seen) == 100)
    assert offsets(seen) == list(range(100))


def test_i1_a_second_receiver_is_refused_for_ever(world, bus):
    subscriber = bus.subscriber("orders")
    receiver = bus.receive(subscriber, print)
    with pytest.raises(IllegalState, match="second receiver"):
        bus.receive(subscriber, print)
    receiver.close()
    with pytest.raises(IllegalState, match="second receiver"):
        bus.receive(subscriber, print)


def test_i1_closing_the_subscriber_ends_the_receiver(world, bus):
    told = []
    subscriber = member_of(bus, on_error=lambda summary, error: told.append(summary))
    receiver = bus.receive(subscriber, lambda record: None)
    assert receiver.is_running
    subscriber.close()
    world.until(lambda: not receiver.is_running)
    assert (told, receiver.error) == ([], None)


def test_i1_senseless_options_are_refused(bus):
    for options in ({"confirm": "never"}, {"workers": 0}, {"prefetch": 0}):
        with pytest.raises(BadConfig):
            bus.receive(bus.subscriber("orders"), print, **options)
    for options in ({"then": "retry"}, {"retries": -1}, {"backoff_s": -1}):
        with pytest.raises(BadConfig):
            OnFailure(**options)


@pytest.mark.parametrize("grouped", [False, True])
def test_three_receivers_on_two_nodes(world, grouped):
    """Section 5, PubSub: alone each gets everything in order; in a group exactly one does."""
    nodes = [world.node(), world.node()]
    seen, told = [[], [], []], []
    for number in range(3):
        node = nodes[number % 2]
        group = {"group": "g", "group_options": CALM} if grouped else {}
        subscriber = node.subscriber(
            "orders", initial="earliest", on_error=lambda summary, error: told.append(error), **group
        )
        node.receive(subscriber, lambda record, number=number: seen[number].append(record.offset))
    publish(nodes[0], "orders", *(b"%d" % n for n in range(5)))
    expected = 5 if grouped else 15
    world.until(lambda: sum(map(len, seen)) >= expected)
    assert sorted(seen) == ([[], [], [0, 1, 2, 3, 4]] if grouped else [[0, 1, 2, 3, 4]] * 3)
    assert told == []


def test_i2_async_handlers_run_to_their_end(threads):
    seen = []

    async def handle(record):
        await asyncio.sleep(0)
        seen.append(record.offset)

    bus = threads.node()
    bus.receive(bus.subscriber("orders", initial="earliest"), handle)
    publish(bus, "orders", *(b"%d" % n for n in range(20)))
    threads.until(lambda: len(seen) == 20)
    assert seen == list(range(20))


def test_i2_keys_are_handled_side_by_side_each_in_order(threads):
    # Given two workers, and a handler that holds the first key back until the second was handled
    other, seen = threading.Event(), []

    def handle(record):
        if record.key == b"a":
            assert other.wait(5)
        seen.append((record.key, record.offset))
        if record.key == b"d":
            other.set()

    bus = threads.node()
    subscriber = member_of(bus)
    bus.receive(subscriber, handle, workers=2)
    # When records of both keys come
    with bus.publisher("orders") as publisher:
        for key in (b"a", b"a", b"d", b"d"):
            publisher.publish(b"x", key=key)
    threads.until(lambda: len(seen) == 4)
    # Then they were handled side by side (else nothing would have come), each key in order, all confirmed in the end
    for key, expected in ((b"a", [0, 1]), (b"d", [2, 3])):
        assert [offset for found, offset in seen if found == key] == expected
    threads.until(lambda: subscriber.confirmed_offset() == 3)


def test_e19_only_the_unbroken_beginning_is_confirmed(threads):
    # Given two workers, of which one stands still at offset 0
    go_on, done = threading.Event(), []

    def handle(record):
        if record.offset == 0:
            assert go_on.wait(5)
        done.append(record.offset)

    bus = threads.node()
    subscriber = member_of(bus)
    bus.receive(subscriber, handle, workers=2)
    with bus.publisher("orders") as publisher:
        for key in (b"a", b"d", b"d", b"d"):
            publisher.publish(b"x", key=key)
    # When the other one is through
    threads.until(lambda: len(done) == 3)
    subscriber.flush_confirms()
    # Then nothing is confirmed, because offset 0 is not done; and when it is, everything
    assert subscriber.confirmed_offset() is None
    go_on.set()
    threads.until(lambda: subscriber.confirmed_offset() == 3)


def test_e19_progress_is_a_prefix():
    progress = Progress()
    for offset in (3, 5, 6, 9):  # offsets may have gaps
        progress.add(offset)
    seen = []
    for offset in (6, 3, 9, 5):
        progress.done(offset)
        seen.append((progress.prefix, progress.in_flight))
    assert seen == [(None, 4), (3, 3), (3, 3), (9, 0)]


def test_i6_a_paused_stream_stands_still_and_the_others_go_on(bus):
    for name in ("orders", "payments"):
        publish(bus, name, b"0", b"1")
    reader = bus.subscriber("orders", "payments", initial="earliest")
    reader.pause("orders")
    assert {record.stream for record in take(reader, 2)} == {"payments"}
    assert not reader.poll()
    reader.resume("orders")
    assert values(take(reader, 2)) == [b"0", b"1"]


def test_i6_a_paused_member_keeps_its_stream(world, bus):
    publish(bus, "orders", b"0")
    member = member_of(bus)
    with pytest.raises(IllegalState, match="not assigned"):
        member.pause("orders")
    take(member, 1)
    member.pause()
    publish(bus, "orders", b"1")
    assert not member.poll(0.02)
    assert member.is_assigned
    member.resume()
    assert values(take(member, 1)) == [b"1"]


def test_i6_a_receiver_fetches_no_more_than_its_prefetch(threads):
    go_on, handled = threading.Event(), []

    def handle(record):
        assert go_on.wait(5)
        handled.append(record.offset)

    bus = threads.node()
    publish(bus, "orders", *(b"%d" % n for n in range(50)))
    subscriber = member_of(bus)
    bus.receive(subscriber, handle, prefetch=3, workers=2)
    threads.until(lambda: subscriber.last_read_offset() is not None)
    assert subscriber.last_read_offset() == 2
    go_on.set()
    threads.until(lambda: len(handled) == 50)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("confirm", ["handled", "periodic"])
def test_i6_closing_a_receiver_finishes_and_confirms_what_is_at_hand(threads, workers, confirm):
    # Given a handler at work
    started, go_on, handled = threading.Event(), threading.Event(), []

    def handle(record):
        started.set()
        assert go_on.wait(5)
        handled.append(record.offset)

    bus = threads.node()
    publish(bus, "orders", *(b"%d" % n for n in range(5)))
    receiver = bus.receive(member_of(bus), handle, workers=workers, confirm=confirm, confirm_every_s=3600.0)
    assert started.wait(5)
    # When the receiver is closed meanwhile
    closing = threading.Thread(target=receiver.close)
    closing.start()
    go_on.set()
    closing.join(20)
    # Then what was begun is finished and confirmed, and the rest is left to the next member
    assert not closing.is_alive()
    assert handled == list(range(len(handled)))
    assert [stream.confirmed for stream in bus.groups.describe("g").streams] == [handled[-1]]
    if handled[-1] < 4:
        assert offsets(take(member_of(bus), 4 - handled[-1])) == list(range(handled[-1] + 1, 5))


def test_i6_sigterm_drains(disk, tmp_path):
    # Given a program that handles records until it is told to stop
    program = (
        "import lockstep, signal, sys\n"
        "bus = lockstep.connect(sys.argv[1])\n"
        "def handle(record):\n"
        "    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL: pass\n"
        "    print(record.offset, flush=True)\n"
        "bus.receive(bus.subscriber('orders', group='g'), handle).run()\n"
        "bus.close()\n"
        "print('drained', flush=True)\n"
    )
    bus = disk.node()
    publish(bus, "orders", b"0", b"1", b"2")
    child = subprocess.Popen(
        [sys.executable, "-c", program, f"lmdb:{tmp_path / 'bus'}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert [child.stdout.readline().strip() for _ in range(3)] == ["0", "1", "2"]
        # When it gets SIGTERM
        os.kill(child.pid, signal.SIGTERM)
        rest, _ = child.communicate(timeout=30)
    finally:
        child.kill()
        child.wait()
    # Then it ends well, with everything confirmed and the stream free
    assert (rest, child.returncode) == ("drained\n", 0)
    [stream] = bus.groups.describe("g").streams
    assert (stream.confirmed, stream.owner) == (2, None)


@pytest.mark.parametrize("confirm", ["handled", "periodic", "off"])
def test_e13_confirming_never_runs_ahead_of_the_handler(virtual, confirm):
    # Given a handler that looks at what is confirmed
    bus, ahead = virtual.node(), []
    subscriber = member_of(bus)

    def handle(record):
        virtual.runtime.run_until_idle()
        confirmed = subscriber.confirmed_offset()
        if confirmed is not None and confirmed >= record.offset:
            ahead.append(record.offset)

    # When records are handled, in one mode or another
    bus.receive(subscriber, handle, confirm=confirm, confirm_every_s=2.0, prefetch=4)
    publish(bus, "orders", *(b"%d" % n for n in range(20)))
    virtual.runtime.advance(0.5)
    # Then no record was confirmed before it was handled, and after it when the mode says so
    assert ahead == []
    if confirm == "handled":
        assert subscriber.confirmed_offset() == 19
    if confirm == "periodic":
        assert subscriber.confirmed_offset() in (None, *range(19))
        virtual.runtime.advance(3.0)
        assert subscriber.confirmed_offset() == 19
    if confirm == "off":
        assert subscriber.confirmed_offset() is None
