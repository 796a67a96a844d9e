"""What is special about the bus on Hazelcast: rings, marks, room, lost members, and everything that can be wrong."""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from dataclasses import replace

import pytest

import lockstep.log.hazelcast.driver  # noqa: F401 - the client warns when it is imported, and this keeps that quiet
from lockstep import StreamConfig
from lockstep.dev.hazelcast import hazelcast
from lockstep.errors import (
    AppendTooLarge,
    DataError,
    ServerRefused,
    ServerUnfit,
    ServerUnreachable,
    StoreFull,
    StreamNotFound,
    TakenBack,
    Trimmed,
)
from lockstep.log.hazelcast.client import ClusterClient, patch_waking
from lockstep.log.hazelcast.topic import slack
from lockstep.log.network.address import parse_address
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, records, values
from servers.server_fixtures import free_ports, started

from hazelcast.config import Config  # isort: skip
from hazelcast.errors import HazelcastSerializationError  # isort: skip
from hazelcast.serialization.service import SerializationServiceV1  # isort: skip

KEEP_ALL = StreamConfig(capacity=None)
SMALL = 300
BOUND_S = 30.0
RINGS = f"""\
  split-brain-protection:
    two-members:
      enabled: true
      minimum-cluster-size: 2
  ringbuffer:
    small.*:
      capacity: {SMALL}
      backup-count: 1
    guarded.*:
      split-brain-protection-ref: two-members
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One member; rings that are called `small.` are small, and those called `guarded.` want two members."""
    recipe = hazelcast()

    def plan(site):
        made = recipe.plan(site)
        files = {name: text.replace("  ringbuffer:\n", RINGS) for name, text in made.files.items()}
        return replace(made, files=files)

    running = started(replace(recipe, plan=plan), tmp_path_factory.mktemp("hazelcast"))
    yield running
    running.destroy()


@pytest.fixture
def opened(server):
    """Opens buses under one prefix, and closes them."""
    buses, prefix = [], f"t{uuid.uuid4().hex}."

    def open_one(given=prefix, **options):
        query = "&".join(f"{name}={value}" for name, value in {"prefix": given, **options}.items())
        buses.append(open_bus(f"{server.url}?{query}", ThreadRuntime()))
        return buses[-1]

    yield open_one
    for bus in buses:
        bus.close()


@pytest.fixture
def bus(opened):
    return opened()


@pytest.fixture
def producer():
    return Producer()


def ring_of(bus, log):
    """The ring of a stream, as a plain client has it."""
    return bus.driver._client.library.get_ringbuffer(f"{bus.driver._prefix}{log.name}@{log.identity}").blocking()


def append_numbered(log, producer, count):
    for number in range(count):
        log.append([producer.batch(b"%d" % number)])


def test_a_stream_is_a_ring_of_byte_arrays_that_any_client_can_read(bus, producer):
    log = bus.create("orders", KEEP_ALL)
    log.append([producer.batch(b"hello")])
    ring = ring_of(bus, log)
    assert ring.tail_sequence() == 1
    [mark, item] = ring.read_many(0, 0, 10)
    assert mark == b"lockstep ring 1"
    assert b"hello" in item


@pytest.mark.parametrize("name", ["orders", "_group.workers", "orders/3", "trades.S", "x.R.0af3"])
def test_any_name_of_a_stream_is_a_name_of_a_ring(bus, producer, name):
    log = bus.create(name, KEEP_ALL)
    log.append([producer.batch(b"a")])
    assert bus.names() == [name]
    assert values(bus.open(name)) == [b"a"]


def test_the_prefix_keeps_buses_on_one_cluster_apart(opened, producer):
    one, other = opened(), opened(f"t{uuid.uuid4().hex}.")
    one.create("orders", KEEP_ALL).append([producer.batch(b"a")])
    assert other.names() == []
    with pytest.raises(StreamNotFound):
        other.open("orders")


def test_several_handles_read_in_different_places_at_once(bus, producer):
    log = bus.create("orders", KEEP_ALL)
    bases = [log.append([producer.batch(b"%d" % number)])[0] for number in range(100)]
    handles = [bus.open("orders") for _ in range(3)]
    for number in (70, 3, 99, 0, 42):
        for handle in handles:
            assert handle.read(bases[number], max_bytes=1)[0].base == bases[number]
    assert [values(handle) for handle in handles] == [values(log)] * 3


