"""Workers: snapshots that are never newer than the output, and state that can be thrown away at any time."""

from __future__ import annotations

import gc
import sys
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_engine import LocalEngine
from run_worlds import frame, input_log, put, recent_graph, run_all, sums_graph, trade

from lockstep.engine.compute.workers import HotWorkers
from lockstep.engine.errors import BusNotShared, LogTooShort, ModelMismatch, SnapshotDamaged
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.runtime.output.spool import Spool
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.snapshots import format as snapshot_format
from lockstep.engine.runtime.snapshots.format import HEAD, Head, decode_head, encode_head, seal, unseal
from lockstep.engine.runtime.worker.shard_worker import ShardWorker, check_host
from lockstep.engine.spark import worker_process
from lockstep.errors import FormatTooNew, ServerUnreachable
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing import FaultyBus

WANTED = frozenset({"q/in", "q/sums"})


@pytest.fixture
def engine(tmp_path):
    engine = LocalEngine(sums_graph(), WANTED, tmp_path)
    send(engine, *range(1, 9))
    return engine


def send(engine: LocalEngine, *ids: int) -> None:
    """One entry for each."""
    for one in ids:
        engine.publishers["q/in"].publish([trade(one, "AB"[one % 2])])
        engine.settle()


def worker_of(engine: LocalEngine, stored=None) -> ShardWorker:
    return ShardWorker(engine.setup, 0, engine.bus, engine.runtime, stored or {})


def publish(engine: LocalEngine) -> None:
    while engine.publisher.step():
        pass


def block_of(pages, engine: LocalEngine) -> int:
    return decode_head(pages[HEAD], engine.graph.fingerprint, "here").position.block


# Snapshots


def test_a_page_comes_back_and_any_changed_byte_is_found():
    page = seal(b"state")
    assert unseal(page, "here") == b"state"
    for at in range(len(page)):
        damaged = page[:at] + bytes([page[at] ^ 1]) + page[at + 1 :]
        with pytest.raises(SnapshotDamaged, match="here"):
            unseal(damaged, "here")


def test_a_worker_holds_no_copy_of_the_pages_that_it_handed_out(engine):
    engine.run_batch(4)
    engine.run_batch(8)
    engine.run_batch(8)
    (stored,) = engine.stored
    assert len(stored) > 2
    held = {name: sys.getrefcount(stored[name]) for name in stored if name != HEAD}
    assert set(held.values()) == {2}, held  # where it is stored, and the call that counts


def test_a_head_comes_back_with_its_marks():
    marks = (
        SequencePosition(ends={"q/a": 1, "q/b": 2}, block=3),
        SequencePosition(ends={"q/a": 4, "q/b": 4}, block=9, clients={"aa": 2}),
    )
    head = Head("model", marks[1], marks, {"q/in": (8, "0123456789abcdef")})
    assert decode_head(encode_head(head), "model", "here") == head


def test_a_head_of_another_model_or_a_newer_version_is_refused(monkeypatch):
    head = Head("model", SequencePosition(), (), {})
    with pytest.raises(ModelMismatch, match="made for model, this is other"):
        decode_head(encode_head(head), "other", "here")
    with monkeypatch.context() as patch:
        patch.setattr(snapshot_format, "HEAD_VERSION", snapshot_format.HEAD_VERSION + 1)
        newer = encode_head(head)
    with pytest.raises(FormatTooNew):
        decode_head(newer, "model", "here")


def test_a_head_of_the_version_before_is_read_and_one_of_older_ones_refused(monkeypatch):
    head = Head("model", SequencePosition(), (), {})
    with monkeypatch.context() as patch:
        patch.setattr(snapshot_format, "HEAD_VERSION", 3)
        before = encode_head(head)
        patch.setattr(snapshot_format, "HEAD_VERSION", 2)
        older = encode_head(head)
    assert decode_head(before, "model", "here") == head
    with pytest.raises(SnapshotDamaged, match="of version 2, which is too old"):
        decode_head(older, "model", "here")


def test_a_worker_refuses_a_damaged_page(engine):
    engine.run_batch(4)
    engine.run_batch(5)
    stored = engine.stored[0]
    assert set(stored) > {HEAD}
    for name, page in stored.items():
        with pytest.raises(SnapshotDamaged):
            worker_of(engine, {**stored, name: page[:-1] + bytes([page[-1] ^ 1])})


