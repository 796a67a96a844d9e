"""How the Kafka bus reads, waits, deletes and ends."""

from __future__ import annotations

import random
import threading
import time

import pytest

from lockstep.log.kafka.reader import Reader
from lockstep.log.port import Bounds
from lockstep.testing.contract import records, values
from servers.kafka_worlds import KEEP_ALL, SOON_S, fresh, one, opened


@pytest.fixture
def prefix():
    return fresh()


@pytest.fixture
def bus(kafka_server, prefix):
    with opened(kafka_server.url, prefix=prefix) as bus:
        yield bus


def filled(bus, count, name="orders"):
    log = bus.create(name, KEEP_ALL)
    for number in range(count):
        log.append([one(b"%d" % number, number)])
    return log


def until(condition, what):
    end, pause = time.monotonic() + SOON_S, threading.Event()
    while not condition():
        assert time.monotonic() < end, what
        pause.wait(0.01)


def tails():
    return [thread for thread in threading.enumerate() if thread.name == "lockstep-kafka-tail"]


def test_reading_on_asks_the_server_only_at_the_end(bus, monkeypatch):
    filled(bus, 300)
    log = bus.open("orders")
    starts, asked = [], []
    start, ends = Reader.start, bus.driver._clients.cluster.ends
    monkeypatch.setattr(Reader, "start", lambda self, *rest: (starts.append(rest), start(self, *rest))[1])
    monkeypatch.setattr(bus.driver._clients.cluster, "ends", lambda *rest: (asked.append(rest), ends(*rest))[1])
    at, found = 0, []
    while entries := log.read(at, max_bytes=1):
        found.append(entries[0].base)
        at = entries[0].base + 1
    assert found == [number * 1_000_000 for number in range(300)]
    assert len(starts) <= 2
    assert len(asked) < 30, "most reads are served from what came before it was asked for"


def test_any_message_is_found_at_once(bus):
    log = filled(bus, 100)
    for number in random.Random(1).sample(range(100), 30):
        [entry] = log.read(number * 1_000_000, max_bytes=1)
        assert entry.base == number * 1_000_000


def test_several_handles_on_one_stream_read_elsewhere_at_once(bus):
    filled(bus, 60)
    handles = [bus.open("orders") for _ in range(3)]
    positions, found = [0, 20_000_000, 40_000_000], [[], [], []]
    for _ in range(20):
        for at, handle in enumerate(handles):
            [entry] = handle.read(positions[at], max_bytes=1)
            found[at].append(entry.base // 1_000_000)
            positions[at] = entry.base + 1
    assert found == [list(range(20)), list(range(20, 40)), list(range(40, 60))]


def test_what_is_watched_is_followed_by_one_thread_and_nothing_by_none(bus):
    before = len(tails())
    logs = [bus.create(name, KEEP_ALL) for name in ("a", "b", "c")]
    assert len(tails()) == before
    waiter = bus.waiter()
    for log in logs:
        waiter.watch(log)
    until(lambda: len(tails()) == before + 1, "no thread follows")
    for log in logs:
        waiter.unwatch(log)
    until(lambda: len(tails()) == before, "a thread follows nothing")
    waiter.watch(logs[0])
    until(lambda: len(tails()) == before + 1, "no thread follows again")
    waiter.close()


def test_a_follower_gets_every_record_in_order_and_soon(kafka_server, bus, prefix):
    log = bus.create("orders", KEEP_ALL)
    waiter = bus.waiter()
    waiter.watch(log)
    with opened(kafka_server.url, prefix=prefix) as other:
        sending = threading.Thread(target=filled, args=(other, 200), daemon=True)
        sending.start()
        found, at, end = [], 0, time.monotonic() + SOON_S
        while len(found) < 200 and time.monotonic() < end:
            for entry in log.read(at):
                found.append(entry.base)
                at = entry.base + 1
            waiter.wait(0.5)
        sending.join(SOON_S)
    waiter.close()
    assert found == [number * 1_000_000 for number in range(200)]


def test_a_stream_made_anew_under_the_eyes_of_a_waiter_is_followed(bus):
    waiter = bus.waiter()
    old = filled(bus, 3)
    waiter.watch(old)
    bus.delete("orders")
    log = bus.create("orders", KEEP_ALL)
    waiter.watch(log)
    log.append([one(b"new")])
    until(lambda: values(log) == [b"new"], "the new stream is not read")
    assert log.bounds() == Bounds(0, 1)
    waiter.close()


def test_deleting_and_making_anew_ten_times(bus):
    for number in range(10):
        log = bus.create("orders", KEEP_ALL)
        assert log.append([one(b"%d" % number)]) == [0]
        assert values(log) == [b"%d" % number]
        bus.delete("orders")
    assert bus.names() == []


def test_buses_of_different_prefixes_do_not_meet(kafka_server, bus):
    filled(bus, 1)
    with opened(kafka_server.url, prefix=fresh()) as other:
        assert other.names() == []
        assert records(filled(other, 2)) == [(0, b"0"), (1_000_000, b"1")]
    assert values(bus.open("orders")) == [b"0"]


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_what_the_client_compresses_is_read_as_it_was(kafka_server, name):
    with opened(kafka_server.url, prefix=fresh(), compression=name) as bus:
        log = bus.create("orders", KEEP_ALL)
        log.append([one(bytes(100_000))])
        assert values(bus.open("orders")) == [bytes(100_000)]


def test_a_closed_bus_leaves_no_thread_behind(kafka_server):
    before = set(threading.enumerate())
    with opened(kafka_server.url, prefix=fresh()) as bus:
        log = filled(bus, 5)
        values(log)
        waiter = bus.waiter()
        waiter.watch(log)
    until(lambda: set(threading.enumerate()) <= before, "a thread is left")


def test_threads_that_send_at_once_each_get_their_own_answers(bus):
    logs = [bus.create(f"s{at}", KEEP_ALL) for at in range(4)]
    told = [[] for _ in logs]

    def send(at):
        for number in range(50):
            told[at] += logs[at].append([one(b"%d" % number, number)])

    threads = [threading.Thread(target=send, args=(at,), daemon=True) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert told == [[number * 1_000_000 for number in range(50)]] * 4