def test_large_and_small_messages_mix(bus, producer):
    log = bus.create("orders", KEEP_ALL)
    sent = [b"x" * size for size in (1, 3 << 20, 5, 2 << 20, 1, 1, 4 << 20, 7)]
    for value in sent:
        log.append([producer.batch(value)])
    assert values(bus.open("orders")) == sent


def test_reading_on_asks_the_server_once_for_many_messages(bus, producer):
    log = bus.create("orders", KEEP_ALL)
    append_numbered(log, producer, 600)
    reader, ring = bus.open("orders"), bus.open("orders").topic._ring
    asked, plain = [], ring.begin_read
    ring.begin_read = lambda *given: asked.append(given) or plain(*given)
    at, seen = 0, 0
    while entries := reader.read(at, max_bytes=1):
        seen += len(entries)
        at = entries[-1].base + 1
    assert seen == 600
    assert len(asked) < 30


def test_a_full_ring_refuses_and_names_the_setting_until_somebody_trims(opened, producer):
    bus, other = opened("small."), opened("small.")
    name = f"full{uuid.uuid4().hex}"
    log = bus.create(name, KEEP_ALL)
    with pytest.raises(StoreFull, match=rf"capacity of ringbuffer small\.{name} on the members"):
        append_numbered(log, producer, SMALL)
    held = records(log)
    assert len(held) == SMALL - slack(SMALL)
    # When another process trims, there is room again, and nothing else is gone
    same = other.open(name)
    same.trim(held[100][0])
    append_numbered(log, producer, 100)
    assert records(log)[: len(held) - 100] == held[100:]