def test_a_snapshot_is_stored_only_when_its_output_is_published(engine):
    # Given a publisher that lags
    worker = worker_of(engine)
    for number in range(4):
        assert worker.run(number, number + 1, dict) == {}
    # When it has published a part
    engine.publisher.step()
    assert engine.published() == 1
    # Then the first snapshot may be stored, and no newer one
    pages = worker.run(4, 5, dict)
    assert block_of(pages, engine) == 1
    # And the next one is taken then, and has to wait in its turn
    assert worker.run(5, 6, dict) == {}
    publish(engine)
    later = worker.run(6, 7, dict)
    assert block_of(later, engine) == 6 <= engine.published()


def test_a_snapshot_that_waited_is_that_of_its_time(engine):
    # Given pages that were taken at entry 2 and stored at entry 6
    worker = worker_of(engine)
    worker.run(0, 2, dict)
    publish(engine)
    for number in range(2, 6):
        pages = worker.run(number, number + 1, dict)
        if pages:
            break
    publish(engine)
    stored = {name: page for name, page in pages.items() if page is not None}
    before = engine.out("q/sums")
    # Then a worker made from them replays the rest, and gives the same
    engine.restart()
    engine.stored, engine.committed = [stored], 6
    engine.run_batch(8)
    assert engine.out("q/sums")[: len(before)] == before
    news = [event for _, events in engine.out("q/sums") for event in events if event.opcode != Opcode.DELETE]
    assert [event.values[1] for event in news] == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]


def test_pages_of_groups_that_are_gone_are_removed(tmp_path):
    # Given more groups than a page holds, all of which leave the window but the last
    engine = LocalEngine(recent_graph(3), frozenset({"q/sums"}), tmp_path)

    def row(number: int, time: int) -> Event:
        return Event(Opcode.INSERT, Flag.NORMAL, (number, f"S{number}", 1.0, time))

    engine.publishers["q/in"].publish([row(number, 0) for number in range(4_200)])
    run_all(engine)
    engine.publishers["q/in"].publish([row(4_200, 0)])
    run_all(engine)
    before = {name for name in engine.stored[0] if name.startswith("q/sums")}
    for number in (4_201, 4_202, 4_203):
        engine.publishers["q/in"].publish([row(number, 100)])
        run_all(engine)
    # Then the first page is no longer stored, and a restart knows what is left
    assert {name for name in engine.stored[0] if name.startswith("q/sums")} < before
    engine.restart()
    engine.publishers["q/in"].publish([Event(Opcode.INSERT, Flag.NORMAL, (4_204, "S4203", 1.0, 100))])
    run_all(engine)
    assert engine.out("q/sums")[-1][1][0].values == ("S4203", 2.0)


def test_snapshots_are_taken_no_more_often_than_asked(engine):
    engine.restart(snapshot_every_s=1e9)
    engine.run_batch(4)
    engine.run_batch(8)
    assert engine.stored == [{}]


fates = st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 2), st.booleans())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(fates, max_size=8))
def test_no_snapshot_is_ever_newer_than_the_output(steps):
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(sums_graph(), WANTED, Path(folder))
        send(engine, *range(1, 13))
        for size, is_committed, published, is_killed in steps:
            engine.run_batch(min(engine.committed + size, 12), commit=is_committed, publish=False)
            for _ in range(published):
                engine.publisher.step()
            if engine.stored[0]:
                assert block_of(engine.stored[0], engine) <= engine.published()
            if is_killed:
                engine.restart()
        engine.restart()
        engine.run_batch(12)
        assert [number for number, _ in engine.out("q/sums")] == list(range(1, 13))


# State that is thrown away


def test_replaying_what_is_published_writes_nothing(engine):
    engine.run_batch(6, commit=False)
    engine.restart()
    spool = Spool(engine.setup.spool(0))
    worker = worker_of(engine)
    worker.run(6, 6, dict)
    assert spool.fill().files == 0
    assert worker.position.number == 6
    worker.run(6, 8, dict)
    assert spool.fill().files == 1
    part = spool.part_with(7)
    assert part is not None
    assert (part.first, part.last) == (7, 8)


def test_what_spark_committed_and_nobody_published_is_computed_again(engine):
    # Given a batch that Spark counts as done, whose part was lost with the process
    engine.run_batch(5, publish=False)
    assert engine.published() == 0
    engine.restart()
    assert engine.published() == 5
    engine.run_batch(8)
    assert [number for number, _ in engine.out("q/in")] == list(range(1, 9))


