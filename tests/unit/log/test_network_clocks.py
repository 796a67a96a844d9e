"""Hosts whose clocks differ, over a server in memory that stamps messages, and one that does not."""

from __future__ import annotations

import pytest

from lockstep.log.batch import BatchView
from lockstep.log.config import StreamConfig
from lockstep.testing import VirtualRuntime
from lockstep.testing.contract import Producer, values
from memory_wire import MemoryServer

HOUR_S = 3600.0
ONE_HOUR = StreamConfig(capacity=None, retain_age_s=HOUR_S)


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


def test_an_append_from_a_host_that_is_ahead_hides_nothing(server):
    (bus, clock), (fast, fast_clock) = host(server), host(server, ahead_s=2 * HOUR_S)
    log = bus.create("orders", ONE_HOUR)
    log.append([Producer("a").batch(b"first")])
    let_pass(60, server, clock, fast_clock)
    fast.open("orders").append([Producer("b").batch(b"ahead")])
    let_pass(60, server, clock, fast_clock)
    log.append([Producer("c").batch(b"last")])
    assert values(bus.open("orders")) == values(log) == [b"first", b"ahead", b"last"]


def test_where_the_server_stamps_messages_a_reader_that_is_ahead_reads_what_others_read():
    clock = VirtualRuntime()
    server = MemoryServer(clock.wall_ns)
    bus, _ = host(server)
    bus.create("orders", ONE_HOUR).append([Producer().batch(b"first")])
    fast, _ = host(server, ahead_s=2 * HOUR_S)
    log = fast.open("orders")
    log.append([Producer("b").batch(b"ahead")])
    assert values(log) == values(bus.open("orders")) == [b"first", b"ahead"]


def test_a_reader_that_is_ahead_hides_nothing_that_others_wrote():
    server = MemoryServer()
    bus, _ = host(server)
    bus.create("orders", ONE_HOUR).append([Producer().batch(b"first")])
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


def test_append_times_of_one_writer_never_go_back():
    bus, clock = host(MemoryServer())
    log, producer = bus.create("orders", ONE_HOUR), Producer()
    for back_s in (0, -10, 5):
        clock.jump_wall(back_s)
        log.append([producer.batch(b"a")])
    stamps = [BatchView(entry.base, entry.data, "orders").append_ns for entry in log.read(0)]
    assert len(stamps) == 3
    assert stamps == sorted(stamps)
