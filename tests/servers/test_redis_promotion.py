"""A replica is made the primary: what a reader saw and the replica never had is an error, and never silence."""

from __future__ import annotations

import threading
import uuid

import pytest

from lockstep.engine.runtime.control.reports import ReportBoard
from lockstep.engine.runtime.sequence.beats import Beat, Beats
from lockstep.errors import DataError
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.streams.cursor import Cursor
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.member import GroupMember, seat_name
from lockstep.streams.options import GroupOptions
from lockstep.testing.contract import Producer, values

KEEP = StreamConfig(capacity=None)
BOUND_S = 30.0


@pytest.fixture
def opened():
    buses = []
    prefix = uuid.uuid4().hex

    def open_one(url, **options):
        query = "&".join(f"{name}={value}" for name, value in {"prefix": prefix, **options}.items())
        buses.append(open_bus(f"{url}?{query}", ThreadRuntime()))
        return buses[-1]

    yield open_one
    for bus in buses:
        bus.close()


def until(condition):
    runtime = ThreadRuntime()
    end, pause = runtime.monotonic() + BOUND_S, runtime.waiter()
    while not condition():
        assert runtime.monotonic() < end
        pause.wait(0.01)


@pytest.fixture
def pair(start_server, opened):
    """A primary, its replica, and a bus that uses whichever is the primary."""
    primary, replica = start_server("redis"), start_server("redis")
    second = opened(replica.url)
    opened(primary.url).client.ask(("CONFIG", "SET", "repl-diskless-sync-delay", 0))
    second.client.ask(("REPLICAOF", "127.0.0.1", primary.port))
    bus = opened(f"redis://127.0.0.1:{primary.port},127.0.0.1:{replica.port}")
    until(lambda: b"state=online" in bus.client.ask(("INFO", "replication"))[0])
    return primary, bus, second


def read_all(cursor):
    found = []
    while segments := cursor.read(1000, 1 << 20)[0]:
        found += [value for segment in segments for value in segment.view.values()[segment.start : segment.stop]]
    return found


def promoted(pair, producer):
    """The state after a promotion at the worst moment: a cursor that has read what the new primary never had."""
    primary, bus, second = pair
    log = bus.create("orders", KEEP)
    log.append([producer.batch(b"both")])
    until(lambda: second.client.ask(("XLEN", log.keys.entries)) == [1])
    cursor = Cursor(log, 0)
    assert read_all(cursor) == [b"both"]
    second.client.ask(("REPLICAOF", "NO", "ONE"))
    lost = producer.batch(b"A")
    log.append([lost])
    assert read_all(cursor) == [b"A"]
    primary.kill()
    return log, cursor, lost


def test_another_record_at_an_offset_that_was_read_is_an_error(pair, opened):
    producer = Producer()
    log, cursor, lost = promoted(pair, producer)
    log.append([Producer("other").batch(b"B")])
    assert log.append([lost]) == [2]
    with pytest.raises(DataError, match=r"Offsets 1 to 1 of stream 'orders'.*Seek to offset 1"):
        read_all(cursor)
    with pytest.raises(DataError):
        read_all(cursor)
    cursor.seek(1)
    assert read_all(cursor) == [b"B", b"A"]
    assert values(log) == [b"both", b"B", b"A"]


def test_a_record_that_was_read_and_is_gone_is_an_error(pair):
    _, cursor, _ = promoted(pair, Producer())
    with pytest.raises(DataError, match="or none"):
        read_all(cursor)


