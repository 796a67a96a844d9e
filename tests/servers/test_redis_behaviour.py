"""What the bus on Redis does beyond the contract: times, waking, transactions, keys, memory, forks."""

from __future__ import annotations

import random
import threading
import time
import uuid

import pytest

from forks import exit_code_of_a_fork
from lockstep.errors import Conflict, ForkedProcess, StreamNotFound
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.config import StreamConfig
from lockstep.log.redis import scripts
from lockstep.log.redis.bus import open_bus
from lockstep.log.redis.layout import stamp
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, records, values, views

KEEP = StreamConfig(capacity=None)
BOUND_S = 30.0


class SlowClock(ThreadRuntime):
    """A machine whose clock is behind."""

    def __init__(self, behind_s):
        self._behind_ns = int(behind_s * 1e9)

    def wall_ns(self):
        return super().wall_ns() - self._behind_ns


@pytest.fixture
def opened(redis_server):
    """Opens buses on one prefix, and closes them in the end."""
    buses, prefix = [], uuid.uuid4().hex

    def open_one(runtime=None, **options):
        target = redis_server.url.removeprefix("redis:")
        given = {"prefix": prefix, **{name: str(value) for name, value in options.items()}}
        buses.append(open_bus(target, given, runtime or ThreadRuntime(), {}))
        return buses[-1]

    yield open_one
    for bus in buses:
        bus.close()


@pytest.fixture
def bus(opened):
    return opened()


@pytest.fixture
def log(bus):
    return bus.create("orders", KEEP)


def listeners():
    return [thread for thread in threading.enumerate() if thread.name.startswith("lockstep-listen-")]


def until(condition, what):
    runtime = ThreadRuntime()
    end, pause = runtime.monotonic() + BOUND_S, runtime.waiter()
    while not condition():
        assert runtime.monotonic() < end, f"{what} did not come true"
        pause.wait(0.005)


def test_append_times_never_go_back_though_clocks_differ(opened, log):
    behind = opened(SlowClock(3600)).open("orders")
    for number in range(4):
        (log, behind)[number % 2].append([Producer(str(number)).batch(b"%d" % number)])
    stamps = [view.append_ns for view in views(log)]
    assert stamps == sorted(stamps)
    assert values(log) == [b"0", b"1", b"2", b"3"]
    assert log.read(0) == behind.read(0)


def test_an_append_to_a_watched_log_wakes_at_once_and_not_by_looking_again(bus, log, opened):
    waiter, runtime, other = bus.waiter(), ThreadRuntime(), opened().open("orders")
    waiter.watch(log)
    waiter.wait(5)  # the server knows now that somebody listens
    took = []
    for number in range(20):
        thread = threading.Timer(0.01, other.append, [[Producer(str(number)).batch(b"x")]])
        thread.start()
        began = runtime.monotonic()
        while len(values(log)) <= number:
            waiter.wait(5)
        took.append(runtime.monotonic() - began)
        thread.join()
    waiter.close()
    assert sorted(took)[10] < 0.5, took


def test_nobody_listens_unless_something_is_watched(bus, log):
    before = len(listeners())
    waiters = [bus.waiter() for _ in range(5)]
    assert len(listeners()) == before
    for waiter in waiters:
        waiter.watch(log)
        waiter.watch(bus.create("other", KEEP))
    assert len(listeners()) == before + 1
    for waiter in waiters:
        waiter.unwatch(log)
        waiter.close()
    until(lambda: len(listeners()) == before, "the end of the thread")
    again = bus.waiter()
    again.watch(log)
    assert len(listeners()) == before + 1
    bus.close()
    assert len(listeners()) == before


def test_an_append_without_a_wake_rings_nobody(bus, log):
    waiter, woken = bus.waiter(), []
    stop = bus._listener.watch(log.keys.channel, lambda: woken.append(1))
    until(lambda: woken, "the first look")
    log.append([Producer().batch(b"a")], wake=False)
    log.append([Producer("other").batch(b"b")])
    until(lambda: len(woken) == 2, "the bell")
    stop()
    waiter.close()


def test_names_of_all_kinds_do_not_meet(bus, opened):
    names = ["orders", "_group.workers", "orders/3", "trades.S", "x.R.00ff", "row:orders", "größe"]
    for name in names:
        bus.create(name, KEEP).append([Producer().batch(name.encode())])
    other = opened()
    assert other.names() == sorted(names)
    assert [values(other.open(name)) for name in names] == [[name.encode()] for name in names]