def test_several_writers_that_find_room_at_once_overwrite_nothing(opened):
    buses = [opened("small.") for _ in range(3)]
    name = f"full{uuid.uuid4().hex}"
    logs = [bus.create(name, KEEP_ALL) for bus in buses for _ in range(4)]

    refused = []

    def fill(log, producer):
        with pytest.raises(StoreFull):
            append_numbered(log, producer, SMALL)
        refused.append(producer)

    threads = [
        threading.Thread(target=fill, args=(log, Producer(f"p{at}")), daemon=True) for at, log in enumerate(logs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    assert len(refused) == len(logs)
    assert logs[0].topic.ends().first == 0
    assert len(values(logs[0])) <= SMALL


def test_a_bounded_stream_goes_round_a_small_ring(opened, producer):
    bus = opened("small.")
    log = bus.create(f"round{uuid.uuid4().hex}", StreamConfig(capacity=30))
    append_numbered(log, producer, 3 * SMALL)
    assert values(log) == [b"%d" % number for number in range(3 * SMALL - 30, 3 * SMALL)]


def test_what_others_made_the_ring_overwrite_is_a_gap_and_not_passed_over(opened, producer):
    bus = opened("small.")
    log = bus.create(f"over{uuid.uuid4().hex}", KEEP_ALL)
    log.append([producer.batch(b"a")])
    stored = bytes(ring_of(bus, log).read_many(1, 0, 1)[0])
    for _ in range(SMALL):
        ring_of(bus, log).add(bytearray(stored))
    first = log.bounds().first
    assert first > 0
    with pytest.raises(Trimmed) as caught:
        log.read(0)
    assert caught.value.params["first"] == first


def test_a_handle_on_a_stream_that_another_process_deleted_says_so(opened, producer):
    bus, other = opened(), opened()
    log = bus.create("orders", KEEP_ALL)
    log.append([producer.batch(b"a")])
    other.delete("orders")
    for call in (lambda: log.append([producer.batch(b"b")]), lambda: log.read(0), log.bounds):
        with pytest.raises(StreamNotFound):
            call()
    # And what it tried to append is neither in a stream made anew nor left behind
    assert ring_of(bus, log).tail_sequence() == -1
    anew = other.create("orders", KEEP_ALL)
    assert values(anew) == []
    with pytest.raises(StreamNotFound):
        log.append([producer.batch(b"b")])
    assert anew.append([producer.batch(b"c")]) == [0]


def test_a_deletion_that_was_cut_short_is_finished_by_whoever_makes_the_stream_anew(bus, producer):
    log = bus.create("orders", KEEP_ALL)
    log.append([producer.batch(b"a")])
    bus.driver.remove(bus.look_up("orders"))  # and here the deleting process died
    assert bus.names() == []
    anew = bus.create("orders", KEEP_ALL)
    assert anew.identity != log.identity
    assert values(anew) == []


def test_a_ring_that_the_cluster_lost_is_an_error_and_not_an_empty_stream(opened, producer):
    bus = opened()
    log = bus.create("orders", KEEP_ALL)
    log.append([producer.batch(b"a")])
    ring_of(bus, log).destroy()
    fresh = opened()
    calls = (
        lambda: log.append([producer.batch(b"b")]),
        lambda: log.read(1_000_000),
        log.bounds,
        lambda: fresh.open("orders"),
        lambda: fresh.create("orders", KEEP_ALL),
    )
    for call in calls:
        with pytest.raises(DataError, match="has lost the records of stream 'orders'"):
            call()
    # And it can be deleted, and made anew
    fresh.delete("orders")
    assert fresh.create("orders", KEEP_ALL).append([producer.batch(b"c")]) == [0]


def test_after_the_loss_of_a_member_a_reader_sees_whether_what_it_read_is_still_there(bus, producer):
    log = bus.create("orders", KEEP_ALL)
    append_numbered(log, producer, 20)
    at = log.read(0, max_bytes=1)[-1].base + 1
    bus.driver._client.losses += 1
    entries = log.read(at, max_bytes=1)
    assert entries[0].base > at
    # When the number of what was read last was given to something else, reading on is refused, again and again
    cursor = log.topic._cursors._cursors[-1]
    cursor.last = (cursor.last[0], b"what the dead member had")
    bus.driver._client.losses += 1
    for _ in range(2):
        with pytest.raises(TakenBack, match="were read, and another record is there now, or none"):
            log.read(entries[-1].base + 1)
    # But reading from elsewhere goes on, with what is there now
    assert len(values(log)) == len(values(bus.open("orders"))) == 20


def test_too_few_members_for_the_protection_of_a_ring_is_told(opened):
    with pytest.raises(ServerUnfit, match="split-brain"):
        opened("guarded.").create(f"orders{uuid.uuid4().hex}", KEEP_ALL)


def test_of_two_that_make_the_same_stream_both_get_the_one_that_was_first(opened):
    buses = [opened() for _ in range(4)]
    made = []
    threads = [
        threading.Thread(target=lambda bus=bus: made.append(bus.create("orders", KEEP_ALL)), daemon=True)
        for bus in buses
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert len({log.identity for log in made}) == 1
    assert len(made) == 4
    made[0].append([Producer().batch(b"a")])
    assert all(values(log) == [b"a"] for log in made)


def test_a_wait_is_ended_within_milliseconds_again_and_again(opened, producer):
    bus, other = opened(), opened()
    log = bus.create("orders", KEEP_ALL)
    writer, waiter, delays, at = other.open("orders"), bus.waiter(), [], 0
    waiter.watch(log)
    for number in range(50):
        while entries := log.read(at):
            at = entries[-1].base + 1
        timer = threading.Timer(0.01, lambda: (delays.append(time.monotonic()), writer.append([producer.batch(b"a")])))
        timer.start()
        end = time.monotonic() + BOUND_S
        while not (entries := log.read(at)):
            assert time.monotonic() < end, f"wake-up {number} did not come"
            waiter.wait(BOUND_S)
        delays[-1] = time.monotonic() - delays[-1]
        timer.join(BOUND_S)
    assert sorted(delays)[25] < 0.5  # a reader that is not woken looks once a second
    waiter.close()


def test_watching_many_streams_needs_no_more_threads(bus):
    before = threading.active_count()
    waiter = bus.waiter()
    for number in range(20):
        waiter.watch(bus.create(f"s{number}", KEEP_ALL))
    assert threading.active_count() == before
    waiter.close()


def test_closing_leaves_no_thread(server):
    before = set(threading.enumerate())
    bus = open_bus(f"{server.url}?prefix=t{uuid.uuid4().hex}.", ThreadRuntime())
    waiter = bus.waiter()
    waiter.watch(bus.create("orders", KEEP_ALL))
    bus.close()
    waiter.close()
    assert set(threading.enumerate()) == before


def test_the_checks_name_what_would_break_the_promises(opened):
    bus = opened("small.", backups=0)
    bus.create(f"large{uuid.uuid4().hex}", StreamConfig(capacity=1000))
    problems = [finding.problem for finding in bus.check()]
    assert any("one member" in problem for problem in problems)
    assert any("backups=0" in problem for problem in problems)
    assert any("keeps 1000 records" in problem for problem in problems)
    assert bus.promises.durability == "memory"
    assert bus.promises.sync_replicas == 0
    assert "everything" in bus.promises.may_lose


def test_a_strict_opener_refuses_a_cluster_of_one(server):
    with pytest.raises(ServerUnfit, match="one member"):
        open_bus(f"{server.url}?strict=true", ThreadRuntime())


def test_an_append_above_the_limit_names_it(opened, producer):
    log = opened(append_bytes=1000).create("orders", KEEP_ALL)
    with pytest.raises(AppendTooLarge, match="append_bytes in the bus URL"):
        log.append([producer.batch(b"x" * 2000)])
    assert values(log) == []


def test_another_name_of_the_cluster_is_refused_at_once(server):
    started_at = time.monotonic()
    address = server.url.replace("hazelcast://", "hazelcast://app:topsecret@")
    with pytest.raises(ServerRefused, match="'elsewhere'") as caught:
        open_bus(f"{address}/elsewhere", ThreadRuntime())
    assert time.monotonic() - started_at < 5
    assert "topsecret" not in str(caught.value) + repr(caught.value)


def test_no_password_is_logged_however_much_is(server, caplog):
    target, options = f"//app:topsecret@127.0.0.1:{server.port}", {"timeout_s": "2"}
    address = parse_address("hazelcast", target, options, environ={}, default_port=1)
    with caplog.at_level(logging.DEBUG):
        with pytest.raises(ServerRefused):
            open_bus(f"hazelcast:{target}", ThreadRuntime())
        with pytest.raises(ServerUnreachable):  # the client itself, which tries again and again
            ClusterClient(address, "dev", ThreadRuntime())
    assert any(record.name.startswith("hazelcast") for record in caplog.records)
    assert "topsecret" not in caplog.text + repr([record.__dict__ for record in caplog.records])


def test_nobody_at_the_address_is_told_at_once():
    [port] = free_ports(1)
    started_at = time.monotonic()
    with pytest.raises(ServerUnreachable, match=f"127.0.0.1:{port}"):
        open_bus(f"hazelcast://127.0.0.1:{port}", ThreadRuntime())
    assert time.monotonic() - started_at < 5


def test_the_first_of_several_addresses_may_be_dead(server):
    [port] = free_ports(1)
    bus = open_bus(f"hazelcast://127.0.0.1:{port},127.0.0.1:{server.port}?prefix=t{uuid.uuid4().hex}.", ThreadRuntime())
    assert bus.names() == []
    bus.close()


def test_a_server_that_accepts_and_is_silent_is_given_up_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started_at = time.monotonic()
        with pytest.raises(ServerUnreachable, match="nothing came within"):
            open_bus(f"hazelcast://127.0.0.1:{silent.getsockname()[1]}?timeout_s=1", ThreadRuntime())
        assert time.monotonic() - started_at < 4


def test_a_real_client_has_what_we_change_in_it(opened):
    """Our changes look for parts that the client does not document, and leave it alone where they find none."""
    link = opened().driver._client
    # When a connection is lost, though its member stays
    losses = link.losses
    [connection] = link.library._connection_manager.active_connections.values()
    connection.close_connection("a test closes it", None)
    # Then the link hears of it
    end = time.monotonic() + 20
    while link.losses == losses:
        assert time.monotonic() < end, "a lost connection was not heard of"
        time.sleep(0.001)
    # And its thread is woken for each call
    waker = link.library._reactor._loop.waker
    assert waker.wake.__qualname__.startswith(patch_waking.__name__)
    # And it loads no pickled object
    pickled = SerializationServiceV1(Config()).to_data(threading.Event)
    with pytest.raises(HazelcastSerializationError, match="pickled object"):
        link.library._serialization_service.to_object(pickled)
