"""Hosts whose clocks differ, over a server in memory that stamps messages, and one that does not."""

from __future__ import annotations

import pytest

from lockstep.log.batch import BatchView
from lockstep.log.config import StreamConfig
from lockstep.log.network import log as netlog
from lockstep.testing import VirtualRuntime
from lockstep.testing.contract import Producer, values
from memory_driver import MemoryServer, MemoryTopic

HOUR_S = 3600.0
ONE_HOUR = StreamConfig(capacity=None, retain_age_s=HOUR_S)
COUNTED = StreamConfig(capacity=1000, retain_age_s=HOUR_S)
"""Where something else bounds the stream too, age is worked out in another way."""


@pytest.fixture(params=["stamps", "no_stamps"])
def server(request):
    clock = VirtualRuntime()
    server = MemoryServer(clock.wall_ns if request.param == "stamps" else None)
    server.advance = clock.advance
    return server


def host(server, *, ahead_s=0.0):
    """A host with a clock of its own."""
    runtime = VirtualRuntime()
    runtime.jump_wall(ahead_s)
    return server.bus(runtime), runtime


def let_pass(seconds, server, *runtimes):
    for clock in (server, *runtimes):
        clock.advance(seconds)


@pytest.mark.parametrize("config", [ONE_HOUR, COUNTED], ids=["age", "age and count"])
def test_an_append_from_a_host_that_is_ahead_hides_nothing(server, config):
    (bus, clock), (fast, fast_clock) = host(server), host(server, ahead_s=2 * HOUR_S)
    log = bus.create("orders", config)
    log.append([Producer("a").batch(b"first")])
    let_pass(60, server, clock, fast_clock)
    fast.open("orders").append([Producer("b").batch(b"ahead")])
    let_pass(60, server, clock, fast_clock)
    log.append([Producer("c").batch(b"last")])
    assert values(bus.open("orders")) == values(log) == [b"first", b"ahead", b"last"]


@pytest.mark.parametrize("config", [ONE_HOUR, COUNTED], ids=["age", "age and count"])
def test_where_the_server_stamps_messages_a_reader_that_is_ahead_reads_what_others_read(config):
    clock = VirtualRuntime()
    server = MemoryServer(clock.wall_ns)
    bus, _ = host(server)
    bus.create("orders", config).append([Producer().batch(b"first")])
    fast, _ = host(server, ahead_s=2 * HOUR_S)
    log = fast.open("orders")
    log.append([Producer("b").batch(b"ahead")])
    assert values(log) == values(bus.open("orders")) == [b"first", b"ahead"]


@pytest.mark.parametrize("config", [ONE_HOUR, COUNTED], ids=["age", "age and count"])
def test_a_reader_that_is_ahead_hides_nothing_that_others_wrote(config):
    server = MemoryServer()
    bus, _ = host(server)
    bus.create("orders", config).append([Producer().batch(b"first")])
    fast, _ = host(server, ahead_s=2 * HOUR_S)
    assert values(fast.open("orders")) == [b"first"]


def test_what_is_older_than_the_age_is_gone_whatever_a_slow_writer_stamps(server):
    (bus, clock), (slow, slow_clock) = host(server), host(server, ahead_s=-2 * HOUR_S)
    log = bus.create("orders", ONE_HOUR)
    log.append([Producer("a").batch(b"old")])
    let_pass(HOUR_S + 1, server, clock, slow_clock)
    slow.open("orders").append([Producer("b").batch(b"behind")])
    log.append([Producer("c").batch(b"new")])
    assert b"old" not in values(bus.open("orders"))
    assert values(bus.open("orders"))[-1] == b"new"


@pytest.fixture
def brokers():
    """A server of several brokers, each with a clock of its own; `jump` is a change of the leader."""
    clock = VirtualRuntime()
    server = MemoryServer(clock.wall_ns)
    server.advance, server.jump = clock.advance, clock.jump_wall
    return server


def append_each_second(log, server, runtime, producer, count):
    for _ in range(count):
        log.append([producer.batch(b"x")])
        let_pass(1, server, runtime)


def test_a_leader_whose_clock_is_behind_for_a_while_hides_and_drops_nothing_that_is_fresh(brokers):
    bus, clock = host(brokers)
    log, producer = bus.create("orders", ONE_HOUR), Producer()
    append_each_second(log, brokers, clock, producer, 100)
    brokers.jump(-2 * HOUR_S)
    append_each_second(log, brokers, clock, producer, 150)
    brokers.jump(2 * HOUR_S)
    append_each_second(log, brokers, clock, producer, 155)
    assert len(values(bus.open("orders"))) == 405
    assert brokers.topics["orders"].first == 0, "the server was told to drop nothing"


def test_many_old_messages_are_passed_in_steps_and_then_dropped(brokers, monkeypatch):
    monkeypatch.setattr(netlog, "SCAN_BYTES", 2000)
    monkeypatch.setattr(netlog, "AGE_SCAN_BYTES", 500)
    bus, clock = host(brokers)
    log, producer = bus.create("orders", ONE_HOUR), Producer()
    append_each_second(log, brokers, clock, producer, 199)
    let_pass(2 * HOUR_S, brokers, clock)
    append_each_second(log, brokers, clock, producer, 1)
    passed = brokers.topics["orders"].first
    assert 0 < passed < 100, "a bound for each call"
    append_each_second(log, brokers, clock, producer, 30)
    assert brokers.topics["orders"].first == 199, "each append went on, and all that is old is gone"
    assert len(values(log)) == 31


def test_a_stream_of_which_all_is_fresh_costs_two_fetches_for_each_look(brokers, monkeypatch):
    bus, clock = host(brokers)
    log = bus.create("orders", ONE_HOUR)
    append_each_second(log, brokers, clock, Producer(), 50)
    log.bounds()
    clock.advance(5)
    fetches = []
    fetch = MemoryTopic.fetch

    def counted(topic, *where):
        if topic._name == "orders":
            fetches.append(where)
        return fetch(topic, *where)

    monkeypatch.setattr(MemoryTopic, "fetch", counted)
    log.bounds()
    assert fetches == [(49, 1), (0, 1)]


def test_append_times_of_one_writer_never_go_back():
    bus, clock = host(MemoryServer())
    log, producer = bus.create("orders", ONE_HOUR), Producer()
    for back_s in (0, -10, 5):
        clock.jump_wall(back_s)
        log.append([producer.batch(b"a")])
    stamps = [BatchView(entry.base, entry.data, "orders").append_ns for entry in log.read(0)]
    assert len(stamps) == 3
    assert stamps == sorted(stamps)