def test_all_keys_begin_with_the_prefix_and_a_deleted_stream_leaves_none(bus, log):
    log.append([Producer().batch(b"a")])
    log.hold("group", 0)
    bus.atomic(lambda changes: changes.put(b"cell", b"x"))
    tag = bus.keys.catalogue.removesuffix("streams")
    [keys] = bus.client.ask(("KEYS", f"{tag}*"))
    named = {key.decode().removeprefix(tag) for key in keys}
    assert named == {
        "streams", "changes", "cells", "undo",
        "row:orders", "log:orders", "sizes:orders", "seen:orders", "holds:orders",
    }  # fmt: skip
    bus.delete("orders")
    [left] = bus.client.ask(("KEYS", f"{tag}*orders"))
    assert left == []


def test_prefixes_do_not_meet(opened, log):
    other = opened(prefix=uuid.uuid4().hex)
    assert other.names() == []
    with pytest.raises(StreamNotFound):
        other.open("orders")


def test_a_stream_deleted_and_made_anew_at_once_is_another_one(bus, log):
    for number in range(5):
        old = bus.open("orders")
        bus.delete("orders")
        anew = bus.create("orders", KEEP)
        anew.append([Producer().batch(b"%d" % number)])
        for call in (lambda old=old: old.read(0), old.bounds, lambda old=old: old.hold("group", 0)):
            with pytest.raises(StreamNotFound):
                call()
        old.hold("group", None)
        assert values(anew) == [b"%d" % number]


def test_what_retention_drops_is_gone_from_the_server(bus):
    log, producer = bus.create("ring", StreamConfig(capacity=10)), Producer()
    for number in range(100):
        log.append([producer.batch(b"%d" % number)])
    assert bus.client.ask(("XLEN", log.keys.entries), ("LLEN", log.keys.sizes)) == [10, 10]
    log.trim(log.bounds().next)
    assert bus.client.ask(("XLEN", log.keys.entries), ("LLEN", log.keys.sizes)) == [0, 0]
    assert log.append([producer.batch(b"next")]) == [100]


def test_a_producer_that_is_silent_for_long_is_forgotten(bus, log):
    long_ago = time.time_ns() - scripts.PRODUCER_FORGOTTEN_NS - 60 * 10**9
    producers = [Producer(f"old {number}") for number in range(10)]
    for producer in producers:
        log.append([producer.batch(b"x")])
    for number, producer in enumerate(producers):
        bus.client.ask(("HSET", log.keys.seen, producer.id, f"1 {number + 1} {stamp(long_ago)}"))
    assert bus.client.ask(("HLEN", log.keys.seen)) == [10]
    log.append([Producer("new").batch(b"y")])
    assert bus.client.ask(("HLEN", log.keys.seen)) == [1]


def test_any_offset_can_be_read_at_once(log):
    chance, sent = random.Random(7), [b"%d" % number for number in range(3000)]
    producer, at = Producer(), 0
    while at < len(sent):
        count = chance.randint(1, 40)
        log.append([producer.batch(*sent[at : at + count])])
        at += count
    for _ in range(200):
        offset = chance.randrange(len(sent))
        [entry] = log.read(offset, max_bytes=1)
        view = BatchView(entry.base, entry.data, "orders")
        assert view.values()[offset - view.base] == sent[offset]
    assert [value for _, value in records(log, 1234)] == sent[1234:]


def test_handles_read_each_from_where_it_is(bus, log):
    producer = Producer()
    for number in range(300):
        log.append([producer.batch(b"%d" % number * 100)])
    handles, places = [bus.open("orders") for _ in range(3)], [0, 100, 200]
    while places[0] < 100:
        for index, handle in enumerate(handles):
            found = handle.read(places[index], max_bytes=3000)
            assert found[0].base == places[index]
            places[index] = BatchView(found[-1].base, found[-1].data, "orders").end


def test_a_read_of_small_and_large_batches_stays_near_its_limit(log):
    producer, sizes = Producer(), [10, 500_000, 10, 10, 2_000_000, 10]
    for _ in range(3):
        log.append([producer.batch(b"x" * size) for size in sizes])
    at = 0
    while found := log.read(at, max_bytes=1 << 20):
        assert sum(len(entry.data) for entry in found[:-1]) < 1 << 20
        at = found[-1].base + 1
    assert at == 18