@pytest.fixture
def workers():
    return HotWorkers(lambda url: open_bus(url, ThreadRuntime(), create=False))


def test_a_worker_goes_on_hot_where_it_is_and_is_rebuilt_elsewhere(engine, workers):
    asked: list[int] = []

    def stored():
        asked.append(len(asked))
        return {}

    # Given orders that follow each other, then one that was given before, then one after them
    for orders, loads in (([(0, 2), (2, 3)], 1), ([(3, 4)], 1), ([(3, 4)], 2), ([(6, 8)], 3)):
        workers.run(engine.setup, 0, orders, stored, lambda: None)
        assert len(asked) == loads
        publish(engine)
    assert [number for number, _ in engine.out("q/in")] == list(range(1, 9))


def test_on_spark_a_task_waits_for_a_bus_that_is_away(engine, monkeypatch):
    # Given one of Spark's processes, and a bus that does not answer at first
    bus = FaultyBus(open_bus(engine.setup.url, ThreadRuntime(), create=False))
    monkeypatch.setitem(worker_process._buses, engine.setup.url, bus)
    away = ServerUnreachable(server="here", reason="it is away")
    bus.plan.fail(away, 2, on="read")
    # When a task is to evaluate entries, then it does so once the bus answers, and does not fail
    worker_process.run_orders_patiently(engine.setup, 0, [(0, 8)], dict, lambda: None)
    worker_process.WORKERS.forget(engine.setup.folder)
    assert bus.plan.pending == 0
    publish(engine)
    assert [number for number, _ in engine.out("q/in")] == list(range(1, 9))


def test_a_worker_whose_pages_were_lost_is_not_used_again(engine, workers):
    # Given a worker that handed out pages, and a task that failed before Spark had stored them
    kept: dict[str, bytes] = {}
    stored_head = lambda: kept.get("head")  # noqa: E731
    handed_out: dict[str, bytes | None] = {}
    at = 0
    while not handed_out:
        handed_out = dict(workers.run(engine.setup, 0, [(at, at + 1)], dict, stored_head))
        publish(engine)
        at += 1
    (_, before) = next(iter(workers.held.values()))
    # When the next order comes, what is stored is not what the worker thinks: it is made anew
    workers.run(engine.setup, 0, [(at, at + 1)], dict, stored_head)
    assert next(iter(workers.held.values()))[1] is not before
    # And where the store has them, it goes on
    kept = {name: page for name, page in handed_out.items() if page is not None}
    workers.held = {(engine.setup.folder, 0): (engine.setup.incarnation, before)}
    workers.run(engine.setup, 0, [(at, at + 1)], dict, stored_head)
    assert next(iter(workers.held.values()))[1] is before


def test_another_start_of_the_engine_never_meets_an_old_worker(engine, workers):
    workers.run(engine.setup, 0, [(0, 4)], dict, lambda: None)
    old = Spool(engine.setup.spool(0))
    assert old.fill().files == 1
    engine.restart()
    workers.run(engine.setup, 0, [(4, 8)], dict, lambda: None)
    assert old.fill().files == 1
    assert Spool(engine.setup.spool(0)).fill().files == 2


def test_an_engine_that_computes_again_lets_the_old_state_go(engine, workers):
    workers.run(engine.setup, 0, [(0, 4)], dict, lambda: None)
    before = [weakref.ref(worker) for _, worker in workers.held.values()]
    for _ in range(3):
        engine.restart()
        workers.run(engine.setup, 0, [(0, 4)], dict, lambda: None)
        assert len(workers.held) == 1
    gc.collect()
    assert [worker() for worker in before] == [None]


def test_a_worker_that_failed_is_dropped_and_leaves_word(engine, workers):
    workers.run(engine.setup, 0, [(0, 4)], dict, lambda: None)
    input_log(engine, "q/in").trim(6)
    with pytest.raises(LogTooShort):
        workers.run(engine.setup, 0, [(4, 8)], dict, lambda: None)
    assert workers.held == {}
    failure = Spool(engine.setup.spool(0)).failure()
    assert isinstance(failure, LogTooShort)
    assert "test.p.q.in.I from offset 4 on, but it begins at 6" in str(failure)


