"""Named clients: how many are remembered, in which order they are forgotten, and which beats name them."""

from __future__ import annotations

import pytest
from failover_worlds import WANTED, leader, send
from hypothesis import given
from hypothesis import strategies as st
from local_cluster import LocalCluster
from local_engine import LocalEngine
from run_worlds import frame, input_log, put, run_all, sums_graph, told

from lockstep.core.sequence import SequenceState
from lockstep.engine.events.frames import read_head
from lockstep.engine.runtime.output import publisher
from lockstep.engine.runtime.sequence import beats, entries
from lockstep.engine.runtime.sequence.beats import last_beat, whole_position
from lockstep.engine.runtime.sequence.entries import BlockCounter, SequencePosition
from lockstep.engine.runtime.snapshots import format as snapshot_format
from lockstep.engine.runtime.snapshots.format import HEAD_VERSION, Head, decode_head, encode_head
from lockstep.errors import RecordTooLarge, StoreFull
from lockstep.events.clients import ClientTail
from lockstep.log.batch import pack
from lockstep.testing.faults import FaultyBus


def client(number: int) -> bytes:
    return number.to_bytes(16, "big")


def take(tally: BlockCounter, number: int, first: int = 1) -> int | None:
    return tally.take(read_head(frame([1], client=client(number), first_id=first)), "q/in")


@pytest.fixture
def few(monkeypatch):
    """Three clients are remembered."""
    monkeypatch.setattr(entries, "CLIENTS_REMEMBERED", 3)


@pytest.fixture
def some(monkeypatch):
    """Beats name up to two clients."""
    for module in (beats, publisher):
        monkeypatch.setattr(module, "FEW_CLIENTS", 2)


def test_the_client_that_was_silent_for_longest_is_forgotten(few):
    tally = BlockCounter.at(SequencePosition())
    for number in (1, 2, 3):
        assert take(tally, number) == 0
    assert take(tally, 1) == 1  # a copy, but it is there
    assert take(tally, 4) == 0
    assert [name[-1] for name in tally.clients] == ["3", "1", "4"]


def test_the_order_in_which_clients_are_forgotten_survives_a_position_as_plain_values(few):
    tally = BlockCounter.at(SequencePosition())
    for number in (3, 1, 2, 3):
        take(tally, number)
    again = BlockCounter.at(SequencePosition.of(SequencePosition(clients=tally.clients).tree()))
    take(tally, 9)
    take(again, 9)
    assert list(again.clients) == list(tally.clients)


def test_a_client_that_was_forgotten_may_go_on_with_any_number(few):
    tally = BlockCounter.at(SequencePosition())
    for number in (1, 2, 3, 4):
        take(tally, number, first=7)
    assert take(tally, 1, first=8) == 0
    assert take(tally, 1, first=10) is None  # from then on nothing may be missing


