"""What a stream of RabbitMQ does as a topic: numbers, places to read from, names, room, and what is left at the end."""

from __future__ import annotations

import gc
import random
import struct
import threading
import time

import pytest
from rstream import schema

from lockstep.errors import BatchDamaged, DataError, ServerUnreachable, StreamNotFound, Trimmed
from lockstep.log.config import StreamConfig
from lockstep.log.network.driver import Ends, StreamEntry
from lockstep.log.rabbitmq.subscription import AHEAD_BYTES
from lockstep.testing.contract import Producer
from lockstep.testing.contract_case import KEEP_ALL, values
from servers.clients import eventually
from servers.rabbitmq_worlds import control, opened, own_url

SMALL_SEGMENT = 20_000


@pytest.fixture
def url(rabbitmq_server):
    return own_url(rabbitmq_server)


@pytest.fixture
def bus(url):
    bus = opened(url)
    yield bus
    bus.close()


@pytest.fixture
def topic(bus):
    return made(bus)


def made(bus, name="orders", config=KEEP_ALL):
    """A topic of its own, below the log."""
    known = StreamEntry(name, "0123456789abcdef" * 2, config)
    bus.driver._make(known)
    return bus.driver.topic(known)


def again(bus, name="orders"):
    """Another handle on the topic that `made` has made."""
    return bus.driver.topic(StreamEntry(name, "0123456789abcdef" * 2, KEEP_ALL))


def read_all(topic, number=0, max_bytes=1 << 20):
    found = []
    while messages := topic.fetch(number, max_bytes):
        found += messages
        number = messages[-1].number + 1
    return found


def test_messages_have_the_numbers_that_sending_returned_although_the_server_skips_some(rabbitmq_server):
    # Given a stream whose segments are so small that the server often writes notes of its own
    bus = opened(own_url(rabbitmq_server, segment_bytes=SMALL_SEGMENT))
    topics = [made(bus), again(bus)]
    sent = {}
    for number in range(60):
        data = b"%d-" % number + b"x" * 2000
        [at] = topics[number % 2].send([data])
        sent[at] = data
    # Then
    assert {message.number: message.data for message in read_all(topics[0])} == sent
    assert max(sent) >= len(sent), "the server has skipped no number: the test shows nothing"
    bus.close()


def test_whatever_was_acknowledged_is_found_at_once(bus, topic):
    reader = again(bus)
    for number in range(300):
        [at] = topic.send([b"%d" % number])
        assert [message.data for message in reader.fetch(at, 1)] == [b"%d" % number]


def test_two_who_look_at_the_end_never_miss_what_the_other_has_sent(bus, topic):
    other, seen = opened(own_url(None, port=bus.driver._address.hosts[0][1], prefix=bus.driver._address.prefix)), []

    def answer():
        topic = again(other)
        at = 0
        for number in range(0, 200, 2):
            while not (messages := topic.fetch(at, 1)):
                pass
            assert messages[0].data == b"%d" % number
            at = topic.send([b"%d" % (number + 1)])[0] + 1
            seen.append(number)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    for number in range(0, 200, 2):
        [at] = topic.send([b"%d" % number])
        while not (messages := topic.fetch(at + 1, 1)):
            assert thread.is_alive()
        assert messages[0].data == b"%d" % (number + 1)
    thread.join(20)
    assert seen == list(range(0, 200, 2))
    other.close()


def test_any_place_can_be_read(topic):
    numbers = [topic.send([b"%d" % number])[0] for number in range(100)]
    for at in random.Random(3).sample(range(100), 40):
        messages = topic.fetch(numbers[at], 1)
        assert (messages[0].number, messages[0].data) == (numbers[at], b"%d" % at)
    assert topic.fetch(numbers[-1] + 1, 1) == []
    assert topic.fetch(numbers[-1] + 1000, 1) == []