def test_transactions_of_many_processes_count_each_once(opened):
    def count_up(bus):
        for _ in range(25):
            bus.atomic(lambda changes: changes.put(b"n", b"%d" % (int(changes.get(b"n") or b"0") + 1)))

    buses = [opened() for _ in range(4)]
    threads = [threading.Thread(target=count_up, args=(bus,), daemon=True) for bus in buses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    with buses[0].snapshot() as view:
        assert view.get(b"n") == b"100"


def test_a_transaction_is_done_again_if_a_publisher_came_in_between(bus, opened, log):
    other, tries = opened().open("orders"), []

    def work(changes):
        tries.append(changes.bounds("orders").next)
        if len(tries) < 4:
            other.append([Producer(str(len(tries))).batch(b"other")])
        return changes.append("orders", [pack([b"mine"], producer=NO_PRODUCER, sequence=0, created_ns=1)])

    assert bus.atomic(work) == [3]
    assert tries == [0, 1, 2, 3]
    assert values(log) == [b"other"] * 3 + [b"mine"]


def test_a_transaction_that_never_gets_through_says_so_and_writes_nothing(opened):
    hasty, other = opened(timeout_s=0.3), opened()
    log = hasty.create("orders", KEEP)
    rival = other.open("orders")

    def work(changes):
        changes.append("orders", [pack([b"mine"], producer=NO_PRODUCER, sequence=0, created_ns=1)])
        rival.append([pack([b"other"], producer=NO_PRODUCER, sequence=0, created_ns=1)])

    with pytest.raises(Conflict, match="nothing was written"):
        hasty.atomic(work)
    assert set(values(log)) == {b"other"}


def test_a_transaction_drops_copies_too(bus, log):
    producer = Producer()
    old, new = producer.batch(b"a"), producer.batch(b"b", b"c")
    log.append([old])

    def work(changes):
        assert changes.append("orders", [old, new]) == [0, 1]
        assert changes.append("orders", [new]) == [1]
        assert [entry.base for entry in changes.read("orders", 0)] == [0, 1]

    bus.atomic(work)
    assert values(log) == [b"a", b"b", b"c"]


def test_a_view_stays_as_it_was_while_others_write(bus, opened, log):
    producer = Producer()
    log.append([producer.batch(b"a")])
    bus.atomic(lambda changes: changes.put(b"cell", b"before"))
    other = opened()
    with bus.snapshot() as view:
        assert view.get(b"unset") is None
        other.open("orders").append([producer.batch(b"b")])
        other.create("later", KEEP)
        for value in (b"after", None, b"again"):
            other.atomic(lambda changes, value=value: changes.put(b"cell", value))
        assert view.get(b"cell") == b"before"
        assert view.bounds("orders").next == 1
        assert [entry.base for entry in view.read("orders", 0)] == [0]
        with pytest.raises(StreamNotFound):
            view.bounds("later")
    with bus.snapshot() as view:
        assert (view.get(b"cell"), view.bounds("orders").next) == (b"again", 2)


def test_a_view_of_what_is_gone_says_so(bus, opened):
    ring, producer = bus.create("ring", StreamConfig(capacity=1)), Producer()
    with bus.snapshot() as view:
        view.get(b"cell")
        for _ in range(3):
            opened().open("ring").append([producer.batch(b"x")])
        with pytest.raises(Conflict, match="look again"):
            view.bounds("ring")
    assert len(values(ring)) == 1


def test_a_forked_child_does_not_touch_the_connection(bus, log):
    def use_it():
        with pytest.raises(ForkedProcess):
            bus.names()
        bus.close()
        return 0

    assert exit_code_of_a_fork(use_it) == 0
    log.append([Producer().batch(b"a")])
    assert values(log) == [b"a"]


def test_many_threads_use_few_connections_and_close_them_all(opened, redis_server):
    bus, counting = opened(), opened()
    log = bus.create("orders", KEEP)

    def clients():
        [found] = counting.client.ask(("INFO", "clients"))
        return int(found.split(b"connected_clients:")[1].split()[0])

    def work(name):
        producer = Producer(name)
        for _ in range(20):
            log.append([producer.batch(b"x")])

    before = clients()
    threads = [threading.Thread(target=work, args=(str(number),), daemon=True) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert len(values(log)) == 600
    until(lambda: clients() <= before + 8, "the closing of those that are too many")
    bus.close()
    until(lambda: clients() < before, "the closing of all")