def test_a_switch_that_closes_no_connection_is_an_error_for_who_read_what_the_new_primary_never_had(pair, opened):
    primary, bus, second = pair
    log, producer = bus.create("orders", KEEP), Producer()
    log.append([producer.batch(b"both")])
    until(lambda: second.client.ask(("XLEN", log.keys.entries)) == [1])
    first = opened(primary.url)
    cursor, other = Cursor(first.open("orders"), 0), Cursor(first.open("orders"), 0)
    assert read_all(cursor) == read_all(other) == [b"both"]
    second.client.ask(("REPLICAOF", "NO", "ONE"))
    lost = producer.batch(b"A")
    log.append([lost])
    assert read_all(cursor) == [b"A"]
    promoted = second.open("orders")
    assert promoted.append([Producer("other").batch(b"B")]) == [1]
    losses = first.client.losses
    first.client.ask(("REPLICAOF", "127.0.0.1", second.client.connector.address.hosts[0][1]))
    until(lambda: first.client.ask(("HGET", log.keys.row, "tip")) == second.client.ask(("HGET", log.keys.row, "tip")))
    for at_the_end in (True, False):
        with pytest.raises(DataError, match="Offsets 1 to 1 of stream 'orders'"):
            read_all(cursor)
        if at_the_end:
            assert promoted.append([lost]) == [2]
            until(lambda: first.client.ask(("XLEN", log.keys.entries)) == [3])
    assert first.client.losses == losses, "no connection was lost"
    assert read_all(other) == [b"B", b"A"], "who had not read the lost record goes on"


def test_a_reader_that_saw_nothing_else_goes_on(pair):
    primary, bus, second = pair
    log, producer = bus.create("orders", KEEP), Producer()
    log.append([producer.batch(b"a")])
    cursor = Cursor(log, 0)
    assert read_all(cursor) == [b"a"]
    until(lambda: second.client.ask(("XLEN", log.keys.entries)) == [1])
    primary.kill()
    second.client.ask(("REPLICAOF", "NO", "ONE"))
    log.append([producer.batch(b"b")])
    assert read_all(cursor) == [b"b"]


def test_calls_wait_for_a_server_that_is_away_as_long_as_patience_s_says(start_server, opened):
    server, runtime = start_server("redis"), ThreadRuntime()
    bus = opened(server.url, timeout_s=0.2, patience_s=20)
    log = bus.create("orders", KEEP)
    server.kill()
    began = runtime.monotonic()
    starter = threading.Timer(1.0, server.restart)
    starter.start()
    assert log.append([Producer().batch(b"a")]) == [0]
    assert runtime.monotonic() - began > 0.5
    starter.join()


def test_members_of_a_group_go_by_what_is_left(pair):
    primary, bus, second = pair
    log, runtime, errors = bus.create("orders", KEEP), ThreadRuntime(), []
    member = GroupMember(
        GroupLog(bus, "g", runtime), bus.waiter(), {seat_name(log): log}, runtime,
        GroupOptions(lease_s=1.0, beat_s=0.2), starts=lambda _: 0, changed=runtime.waiter(),
        on_error=lambda summary, error: errors.append((summary, error)),
    )  # fmt: skip
    until(member.held)
    group = member.grouplog.log
    until(lambda: second.client.ask(("XLEN", group.keys.entries))[0] > 5)
    # When another server becomes the primary that never got what was read last
    second.client.ask(("REPLICAOF", "NO", "ONE"))
    before = group.bounds().next
    until(lambda: member.grouplog.next > before + 2)
    primary.kill()
    # Then the member reads the log again, and goes on
    until(lambda: member.error is not None or (member.grouplog.next <= before + 2 and member.held()))
    until(lambda: member.error is not None or member.held())
    member.close()
    assert (member.error, errors) == (None, [])


@pytest.mark.parametrize("kind", ["beats", "reports"])
def test_what_engines_tell_each_other_is_read_on(pair, kind):
    primary, bus, second = pair
    log = bus.create("side", KEEP)
    reader = Beats(log) if kind == "beats" else ReportBoard(log, ThreadRuntime())

    def say(number: int) -> None:
        if kind == "beats":
            log.append([Beat("i", number).batch(0)])
        else:
            log.append([pack([b"{}"], producer=NO_PRODUCER, sequence=0, created_ns=number)])

    def look() -> object:
        return reader.last().published if kind == "beats" else reader.look()

    say(1)
    until(lambda: second.client.ask(("XLEN", log.keys.entries)) == [1])
    look()
    second.client.ask(("REPLICAOF", "NO", "ONE"))
    say(2)
    look()
    primary.kill()
    say(3)
    say(4)
    assert look() == (4 if kind == "beats" else {})
