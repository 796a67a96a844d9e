"""Any stream as a source: one record a block, the same on every engine, whoever dies and whatever is in it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from cluster_fates import Fates
from failover_worlds import leader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_cluster import LocalCluster
from local_engine import LocalEngine
from record_worlds import ORDERS, PLAIN, WANTED, put_batch, records_graph
from run_worlds import run_all, told

from lockstep.engine.errors import (
    InputChanged,
    LogShortened,
    LogTooShort,
    ModelNotReplaceable,
    SourceReplaced,
    SourceUnfit,
)
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.runtime.coordinator import why_not_runnable
from lockstep.engine.runtime.sequence import reader as reader_module
from lockstep.engine.runtime.sequence import sequencer
from lockstep.engine.runtime.sequence.entries import BlockCounter, Decision, SequencePosition, counted
from lockstep.engine.runtime.sequence.model_statement import inputs_of, statement_of
from lockstep.engine.runtime.sequence.reader import RangeReader
from lockstep.engine.runtime.sequence.sequencer import Sequencer, SequencerOptions
from lockstep.errors import BadArgument, StreamNotFound
from lockstep.events.connection import ProjectEvents
from lockstep.log.config import StreamConfig
from lockstep.testing.virtual import VirtualRuntime
from memory_driver import MemoryServer

ALL = StreamConfig(capacity=None)
PRODUCER = b"p" * 16


def engine_over(tmp_path, *, shards: int = 1, entry_events: int = 1, **source: object) -> LocalEngine:
    graph = records_graph(**source) if source else records_graph()  # type: ignore[arg-type]
    orders = StreamConfig(capacity=None, shards=shards)
    return LocalEngine(graph, WANTED, tmp_path, others={"orders": orders}, entry_events=entry_events)


def test_records_of_all_shards_as_they_are(tmp_path):
    engine = engine_over(tmp_path, shards=2)
    put_batch(engine.bus.open("orders/1"), b"x", b"y", keys=[b"a", None])
    put_batch(engine.bus.open("orders/0"), b"z", keys=[b"a"])
    run_all(engine)
    rows = [(number, event.values) for number, events in engine.out("q/Orders") for event in events]
    assert rows == [(1, (0, 0, "a", "z", 5)), (2, (1, 0, "a", "x", 5)), (3, (1, 1, None, "y", 5))]
    assert engine.out("q/Counts")[1][1][0].values == ("a", 2)


def test_entries_take_stored_batches_and_name_ends(tmp_path):
    engine = engine_over(tmp_path, entry_events=3)
    log = engine.bus.open("orders")
    for size in (2, 2, 5):
        put_batch(log, *[b"v"] * size)
    run_all(engine)
    found = [Decision.of(entry) for _, entry in counted(engine.bus.open(engine.streams.sequence), _start(engine))]
    assert [(*decision.ends.values(), decision.blocks, decision.events) for decision in found] == [
        (2, 2, 2),
        (4, 4, 4),
        (9, 9, 9),
    ]


def _start(engine: LocalEngine):
    return RangeReader(engine.bus, engine.graph, engine.streams).start().sequence


def test_large_records_make_small_entries_and_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr(sequencer, "_ENTRY_BYTES", 1_000)
    monkeypatch.setattr(reader_module, "RANGE_BYTES", 1_500)
    engine = engine_over(tmp_path, entry_events=100)
    for number in range(10):
        put_batch(engine.bus.open("orders"), b"%d" % number * 450, b"x", keys=[b"k", b"k"])
    engine.settle()
    assert engine.sequencer.position.number == 5
    reader = RangeReader(engine.bus, engine.graph, engine.streams)
    assert reader.read(reader.start(), 5).end.number == 2
    run_all(engine)
    assert [number for number, _ in engine.out("q/Orders")] == list(range(1, 21))


def test_copies_of_a_batch_take_no_number():
    found = BlockCounter.at(SequencePosition())
    sender = ("p", 1)
    assert [found.take_records(2, "q/Orders@orders", sender) for _ in range(2)] == [0, 2]
    assert found.take_records(3, "q/Orders@orders", ("p", 2)) == 1
    assert (found.block, found.events) == (4, 4)
    assert found.take_records(2, "q/Orders@orders/1", sender) == 0


def test_bad_records_are_told_with_stream_and_offset_and_stop_nothing(tmp_path):
    engine = engine_over(tmp_path, shards=2, schema=ORDERS, by="symbol", decode="json")
    bad = [b'{"ID":1,"symbol":3}', b"no", b'{"ID":"x"}', b'{"ID":7,"opcode":"delete"}']
    put_batch(engine.bus.open("orders/0"), b'{"ID":1,"symbol":"A"}')
    put_batch(engine.bus.open("orders/1"), *bad, b'{"ID":2,"symbol":"A","quantity":5}')
    run_all(engine)
    found = told(engine, engine.streams.bad)
    assert [(each["block"], each["window"], each["reason"]) for each in found] == [
        (2, "orders/1 offset 0", "wrong-type"),
        (3, "orders/1 offset 1", "unparsable"),
        (4, "orders/1 offset 2", "wrong-type"),
        (5, "q/Orders", "bad-opcode"),
    ]
    assert engine.out("q/Counts")[-1][1][0].values == ("A", 2)
    assert engine.published() == 6


def test_what_was_gone_before_it_was_taken_is_a_block_that_says_so(tmp_path):
    engine = engine_over(tmp_path)
    log = engine.bus.open("orders")
    put_batch(log, b"a", b"b", keys=[b"k", b"k"])
    run_all(engine)
    put_batch(log, b"c", b"d", b"e", keys=[b"k"] * 3)
    log.trim(4)
    run_all(engine)
    (gap,) = told(engine, engine.streams.bad)
    assert (gap["block"], gap["window"], gap["reason"]) == (3, "orders offset 2", "gap")
    assert "up to offset 3" in str(gap["detail"])
    assert [number for number, _ in engine.out("q/Orders")] == [1, 2, 4]


def test_a_worker_that_comes_too_late_says_what_is_missing(tmp_path):
    engine = engine_over(tmp_path)
    log = engine.bus.open("orders")
    put_batch(log, b"a", b"b")
    engine.settle()
    log.trim(1)
    with pytest.raises(LogTooShort, match=r"q/Orders .*orders"):
        run_all(engine)


def test_a_batch_that_is_another_one_than_was_decided_on_is_seen(tmp_path):
    engine = engine_over(tmp_path)
    engine.settle()
    bus, copy = engine.bus, engine_over(tmp_path).bus
    put_batch(bus.open("orders"), b"a", b"b")
    engine.settle()
    put_batch(copy.open("orders"), b"a", b"c")
    reader = RangeReader(bus, engine.graph, engine.streams)
    assert reader.read(reader.start(), 1).end == engine.sequencer.position
    reader._inputs = tuple(replace(each, log=copy.open("orders")) for each in reader._inputs)
    with pytest.raises(InputChanged):
        reader.read(reader.start(), 1)


def test_a_stream_that_is_not_there_or_can_not_be_told_apart_or_is_another_one(tmp_path):
    graph = records_graph()
    engine = engine_over(tmp_path, shards=2)
    streams = engine.streams
    offsets = records_graph(schema=PLAIN.parse("offset*:int64,key:string,value:string"))
    with pytest.raises(SourceUnfit, match="orders has 2 shards"):
        inputs_of(engine.bus, streams, offsets)
    assert "orders has 2 shards" in why_not_runnable(statement_of(offsets, WANTED), 1, engine.bus, streams)
    assert why_not_runnable(statement_of(graph, WANTED), 1, engine.bus, streams) == ""
    run_all(engine)
    put_batch(engine.bus.open("orders/0"), b"a")
    engine.settle()
    engine.connection.delete("orders")
    with pytest.raises(StreamNotFound, match="orders"):
        inputs_of(engine.bus, streams, graph)
    engine.connection.create("orders", StreamConfig(capacity=None, shards=2))
    inputs = inputs_of(engine.bus, streams, graph)
    runtime, log = VirtualRuntime(), engine.bus.open(streams.sequence)
    again = Sequencer(log, inputs, runtime, SequencerOptions(), engine.sequencer.position)
    again.lead()
    again.step()
    with pytest.raises(SourceReplaced, match="orders/0"):
        again.step()


def test_a_stream_of_somebody_else_is_not_published_to_through_the_project(tmp_path):
    engine = engine_over(tmp_path)
    events = ProjectEvents(engine.connection, "test", engine.graph)
    assert events.sources() == []
    with pytest.raises(BadArgument, match="stream publish orders"):
        events.publisher("Orders")


# Several engines

FEW = ["kill", "kill", "kill_at", "kill_at", "pause", "wake", "start", "start", "duplicate", "lose_acknowledgement",
       "persist", "hand_over", "trim", "restore", "kill_all", *["nothing"] * 4]  # fmt: skip


def cluster_over(tmp_path, shards: int = 2, *, server: bool = False, seed: int = 0, **more: object) -> LocalCluster:
    others = {"orders": StreamConfig(capacity=None, shards=shards)}
    grid = MemoryServer() if server else None
    graph = records_graph()
    return LocalCluster(
        graph, frozenset(node.path for node in graph.nodes), tmp_path, seed=seed, server=grid, others=others, **more
    )


def feed(cluster: LocalCluster, shard: int, *values: bytes, key: bytes | None = b"k", sequence: int = 0) -> None:
    log = cluster.bus.open(f"orders/{shard}")
    producer = PRODUCER if sequence else bytes(16)
    put_batch(log, *values, keys=[key] * len(values), producer=producer, sequence=sequence)
    cluster.sent += len(values)


@pytest.mark.parametrize("server", [False, True])
@pytest.mark.parametrize("at", [".S", ".C", ".O", ".B"])
def test_the_standby_goes_on_where_the_leader_was_killed(tmp_path, at, server):
    cluster = cluster_over(tmp_path, server=server)
    active, standby = leader(cluster), cluster.start("b")
    feed(cluster, 0, b"a", b"\xff", b"c")
    cluster.settle()
    active.kill_at(at)
    for number in range(6):
        feed(cluster, number % 2, b"x%d" % number, b"\xfe")
        cluster.advance(0.1)
    cluster.until(lambda: not active.is_alive or at == ".C")
    if active.is_alive:
        active.kill()
    cluster.until_active("b")
    cluster.settle()
    cluster.check()
    assert [bad["block"] for bad in cluster.told(cluster.streams.bad)] == cluster.oracle().bad
    active.start()
    feed(cluster, 1, b"last")
    cluster.settle()
    cluster.check()
    assert standby.is_active


def test_a_batch_that_stands_twice_counts_once_on_every_engine(tmp_path):
    cluster = cluster_over(tmp_path)
    leader(cluster)
    cluster.start("b")
    feed(cluster, 0, b"a", b"b", sequence=1)
    feed(cluster, 0, b"a", b"b", sequence=1)
    feed(cluster, 0, b"b", b"c", sequence=2)
    cluster.settle()
    assert cluster.bus.open("orders/0").bounds().next == 6  # this bus keeps copies
    cluster.sent = 3
    cluster.check()
    assert len(cluster.subscribers["q/Orders"].got) == 3


def test_trimming_lets_go_of_the_projects_streams_only(tmp_path):
    cluster = cluster_over(tmp_path, persist_to=tmp_path / "snapshots")
    leader(cluster)
    for number in range(3):
        feed(cluster, 0, b"v%d" % number)
        cluster.settle()
        assert cluster.ask("persist").ok
    reply = cluster.ask("trim")
    assert reply.result["trimmed"]
    cluster.advance(1.0)
    assert cluster.bus.open(cluster.streams.sequence).bounds().first > 0
    assert (cluster.bus.open("orders/0").bounds().first, reply.result["inputs"]) == (0, {})
    # And its own retention may let go of what is in the snapshots: a new engine needs no more
    list(cluster.recorder.records("orders/0", 0, 1 << 62))
    cluster.bus.open("orders/0").trim(3)
    cluster.nodes["a"].kill()
    cluster.start("c")
    cluster.until_active("c")
    feed(cluster, 0, b"more")
    cluster.settle()
    cluster.check()


def test_a_project_begins_with_what_the_stream_holds(tmp_path):
    cluster = cluster_over(tmp_path, shards=1)
    log = cluster.bus.open("orders")
    put_batch(log, b"gone", b"gone")
    put_batch(log, b"there", keys=[b"k"])
    log.trim(2)
    cluster.sent = 1
    leader(cluster)
    cluster.settle()
    cluster.check()
    assert cluster.told(cluster.streams.bad) == []
    assert len(cluster.subscribers["q/Orders"].got) == 1


def test_another_model_over_another_stream(tmp_path):
    cluster = cluster_over(tmp_path, shards=1)
    cluster.bus.create("orders2", ALL)
    leader(cluster)
    put_batch(cluster.bus.open("orders"), b"a", keys=[b"k"])
    put_batch(cluster.bus.open("orders2"), b"b", b"c", keys=[b"k", b"k"])
    cluster.settle()
    text = to_yaml(cluster.graph.project)
    with pytest.raises(ModelNotReplaceable, match="Stream 'orders3' does not exist"):
        cluster.ask("replace", {"model": text.replace("stream: orders", "stream: orders3")})
    assert cluster.ask("replace", {"model": text.replace("stream: orders", "stream: orders2")}).ok
    cluster.settle()
    assert [block for block, _ in cluster.subscribers["q/Orders"].got] == [1, 2, 3]
    assert cluster.told(cluster.streams.bad) == []  # records of the other stream have the same offsets


def test_a_stream_that_became_shorter_is_an_error_after_a_while(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL)
    engine = engine_over(tmp_path)
    put_batch(engine.bus.open("orders"), b"a", b"b")
    engine.settle()
    inputs = inputs_of(engine.bus, engine.streams, engine.graph)
    runtime, log = VirtualRuntime(), engine.bus.open(engine.streams.sequence)
    ends = dict.fromkeys(inputs.logs, 5)
    ahead = Sequencer(log, inputs, runtime, SequencerOptions(), replace(engine.sequencer.position, ends=ends))
    ahead.lead()
    for _ in range(11):
        ahead.step()
        runtime.advance(0.5)
    with pytest.raises(LogShortened, match="orders"):
        ahead.step()


@pytest.mark.parametrize("at", ["", ".S", ".B"])
def test_a_gap_that_came_while_no_engine_ran_is_the_same_for_all(tmp_path, at):
    cluster = cluster_over(tmp_path, persist_to=tmp_path / "snapshots")
    first = leader(cluster)
    feed(cluster, 0, b"a", b"b")
    cluster.settle()
    assert cluster.ask("persist").ok
    first.kill()
    feed(cluster, 0, b"gone", b"gone")
    feed(cluster, 0, b"c")
    cluster.sent -= 2
    list(cluster.recorder.records("orders/0", 0, 1 << 62))
    cluster.bus.open("orders/0").trim(4)
    second = cluster.node("second").start()
    if at:
        second.kill_at(at, skip=1 if at == ".S" else 0)  # the first is its mark
        cluster.until(lambda: not second.is_alive)
    cluster.start("third")
    cluster.settle()
    cluster.check()
    (gap,) = cluster.told(cluster.streams.bad)
    assert (gap["block"], gap["reason"], gap["window"]) == (3, "gap", "orders/0 offset 2")


@pytest.mark.timeout(600)
@pytest.mark.soak
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_happens_to_the_engines(tmp_path_factory, data):
    seed = data.draw(st.integers(0, 2**16))
    cluster = cluster_over(
        tmp_path_factory.mktemp("records"), server=data.draw(st.booleans()), seed=seed, persist_to=None
    )
    for name in "ab":
        cluster.start(name)
    fates = Fates(cluster, data.draw, FEW)
    sequence = [1, 1]
    for _ in range(data.draw(st.integers(1, 6))):
        shard = data.draw(st.integers(0, 1))
        values = data.draw(st.lists(st.sampled_from([b"a", b"\xff", "é".encode()]), min_size=1, max_size=4))
        feed(cluster, shard, *values, sequence=sequence[shard])
        if data.draw(st.booleans()):  # the publisher did not hear of it, and sends it again
            log = cluster.bus.open(f"orders/{shard}")
            put_batch(log, *values, keys=[b"k"] * len(values), producer=PRODUCER, sequence=sequence[shard])
        sequence[shard] += len(values)
        fates.strike()
        cluster.advance(data.draw(st.sampled_from([0.0, 0.1, 0.7])))
    fates.end()
    cluster.settle()
    cluster.check()
    assert [bad["block"] for bad in cluster.told(cluster.streams.bad)] == cluster.oracle().bad


def test_names_of_inputs_say_which_stream_it_was(tmp_path):
    engine = engine_over(tmp_path, shards=2)
    inputs = inputs_of(engine.bus, engine.streams, engine.graph).inputs
    assert [each.name.rpartition(":")[0] for each in inputs] == ["q/Orders@orders/0", "q/Orders@orders/1"]