def test_an_engine_stops_at_its_start_if_windows_need_what_is_gone(tmp_path):
    # Given a window that reads its rows from the log when they leave
    engine = LocalEngine(recent_graph(100), frozenset({"q/sums"}), tmp_path)
    for one in range(1, 6):
        engine.publishers["q/in"].publish([Event(Opcode.INSERT, Flag.NORMAL, (one, "A", 1.0, one))])
        run_all(engine)
    assert engine.stored[0]
    log = input_log(engine, "q/in")
    log.trim(log.bounds().next)
    with pytest.raises(LogTooShort) as told:
        engine.restart()
    assert told.value.params["window"] == "q/in"


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
def test_a_worker_on_another_host_does_not_make_a_bus_of_its_own(engine, tmp_path, kind):
    bus = engine.bus if kind == "memory" else open_bus(f"lmdb:{tmp_path / 'bus'}", engine.runtime)
    check_host(engine.setup, bus)
    with pytest.raises(BusNotShared, match="host elsewhere only"):
        check_host(replace(engine.setup, host="elsewhere"), bus)
    with pytest.raises(BusNotShared):
        ShardWorker(replace(engine.setup, host="elsewhere"), 0, bus, engine.runtime, {})


def test_a_worker_takes_large_histories_in_pieces(engine, monkeypatch):
    monkeypatch.setattr("lockstep.engine.runtime.worker.shard_worker._REPLAY_EVENTS", 3)
    worker = worker_of(engine)
    worker.run(8, 8, dict)
    # Three pieces
    assert Spool(engine.setup.spool(0)).fill().files == 3
    publish(engine)
    assert [number for number, _ in engine.out("q/in")] == list(range(1, 9))


def test_a_large_order_leaves_its_output_in_parts_that_can_be_published_before_it_ends(engine, monkeypatch):
    monkeypatch.setattr("lockstep.engine.runtime.worker.shard_worker.PART_EVENTS", 3)
    worker, spool = worker_of(engine), Spool(engine.setup.spool(0))
    noted: list[int] = []
    monkeypatch.setattr(Spool, "note", lambda _, progress: noted.append(progress.block))
    worker.run(0, 8, dict)
    # Three parts, and after each of them it says how far it is
    assert spool.fill().files == 3
    assert noted == [0, 3, 6, 8]
    publish(engine)
    assert [number for number, _ in engine.out("q/in")] == list(range(1, 9))


def test_the_output_is_the_same_however_an_order_is_divided(tmp_path, monkeypatch):
    found = []
    for events in (1, 2, 5, 1_000):
        monkeypatch.setattr("lockstep.engine.runtime.worker.shard_worker.PART_EVENTS", events)
        engine = LocalEngine(recent_graph(), frozenset({"q/recent", "q/sums"}), tmp_path / str(events))
        for one in range(1, 12):
            event = Event(Opcode.INSERT, Flag.NORMAL, (one, "AB"[one % 2], 1.5, one * 10**6))
            engine.publishers["q/in"].publish([event])
            engine.settle()
        worker = worker_of(engine)
        worker.run(0, 7, dict)
        worker.run(7, 11, dict)
        publish(engine)
        found.append([engine.out(window) for window in ("q/recent", "q/sums")])
    assert len(found[0][1]) > 8
    assert all(each == found[0] for each in found)


def test_the_collector_leaves_alone_what_stays_but_looks_at_everything_now_and_then():
    now = [0.0]
    collector = worker_process.Collector(lambda: now[0])
    try:
        collector.spare(is_fresh=True)
        assert gc.get_freeze_count() == 0
        collector.spare(is_fresh=False)
        assert gc.get_freeze_count() > 1_000
        now[0] = worker_process.WHOLE_S
        collector.spare(is_fresh=False)
        assert gc.get_freeze_count() == 0
        collector.spare(is_fresh=False)
        collector.spare(is_fresh=True)  # the state of another start goes
        assert gc.get_freeze_count() == 0
    finally:
        gc.unfreeze()


def test_raw_frames_and_clients_do_not_change_what_is_replayed(tmp_path):
    engine = LocalEngine(sums_graph(), WANTED, tmp_path)
    client = b"c" * 16
    for first in (1, 2, 2, 4):
        put(input_log(engine, "q/in"), frame([first, first + 1], client=client, first_id=first))
        run_all(engine)
        engine.restart()
    run_all(engine)
    assert [event.values[0] for _, events in engine.out("q/in") for event in events] == [1, 2, 3, 4, 5]