def test_a_chunk_that_begins_earlier_is_cut(bus):
    # Given messages of several writers, so that the server stores some together
    made(bus).close()
    writers = [again(bus) for _ in range(8)]
    threads = [threading.Thread(target=lambda one=one: [one.send([b"x"]) for _ in range(30)]) for one in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    reader = again(bus)
    everything = [message.number for message in read_all(reader)]
    assert len(everything) == 240
    # Then reading from each place begins there
    for number in everything[::7]:
        assert reader.fetch(number, 1)[0].number == number


def test_handles_read_in_different_places_at_once(bus, topic):
    numbers = [topic.send([b"%d" % number])[0] for number in range(50)]
    readers = [again(bus) for _ in range(3)]
    places = [0, 20, 40]
    for step in range(10):
        for reader, start in zip(readers, places, strict=True):
            messages = reader.fetch(numbers[start + step], 1)
            assert messages[0].data == b"%d" % (start + step)


def test_reading_on_is_served_from_what_came_ahead(bus, topic):
    for _ in range(200):
        topic.send([b"x" * 1000])
    reader = again(bus)
    at = reader.fetch(0, 1)[-1].number + 1
    feed, asked = reader._subscriptions[0], []
    begin = feed._connection.begin
    feed._connection.begin = lambda *words, **more: asked.append(1) or begin(*words, **more)
    for _ in range(150):
        eventually(lambda: feed._messages or feed._chunks, "the next one comes by itself")
        at = reader.fetch(at, 1)[-1].number + 1
    assert not asked


def test_what_is_read_ahead_is_bounded(bus, topic):
    for _ in range(40):
        topic.send([b"x" * 1_000_000])
    reader = again(bus)
    at = 0
    for _ in range(10):
        at = reader.fetch(at, 1)[-1].number + 1
    feed = reader._subscriptions[0]
    feed.settle(bus.driver._client.deadline(), fully=True)
    assert sum(len(chunk.data) for chunk in feed._chunks) <= AHEAD_BYTES + 1_100_000


def test_the_ends_follow_what_is_stored(topic):
    assert topic.ends() == Ends(0, 0)
    [at] = topic.send([b"a"])
    assert topic.ends() == Ends(0, at + 1)
    [at] = topic.send([b"b"])
    assert topic.ends() == Ends(0, at + 1)


def test_room_comes_back_where_the_stream_is_bounded_by_bytes(rabbitmq_server):
    # Given a bounded stream in small segments
    bus = opened(own_url(rabbitmq_server, segment_bytes=SMALL_SEGMENT))
    log = bus.create("orders", StreamConfig(capacity=None, retain_bytes=30_000))
    producer, last = Producer(), b""
    for number in range(200):
        last = b"%d-" % number + b"x" * 1000
        log.append([producer.batch(last)])
    # Then the server has dropped what is far beyond the bound, and nothing that counts
    found = values(log)
    assert found[-1] == last
    assert 25 <= len(found) <= 30
    assert log.topic.ends().first > 50
    bus.close()


def test_what_retention_drops_in_front_of_an_open_reader_is_told_and_not_passed_over(rabbitmq_server):
    # Given a reader who has begun, and so much more that the server drops what he has not read yet
    bus = opened(own_url(rabbitmq_server, segment_bytes=SMALL_SEGMENT, max_bytes=2 * SMALL_SEGMENT))
    log, producer = bus.create("orders", KEEP_ALL), Producer()
    log.append([producer.batch(b"0")])
    reader = bus.open("orders")
    at = reader.read(0, max_bytes=1)[-1].base + 1
    bases = [log.append([producer.batch(b"x" * 1000)])[0] for _ in range(200)]
    # Then he reads on without a gap until he is told that there is one
    seen = []

    def read_on():
        while entries := reader.read(at if not seen else seen[-1] + 1):
            seen.extend(entry.base for entry in entries)

    with pytest.raises(Trimmed):
        read_on()
    assert seen == bases[: len(seen)]
    bus.close()


def test_a_stream_that_somebody_deleted_on_the_server_is_an_error_and_not_an_empty_stream(rabbitmq_server, bus):
    log = bus.create("orders", KEEP_ALL)
    log.append([Producer().batch(b"a")])
    control(rabbitmq_server, "delete_queue", bus.driver._server_name(log._known))
    with pytest.raises(DataError, match="somebody deleted it there"):
        bus.create("orders", KEEP_ALL)
    with pytest.raises(ServerUnreachable):
        log.bounds()
    # And it can be deleted, and made anew
    bus.delete("orders")
    anew = bus.create("orders", KEEP_ALL)
    assert anew.identity != log.identity
    assert values(anew) == []


def test_a_deletion_that_was_cut_short_leaves_nothing_that_a_new_stream_finds(bus):
    log = bus.create("orders", KEEP_ALL)
    log.append([Producer().batch(b"a")])
    bus.driver.catalogue.remove(log._known)  # and here the deleting process died
    anew = bus.create("orders", KEEP_ALL)
    assert anew.identity != log.identity
    assert values(anew) == []


def test_of_two_that_make_the_same_stream_both_get_the_one_that_was_first_and_the_other_is_removed(
    rabbitmq_server, url, bus
):
    other = opened(url)
    known = StreamEntry("orders", "f" * 32, KEEP_ALL)
    log = bus.create("orders", KEEP_ALL)
    assert other.driver.catalogue.add(known).identity == log.identity
    assert not other.driver._exists(other.driver._server_name(known), other.driver._client.deadline())
    other.close()


def test_what_another_client_wrote_is_told_to_who_reads_and_stops_nobody_else(bus, topic):
    # Given an entry that holds several messages, as other clients write them
    topic.send([b"a"])
    connection, deadline = bus.driver._client.fresh(bus.driver._client.deadline()), bus.driver._client.deadline()
    stream = topic._stream
    connection.ask(lambda number: schema.DeclarePublisher(number, 1, "", stream), deadline)
    entry = struct.pack(">BHII", 0x80, 2, 10, 10) + b"\0\0\0\1x\0\0\0\1y"
    frame = struct.pack(">HHBIQ", 2, 1, 1, 1, 1) + entry
    connection.write(len(frame).to_bytes(4, "big") + frame, deadline)
    eventually(lambda: topic.ends().next == 3, "it is stored")
    # Then whoever comes to it is told, again and again, and others publish and read on
    for _ in range(3):
        with pytest.raises(BatchDamaged, match="another client"):
            topic.fetch(1, 1)
    [at] = again(bus).send([b"b"])
    assert topic.fetch(at, 1)[0].data == b"b"
    assert made(bus, "other").send([b"c"]) == [0]


def test_many_handles_share_connections(bus, topic):
    handles = [again(bus) for _ in range(60)]
    for number, handle in enumerate(handles):
        [at] = handle.send([b"%d" % number])
        assert handle.fetch(at, 1)[0].data == b"%d" % number
    assert sum(len(ones) for ones in bus.driver._client._open.values()) <= 7
    for handle in handles:
        handle.close()


@pytest.mark.parametrize("name", ["orders", "_group.workers", "orders/3", "trades.S", "x.R.0123abcd"])
def test_all_kinds_of_names_are_carried(bus, name):
    log = bus.create(name, KEEP_ALL)
    log.append([Producer().batch(b"a")])
    assert values(bus.open(name)) == [b"a"]
    assert bus.names() == [name]


def test_a_stream_is_made_anew_at_once_and_the_old_handle_does_not_reach_it(bus, url):
    other = opened(url)
    log = bus.create("orders", KEEP_ALL)
    old = other.open("orders")
    old.append([Producer().batch(b"old")])
    for _ in range(5):
        bus.delete("orders")
        log = bus.create("orders", KEEP_ALL)
    with pytest.raises(StreamNotFound):
        old.append([Producer().batch(b"lost")])
    assert values(log) == []
    other.close()


def test_everything_on_the_server_begins_with_the_prefix(rabbitmq_server):
    before = set(control(rabbitmq_server, "list_queues", "name").split())
    bus = opened(own_url(rabbitmq_server, prefix="mine."))
    bus.create("orders", KEEP_ALL)
    after = set(control(rabbitmq_server, "list_queues", "name").split())
    assert len(after - before) == 2
    assert all(name.startswith("mine.") for name in after - before)
    bus.close()


def test_a_reader_is_woken_within_milliseconds(bus, topic):
    reader, woken, times = again(bus), threading.Event(), []
    stop = reader.watch(woken.set)
    at = 0
    for _ in range(20):
        assert reader.fetch(at, 1) == []
        woken.clear()
        began = time.monotonic()
        [number] = topic.send([b"x"])
        assert woken.wait(20)
        times.append(time.monotonic() - began)
        at = reader.fetch(at, 1)[-1].number + 1
        assert at == number + 1
    stop()
    assert sorted(times)[10] < 0.1


def test_a_closed_bus_leaves_no_thread_and_no_connection(url):
    gc.collect()
    before = threading.active_count()
    bus = opened(url)
    log = bus.create("orders", KEEP_ALL)
    waiter = bus.waiter()
    waiter.watch(log)
    log.append([Producer().batch(b"a")])
    assert threading.active_count() == before + 1
    connections = [one for ones in bus.driver._client._open.values() for one in ones]
    bus.close()
    assert threading.active_count() == before
    assert all(one.sock.fileno() == -1 for one in connections)