def test_with_many_clients_only_one_beat_in_a_second_names_them(tmp_path, some):
    engine = LocalEngine(sums_graph(), WANTED, tmp_path)
    for number in range(30):
        put(input_log(engine, "q/in"), frame([number], client=client(number % 5), first_id=1 + number // 5))
        run_all(engine)
    control = engine.bus.open(engine.streams.control)
    said = [record["position"]["clients"] for record in told(engine, engine.streams.control) if record["position"]]
    assert len([clients for clients in said if clients is not None and len(clients) > 2]) <= 3
    # And whoever needs them finds them
    found = whole_position(control)
    assert found is not None
    assert set(found["clients"]) <= set(engine.sequencer.position.clients)
    assert len(found["clients"]) >= 3


def test_with_many_publishers_only_one_beat_in_a_second_names_them(tmp_path, some):
    engine = LocalEngine(sums_graph(), WANTED, tmp_path)
    for number in range(30):
        batch = pack([frame([number])], producer=client(number % 5), sequence=number // 5, created_ns=1)
        input_log(engine, "q/in").append([batch])
        run_all(engine)
    said = [record["position"] for record in told(engine, engine.streams.control) if record["position"]]
    assert len([entries for entries in said if len(entries["producers"]) > 2]) <= 3
    assert all(entries["clients"] is None for entries in said[-1:])
    # And whoever needs them finds them
    found = whole_position(engine.bus.open(engine.streams.control))
    assert found is not None
    assert len(found["producers"]) >= 3


def test_an_engine_that_starts_counts_as_those_that_knew_all_clients(tmp_path, some, monkeypatch):
    # Given more clients than beats name
    monkeypatch.setattr(publisher, "_WHOLE_S", 1e9)
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path)
    leader(cluster)
    for number in range(1, 9):
        cluster.put("q/in", frame([number], client=client(number)))
        cluster.settle()
    control = cluster.bus.open(cluster.streams.control)
    assert not last_beat(control).is_whole
    # When another engine takes over, and clients send what they sent before
    second = cluster.start("b")
    cluster.settle()
    cluster.nodes["a"].kill()
    cluster.until_active("b")
    for number in range(1, 9):
        cluster.put("q/in", frame([number], client=client(number)))
    send(cluster, 50)
    cluster.settle()
    # Then it counts nothing twice
    assert [number for number, _ in cluster.subscribers["q/in"].got] == list(range(1, 10))
    assert len(second.control.sequencer.position.clients) == 8
    # And a client learns its last number
    node = cluster.graph.find("q/in")
    assert node is not None
    tail = ClientTail.begin(cluster.bus, cluster.streams, node, client(3))
    list(tail.read())
    assert tail.last == 1


def test_trimming_keeps_the_beat_that_names_all_clients(tmp_path, some, monkeypatch):
    monkeypatch.setattr(beats, "_KEEP", 1)
    engine = LocalEngine(sums_graph(), WANTED, tmp_path)
    monkeypatch.setattr(publisher, "_WHOLE_S", 1e9)
    for number in range(1, 5):
        put(input_log(engine, "q/in"), frame([number], client=client(number)))
    run_all(engine)
    for number in range(5, 60):
        put(input_log(engine, "q/in"), frame([number], client=client(1), first_id=number - 3))
        run_all(engine)
    found = whole_position(engine.bus.open(engine.streams.control))
    assert found is not None
    assert len(found["clients"]) > 2


def refusing(engine: LocalEngine, error: Exception, times: int) -> LocalEngine:
    bus = FaultyBus(engine.bus)
    engine.publisher = engine.new_publisher(bus)
    while not engine.publisher.is_open:
        engine.publisher.step()
    bus.plan.fail(error, times, log=engine.streams.control)
    return engine


def test_a_beat_that_is_too_large_for_the_bus_gets_smaller_and_the_leader_lives(tmp_path, some):
    engine = LocalEngine(sums_graph(), WANTED, tmp_path)
    too_large = RecordTooLarge(size=2_000_000, stream=engine.streams.control, limit=1_000_000)
    for times in (1, 2, 3):
        refusing(engine, too_large, times)
        for number in range(1, 5):
            put(input_log(engine, "q/in"), frame([number], client=client(10 * times + number)))
        run_all(engine)
        assert engine.publisher.published == 4 * times
    assert last_beat(engine.bus.open(engine.streams.control)).published == 8  # the third time even the smallest was


def test_a_bus_without_room_ends_the_leader_with_the_error_of_the_bus(tmp_path):
    engine = LocalEngine(sums_graph(), WANTED, tmp_path)
    refusing(engine, StoreFull(stream=engine.streams.control, reason="full"), 1)
    put(input_log(engine, "q/in"), frame([1]))
    with pytest.raises(StoreFull):
        run_all(engine)


# Publishers without a client's name


def append_as(cluster: LocalCluster, producer: bytes, sequence: int, *ids: int) -> None:
    """As a publisher does; the bus stores what is sent twice, as Kafka, RabbitMQ and Hazelcast may."""
    batch = pack([frame([one]) for one in ids], producer=producer, sequence=sequence, created_ns=0)
    cluster.input("q/in").append([batch])


def taken(cluster: LocalCluster) -> set[int]:
    """How many events each engine has taken from its input; a copy that counts is one, although its key is known."""
    cluster.settle()
    return {node.computed().events for node in cluster.awake}


def test_a_copy_of_what_a_publisher_without_a_name_sent_counts_once_on_every_engine(tmp_path):
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path, persist_to=tmp_path / "kept")
    first = leader(cluster)
    cluster.start("b")
    append_as(cluster, b"p" * 16, 0, 1, 2, 3)
    append_as(cluster, b"q" * 16, 0, 4)
    append_as(cluster, b"p" * 16, 0, 1, 2, 3)
    assert taken(cluster) == {4}
    assert cluster.told(cluster.streams.bad) == []
    # Also for one that begins with a snapshot, and one that takes over
    cluster.ask("persist", {})
    cluster.start("c")
    first.kill()
    append_as(cluster, b"p" * 16, 3, 5)
    append_as(cluster, b"q" * 16, 0, 4)
    append_as(cluster, b"p" * 16, 3, 5)
    assert taken(cluster) == {5}
    assert len({str(node.computed().counts) for node in cluster.awake}) == 1
    # And after a reset nobody knows what came before, also who was there
    cluster.ask("reset", {"force": True})
    cluster.start("d")
    append_as(cluster, b"q" * 16, 0, 4)
    assert taken(cluster) == {6}
    assert len({str(node.computed().counts) for node in cluster.awake}) == 1


def test_producers_are_forgotten_in_the_order_of_their_last_records():
    tally = BlockCounter.at(SequencePosition())
    head = read_head(frame([1]))
    for number in range(entries.PRODUCERS_REMEMBERED + 1):
        assert tally.take(head, "q/in", (f"{number:032x}", 7)) == 0
    again = BlockCounter.at(SequencePosition.of(SequencePosition(producers=tally.producers).tree()))
    assert again.take(head, "q/in", (f"{5:032x}", 7)) == 1
    assert again.take(head, "q/in", (f"{0:032x}", 7)) == 0
    assert len(again.producers) == entries.PRODUCERS_REMEMBERED


SENDERS = st.tuples(st.sampled_from("abcdef"), st.booleans())


@pytest.mark.parametrize("version", [4, HEAD_VERSION])
@given(st.lists(st.lists(SENDERS, max_size=4) | st.just("others only"), max_size=8))
def test_marks_of_a_snapshot_know_all_senders_in_their_order(version, ranges):
    # Given marks between which clients and producers send, some are forgotten, and a source goes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "CLIENTS_REMEMBERED", 3)
        patch.setattr(entries, "PRODUCERS_REMEMBERED", 3)
        patch.setattr(snapshot_format, "HEAD_VERSION", version)
        if version < HEAD_VERSION:
            patch.setattr(snapshot_format, "_mark_trees", lambda marks: [mark.tree() for mark in marks])
        marks = [SequencePosition(ends={"q/in": 0})]
        for number, senders in enumerate(ranges, 1):
            last = marks[-1]
            if senders == "others only":
                marks.append(last.only({"q/a"}))
                continue
            tally = BlockCounter.at(last)
            for name, is_client in senders:
                if is_client:
                    tally.take(read_head(frame([number], client=name.encode() * 16, first_id=number)), "q/in")
                else:
                    tally.take_records(1, "q/a" if name < "d" else "q/in", (name, number))
            marks.append(SequencePosition(SequenceState(number), clients=tally.clients, producers=tally.producers))
        head = Head("model", marks[-1], tuple(marks), {})
        # Then all of them are read as they were, also in the form of an earlier version
        again = decode_head(encode_head(head), "model", "here")
    told = [[list(each.clients.items()), list(each.producers.items())] for each in marks]
    assert [[list(each.clients.items()), list(each.producers.items())] for each in again.marks] == told
    assert again.marks == head.marks


def test_thousands_of_senders_are_not_written_for_each_mark():
    # Given marks for a long past, and that ten of thousands of publishers send between two of them
    tally, marks = BlockCounter(0, 0, {}), []
    for number in range(4_096):
        tally.take_records(1, "q/in", (f"{number:032x}", 0))
    for number in range(100):
        for sender in range(10):
            tally.take_records(1, "q/in", (f"{sender:032x}", number + 1))
        marks.append(SequencePosition(SequenceState(number), producers=dict(tally.producers)))
    # Then the head of a snapshot says who sent, and not for each mark who ever did
    assert len(encode_head(Head("model", marks[-1], tuple(marks), {}))) < 3 * 4_096 * 50
